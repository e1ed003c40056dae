"""Experiments, their records, what the papers print, how the two stand to each other, and how pages show it.

Importing this makes the checkout's ``notebooks`` importable, wherever a notebook, the command or a worker starts.
"""

import sys

from fedleak import paths
from fedleak.experiments.claims import Claims
from fedleak.experiments.context import Context, trained_once
from fedleak.experiments.experiment import Experiment, grid, spawned
from fedleak.experiments.results import Number, Results
from fedleak.experiments.show import say, show, source

__all__ = [
    "Claims",
    "Context",
    "Experiment",
    "Number",
    "Results",
    "grid",
    "say",
    "show",
    "source",
    "spawned",
    "trained_once",
]

if str(paths.root()) not in sys.path:
    sys.path.append(str(paths.root()))
