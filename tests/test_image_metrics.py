"""Image metrics by hand and by their defining properties."""

import pytest
import torch

from fedleak import metrics
from fedleak.models import build, count_parameters


def test_psnr_by_hand():
    truth = torch.full((2, 3, 4, 4), 0.5)
    found = truth.clone()
    found[0] += 0.1  # mean squared error 0.01: 20 dB
    torch.testing.assert_close(metrics.psnr(found, truth), torch.tensor([20.0, 100.0]))
    assert metrics.psnr(truth + 7, torch.ones_like(truth)).tolist() == [100, 100]  # pixels are taken into [0, 1]


def test_pairing_finds_a_permutation_even_under_noise():
    truth = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    noisy = (truth[order] + 0.05 * torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    assert torch.equal(metrics.paired(noisy, truth), noisy[order.argsort()])


def test_ssim_is_one_for_equal_images_and_falls_with_noise():
    truth = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(metrics.ssim(truth, truth), torch.ones(2))
    assert (metrics.ssim((truth + 0.3 * torch.randn_like(truth)).clamp(0, 1), truth) < 0.95).all()


def test_lpips_is_zero_for_equal_images_or_not_available():
    truth = torch.rand(2, 3, 32, 32)
    found = metrics.lpips(truth, truth)
    if found is None:
        pytest.skip("AlexNet's features are not at hand")
    assert found.tolist() == [0, 0]
    assert (metrics.lpips(1 - truth, truth) > 0).all()


def test_lpips_without_weights_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    metrics._perceptual.cache_clear()
    try:
        assert metrics.lpips(torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)) is None
    finally:
        metrics._perceptual.cache_clear()


def test_bad_pictures():
    with pytest.raises(ValueError, match=r"images are \[B, C, H, W\] both"):
        metrics.psnr(torch.rand(1, 3, 4, 4), torch.rand(2, 3, 4, 4))
    with pytest.raises(ValueError, match="NaN or infinite pixels"):
        metrics.psnr(torch.full((1, 3, 4, 4), torch.nan), torch.rand(1, 3, 4, 4))


def test_resnet20_4_is_the_papers():
    model = build("resnet20-4", (3, 32, 32), 10, seed=0)
    assert count_parameters(model) == 4_327_754
    assert len(list(model.parameters())) == 65
    assert sum(isinstance(m, torch.nn.Conv2d) for m in model.modules()) == 21
