"""MANDRAKE, also LOKI (Zhao et al. 2023): reconstruct all clients' images from the sum, by a module before the model.

A convolution copies the image into channels that only one client uses and sets the others to zero, so that the sum of
the next layer's gradients has each client's in other columns. That layer's units compare the mean brightness with
thresholds: the difference of two neighbouring units' gradients comes from images with a brightness between theirs.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from fedleak.attacks.images.ranges import Box, clip
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update

FRONT = ("front.conv.weight", "front.bins.weight", "front.back.weight")


class Front(nn.Module):
    """The module in front of one client's model: a convolution, bins, and a layer back to the shape ``(C, H, W)``.

    Thresholds ``[bins]`` are increasing mean brightnesses of the pixels in [0, 1]. `seed` is that of the last layer's
    weights, and the same for all clients.
    """

    def __init__(self, shape: tuple[int, int, int], client: int, clients: int, thresholds: Tensor, seed: int = 0):
        super().__init__()
        if not 0 <= client < clients:
            raise ValueError(f"clients are numbered 0 to {clients - 1}, got {client}")
        if len(thresholds) < 2 or bool((thresholds.diff() <= 0).any()):
            raise ValueError("two or more thresholds, increasing, make bins")
        channels, height, width = shape
        pixels, n_bins = height * width, len(thresholds)
        self.shape = shape
        self.conv = nn.Conv2d(channels, channels * clients, 3, padding=1, bias=False)
        self.bins = nn.Linear(channels * clients * pixels, n_bins)
        self.back = nn.Linear(n_bins, channels * pixels, bias=False)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.conv.weight.zero_()
            for c in range(channels):
                self.conv.weight[client * channels + c, c, 1, 1] = 1
            self.bins.weight.fill_(1 / (channels * pixels))
            self.bins.bias.copy_(-thresholds)
            # Equal columns: all active units of an image get the same gradient.
            self.back.weight.copy_(torch.randn(channels * pixels, 1, generator=generator).expand(-1, n_bins))

    def forward(self, x: Tensor) -> Tensor:
        """Map images to images of the same shape ``[B, C, H, W]``."""
        return self.back(self.bins(self.conv(x).flatten(1)).relu()).view(-1, *self.shape)


def fronted_model(
    model: nn.Module, shape: tuple[int, int, int], client: int, clients: int, thresholds: Tensor, seed: int = 0
) -> nn.Sequential:
    """Return one client's model: its ``front`` and the original ``model``, which is not copied; see `Front`."""
    front = Front(shape, client, clients, thresholds, seed).to(next(model.parameters()).device)
    return nn.Sequential(OrderedDict(front=front, model=model))


def thresholds(brightness: Tensor, bins: int = 256) -> Tensor:
    """Return `bins` thresholds: quantiles of a normal distribution that is fitted to some brightnesses ``[N]``."""
    quantile_levels = torch.arange(1, bins + 1, dtype=torch.float64, device=brightness.device) / (bins + 1)
    return (brightness.double().mean() + brightness.double().std() * torch.special.ndtri(quantile_levels)).float()


@attack(
    "MANDRAKE",
    goal="images",
    paper="zhao2023mandrake",
    equation="Sec. 4",
    needs={Need.ALL_GRADIENTS, Need.MODEL},
    summary="A module in front keeps the clients apart in the sum and sorts their images by brightness.",
    sees="aggregate",
    server="malicious",
    standalone_reason="the server would have to send another architecture, with a module in front of the model",
)
def reconstruct(aggregate: Update, model: nn.Module, *, client: int, box: Box = "pixels") -> Tensor:
    """Reconstruct one client's images from the sum of all clients' gradients, ``[filled bins, C, H, W]``.

    A bin with one image gives that image, a bin with several a weighted mean. The scale follows from the bin, whose
    middle is the mean brightness: a sum's bias gradient does not give it.

    `aggregate` is the sum of the clients' gradients, `model` any of their models, `client` is 0 … U - 1, and `box` is
    the range of the pixels, by default [0, 1], as for `fedleak.attacks.images.engine.invert`. Raises
    `WithheldParameter` if the gradient of the bins is not shared; `ValueError` if there is no such client, or the
    gradient is not of the model's shape.
    """
    front = model.get_submodule("front")
    assert isinstance(front, Front)
    channels, height, width = front.shape
    gradient = aggregate.gradient(FRONT[1]).detach().double()
    if gradient.shape != front.bins.weight.shape:
        raise ValueError(f"the bins' gradient has shape {tuple(gradient.shape)}, not {tuple(front.bins.weight.shape)}")
    clients = gradient.shape[1] // (channels * height * width)
    if not 0 <= client < clients:
        raise ValueError(f"clients are numbered 0 to {clients - 1}, got {client}")
    client_gradient = gradient.view(len(gradient), clients, channels, height, width)[:, client]
    # Unit k is active for each image brighter than its threshold; the last unit has no neighbour above it.
    differences = torch.cat([client_gradient[:-1] - client_gradient[1:], client_gradient[-1:]])
    largest_entries = differences.abs().amax(dim=(1, 2, 3))
    has_images = largest_entries > 1e-4 * largest_entries.max().clamp(min=1e-30)
    bin_edges = -front.bins.bias.detach().double()
    middles = torch.cat([(bin_edges[:-1] + bin_edges[1:]) / 2, bin_edges[-1:]])[has_images]
    images = differences[has_images]
    mean = images.mean(dim=(1, 2, 3))
    images = (images * (middles / mean.where(mean != 0, 1.0)).view(-1, 1, 1, 1)).float()
    # A bin with several images gives a mean with weights of both signs, which can leave the range.
    return clip("MANDRAKE", images, box)
