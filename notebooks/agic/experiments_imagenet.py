"""AGIC: Tables II and IV and Fig. 7 on ImageNet's images of 224 x 224 pixels, for few iterations on few images.

An iteration on ResNet-50 takes a second or more on a processor. A trained ResNet-50 is not at hand: SqueezeNet 1.1 with
published weights stands in for it, in the folder that ``FEDLEAK_DATA`` names.
"""

import dataclasses

from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import MEAN
from notebooks.agic.experiments_gradients import METHODS
from notebooks.agic.clients import (
    CURVE,
    EVAL,
    LEVEL,
    PHOTOS,
    PRETRAINED,
    QUALITY,
    SCORES,
    inverted,
    on_the_way,
)
from notebooks.agic.experiments_updates import FEDAVG


def photographs(
    ctx, seeds, data, net, side, batch_size, steps, method, iterations, total_variation
):
    """An attack on one gradient, or on local steps, scored on the way and at the end; no images are kept."""
    sizes = dict(batch_size=batch_size, steps=steps, iterations=iterations)
    more = dict(snapshots=CURVE, total_variation=total_variation)
    x, images, right = inverted(ctx, seeds, data, net, side, method, **sizes, **more)
    for row in on_the_way(ctx, seeds, x, images, data, side, pictures=False):
        yield row | {"labels_right": right}


FULL = dict(data="imagenet", side=224)
ENDED = QUALITY | dict(
    by=("iteration", "final"), values=SCORES | dict(labels_right=MEAN)
)
STEADY = dict(schedule=LEVEL) | EVAL
TABLE4_IMAGENET = Experiment(
    "table4_imagenet",
    photographs,
    quick=grid(**PHOTOS, batch_size=1, method=METHODS, iterations=20),
    paper=grid(**FULL, net="resnet50", batch_size=1, method=METHODS, iterations=6),
    trials=(1, 3),
    tables=("table4", "fig7"),
    fixed=dict(steps=1, total_variation=1e-3, trained=0) | STEADY,
    **ENDED,
)
TABLE4_IMAGENET_FOURS = dataclasses.replace(
    TABLE4_IMAGENET,
    name="table4_imagenet_fours",
    quick=grid(**PHOTOS, batch_size=4, method=METHODS, iterations=5),
    paper=grid(**FULL, net="resnet50", batch_size=4, method=METHODS, iterations=4),
    trials=1,
    tables=("table4",),
)
TABLE2_IMAGENET = Experiment(
    "table2_imagenet",
    photographs,
    quick=grid(**PHOTOS, method=FEDAVG, iterations=20),
    paper=grid(**FULL, net=PRETRAINED, method=FEDAVG, iterations=12),
    trials=(1, 3),
    tables="table2",
    fixed=dict(batch_size=1, steps=4, lr=1e-4, total_variation=0.1, trained="ImageNet")
    | STEADY,
    **ENDED,
)
