"""Experiments, their records, the papers' printed values, and the comparison of the two.

Importing this makes the checkout's ``notebooks`` importable, wherever a notebook, the command or a worker starts.
"""

import sys

from fedleak_book import paths
from fedleak_book.experiments.claims import Claims
from fedleak_book.experiments.context import Context, trained_once
from fedleak_book.experiments.estimates import having
from fedleak_book.experiments.experiment import Experiment, grid, spawned
from fedleak_book.experiments.results import Number, Results

__all__ = ["Claims", "Context", "Experiment", "Number", "Results", "grid", "having", "spawned", "trained_once"]

if str(paths.root()) not in sys.path:
    sys.path.append(str(paths.root()))
