"""The metrics of labels and images, by hand and by their defining properties."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak import metrics
from fedleak.metrics import attack_success_rate, class_accuracy, counts, hellinger, instance_accuracy
from fedleak.metrics import label_number_accuracy as lnacc

COUNTS = st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any)


def test_golden_counts():
    assert counts(torch.tensor([0, 2, 2, 1, 2]), 4).tolist() == [1, 1, 3, 0]
    assert counts(torch.tensor([[0, 0], [1, 2]]), 3).tolist() == [[2, 0, 0], [0, 1, 1]]
    assert counts(torch.zeros(2, 3, 4, dtype=torch.long), 5).shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("metric", "found", "truth", "expected"),
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
def test_by_hand(metric, found, truth, expected):
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(metric(torch.tensor(found), torch.tensor(truth)), expected, rtol=0, atol=1e-7)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(found=COUNTS, truth=COUNTS)
def test_properties(found, truth):
    a, b = torch.tensor(found), torch.tensor(truth)
    listed = [i for i, c in enumerate(found) for _ in range(c)]
    left = list(truth)
    right = 0
    for label in listed:  # multiset intersection, label by label
        right += left[label] > 0
        left[label] -= left[label] > 0
    assert attack_success_rate(a, b).item() == pytest.approx(right / len(listed))
    assert attack_success_rate(a, a).item() == 1
    assert 0 <= hellinger(a, b) <= 1
    assert hellinger(a, b).item() == pytest.approx(hellinger(b, a).item(), abs=1e-12)
    assert hellinger(a, 3 * a).item() == pytest.approx(0, abs=1e-7)
    for metric in (attack_success_rate, hellinger):  # any number of updates
        many = metric(torch.stack([a, b]).expand(3, 2, 4), b.expand(3, 2, 4))
        assert many.shape == (3, 2)
        assert many[2].tolist() == [metric(a, b).item(), metric(b, b).item()]


@pytest.mark.parametrize(
    ("metric", "found", "truth", "message"),
    [
        *(
            (metric, *case)
            for metric in (attack_success_rate, hellinger)
            for case in (
                ([1, 1], [1, 1, 0], "counts over 2 and 3 classes do not compare"),
                ([2, -1], [1, 0], "counts are not negative"),
                ([1, 0], [-1, 2], "counts are not negative"),
                ([0, 0], [1, 0], "a label list is empty"),
                ([1, 0], [0, 0], "a label list is empty"),
            )
        ),
        (lnacc, [[1, 2]], [1, 0], "do not compare"),
        (lnacc, [-1, 0], [1, 0], "not negative"),
    ],
)
def test_bad_counts(metric, found, truth, message):
    with pytest.raises(ValueError, match=message):
        metric(torch.tensor(found), torch.tensor(truth))


# --- images --------------------------------------------------------------------------------------------------------


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


@pytest.mark.usefixtures("perceptual")
@pytest.mark.parametrize(("metric", "equal", "sign"), [(metrics.ssim, 1, -1), (metrics.lpips, 0, 1)])
def test_what_is_seen_of_equal_images_and_of_noisy_ones(metric, equal, sign):
    truth = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    noisy = (truth + 0.3 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    torch.testing.assert_close(metric(truth, truth), torch.full((2,), float(equal)))
    assert (sign * (metric(noisy, truth) - equal) > 0.01).all()


def test_lpips_without_weights_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    metrics._perceptual.cache_clear()
    try:
        assert metrics.lpips(torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)) is None
    finally:
        metrics._perceptual.cache_clear()


@pytest.mark.parametrize(
    ("found", "truth", "message"),
    [
        (torch.rand(1, 3, 4, 4), torch.rand(2, 3, 4, 4), r"images are \[B, C, H, W\] both"),
        (torch.full((1, 3, 4, 4), torch.nan), torch.rand(1, 3, 4, 4), "NaN or infinite pixels"),
    ],
)
def test_bad_pictures(found, truth, message):
    with pytest.raises(ValueError, match=message):
        metrics.psnr(found, truth)
