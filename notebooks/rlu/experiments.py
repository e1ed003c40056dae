"""RLU: the experiments. A trial is a function of its context, its seed and its setting.

Those on the forms of RLU, and on images and logits, stand in modules of their own; what all share in ``clients.py``.
"""

from notebooks.rlu.clients import CLIENTS, LR
from notebooks.rlu.experiments_choices import CHOICES, TABLE4_CHOICES, TABLE4_STRONG
from notebooks.rlu.experiments_deep import (
    RATES_CIFAR10,
    RATES_CIFAR100,
    REDUCED_CIFAR10,
    REDUCED_CIFAR100,
)
from notebooks.rlu.experiments_forms import TABLE5, TABLE5_CHOICES, VARIANTS
from notebooks.rlu.experiments_images import FIG3, NORMAL, PARTITIONS
from notebooks.rlu.experiments_one_step import ONE_STEP, ONE_STEP_LENET, VGG16_ELU
from notebooks.rlu.experiments_resnet import (
    ONE_STEP_RESNET50,
    TABLE2_RESNET50,
    TABLE4_CIFAR100,
)
from notebooks.rlu.experiments_schemes import TABLE4
from notebooks.rlu.experiments_tables import (
    NAMES,
    TABLE1,
    TABLE2,
    TABLE2_CIFAR10,
    TABLE2_CIFAR100,
)
from notebooks.rlu.experiments_training import (
    FIG1,
    FIG1_CIFAR100,
    FIG2,
    FIG2_CIFAR100,
    FIG2_TINY,
    TABLE3_VGG16,
    TARGETS,
    along_training,
)

__all__ = [
    "CHOICES",
    "CLIENTS",
    "FIG1",
    "FIG1_CIFAR100",
    "FIG2",
    "FIG2_CIFAR100",
    "FIG2_TINY",
    "FIG3",
    "LR",
    "NAMES",
    "NORMAL",
    "ONE_STEP",
    "ONE_STEP_LENET",
    "ONE_STEP_RESNET50",
    "PARTITIONS",
    "RATES_CIFAR10",
    "RATES_CIFAR100",
    "REDUCED_CIFAR10",
    "REDUCED_CIFAR100",
    "TABLE1",
    "TABLE2",
    "TABLE2_CIFAR10",
    "TABLE2_CIFAR100",
    "TABLE2_RESNET50",
    "TABLE3_VGG16",
    "TABLE4",
    "TABLE4_CHOICES",
    "TABLE4_CIFAR100",
    "TABLE4_STRONG",
    "TABLE5",
    "TABLE5_CHOICES",
    "TARGETS",
    "VARIANTS",
    "VGG16_ELU",
    "along_training",
]
