"""Winograd's filtering beside autograd in double precision, and when a convolution stays direct."""

import importlib.util
import logging
import sys

import pytest
import torch
from torch.nn.functional import conv2d

from fedleak.attacks.images import convolution, winograd

BOUND = 1e-4


@pytest.fixture(params=["interpreted", "compiled"])
def transforms(request, monkeypatch):
    """Let the same transforms run as Python, where numba is not installed, or as compiled by it."""
    if request.param == "compiled":
        pytest.importorskip("numba")
        return
    monkeypatch.setitem(sys.modules, "numba", None)
    spec = importlib.util.find_spec("fedleak.attacks.images.winograd_kernels")
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    monkeypatch.setattr(winograd, "_kernels", lambda: kernels)
    monkeypatch.setattr(winograd, "is_available", lambda: True)


def tensors(height, width, runs=2, batch=2, inputs=5, outputs=7):
    generator = torch.Generator().manual_seed(height * width)
    x = torch.randn(runs * batch, inputs, height, width, generator=generator)
    weight = torch.randn(1, outputs, inputs, 3, 3, generator=generator).repeat(runs, 1, 1, 1, 1)
    return x, weight, generator


def derivatives(convolve, x, weight, directions):
    """Return the outputs, both gradients, and the derivatives of both gradients in some directions."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = convolve(x, weight)
    grad, *tangents = (d.to(x.dtype) for d in directions)
    grad.requires_grad_()
    gradients = torch.autograd.grad(y, [x, weight], grad, create_graph=True)
    return [y, *gradients, *torch.autograd.grad(gradients, [x, grad], tangents)]


def of_each(x, weight, **geometry):
    """Convolve by PyTorch's own operation, every reconstruction with its weights."""
    return torch.cat([conv2d(a, w, **geometry) for a, w in zip(x.chunk(len(weight)), weight, strict=True)])


def assert_near(found, expected):
    for f, e in zip(found, expected, strict=True):
        assert (f.double() - e).abs().max() <= BOUND * e.abs().max()


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("size", [(4, 8), (5, 3), (1, 6), (7, 10)])
def test_first_and_second_derivatives_are_those_of_double_precision(transforms, size, runs, weights):
    x, weight, generator = tensors(*size, runs=runs)
    y = of_each(x, weight, padding=1)
    directions = [torch.randn(t.shape, generator=generator) for t in (y, x, weight)]

    def fast(x, weight):
        return convolution._Winograd.apply(x, weight, winograd.from_weights(weight[:1]), weights)

    plain = derivatives(lambda x, w: of_each(x, w, padding=1), x.double(), weight.double(), directions)
    assert_near(derivatives(fast, x, weight, directions), plain)


def test_more_channels_than_are_transformed_at_a_time(transforms):
    x, weight, _ = tensors(5, 5, runs=1, batch=1, inputs=67, outputs=2)
    products = torch.bmm(winograd.from_images(x, 1), winograd.from_weights(weight).transpose(1, 2))
    assert_near([winograd.to_outputs(products, x.shape)], [conv2d(x.double(), weight[0].double(), padding=1)])


@pytest.mark.parametrize(
    ("geometry", "dtype", "constant"),
    [
        (([1, 1], [1, 1], [1, 1], 1), torch.float32, True),
        (([2, 2], [1, 1], [1, 1], 1), torch.float32, True),
        (([1, 1], [0, 2], [1, 1], 1), torch.float32, True),
        (([1, 1], [1, 1], [2, 2], 1), torch.float32, True),
        (([1, 1], [1, 1], [1, 1], 2), torch.float32, True),
        (([1, 1], [1, 1], [1, 1], 1), torch.float64, True),
        (([1, 1], [1, 1], [1, 1], 1), torch.float32, False),
    ],
)
def test_other_geometries_types_and_changing_weights_stay_direct(transforms, monkeypatch, geometry, dtype, constant):
    monkeypatch.setattr(convolution, "MIN_WINOGRAD_WORK", 1)
    monkeypatch.setattr(convolution, "measure_fastest_method", lambda *_: "all")
    stride, padding, dilation, groups = geometry
    x, weight, _ = tensors(6, 5, batch=1, inputs=16, outputs=4)
    x, weight, transformed = x.to(dtype), weight[:, :, : 16 // groups].contiguous().to(dtype), {}
    found = convolution.convolve(x, weight, geometry, constant, transformed)
    assert bool(transformed) == (geometry == convolution.SAME_3X3 and dtype == torch.float32 and constant)
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    assert_near([found], [of_each(x.double(), weight.double(), **settings)])


def test_weights_that_changed_are_transformed_again(transforms, monkeypatch):
    monkeypatch.setattr(convolution, "MIN_WINOGRAD_WORK", 1)
    monkeypatch.setattr(convolution, "measure_fastest_method", lambda *_: "images")
    x, weight, _ = tensors(4, 4, runs=1, batch=1, inputs=16, outputs=2)
    transformed = {}
    for _ in range(2):
        found = convolution.convolve(x, weight, convolution.SAME_3X3, True, transformed)
        assert_near([found], [of_each(x.double(), weight.double(), padding=1)])
        weight.mul_(-2)
    assert len(transformed) == 1


def test_the_method_is_measured_once(transforms):
    convolution.measure_fastest_method.cache_clear()
    sizes = (torch.Size([1, 16, 4, 4]), 2, 1, 1)
    method = convolution.measure_fastest_method(*sizes)
    assert method in ("direct", "images", "all")
    assert convolution.measure_fastest_method(*sizes) == method
    assert convolution.measure_fastest_method.cache_info().hits == 1
    convolution.measure_fastest_method.cache_clear()


def test_without_numba_convolutions_are_direct_and_one_line_is_logged(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "numba", None)
    winograd.is_available.cache_clear()
    x, weight, _ = tensors(32, 32, runs=1, batch=4, inputs=16, outputs=16)
    assert x.numel() * 16 >= convolution.MIN_WINOGRAD_WORK
    transformed = {}
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            found = convolution.convolve(x, weight, convolution.SAME_3X3, True, transformed)
    assert_near([found], [of_each(x.double(), weight.double(), padding=1)])
    assert not transformed
    assert [r.name for r in caplog.records] == [winograd.__name__]
    winograd.is_available.cache_clear()
