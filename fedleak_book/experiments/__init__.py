"""Experiments: declared, run and recorded.

Importing this makes the checkout's ``notebooks`` importable, wherever a notebook, the command or a worker starts.
"""

import sys

from fedleak_book import paths
from fedleak_book.experiments.context import Context, trained_once
from fedleak_book.experiments.experiment import Experiment, OneSeed, SeedByRole, grid, spawned

__all__ = ["Context", "Experiment", "OneSeed", "SeedByRole", "grid", "spawned", "trained_once"]

if str(paths.root()) not in sys.path:
    sys.path.append(str(paths.root()))
