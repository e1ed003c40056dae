"""GDBR's bridge: which layers it crosses, what auxiliary images tell of them, and the linear map across them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models import batch_dependent
from fedleak.models.chains import Link
from fedleak.models.inputs import forward, watched

Projection = Literal["paper", "one vector", "whitened"]
_RIDGES = torch.logspace(-12, 0, 25, dtype=torch.float64)


@dataclass(frozen=True)
class Features:
    """Statistics of the chain on auxiliary images (GDBR's Assumptions 1 and 2)."""

    inputs: Tensor
    """Inputs of the chain's first layer, ``[N, m]``."""
    outputs: Tensor
    """Mean output of its units, ``[k]``: of ``Wx`` where the unit is active, else 0, the paper's mean feature."""
    rates: tuple[Tensor, ...]
    """Share of the images for which a unit is active, one tensor for each layer but the last."""
    probabilities: Tensor
    """Mean softmax of the outputs, ``[n]``."""

    @cached_property
    def constant_direction(self) -> Tensor:
        """The ridge regression of 1 on the inputs, ``(x^T x + r)^-1 x^T 1`` ``[m]``: where samples look most alike.

        The ridge r is the one with the smallest leave-one-out error.
        """
        x = self.inputs
        if len(x) <= x.shape[1]:  # by the smaller Gram matrix
            values, left_vectors = torch.linalg.eigh(x @ x.T)
            good = values > values.max() * 1e-13
            values, left_vectors = values[good], left_vectors[:, good]
        else:
            values, right = torch.linalg.eigh(x.T @ x)
            good = values > values.max() * 1e-13
            values, left_vectors = values[good], (x @ right)[:, good] / values[good].sqrt()
        ones = left_vectors.sum(0)
        ridges, errors = _RIDGES.to(x.device) * values.max(), []
        for ridge in ridges:
            shrunk = values / (values + ridge)
            off = (1 - left_vectors @ (shrunk * ones)) / (1 - (left_vectors.square() @ shrunk).clamp(max=1 - 1e-9))
            errors.append(off.square().mean())
        chosen = ridges[torch.stack(errors).nan_to_num(torch.inf).argmin()]
        return x.T @ (left_vectors @ (ones / (values + chosen)))

    def vector(self, projection: Projection) -> Tensor:
        """Return the vector v that all rows of the gradient are projected on, scaled to ``mean(x . v) = 1``, ``[m]``.

        ``"one vector"``: the mean input. ``"whitened"``: the one that makes ``x . v`` as constant as can be. Raises
        `ValueError` for another projection, or if all inputs are zero.
        """
        mean = self.inputs.mean(0)
        if not mean.any() or projection not in ("one vector", "whitened"):
            raise ValueError(
                f"unknown projection {projection!r}" if mean.any() else "the auxiliary images' features are all zero"
            )
        v = mean if projection == "one vector" else self.constant_direction
        return v / (mean @ v)


@torch.no_grad()
def observe(model: nn.Module, links: Sequence[Link], images: Tensor, chunk: int = 1024) -> Features:
    """Run images ``[N, C, H, W]`` through the model once and keep what the bridge needs; running statistics stay.

    `links` are the chain from the layer whose gradient is used to the model's last. `chunk` images are run at a time,
    but all at once where a sample's output depends on its batch. Raises `ValueError` if there are no images, or
    features are NaN or infinite.
    """
    if len(images) == 0:
        raise ValueError("no auxiliary images")
    inputs: list[Tensor] = []
    total: dict[str, Tensor] = {}
    active: dict[str, Tensor] = {}

    below = {link.name: link for link in links[:-1]}

    def keep(name: str, x: Tensor, output: Tensor) -> None:
        link, flat = below[name], output.flatten(1).double()
        mask = flat > 0 if link.relu else torch.ones_like(flat, dtype=torch.bool)
        active[name] = active.get(name, 0) + mask.sum(0)
        if link is links[0]:
            inputs.append(link.vectors(x).double())
            product = flat if link.layer.bias is None else flat - link.layer.bias.double()
            total[name] = total.get(name, 0) + (product * mask).sum(0)

    with watched({name: link.layer for name, link in below.items()}, keep):
        pieces = [images] if batch_dependent(model) else images.split(chunk)
        logits = torch.cat([forward(model, piece).double() for piece in pieces])
    count = len(images)
    features = Features(
        inputs=torch.cat(inputs),
        outputs=total[links[0].name] / count,
        rates=tuple(active[link.name].double() / count for link in links[:-1]),
        probabilities=logits.softmax(1).mean(0),
    )
    if not (torch.isfinite(features.inputs).all() and torch.isfinite(features.probabilities).all()):
        raise ValueError("the model's features or outputs for the auxiliary images are NaN or infinite")
    return features


class Crossing(NamedTuple):
    """The linear map from the first layer's output gradient to that of the logits (Eqs. 18 and 19)."""

    matrix: Tensor
    """``[n, k]``"""
    deficient: tuple[str, ...]
    """Layers whose weight lacks full row rank, so that the pseudo-inverse replaces Eq. 9."""


def crossing(links: Sequence[Link]) -> Crossing:
    """Factorise the layers of a chain above the first, for any number of recoveries: the paper's way, all units active.

    Raises `ValueError` if a weight is NaN, infinite or zero (rank 0).
    """
    across, deficient = None, []
    for link in links[1:]:
        step, full = _left_inverse(_weight(link), link.name)
        if not full:
            deficient.append(link.name)
        across = step if across is None else step @ across
    assert across is not None
    return Crossing(across, tuple(deficient))


def masked_crossing(links: Sequence[Link], rates: Sequence[Tensor]) -> Crossing:
    """Cross all layers in one least-squares problem that knows how often each unit is active.

    The logits' gradient reaches a unit through the units above it, each open for a share q of the samples:
    ``grad a = W_2^T Q_2 W_3^T Q_3 … W_L^T grad z``. A unit's equation is weighted by its rate, so that a dead unit
    counts for nothing. `rates` are the shares of active samples, a tensor for each layer of the chain but the last.
    Raises `ValueError` if a weight is NaN, infinite or zero, or if all units of a layer are dead.
    """
    for link, rate in zip(links, rates, strict=False):
        if not rate.any():
            raise ValueError(f"no unit of {link.name!r} is active for any auxiliary image: no bridge crosses it")
    back = _weight(links[-1])
    for link, rate in zip(links[-2:0:-1], rates[:0:-1], strict=True):
        back = (back * rate) @ _weight(link)
    root = rates[0].sqrt()
    inverse, full = _left_inverse(back * root, links[-1].name)
    return Crossing(inverse * root, () if full else (links[-1].name,))


def _weight(link: Link) -> Tensor:
    weight = link.matrix()
    if not torch.isfinite(weight).all():
        raise ValueError(f"the weight of {link.name!r} is NaN or infinite")
    return weight


def _left_inverse(weight: Tensor, name: str) -> tuple[Tensor, bool]:
    """Return the matrix of Eq. 9, ``(W W^T)^-1 W``, and whether it exists; else the pseudo-inverse of ``W^T``.

    By a QR factorisation of W^T, which does not square the condition number as W W^T would.
    """
    out, into = weight.shape
    if not weight.any():
        raise ValueError(f"the weight of {name!r} is singular (rank 0): nothing passes through it")
    if out <= into:
        q, r = torch.linalg.qr(weight.T)
        sizes = r.diagonal().abs()
        if sizes.min() > sizes.max() * into * torch.finfo(weight.dtype).eps:
            return torch.linalg.solve_triangular(r, q.T, upper=True), True
    return torch.linalg.pinv(weight.T), False
