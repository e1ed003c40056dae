"""The metrics, by hand and by their defining properties."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak.metrics import attack_success_rate, class_accuracy, counts, hellinger, instance_accuracy

COUNTS = st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any)


def test_golden_counts():
    assert counts(torch.tensor([0, 2, 2, 1, 2]), 4).tolist() == [1, 1, 3, 0]
    assert counts(torch.tensor([[0, 0], [1, 2]]), 3).tolist() == [[2, 0, 0], [0, 1, 1]]
    assert counts(torch.zeros(2, 3, 4, dtype=torch.long), 5).shape == (2, 3, 5)


def test_golden_attack_success_rate():
    # Extracted (2, 1, 1), true (3, 0, 1): min is 2 + 0 + 1 = 3 of 4 extracted.
    assert attack_success_rate(torch.tensor([2, 1, 1]), torch.tensor([3, 0, 1])).item() == 0.75
    # More labels extracted than there are: 2 right of 5 named.
    assert attack_success_rate(torch.tensor([3, 1, 1]), torch.tensor([1, 1, 0])).item() == 0.4


def test_golden_hellinger():
    # (1/2, 1/2) against (1, 0): 1 - sqrt(1/2 * 1) = 0.29289, its root 0.54120. Disjoint: 1.
    found = hellinger(torch.tensor([[1, 1], [0, 4]]), torch.tensor([[7, 0], [3, 0]]))
    torch.testing.assert_close(found, torch.tensor([0.5411961, 1.0], dtype=torch.float64), rtol=0, atol=1e-7)


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


def test_metrics_work_on_any_number_of_updates():
    a, b = torch.randint(1, 5, (2, 3, 6)), torch.randint(1, 5, (2, 3, 6))
    for metric in (attack_success_rate, hellinger):
        assert metric(a, b).shape == (2, 3)
        assert metric(a, b)[1, 2] == metric(a[1, 2], b[1, 2])


@pytest.mark.parametrize("metric", [attack_success_rate, hellinger])
@pytest.mark.parametrize(
    ("found", "truth", "message"),
    [
        ([1, 1], [1, 1, 0], "counts over 2 and 3 classes do not compare"),
        ([2, -1], [1, 0], "counts are not negative"),
        ([1, 0], [-1, 2], "counts are not negative"),
        ([0, 0], [1, 0], "a label list is empty"),
        ([1, 0], [0, 0], "a label list is empty"),
    ],
)
def test_bad_counts(metric, found, truth, message):
    with pytest.raises(ValueError, match=message):
        metric(torch.tensor(found), torch.tensor(truth))


def test_instance_and_class_accuracy_by_hand():
    truth, found = torch.tensor([[3, 1, 0, 0]]), torch.tensor([[1, 0, 2, 1]])
    assert instance_accuracy(found, truth).tolist() == [0.25]
    assert class_accuracy(found, truth).tolist() == [0.25]
    assert instance_accuracy(truth, truth).tolist() == [1.0]
    assert class_accuracy(truth, truth).tolist() == [1.0]
