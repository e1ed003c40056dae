"""What a chapter's modules in ``notebooks/<name>/`` are made of: experiments, claims, and what its page shows of them.

Importing this makes the checkout's ``notebooks`` importable, wherever a notebook, the command or a worker starts.
"""

import sys

from fedleak import paths
from fedleak.chapters.claim import Claim, Claims
from fedleak.chapters.context import Context
from fedleak.chapters.experiment import Experiment, Rows, grid
from fedleak.chapters.page import Number, say, source
from fedleak.chapters.results import Results
from fedleak.chapters.weights import trained_once

__all__ = [
    "Claim",
    "Claims",
    "Context",
    "Experiment",
    "Number",
    "Results",
    "Rows",
    "grid",
    "say",
    "source",
    "trained_once",
]

if str(paths.root()) not in sys.path:
    sys.path.append(str(paths.root()))
