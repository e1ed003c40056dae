import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from fedleak.data import load

RNG = np.random.default_rng(0)


def jpegs(count, height=20, width=16):
    encoded = []
    for shade in range(count):
        buffer = io.BytesIO()
        Image.new("RGB", (width, height), (shade, 0, 255 - shade)).save(buffer, "JPEG")
        encoded.append(np.frombuffer(buffer.getvalue(), np.uint8))
    return {"blob": np.concatenate(encoded), "offsets": np.cumsum([0, *map(len, encoded)])}


def ten_names():
    return np.array(json.dumps([f"class {label}" for label in range(10)]))


def test_archive_without_splits_is_split_here_and_says_so(tmp_path):
    pixels = RNG.integers(256, size=(50, 32, 32, 3), dtype=np.uint8)
    fields = {"train_images": pixels, "train_labels": np.arange(50) % 10, "classes": ten_names()}
    np.savez(tmp_path / "svhn.npz", **fields)
    train, test = (load("svhn", split, root=tmp_path) for split in ("train", "test"))
    assert set(train.class_counts.tolist()) == {4}
    assert set(test.class_counts.tolist()) == {1}
    assert "our own" in train.source


def test_packed_archive_with_splits(tmp_path):
    labels = np.arange(20) % 10
    fields = {**jpegs(20), "labels": labels, "split": np.arange(20) // 10, "classes": ten_names()}
    np.savez(tmp_path / "cifar10_jpeg.npz", **fields)
    test = load("cifar10-jpeg", "test", root=tmp_path, size=8)
    assert (len(test), test.shape) == (10, (3, 8, 8))
    assert (test.x[:, 0].mean((1, 2)) * 255 - torch.arange(10, 20)).abs().max() < 3


def test_celeba_archive_leaves_out_faces_of_no_one_hair_colour(tmp_path):
    hair = np.tile([0, 1, 2, 3, 4, -1], 5)
    np.savez(tmp_path / "celeba.npz", **jpegs(30, 218, 178), hair=hair, male=np.arange(30) % 2)
    train = load("celeba", root=tmp_path)
    assert set(train.class_counts.tolist()) == {4}
    assert train.shape == (3, 178, 178)
    assert load("celeba-gender", root=tmp_path, crop=False, limit=2).shape == (3, 218, 178)


def corrupt_archives():
    good = {**jpegs(10), "labels": np.arange(10), "split": np.zeros(10), "classes": ten_names()}
    yield "not a zip file", b"not a zip file"
    for what, changes in {
        "labels": {"labels": np.arange(9)},
        "pickle": {"classes": np.array([{}], dtype=object)},
        "does not decode": {"blob": np.zeros_like(good["blob"])},
    }.items():
        buffer = io.BytesIO()
        np.savez(buffer, **(good | changes))
        yield what, buffer.getvalue()
    yield "cut off", buffer.getvalue()[:-200]


@pytest.mark.parametrize("content", [pytest.param(content, id=what) for what, content in corrupt_archives()])
def test_corrupt_archives_name_the_file(tmp_path, content):
    (tmp_path / "cifar10_jpeg.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"cifar10_jpeg\.npz is damaged"):
        load("cifar10-jpeg", root=tmp_path)
