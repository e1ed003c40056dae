"""GDBR, the gradient bridge (Zhang, Chow and Li, 2024): label counts from one layer's gradient below the last.

The gradient of one layer's weights gives the mean gradient of its outputs (Eq. 17), the layers above it lead to that of
the logits (Eqs. 18 and 19), and the mean softmax of auxiliary images to the counts (Eq. 21).
"""

from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.bridge import Crossing, Features, Projection, crossing, masked_crossing, observe
from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import as_inputs, chain, input_shape

DUMMIES = 1000
"""Dummy images where there are no auxiliary ones: as many as the paper's auxiliary images."""


@dataclass
class Bridge:
    """The bridge of one model, in the mode that the client uses, factorised once.

    It starts at the layer of this name, of which the gradient is used, "" being the one below the last. `shape` is that
    of one image, where the model does not say. Raises `ValueError` if the layer is not part of the chain that the model
    ends with, or the chain has no layer below the last.
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
        x = images.x if isinstance(images, Images) else images
        return observe(self.model, self.links, as_inputs(x, self.model))

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
        share of active images. Raises `ValueError` if all features are zero.
        """
        if not features.outputs.any():
            raise ValueError(f"all outputs of {self.layer!r} are zero for the auxiliary images: nothing to divide by")
        rows = gradient.double().flatten(1)
        if projection == "paper":
            outputs = features.outputs
            outputs = outputs.where(outputs != 0, outputs[outputs != 0].mean())
            return (rows * self.links[0].matrix()).sum(1) / outputs
        return rows @ features.vector(projection) / features.rates[0].where(features.rates[0] > 0, 1)

    def recover(self, update: Update, features: Features, projection: Projection = "paper") -> Result:
        """Recover the counts of an update with the layer's gradient, read by a projection; see `first_step`.

        The result's ``facts`` are the ``estimates`` before rounding, ``[n]`` (Eq. 21), the ``layer`` whose gradient was
        used, the ``deficient`` layers, without full row rank, where the pseudo-inverse replaces Eq. 9 and gives the
        smallest of many solutions, and the number of ``zero_features``, units that are never active for the auxiliary
        images. Raises `WithheldParameter` if the layer's gradient is not shared; `ValueError` if it is not of the
        layer's shape, or NaN or infinite; if the features are all zero.
        """
        name = self.links[0].weight
        gradient = fitting(update.gradient(name).double(), name, self.links[0].layer.weight)
        across = self.cross(features, projection)
        logits = across.matrix @ self.first_step(gradient, features, projection)
        estimates = update.samples * (features.probabilities - logits)
        zero = int((features.rates[0] == 0).sum())
        facts = {"estimates": estimates, "layer": self.layer, "deficient": across.deficient, "zero_features": zero}
        return Result(round_to_total(estimates, update.samples), facts=facts)


@attack(
    "GDBR",
    paper="zhang2024gdbr",
    equation="Eqs. 17-21",
    needs={Need.BELOW_HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL},
    summary="One layer's gradient below the last, and the weights above it, lead to the gradient of the logits.",
    options={"aux"},
    prepares=True,
)
def prepare(
    model: nn.Module,
    aux: Images | Tensor | None = None,
    *,
    layer: str = "",
    projection: Projection = "paper",
    pseudo_inverse: bool = True,
    seed: int = 0,
) -> Prepared:
    """Prepare the attack: a bridge is built once for each layer that updates are read by.

    Raises `ValueError` if the model has no chain; and when an update is read, if the layer is not in the chain, a layer
    cannot be crossed, the features are all zero, or as `Bridge.recover` says.

    Parameters
    ----------
    model
        Before the round, in the client's mode.
    aux
        Auxiliary images, or dummy images drawn from N(0, 1) where there are none (Sec. V-D 3).
    layer
        Name of the layer whose gradient is used; "" is the highest one below the last that an update shares.
    projection
        ``"paper"`` (Eq. 17), or ``"one vector"`` or ``"whitened"``, which are ours.
    pseudo_inverse
        Whether layers without full row rank are crossed by their pseudo-inverse, or are an error.
    seed
        Random seed of the dummy images.
    """
    images = aux.x if isinstance(aux, Images) else aux
    shape = None if images is None else tuple(images.shape[1:])
    if images is None:
        images = torch.randn(DUMMIES, *input_shape(model), generator=torch.Generator().manual_seed(seed))
    below = chain(model, shape).links[:-1]

    @cache
    def built(name: str) -> tuple[Bridge, Features]:
        bridge = Bridge(model, name, shape)
        features = bridge.observe(images)
        if not pseudo_inverse and (deficient := bridge.cross(features, projection).deficient):
            raise ValueError(
                f"singular weights: {', '.join(map(repr, deficient))} lacks full row rank, so that Eq. 9 has no "
                "inverse; choose a layer above it, or pass pseudo_inverse=True for the smallest solution"
            )
        return bridge, features

    def read(update: Update) -> Result:
        shared = [link.name for link in below if link.weight in update.tensors]
        bridge, features = built(layer or (shared[-1] if shared else ""))
        return bridge.recover(update, features, projection)

    return Prepared("GDBR", read)


recover = once(prepare)
