import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedleak.data import Images


def some_images(labels=(0, 0, 1, 1, 1, 2), n_classes=3, **changes):
    y = torch.tensor(labels)
    x = torch.rand((len(y), 1, 2, 3), generator=torch.Generator().manual_seed(0))
    fields = {"name": "toy", "split": "train", "subset": False, "source": "made up", "licence": "none"}
    return Images(**{"x": x, "y": y, "classes": tuple("abcdefgh"[:n_classes])} | fields | changes)


def test_it_knows_its_shape_and_classes():
    images = some_images()
    assert (len(images), images.shape, images.n_classes) == (6, (1, 2, 3), 3)
    assert images.class_counts.tolist() == [2, 3, 1]
    unsorted = some_images((2, 0, 2, 0), n_classes=4)
    assert [unsorted.of_class(label).tolist() for label in range(4)] == [[1, 3], [], [0, 2], []]
    with pytest.raises(ValueError, match="not 4"):
        unsorted.of_class(4)


@pytest.mark.parametrize("x", [torch.arange(30).view(6, 5), 10 * torch.arange(-9.0, 9.0).view(6, 3)])
def test_texts_are_tokens_and_table_rows_have_any_range(x):
    samples = some_images(x=x)
    assert (samples.shape, samples.x.dtype) == (x.shape[1:], x.dtype)
    assert torch.equal(samples.take([5, 0]).x, x[[5, 0]])
    halves = torch.cat([half.x for half in samples.split_in_two(0)])
    assert torch.equal(halves.sort(0).values, x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.full((6, 3), float("nan"))}, "finite"),
        ({"x": torch.zeros(6, 1, 2, 3, dtype=torch.float64)}, "float32"),
        ({"x": torch.full((6, 1, 2, 3), 1.5)}, r"\[0, 1\]"),
        ({"x": torch.zeros(5, 1, 2, 3)}, "5 images"),
        ({"y": torch.tensor([0, 1, 2, 3, 0, 0])}, r"\[0, 3\)"),
    ],
)
def test_bad_fields_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        some_images(**changes)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"source": "elsewhere"}, True),
        ({"classes": ("a", "b", "z")}, False),
        ({"labels": (0, 0, 1, 1, 2, 2)}, False),
        ({"x": some_images().x.reshape(6, 1, 3, 2)}, False),
    ],
)
def test_digest_follows_pixels_labels_and_names_only(changes, same):
    digest = some_images().digest
    assert len(digest) == 12
    assert (some_images(**changes).digest == digest) is same


def test_take_keeps_order_and_marks_a_subset():
    images = some_images()
    taken = images.take([5, 0])
    assert taken.y.tolist() == [2, 0]
    assert torch.equal(taken.x, images.x[[5, 0]])
    assert taken.subset
    assert not images.take(torch.arange(6).flip(0)).subset
    assert images.take([0] * 6).subset
    assert len(images.take([])) == 0
    text = f"Images(toy/train, 2 of 1x2x3, 3 classes, subset, {taken.digest})"
    assert repr(pickle.loads(pickle.dumps(taken))) == text


@given(st.integers(0, 100), st.floats(0.1, 0.9))
def test_halves_are_disjoint_stratified_and_reproducible(seed, fraction):
    labels = torch.arange(60) % 3
    x = torch.arange(60).reshape(60, 1, 1, 1) / 60
    images = some_images(x=x, y=labels)
    first, second = images.split_in_two(seed, fraction)
    assert sorted([*first.x.flatten().tolist(), *second.x.flatten().tolist()]) == x.flatten().tolist()
    assert len(first) == round(60 * fraction)
    for count in first.class_counts.tolist():
        assert abs(count - 20 * len(first) / 60) < 1
    assert first.digest == images.split_in_two(seed, fraction)[0].digest
