"""GDBR: the experiments. A trial is a function of its context, its seed and its setting.

The lecture's section on a figure shows the rows of the experiment with its name; the evidence page has all of them.
"""

from notebooks.gdbr.experiments_choices import CHOICES, CHOICES_MNIST
from notebooks.gdbr.clients import (
    FORMS,
    LEVELS,
    MODES,
    NETS,
    PAIRS,
    SCHEMES,
    SIZES,
    TRUE,
    batch,
    chain_of,
    known_inputs,
    scores,
    sets,
    share,
    victims_inputs,
)
from notebooks.gdbr.experiments_features import FIG2
from notebooks.gdbr.experiments_figures import (
    FIG3,
    FIG4,
    FIG4_NORMALISED,
    FIG5A,
    FIG6,
    TWO,
)
from notebooks.gdbr.experiments_modes import (
    CHOICES_MODES,
    CHOICES_NORMS,
    CHOICES_RESNET,
    FIG6_MODES,
    FIG6_NORMS,
    FIG6_RESNET,
)
from notebooks.gdbr.experiments_scanned import (
    FIG2_CHOICES,
    FIG3_CHOICES,
    FIG3_MNIST,
    FIG4_CHOICES,
    FIG5A_CHOICES,
    FIG6_CHOICES,
)
from notebooks.gdbr.experiments_tables import (
    DUMMIES,
    TABLE1,
    TABLE2,
    compositions,
    recovered,
)

__all__ = [
    "CHOICES",
    "CHOICES_MNIST",
    "CHOICES_MODES",
    "CHOICES_NORMS",
    "CHOICES_RESNET",
    "DUMMIES",
    "FIG2",
    "FIG2_CHOICES",
    "FIG3",
    "FIG3_CHOICES",
    "FIG3_MNIST",
    "FIG4",
    "FIG4_CHOICES",
    "FIG4_NORMALISED",
    "FIG5A",
    "FIG5A_CHOICES",
    "FIG6",
    "FIG6_CHOICES",
    "FIG6_MODES",
    "FIG6_NORMS",
    "FIG6_RESNET",
    "FORMS",
    "LEVELS",
    "MODES",
    "NETS",
    "PAIRS",
    "SCHEMES",
    "SIZES",
    "TABLE1",
    "TABLE2",
    "TRUE",
    "TWO",
    "batch",
    "chain_of",
    "compositions",
    "known_inputs",
    "recovered",
    "scores",
    "sets",
    "share",
    "victims_inputs",
]
