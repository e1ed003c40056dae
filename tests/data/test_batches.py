import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedleak.data import Images, compose, draw

SIZES = {
    "batch_size": st.integers(1, 40),
    "n_classes": st.integers(2, 12),
    "trials": st.integers(1, 5),
    "seed": st.integers(0, 1000),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pool(counts):
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=seeded())]
    names = tuple(map(str, range(len(counts))))
    x = torch.zeros(len(y), 1, 1, 1)
    return Images(x, y, names, name="toy", split="train", subset=False, source="", licence="")


@given(**SIZES, steps=st.integers(1, 4))
def test_unbalanced_is_half_and_quarter_of_two_classes(batch_size, n_classes, trials, seed, steps):
    labels = compose("unbalanced", batch_size, n_classes, trials, seeded(seed), steps=steps)
    half, quarter = batch_size // 2, batch_size // 4
    major, minor = labels[..., :half], labels[..., half : half + quarter]
    for trial in range(trials):
        assert len(major[trial].unique()) <= 1
        assert len(minor[trial].unique()) <= 1
        assert not set(major[trial].unique().tolist()) & set(minor[trial].unique().tolist())


def test_classes_are_drawn_uniformly():
    labels = compose("unbalanced", 4, 5, 20_000, seeded())
    pairs = torch.bincount(labels[:, 0] * 5 + labels[:, 2], minlength=25).reshape(5, 5)
    assert pairs.diagonal().sum() == 0
    assert (pairs[~torch.eye(5, dtype=torch.bool)] - 1000).abs().max() < 150
    labels = compose("balanced", 100, 10, 1000, seeded())
    assert (torch.bincount(labels.flatten()) - 10_000).abs().max() < 500
    assert not (torch.bincount(labels[0], minlength=10) == 10).all()


def test_single_has_one_class_a_trial():
    labels = compose("single", 8, 10, 50, seeded(), steps=3)
    assert (labels == labels[:, :1, :1]).all()
    assert len(labels.unique()) == 10


@given(**SIZES)
def test_permuted_is_as_even_as_can_be(batch_size, n_classes, trials, seed):
    for row in compose("permuted", batch_size, n_classes, trials, seeded(seed)):
        counts = torch.bincount(row, minlength=n_classes)
        assert counts.max() - counts.min() <= 1


@given(st.lists(st.integers(1, 12), min_size=2, max_size=6), st.integers(0, 24), st.integers(0, 1000))
def test_drawn_images_have_their_labels_and_repeat_only_small_classes(counts, batch_size, seed):
    images = pool(counts)
    labels = torch.randint(len(counts), (4, 2, batch_size), generator=seeded(seed))
    drawn = draw(images, labels, seeded(seed))
    assert torch.equal(images.y[drawn], labels)
    assert torch.equal(drawn, draw(images, labels, seeded(seed)))
    for row, wanted in zip(drawn.flatten(0, 1), labels.flatten(0, 1), strict=True):
        for label, count in enumerate(counts):
            of_label = row[wanted == label]
            if len(of_label) <= count:
                assert len(of_label.unique()) == len(of_label)


def test_what_cannot_be_composed_or_drawn():
    wrong = ("two classes", "unbalanced", 2, 1), ("lopsided", "lopsided", 2, 2), ("batch_size", "single", 0, 2)
    for word, composition, size, classes in wrong:
        with pytest.raises(ValueError, match=word):
            compose(composition, size, classes, 2, seeded())
    for label, word in ((-1, "0 to 2"), (3, "0 to 2"), (1, "'1'")):
        with pytest.raises(ValueError, match=word):
            draw(pool([2, 0, 2]), torch.tensor([[0, label]]), seeded())
