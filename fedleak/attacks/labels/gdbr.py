"""GDBR, the gradient bridge (Zhang, Chow and Li, 2024): label counts from one layer's gradient below the last.

The gradient of one layer's weights gives the mean gradient of its outputs (Eq. 17), the layers above it lead to that of
the logits (Eqs. 18 and 19), and the mean softmax of auxiliary images to the counts (Eq. 21).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.bridge import Crossing, Features, Projection, crossing, masked_crossing, observe
from fedleak.attacks.labels.counts import whole_counts
from fedleak.attacks.registry import Need, attack
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import as_inputs, chain, input_shape

DUMMIES = 1000
"""Dummy images where there are no auxiliary ones: as many as the paper's auxiliary images."""


class Recovery(NamedTuple):
    """Label counts (Eq. 21) and how they came about; without an inverse Eq. 9 takes the pseudo-inverse."""

    counts: Tensor
    """``[n]``, not negative, with the sum of the update's samples."""
    estimates: Tensor
    """The same before rounding, ``[n]`` (Eq. 21)."""
    layer: str
    """The layer whose gradient was used."""
    deficient: tuple[str, ...]
    """Layers without full row rank: the pseudo-inverse stands for Eq. 9, and gives the smallest of many solutions."""
    zero_features: int
    """Units that are never active for the auxiliary images."""


@dataclass
class Bridge:
    """The bridge of one model, in the mode that the client uses, factorised once.

    It starts at the layer of this name, of which the gradient is used, "" being the one below the last. `shape` is that
    of one image, where the model does not say.

    Raises
    ------
    ValueError
        If the layer is not part of the chain that the model ends with, or the chain has no layer below the last.
    """

    model: nn.Module
    layer: str = ""
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        whole = chain(self.model, self.shape)
        start = whole.start(self.layer) if self.layer else len(whole.links) - 2
        if not 0 <= start < len(whole.links) - 1:
            raise ValueError(
                f"there is nothing to bridge from {self.layer or whole.links[-1].name!r}, the model's last layer: "
                f"{whole.end}"
            )
        self.links = whole.links[start:]
        self.layer = self.links[0].name

    def observe(self, images: Images | Tensor) -> Features:
        """Run auxiliary or dummy images through the model; see `fedleak.attacks.labels.bridge.observe`."""
        return observe(self.model, self.links, as_inputs(pixels(images), self.model))

    @cached_property
    def _all_active(self) -> Crossing:
        return crossing(self.links)

    def cross(self, features: Features, projection: Projection = "paper") -> Crossing:
        """Return the map across the layers above; the paper's is computed once."""
        if projection != "paper" and any((rate < 1).any() for rate in features.rates):
            return masked_crossing(self.links, features.rates)
        return self._all_active

    def first_step(self, gradient: Tensor, features: Features, projection: Projection = "paper") -> Tensor:
        """Return the mean gradient of the layer's activated outputs, ``[k]``, from that of its weights (Eq. 17).

        ``"paper"`` projects each row on the layer's own weights and divides by the mean output, a zero one being
        replaced by the mean of the others (Sec. V-D 4). The others project all rows on one vector and divide by the
        share of active images.

        Raises
        ------
        ValueError
            If all features are zero.
        """
        if not features.outputs.any():
            raise ValueError(f"all outputs of {self.layer!r} are zero for the auxiliary images: nothing to divide by")
        rows = gradient.double().flatten(1)
        if projection == "paper":
            outputs = features.outputs
            outputs = outputs.where(outputs != 0, outputs[outputs != 0].mean())
            return (rows * self.links[0].matrix()).sum(1) / outputs
        return rows @ features.vector(projection) / features.rates[0].where(features.rates[0] > 0, 1)

    def recover(self, update: Update, features: Features, projection: Projection = "paper") -> Recovery:
        """Recover the counts of an update with the layer's gradient, read by a projection; see `first_step`.

        Raises
        ------
        WithheldParameter
            If the layer's gradient is not shared.
        ValueError
            If it is not of the layer's shape, or NaN or infinite; if the features are all zero.
        """
        name = self.links[0].weight
        gradient = fitting(update.gradient(name).double(), name, self.links[0].layer.weight)
        across = self.cross(features, projection)
        logits = across.matrix @ self.first_step(gradient, features, projection)
        estimates = update.samples * (features.probabilities - logits)
        return Recovery(
            counts=whole_counts(estimates, update.samples),
            estimates=estimates,
            layer=self.layer,
            deficient=across.deficient,
            zero_features=int((features.rates[0] == 0).sum()),
        )


