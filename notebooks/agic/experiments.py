"""AGIC: the experiments. A trial is a function of its context, its seed or seeds, and its setting.

A trial of many seeds inverts all their updates in one optimisation. The lecture's section on a figure or table shows
the rows of the experiment with its name; the evidence page has all of them.
"""

from notebooks.agic.experiments_distance import DISTANCE
from notebooks.agic.experiments_error import ERROR, ERROR_OWN
from notebooks.agic.experiments_gradients import (
    CHOICES,
    CHOICES_TRAINING_MODE,
    METHODS,
    TABLE4,
    one_gradient,
)
from notebooks.agic.experiments_imagenet import (
    TABLE2_IMAGENET,
    TABLE4_IMAGENET,
    TABLE4_IMAGENET_FOURS,
)
from notebooks.agic.experiments_matching import RULES, TABLE5, TABLE6
from notebooks.agic.clients import CIFAR10, DESCENTS, LEVEL, network, pool
from notebooks.agic.experiments_updates import (
    FIG8,
    FIG8_TIME,
    TABLE2,
    TABLE2_CIFAR100,
    TABLE3,
)
from notebooks.agic.experiments_weights import FIG9, PLAIN, STATES, TABLE1, VARIANTS

__all__ = [
    "CHOICES",
    "CHOICES_TRAINING_MODE",
    "CIFAR10",
    "DESCENTS",
    "DISTANCE",
    "ERROR",
    "ERROR_OWN",
    "FIG8",
    "FIG8_TIME",
    "FIG9",
    "LEVEL",
    "METHODS",
    "PLAIN",
    "RULES",
    "STATES",
    "TABLE1",
    "TABLE2",
    "TABLE2_CIFAR100",
    "TABLE2_IMAGENET",
    "TABLE3",
    "TABLE4",
    "TABLE4_IMAGENET",
    "TABLE4_IMAGENET_FOURS",
    "TABLE5",
    "TABLE6",
    "VARIANTS",
    "network",
    "one_gradient",
    "pool",
]
