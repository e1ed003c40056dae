"""GDBR's bridge: statistics of layers on auxiliary images, and the linear map across these layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models.chains import Link
from fedleak.models.inputs import forward, watched
from fedleak.models.passes import places_at_once

Projection = Literal["paper", "one vector", "whitened"]
_RIDGES = torch.logspace(-12, 0, 25, dtype=torch.float64)


@dataclass(frozen=True)
class Features:
    """Statistics of a chain of layers on auxiliary images (GDBR's Assumptions 1 and 2)."""

    inputs: Tensor
    """Inputs of the chain's first layer, ``[N, m]``."""
    outputs: Tensor
    """Mean output of the first layer's units, ``[k]``: ``Wx`` where the unit is active, else 0 (the mean feature)."""
    rates: tuple[Tensor, ...]
    """Share of images for which each unit is active: one tensor per layer, without the last layer."""
    probabilities: Tensor
    """Mean softmax of the outputs, ``[n]``."""

    @cached_property
    def constant_direction(self) -> Tensor:
        """The direction ``[m]`` in which samples differ least: ridge regression of 1 on the inputs.

        It is ``(x^T x + r)^-1 x^T 1`` with the ridge r of the smallest leave-one-out error.
        """
        x = self.inputs
        if len(x) <= x.shape[1]:  # the smaller of the two Gram matrices
            values, left_vectors = torch.linalg.eigh(x @ x.T)
            is_nonzero = values > values.max() * 1e-13
            values, left_vectors = values[is_nonzero], left_vectors[:, is_nonzero]
        else:
            values, right = torch.linalg.eigh(x.T @ x)
            is_nonzero = values > values.max() * 1e-13
            values, left_vectors = values[is_nonzero], (x @ right)[:, is_nonzero] / values[is_nonzero].sqrt()
        ones = left_vectors.sum(0)
        ridges, errors = _RIDGES.to(x.device) * values.max(), []
        for ridge in ridges:
            shrunk = values / (values + ridge)
            leverages = (left_vectors.square() @ shrunk).clamp(max=1 - 1e-9)
            errors.append(((1 - left_vectors @ (shrunk * ones)) / (1 - leverages)).square().mean())
        chosen = ridges[torch.stack(errors).nan_to_num(torch.inf).argmin()]
        return x.T @ (left_vectors @ (ones / (values + chosen)))

    def vector(self, projection: Projection) -> Tensor:
        """Return the vector v ``[m]`` on which all rows of the gradient are projected, with ``mean(x . v) = 1``.

        It is the mean input for ``"one vector"``, and `constant_direction` for ``"whitened"``. Raises `ValueError` for
        another projection, or if all inputs are zero.
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
    """Compute the bridge's statistics from one pass of images ``[N, C, H, W]``; running statistics do not change.

    `links` are the chain from the layer whose gradient is used to the head. `chunk` images run at a time, or as
    many as `fedleak.models.passes.places_at_once` allows. Raises `ValueError` without images, or if features are NaN or
    infinite.
    """
    if len(images) == 0:
        raise ValueError("no auxiliary images")
    inputs: list[Tensor] = []
    output_sums: dict[str, Tensor] = {}
    active_counts: dict[str, Tensor] = {}

    below = {link.name: link for link in links[:-1]}

    def record_layer(name: str, x: Tensor, output: Tensor) -> None:
        link, flat = below[name], output.flatten(1).double()
        mask = flat > 0 if link.relu else torch.ones_like(flat, dtype=torch.bool)
        active_counts[name] = active_counts.get(name, 0) + mask.sum(0)
        if link is links[0]:
            inputs.append(link.vectors(x).double())
            product = flat if link.layer.bias is None else flat - link.layer.bias.double()
            output_sums[name] = output_sums.get(name, 0) + (product * mask).sum(0)

    with watched({name: link.layer for name, link in below.items()}, record_layer):
        places = places_at_once(model, images, chunk)
        logits = torch.cat([forward(model, images[place]).double() for place in places])
    count = len(images)
    features = Features(
        inputs=torch.cat(inputs),
        outputs=output_sums[links[0].name] / count,
        rates=tuple(active_counts[link.name].double() / count for link in links[:-1]),
        probabilities=logits.softmax(1).mean(0),
    )
    if not (torch.isfinite(features.inputs).all() and torch.isfinite(features.probabilities).all()):
        raise ValueError("the model's features or outputs for the auxiliary images are NaN or infinite")
    return features


class Crossing(NamedTuple):
    """The linear map from the first layer's output gradient to the logits' (Eqs. 18 and 19)."""

    matrix: Tensor
    """``[n, k]``"""
    deficient: tuple[str, ...]
    """Layers whose weight lacks full row rank, so that the pseudo-inverse replaces Eq. 9."""


def crossing(links: Sequence[Link]) -> Crossing:
    """Return the map across the layers above the first as in the paper, with all units active.

    Raises `ValueError` if a weight is NaN, infinite or zero (rank 0).
    """
    top = links[-1].layer.weight
    product = torch.eye(len(top), dtype=torch.double, device=top.device)
    deficient: list[str] = []
    for link in reversed(links[1:]):  # from the top, so that the product never has more rows than there are classes
        product, has_full_rank = _times_left_inverse(product, _weight(link), link.name)
        if not has_full_rank:
            deficient.insert(0, link.name)
    return Crossing(product, tuple(deficient))


def masked_crossing(links: Sequence[Link], rates: Sequence[Tensor]) -> Crossing:
    """Return the map across all layers as one least-squares problem, given how often each unit is active.

    The logits' gradient reaches a unit through the units above it, each active for a share q of the samples:
    ``grad a = W_2^T Q_2 W_3^T Q_3 … W_L^T grad z``. A unit's equation is weighted by its rate, so that a dead unit
    counts for nothing. `rates` are the shares of active samples, as `Features.rates`. Raises `ValueError` if a weight
    is NaN, infinite or zero, or if all units of a layer are dead.
    """
    for link, rate in zip(links, rates, strict=False):
        if not rate.any():
            raise ValueError(f"no unit of {link.name!r} is active for any auxiliary image: no bridge crosses it")
    backward = _weight(links[-1])
    for link, rate in zip(links[-2:0:-1], rates[:0:-1], strict=True):
        backward = (backward * rate) @ _weight(link)
    root = rates[0].sqrt()
    identity = torch.eye(len(backward), dtype=backward.dtype, device=backward.device)
    inverse, has_full_rank = _times_left_inverse(identity, backward * root, links[-1].name)
    return Crossing(inverse * root, () if has_full_rank else (links[-1].name,))


def _weight(link: Link) -> Tensor:
    weight = link.matrix()
    if not torch.isfinite(weight).all():
        raise ValueError(f"the weight of {link.name!r} is NaN or infinite")
    return weight


def _times_left_inverse(rows: Tensor, weight: Tensor, name: str) -> tuple[Tensor, bool]:
    """Return `rows` times the matrix of Eq. 9, ``(W W^T)^-1 W``, and True; if it does not exist, the pseudo-inverse.

    The second value is then False. A QR factorisation of W^T does not square the condition number as W W^T would. Its
    Q is applied to the few rows, never formed.
    """
    n_outputs, n_inputs = weight.shape
    if not weight.any():
        raise ValueError(f"the weight of {name!r} is singular (rank 0): nothing passes through it")
    if n_outputs <= n_inputs:
        reflectors, scales = torch.geqrf(weight.T)
        sizes = reflectors.diagonal().abs()
        if sizes.min() > sizes.max() * n_inputs * torch.finfo(weight.dtype).eps:
            solved = torch.linalg.solve_triangular(reflectors[:n_outputs].triu(), rows, upper=True, left=False)
            padded = torch.cat([solved.T, solved.new_zeros(n_inputs - n_outputs, len(rows))])
            return torch.ormqr(reflectors, scales, padded).T, True
    return rows @ torch.linalg.pinv(weight.T), False
