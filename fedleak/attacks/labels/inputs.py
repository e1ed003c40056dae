"""Read and check the inputs of label attacks: the head's gradients of an update, and auxiliary data."""

import torch
from torch import Tensor, nn

from fedleak.data import Images
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import Head, head


def head_gradient(update: Update, model: nn.Module) -> Tensor:
    """Return the mean gradient of the head's weights over one local step, ``[n, m]``, in double precision.

    Raises `WithheldParameter` if the client did not share it; `ValueError` if its shape is not that of the model's
    head, or an entry is NaN or infinite.
    """
    last = head(model)
    return fitting(update.gradient(last.weight).double(), last.weight, last.layer.weight)


def bias_gradient(update: Update, model: nn.Module) -> Tensor:
    """Return the mean gradient of the head's bias, ``[n]``, as `head_gradient`; `ValueError` also without a bias."""
    last = head_with_bias(model)
    return fitting(update.gradient(last.bias).double(), last.bias, last.layer.bias)


def whole_gradient(update: Update, model: nn.Module) -> Tensor:
    """Return the mean gradient of the head's weights with the bias' as last column, ``[n, m + 1]``; errors as there."""
    return torch.cat([head_gradient(update, model), bias_gradient(update, model)[:, None]], dim=1)


def head_with_bias(model: nn.Module) -> Head:
    """Return the model's head; raise `ValueError` if it has no bias."""
    last = head(model)
    if last.layer.bias is None:
        raise ValueError("the last layer has no bias, whose gradient this attack reads: use one that does not need it")
    return last


def row_sums(update: Update, model: nn.Module) -> Tensor:
    """Return each class's gradient g_i, the sum of its row in the head's weight gradient, ``[n]``."""
    return head_gradient(update, model).sum(dim=1)


def require_classes(aux: Images, n_classes: int) -> None:
    """Raise `ValueError` if auxiliary data have other classes than the model, or no sample of some class."""
    if not isinstance(aux, Images):
        raise ValueError(f"auxiliary data are labelled: pass fedleak.data.Images(x, y), got {type(aux).__name__}")
    if aux.n_classes != n_classes:
        raise ValueError(f"the auxiliary data have {aux.n_classes} classes, the model has {n_classes}")
    if not aux.class_counts.all():
        empty = aux.classes[int((aux.class_counts == 0).nonzero()[0])]
        raise ValueError(f"the auxiliary data hold no sample of class {empty!r}: give some of every class")
