"""Recover images from the gradient of a fully connected first layer, without a search.

A unit's row of the weights' gradient is ``sum_i delta_i x_i``, and its bias' gradient ``sum_i delta_i``. Their quotient
is a mean of the images that pass the unit: for one image, the image itself (Geiping et al., NeurIPS 2020, Prop. 3.1).
In a batch, a unit that a single image passes gives that image (Pan et al., USENIX Security 2022).
"""

import torch
from torch import Tensor, nn

from fedleak.attacks.images.ranges import Box, clip, first_layer
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import input_shape

SAME = 1e-4
"""Two quotients that differ by less than this share of their length are of one image."""
ROUNDING = 1e-4
"""A bias' gradient below this share of the largest is rounding."""
AT_ONCE = 4096
"""Most units that are compared with each other, those with the largest gradients."""


@attack(
    "first layer",
    goal="images",
    paper="geiping2020invg",
    equation="Prop. 3.1",
    needs={Need.BELOW_HEAD_GRADIENT, Need.MODEL, Need.SAMPLE_COUNT},
    summary="A row of the first layer's gradient, divided by its bias' gradient, is an image.",
)
def reconstruct(
    update: Update, model: nn.Module, *, shape: tuple[int, ...] | None = None, box: Box = "pixels"
) -> Tensor:
    """Reconstruct the images that units of the first layer have to themselves, ``[images, C, H, W]``, at most B.

    An image counts as recovered if at least two units give it, because means of several images rarely agree; on an
    untrained network those of two images of one class may. What most units give comes first. `shape` is that of an
    image, by default the model's, and `box` the range of the pixels, by default [0, 1].

    Raises `WithheldParameter` if the layer's gradient is not shared; `ValueError` if the model begins with another
    layer, or the gradient does not fit.
    """
    shape = input_shape(model, shape)
    first = first_layer(model, shape, torch.zeros(()), torch.ones(()))
    if first is None or not isinstance(first.layer, nn.Linear) or first.layer.bias is None:
        raise ValueError("the model does not begin with a fully connected layer with a bias, which this attack reads")
    rows, sums = (
        fitting(update.gradient(name), name, model.get_parameter(name)).double()
        for name in map(first.parameter, ("weight", "bias"))
    )
    units = sums.abs().argsort(descending=True)[:AT_ONCE]
    units = units[sums[units].abs() > ROUNDING * sums.abs().max()]
    quotients = rows[units] / sums[units, None]
    lengths = quotients.norm(dim=1)
    alike = torch.cdist(quotients, quotients) < SAME * torch.maximum(lengths, lengths[:, None])
    sizes = alike.sum(1) * ~alike.tril(-1).any(1)  # of units with one image, the first
    largest = sizes.argsort(descending=True)[: update.samples]
    least = min(2, len(units))  # means of several images rarely agree
    images = quotients[largest[sizes[largest] >= least]].view(-1, *shape).to(first.layer.weight.dtype)
    return clip("first layer", images, box)