@dataclass(frozen=True)
class Prepared:
    """The bridge of one model with what auxiliary images show of it; made by `prepare`."""

    bridge: Bridge
    features: Features
    projection: Projection

    def recover_with_facts(self, update: Update) -> Recovery:
        """Recover the counts of an update, and say how; errors as for `Bridge.recover`."""
        return self.bridge.recover(update, self.features, self.projection)

    def recover(self, update: Update) -> Tensor:
        """Recover the counts ``[n]`` of an update; errors as for `Bridge.recover`."""
        return self.recover_with_facts(update).counts


def prepare(
    model: nn.Module,
    aux: Images | Tensor | None = None,
    *,
    layer: str = "",
    projection: Projection = "paper",
    pseudo_inverse: bool = True,
    seed: int = 0,
) -> Prepared:
    """Build the bridge across a model's upper layers, once for all updates; as for `recover_with_facts`.

    Without a name of the layer it starts at the one below the last.
    """
    aux = None if aux is None else pixels(aux)
    bridge = Bridge(model, layer, None if aux is None else tuple(aux.shape[1:]))
    if aux is None:
        aux = torch.randn(DUMMIES, *input_shape(model), generator=torch.Generator().manual_seed(seed))
    features = bridge.observe(aux)
    if not pseudo_inverse and (deficient := bridge.cross(features, projection).deficient):
        raise ValueError(
            f"singular weights: {', '.join(map(repr, deficient))} lacks full row rank, so that Eq. 9 has no "
            "inverse; choose a layer above it, or pass pseudo_inverse=True for the smallest solution"
        )
    return Prepared(bridge, features, projection)


def pixels(images: Images | Tensor) -> Tensor:
    """Return the images ``[N, C, H, W]`` alone."""
    return images.x if isinstance(images, Images) else images


def recover_with_facts(
    update: Update,
    model: nn.Module,
    aux: Images | Tensor | None = None,
    *,
    layer: str = "",
    projection: Projection = "paper",
    pseudo_inverse: bool = True,
    seed: int = 0,
) -> Recovery:
    """Recover the counts of one update, and say how: `recover` with the facts.

    Parameters
    ----------
    update, model
        It must share the gradient of one layer of the chain below the last. The model is in the client's mode.
    aux
        Auxiliary images, or dummy images drawn from N(0, 1) where there are none (Sec. V-D 3).
    layer
        Name of the layer whose gradient is used; "" is the highest one that the update shares.
    projection
        ``"paper"`` (Eq. 17), or ``"one vector"`` or ``"whitened"``, which are ours.
    pseudo_inverse
        Whether layers without full row rank are crossed by their pseudo-inverse, or are an error.
    seed
        Of the dummy images.

    Raises
    ------
    WithheldParameter
        If the update withholds the layer.
    ValueError
        If the model has no chain or the layer is not in it, a layer cannot be crossed, the features are all zero,
        or the gradient does not fit the model.
    """
    if not layer:
        shape = None if aux is None else tuple(pixels(aux).shape[1:])
        below = [link for link in chain(model, shape).links[:-1] if link.weight in update.tensors]
        layer = below[-1].name if below else ""
    made = prepare(model, aux, layer=layer, projection=projection, pseudo_inverse=pseudo_inverse, seed=seed)
    return made.recover_with_facts(update)


@attack(
    "GDBR",
    paper="zhang2024gdbr",
    equation="Eqs. 17-21",
    needs={Need.BELOW_HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL},
    summary="One layer's gradient below the last, and the weights above it, lead to the gradient of the logits.",
    takes={"aux"},
)
def recover(update: Update, model: nn.Module, aux: Images | Tensor | None = None, **options: Any) -> Tensor:
    """Recover the counts ``[n]``, which sum to ``update.samples``; options as for `recover_with_facts`."""
    return recover_with_facts(update, model, aux, **options).counts
