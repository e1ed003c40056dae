"""Convolutions of many reconstructions beside PyTorch's own, with first and second derivatives."""

import pytest
import torch
from torch.nn.functional import conv2d

from fedleak.attacks.images import convolution


def derivatives(convolve, x, weight, directions):
    """Return the outputs, both gradients, and the derivatives of both gradients in some directions."""
    x, weight, grad = (t.clone().requires_grad_() for t in (x, weight, directions[0]))
    y = convolve(x, weight)
    gradients = torch.autograd.grad(y, [x, weight], grad, create_graph=True)
    return [y, *gradients, *torch.autograd.grad(gradients, [x, grad], directions[1:])]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    "geometry",
    [
        ([1, 1], [1, 1], [1, 1], 1),
        ([2, 1], [0, 2], [1, 1], 1),
        ([1, 1], [2, 1], [2, 1], 1),
        ([1, 2], [1, 1], [1, 1], 2),
    ],
    ids=["same", "stride", "dilation", "groups"],
)
def test_derivatives_are_those_of_each_reconstruction_alone(geometry, constant):
    stride, padding, dilation, groups = geometry
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * 3, 4, 7, 6, generator=generator, dtype=torch.float64)
    weight = torch.randn(1, 6, 4 // groups, 3, 3, generator=generator, dtype=torch.float64).repeat(2, 1, 1, 1, 1)

    def alone(x, weight):
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return torch.cat([conv2d(images, w, **how) for images, w in zip(x.chunk(2), weight, strict=True)])

    def together(x, weight):
        return convolution.convolve(x, weight, geometry, constant)

    directions = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in (alone(x, weight), x, weight)]
    torch.testing.assert_close(derivatives(together, x, weight, directions), derivatives(alone, x, weight, directions))
