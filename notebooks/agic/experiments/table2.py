"""AGIC: Table II, attacks on FedAvg updates of several steps, up to ImageNet's size.

A trained ResNet-50 is not available offline: SqueezeNet 1.1 with published weights stands in for it, in the folder that
``FEDLEAK_DATA`` names.
"""

import dataclasses

from fedleak_book.experiments import Experiment, grid
from notebooks.agic.clients import CIFAR10, ENDED, EVAL, GIVEN, IMAGENET, LEVEL, PHOTOS
from notebooks.agic.clients import PRETRAINED
from notebooks.agic.experiments.table4 import one_update

FEDAVG = ["DLG-Adam", "InvG", "one batch", "AGIC"]
TABLE2 = Experiment(
    "table2",
    one_update,
    quick=grid(**PHOTOS, method=FEDAVG, iterations=30),
    paper=grid(**CIFAR10, method="DLG-Adam", iterations=500)
    + grid(**CIFAR10, method="InvG", iterations=1000)
    + grid(**CIFAR10, method=FEDAVG[2:], iterations=2000),
    trials=(1, 4),
    fixed=dict(batch_size=1, steps=4, lr=1e-4, schedule=LEVEL) | GIVEN,
    **ENDED,
)


NARROW = dict(data="cifar100", net="resnet20-1", side=32)
TABLE2_CIFAR100 = dataclasses.replace(  # a quarter of the channels: a simulated step takes a sixth of the time
    TABLE2,
    name="table2_cifar100",
    paper=grid(**NARROW, method=FEDAVG, iterations=30),
    trials=(1, 3),
    tables=("table2",),
)
TABLE2_IMAGENET = Experiment(
    "table2_imagenet",
    one_update,
    quick=grid(**PHOTOS, method=FEDAVG, iterations=20),
    paper=grid(**IMAGENET, net=PRETRAINED, method=FEDAVG, iterations=12),
    trials=(1, 3),
    tables="table2",
    fixed=dict(
        batch_size=1,
        steps=4,
        lr=1e-4,
        total_variation=0.1,
        trained="ImageNet",
        schedule=LEVEL,
    )
    | EVAL,
    **ENDED,
)
