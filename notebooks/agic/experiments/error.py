"""AGIC: the error of what an attack takes for one batch."""

import copy
import dataclasses

import numpy as np
import torch

from fedleak.attacks.images import agic
from fedleak.federated import fedavg
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.agic.clients import CIFAR10, EVAL, OWN, PHOTOS, STORED, network, pool


def one_batch_error(ctx, seed, data, net, side, precision, steps, lr, batch_norm):
    """Relative error of Eq. 4 for local batches of one image, and its decadic logarithm."""
    images, model = pool(ctx, data, side), network(ctx, net, data, side, 0)
    if batch_norm != STORED:
        model = copy.deepcopy(model).train()
    generator = torch.Generator().manual_seed(seed)
    i = torch.randint(len(images), (steps, 1), generator=generator)
    x, y = images.x[i], images.y[i]
    if precision == "float64":
        model, x = copy.deepcopy(model).double(), x.double()
    error = agic.one_batch_error(fedavg(model, x, y, lr, "delta"), model, x, y)
    yield {"log_error": np.log10(error), "error": error, "images": len(images)}


# --- the error of what an attack takes for one batch ---
RATES = dict(
    precision=["float32", "float64"],
    steps=[2, 4, 8],
    lr=[1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2],
)


SINGLE_PRECISION = dict(precision="float32", steps=4, lr=[1e-4, 1e-2])


ERROR = Experiment(
    "error",
    one_batch_error,
    quick=grid(**PHOTOS, **RATES),
    paper=grid(**CIFAR10, **RATES),
    trials=(2, 10),
    values=dict(log_error=NUMBER, error=NUMBER),
    facts="images",
    fixed=dict(batch_size=1, trained=0) | EVAL,
)


ERROR_OWN = dataclasses.replace(
    ERROR,
    name="error_training_mode",
    quick=grid(**PHOTOS, **SINGLE_PRECISION),
    paper=grid(**CIFAR10, **SINGLE_PRECISION),
    tables=("error",),
    fixed=dict(batch_size=1, trained=0, batch_norm=OWN),
)
