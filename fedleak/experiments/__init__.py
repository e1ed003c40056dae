"""Experiments, their records, what the papers print, and how the two stand to each other.

Importing this makes the checkout's ``notebooks`` importable, wherever a notebook, the command or a worker starts.
"""

import sys

from fedleak import paths
from fedleak.experiments.claims import Claims
from fedleak.experiments.context import Context, trained_once
from fedleak.experiments.experiment import Experiment, grid, spawned
from fedleak.experiments.results import Number, Results

__all__ = ["Claims", "Context", "Experiment", "Number", "Results", "grid", "spawned", "trained_once"]

if str(paths.root()) not in sys.path:
    sys.path.append(str(paths.root()))
