"""GDBR, the gradient bridge (Zhang, Chow and Li, 2024): label counts from the gradient of a layer below the head.

The gradient of the layer's weights gives the mean gradient of its outputs (Eq. 17). The weights of the layers above
give that of the logits (Eqs. 18 and 19), and the mean softmax of auxiliary images the counts (Eq. 21).
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

N_DUMMY_IMAGES = 1000
"""Number of dummy images without auxiliary ones: as many as the paper's auxiliary images."""


@dataclass
class Bridge:
    """The bridge from one layer of a model to its logits, factorised once, in the mode that the client uses.

    `layer` is the name of the layer whose gradient is used, "" the one below the head; `shape` is that of one image,
    ``(C, H, W)``, if it does not follow from the model. Raises `ValueError` if the layer is not in the chain of layers
    that the model ends with, or no layer of it is below the head.
    """

    model: nn.Module
    layer: str = ""
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        full_chain = chain(self.model, self.shape)
        first_link = full_chain.start(self.layer) if self.layer else len(full_chain.links) - 2
        if not 0 <= first_link < len(full_chain.links) - 1:
            raise ValueError(
                f"there is nothing to bridge from {self.layer or full_chain.links[-1].name!r}, the model's last layer: "
                f"{full_chain.end}"
            )
        self.links = full_chain.links[first_link:]
        self.layer = self.links[0].name

    def observe(self, images: Images | Tensor) -> Features:
        """Run auxiliary or dummy images through the model; see `fedleak.attacks.labels.bridge.observe`."""
        x = images.x if isinstance(images, Images) else images
        return observe(self.model, self.links, as_inputs(x, self.model))

    @cached_property
    def _first_matrix(self) -> Tensor:
        return self.links[0].matrix()

    @cached_property
    def _all_active(self) -> Crossing:
        return crossing(self.links)

    def cross(self, features: Features, projection: Projection = "paper") -> Crossing:
        """Return the map from the layer's output gradient to the logits'; the paper's map is computed once."""
        if projection != "paper" and any((rate < 1).any() for rate in features.rates):
            return masked_crossing(self.links, features.rates)
        return self._all_active

    def first_step(self, gradient: Tensor, features: Features, projection: Projection = "paper") -> Tensor:
        """Return the mean gradient of the layer's activated outputs, ``[k]``, from its weights' gradient (Eq. 17).

        ``"paper"`` projects each row on the layer's weights and divides by the mean output; a zero output is replaced
        by the mean of the others (Sec. V-D 4). The other projections use one vector for all rows and divide by the
        share of active images. Raises `ValueError` if all features are zero.
        """
        if not features.outputs.any():
            raise ValueError(f"all outputs of {self.layer!r} are zero for the auxiliary images: nothing to divide by")
        rows = gradient.double().flatten(1)
        if projection == "paper":
            outputs = features.outputs
            outputs = outputs.where(outputs != 0, outputs[outputs != 0].mean())
            return (rows * self._first_matrix).sum(1) / outputs
        return rows @ features.vector(projection) / features.rates[0].where(features.rates[0] > 0, 1)

    def recover(self, update: Update, features: Features, projection: Projection = "paper") -> Result:
        """Recover the counts behind an update from the layer's gradient, with a projection as in `first_step`.

        The result's ``facts`` are the ``estimates`` before rounding, ``[n]`` (Eq. 21); the ``layer``; the ``deficient``
        layers, without full row rank, where the pseudo-inverse replaces Eq. 9 and gives the smallest of many solutions;
        and the number of ``zero_features``, units that are inactive for all auxiliary images. Raises
        `WithheldParameter` if the layer's gradient is not shared; `ValueError` if it has another shape, is NaN or
        infinite, or if all features are zero.
        """
        name = self.links[0].weight
        gradient = fitting(update.gradient(name), name, self.links[0].layer.weight)
        crossed = self.cross(features, projection)
        logits = crossed.matrix @ self.first_step(gradient, features, projection)
        estimates = update.samples * (features.probabilities - logits)
        n_zero = int((features.rates[0] == 0).sum())
        facts = {"estimates": estimates, "layer": self.layer, "deficient": crossed.deficient, "zero_features": n_zero}
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
    """Prepare GDBR, which builds a bridge once for each layer whose gradient it uses.

    Parameters
    ----------
    model
        The model before the round, in the client's mode.
    aux
        Auxiliary images; by default dummy images from N(0, 1) (Sec. V-D 3).
    layer
        Name of the layer whose gradient is used; by default the highest one below the head that an update shares.
    projection
        ``"paper"`` (Eq. 17), or our ``"one vector"`` or ``"whitened"``; see `Features.vector`.
    pseudo_inverse
        Whether layers without full row rank are crossed by their pseudo-inverse; otherwise they raise.
    seed
        Random seed of the dummy images.

    Raises
    ------
    ValueError
        The model has no chain of layers; in ``recover``: the layer is not in the chain or cannot be crossed, all
        features are zero, or as for `Bridge.recover`.
    WithheldParameter
        In ``recover``: the layer's gradient is not shared.
    """
    images = aux.x if isinstance(aux, Images) else aux
    if not isinstance(images, Tensor | None):
        raise ValueError(f"auxiliary data are images: pass a tensor or fedleak.data.Images, got {type(aux).__name__}")
    shape = None if images is None else tuple(images.shape[1:])
    if images is None:
        images = torch.randn(N_DUMMY_IMAGES, *input_shape(model), generator=torch.Generator().manual_seed(seed))
    links_below_head = chain(model, shape).links[:-1]

    @cache
    def build_bridge(name: str) -> tuple[Bridge, Features]:
        bridge = Bridge(model, name, shape)
        features = bridge.observe(images)
        if not pseudo_inverse and (deficient := bridge.cross(features, projection).deficient):
            raise ValueError(
                f"singular weights: {', '.join(map(repr, deficient))} lacks full row rank, so that Eq. 9 has no "
                "inverse; choose a layer above it, or pass pseudo_inverse=True for the smallest solution"
            )
        return bridge, features

    def read(update: Update) -> Result:
        shared = [link.name for link in links_below_head if link.weight in update.tensors]
        bridge, features = build_bridge(layer or (shared[-1] if shared else ""))
        return bridge.recover(update, features, projection)

    return Prepared("GDBR", read)


recover = once(prepare)
