"""The deeper networks: sizes that the papers print, shapes, bad input."""

import pytest
import torch
from torch import nn

from fedleak.models import build, count_parameters, head, set_norms


@pytest.mark.parametrize(
    ("name", "classes", "parameters"), [("vgg11_bn", 10, 28_149_514), ("resnet18", 100, 11_220_132)]
)
def test_the_numbers_behind_table_ii(name, classes, parameters):
    assert count_parameters(build(name, (3, 32, 32), classes, seed=0)) == parameters


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vgg13_bn", (1, 32, 32)),
        ("resnet34", (1, 28, 28)),
        ("resnet18", (3, 128, 128)),
        ("resnet18-imagenet", (1, 32, 32)),
        ("fcn3", (1, 28, 28)),
    ],
)
def test_shapes(name, shape):
    model = build(name, shape, 7, seed=0).eval()
    assert model(torch.rand(2, *shape)).shape == (2, 7)
    assert head(model).layer.out_features == 7


def test_small_images_get_the_small_stem():
    assert build("resnet18", (3, 32, 32), 5, seed=0).conv1.stride == (1, 1)
    assert build("resnet18", (3, 128, 128), 5, seed=0).conv1.stride == (2, 2)
    assert build("resnet18-imagenet", (3, 32, 32), 5, seed=0).conv1.stride == (2, 2)


def test_vgg_needs_32_pixels():
    with pytest.raises(ValueError, match="at least 32 x 32, got 28 x 28"):
        build("vgg11_bn", (1, 28, 28), 10, seed=0)


def test_resnet32_has_thirty_two_layers_and_the_papers_parameters():
    model = build("resnet32", (3, 32, 32), 10, seed=0)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 32
    # He et al. (2016, Table 6) print 0.46 M with shortcuts that have none; here two are convolutions with batch norm.
    assert count_parameters(model) == 464_154 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_batch_norm_is_set_to_its_mean_over_the_pieces():
    images, norm = torch.rand(150, 3, 4, 4, generator=torch.Generator().manual_seed(0)), nn.BatchNorm2d(3)
    model = nn.Sequential(norm)
    model(images + 7)  # forgotten
    for _ in range(2):
        assert set_norms(model, images) is model
        pieces = torch.stack([piece.transpose(0, 1).flatten(1).mean(1) for piece in images.split(100)])
        torch.testing.assert_close(norm.running_mean, pieces.mean(0))
        variances = torch.stack([piece.transpose(0, 1).flatten(1).var(1) for piece in images.split(100)])
        torch.testing.assert_close(norm.running_var, variances.mean(0))
        assert not norm.training
    assert not set_norms(nn.Sequential(nn.Dropout()), images).training
