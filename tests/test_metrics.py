"""The metrics of labels and images, by hand and by their defining properties."""

import pytest
import torch

from fedleak import metrics
from fedleak.metrics import attack_success_rate, class_accuracy, counts, hellinger, instance_accuracy
from fedleak.metrics import label_number_accuracy as lnacc


def test_golden_counts():
    assert counts(torch.tensor([[0, 0], [1, 2]]), 3).tolist() == [[2, 0, 0], [0, 1, 1]]
    assert counts(torch.zeros(2, 3, 4, dtype=torch.long), 5).shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("metric", "guessed", "truth", "expected"),
    [
        # Extracted (2, 1, 1), true (3, 0, 1): min is 2 + 0 + 1 = 3 of 4 extracted.
        (attack_success_rate, [2, 1, 1], [3, 0, 1], 0.75),
        # More labels extracted than there are: 2 right of 5 named.
        (attack_success_rate, [3, 1, 1], [1, 1, 0], 0.4),
        # (1/2, 1/2) against (1, 0): 1 - sqrt(1/2 * 1) = 0.29289, its root 0.54120. Disjoint: 1.
        (hellinger, [[1, 1], [0, 4]], [[7, 0], [3, 0]], [0.5411961, 1.0]),
        (lnacc, [[2, 0, 2, 0], [0, 0, 0, 0]], [[2, 0, 1, 1], [0, 0, 0, 0]], [0.5, 1.0]),
        (instance_accuracy, [[1, 0, 2, 1], [3, 1, 0, 0]], [[3, 1, 0, 0]] * 2, [0.25, 1.0]),
        (class_accuracy, [[1, 0, 2, 1], [3, 1, 0, 0]], [[3, 1, 0, 0]] * 2, [0.25, 1.0]),
    ],
)
def test_by_hand(metric, guessed, truth, expected):
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(metric(torch.tensor(guessed), torch.tensor(truth)), expected, rtol=0, atol=1e-7)


# --- images --------------------------------------------------------------------------------------------------------


def test_psnr_by_hand():
    truth = torch.full((2, 3, 4, 4), 0.5)
    noisy = truth.clone()
    noisy[0] += 0.1  # mean squared error 0.01: 20 dB
    torch.testing.assert_close(metrics.psnr(noisy, truth), torch.tensor([20.0, 100.0]))
    with pytest.warns(UserWarning, match="clamped"):
        assert metrics.psnr(truth + 0.9, torch.ones_like(truth)).tolist() == [100, 100]


def test_pairing_finds_a_permutation_even_under_noise():
    truth = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    noisy = (truth[order] + 0.05 * torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    assert torch.equal(metrics.paired(noisy, truth), noisy[order.argsort()])


@pytest.mark.usefixtures("perceptual")
def test_lpips_sees_noise_and_nothing_between_equal_images():
    truth = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    noisy = (truth + 0.3 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    torch.testing.assert_close(metrics.lpips(truth, truth), torch.zeros(2))
    assert (metrics.lpips(noisy, truth) > 0.01).all()


def test_lpips_without_weights_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    metrics._perceptual.cache_clear()
    try:
        assert metrics.lpips(torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)) is None
    finally:
        metrics._perceptual.cache_clear()


def pair_of_images(shape, seed):
    """Smooth random images in [0, 1] and a noisy copy, clamped."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(*shape[:2], 5, 5, generator=generator)
    truth = torch.nn.functional.interpolate(coarse, size=shape[2:], mode="bicubic").clamp(0, 1)
    return (truth + 0.1 * torch.randn(shape, generator=generator)).clamp(0, 1), truth


@pytest.mark.parametrize("shape", [(2, 1, 11, 11), (1, 3, 12, 40)])
def test_ssim_equals_wang_et_al_of_scikit_image(shape):
    from skimage.metrics import structural_similarity  # it takes seconds to import

    noisy, truth = pair_of_images(shape, 0)
    how = dict(channel_axis=0, data_range=1.0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False)
    pairs = zip(noisy.double().numpy(), truth.double().numpy(), strict=True)
    expected = torch.tensor([structural_similarity(a, b, **how) for a, b in pairs])
    torch.testing.assert_close(metrics.ssim(noisy, truth).double(), expected.double(), atol=1e-6, rtol=0)


PIXELS = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
NORMALISED = (PIXELS - 0.1307) / 0.3081
OUTSIDE = [NORMALISED, PIXELS.clone().index_fill_(3, torch.tensor([0]), torch.nan)]


@pytest.mark.parametrize("truth", OUTSIDE)
def test_originals_outside_the_range_of_pixels_raise(truth):
    for metric in (metrics.psnr, metrics.ssim, metrics.lpips, metrics.paired):
        with pytest.raises(ValueError, match="pixels lie in"):
            metric(truth.nan_to_num(), truth)


def test_what_no_metric_compares_is_refused():
    pixels, counted, nan = torch.rand(1, 1, 12, 12), torch.tensor([1, 1]), torch.tensor([float("nan"), 1])
    for call in (
        *(lambda m=metric: m(counted, torch.tensor([1, 1, 0])) for metric in (attack_success_rate, hellinger, lnacc)),
        *(lambda m=metric: m(torch.tensor([2, -1]), counted) for metric in (attack_success_rate, hellinger, lnacc)),
        *(lambda m=metric: m(torch.zeros(2).long(), counted) for metric in (attack_success_rate, hellinger)),
        *(lambda m=metric: m(nan, counted) for metric in (instance_accuracy, lnacc)),
        *(lambda y=labels: counts(torch.tensor(y), 3) for labels in ([-1, 0], [3, 0], [0.0, 1.0], [True, False])),
        lambda: metrics.psnr(pixels, torch.rand(2, 1, 12, 12)),
        lambda: metrics.psnr(pixels * torch.nan, pixels),
        lambda: metrics.psnr(pixels, torch.zeros_like(pixels).byte()),
        lambda: metrics.ssim(pixels[..., :10], pixels[..., :10]),
        lambda: metrics.lpips(*torch.rand(2, 1, 2, 32, 32)),
    ):
        with pytest.raises(ValueError):  # noqa: PT011  # the type is the contract
            call()
    assert counts(torch.tensor([0, 2, 2], dtype=torch.uint8), 3).tolist() == [1, 0, 2]
    assert counts(torch.empty(0, dtype=torch.long), 3).tolist() == [0, 0, 0]
    empty = torch.rand(0, 3, 16, 16)
    assert metrics.psnr(empty, empty).shape == metrics.ssim(empty, empty).shape == (0,)


def test_a_slight_overshoot_is_clamped_in_silence(recwarn):
    overshoot = PIXELS + 0.2  # a fifth of the pixels are above 1
    assert torch.equal(metrics.psnr(overshoot, PIXELS), metrics.psnr(overshoot.clamp(0, 1), PIXELS))
    undone = NORMALISED * 0.3081 + 0.1307  # differs from the pixels by rounding alone
    assert (metrics.psnr(PIXELS, undone) > 90).all()
    assert not recwarn.list
