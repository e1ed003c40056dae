import pytest
import torch
from torchvision.transforms.v2.functional import resize

from fedleak.data import catalogue, load
from fedleak.data.readers import _resized
from fedleak.errors import DataNotFound


@pytest.mark.parametrize(
    ("name", "shape", "n_classes", "train", "test"),
    [
        ("mnist5k", (1, 28, 28), 10, 4000, 1000),
        ("photos", (3, 32, 32), 7, 700, 175),
        ("cldr", (32,), 10, 6000, 1500),
        ("synthetic", (3, 32, 32), 100, 4000, 4000),
    ],
)
def test_embedded_sets_are_balanced_and_reproducible(name, shape, n_classes, train, test):
    parts = {split: load(name, split) for split in ("train", "test")}
    for split, count in (("train", train), ("test", test)):
        images = parts[split]
        assert (len(images), images.shape, images.n_classes) == (count, shape, n_classes)
        assert set(images.class_counts.tolist()) == {count // n_classes}
        assert images.digest == load(name, split).digest
    if name != "synthetic":  # which has two halves, not one set
        assert len(load(name, "all")) == train + test
    seen = {image.numpy().tobytes() for image in parts["train"].x}
    assert not any(image.numpy().tobytes() in seen for image in parts["test"].x)


@pytest.mark.parametrize(("name", "count"), [("wine", 178), ("breast-cancer", 569)])
def test_tables_are_standardised(name, count):
    table = load(name, "all")
    assert len(table) == count
    assert table.x.dtype == torch.float32
    assert torch.allclose(table.x.mean(0), torch.zeros(table.shape), atol=1e-5)
    assert torch.allclose(table.x.std(0, correction=0), torch.ones(table.shape), atol=1e-5)
    assert [len(load(name, split)) for split in ("train", "test")] == [count - round(count / 5), round(count / 5)]


def test_synthetic_takes_any_shape_and_count():
    images = load("synthetic", shape=(1, 7, 5), n_classes=3, count=10, seed=1)
    assert (len(images), images.shape, images.n_classes) == (10, (1, 7, 5), 3)
    assert "synthetic" in images.source
    assert images.digest != load("synthetic", shape=(1, 7, 5), n_classes=3, count=10, seed=2).digest
    assert load("synthetic", n_classes=2, count=4, size=9).shape == (3, 9, 9)
    assert load("photos", size=(48, 64)).shape == (3, 48, 64)


@pytest.mark.parametrize("capability", ["AVX2", "DEFAULT"])
def test_resized_pixels_are_torchvisions(monkeypatch, capability):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    images = torch.randint(256, (2, 3, 48, 40), dtype=torch.uint8)
    for pixels in (images, images / 255):
        assert torch.equal(_resized(pixels, (32, 60)), resize(pixels, [32, 60], antialias=True))


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [("cifar_10", {}, "'cifar10'"), ("mnist5k", {"count": 3}, "count"), ("photos", {"size": 200}, "small")],
)
def test_what_cannot_be_asked_for(name, options, word):
    with pytest.raises(ValueError, match=word):
        load(name, **options)


def test_missing_data_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(DataNotFound, match="FEDLEAK_DATA"):
        load("mnist")
    monkeypatch.setenv("FEDLEAK_DATA", str(tmp_path))
    for name in (known.name for known in catalogue() if not known.embedded):
        with pytest.raises(DataNotFound, match="looked in"):
            load(name)
