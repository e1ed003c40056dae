import gzip
import hashlib
import pickle

import numpy as np
import pytest
import scipy.io
import torch
from mnist_files import idx, write_mnist
from PIL import Image
from torchvision import datasets
from torchvision.datasets.utils import calculate_md5

from fedleak.data import load, readers
from fedleak.data.catalogue import entry
from fedleak.errors import DataNotFound

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("inside", "compress", "canonical"),
    [(readers.MNIST_FOLDERS[0], True, True), (readers.MNIST_FOLDERS[1], False, False)],
)
def test_mnist_is_read_from_either_folder_and_completeness_is_reported(
    tmp_path, inside, compress, canonical, monkeypatch
):
    target = write_mnist(tmp_path, inside, compress)
    if canonical:
        read = gzip.open if compress else open
        official = {p.name.removesuffix(".gz"): read(p, "rb").read() for p in target.iterdir()}
        monkeypatch.setattr(readers, "MNIST_MD5", {n: hashlib.md5(c).hexdigest() for n, c in official.items()})
    monkeypatch.setenv("FEDLEAK_DATA", str(tmp_path))
    images = load("mnist", "test")
    assert (len(images), images.shape) == (20, (1, 28, 28))
    assert images.y.tolist() == [*range(10)] * 2
    assert images.subset is not canonical, "nobody may take other files for the whole set"
    assert str(tmp_path) not in images.source


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train-images-idx3-ubyte.gz", gzip.compress(bytes(5000))[:-12], "damaged"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(np.zeros(19, "u1"))), "19 labels"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(np.full(20, 10, "u1"))), "labels 10"),
    ],
    ids=lambda value: "content" if isinstance(value, bytes) else None,  # gzip's bytes hold the time
)
def test_corrupt_mnist_names_the_file(tmp_path, file, content, message):
    (write_mnist(tmp_path, compress=True) / file).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load("mnist", root=tmp_path)
    assert file in str(caught.value)


def write_cifar(root, monkeypatch):
    """Write ten images in CIFAR-10's layout, and make their checksums the published ones."""
    target = root / "cifar-10-batches-py"
    target.mkdir()
    batch = {"data": RNG.integers(256, size=(10, 3072), dtype=np.uint8), "labels": list(range(10))}
    contents = {"data_batch_1": batch, "test_batch": batch, "batches.meta": {"label_names": [*"abcdefghij"]}}
    for name, content in contents.items():
        (target / name).write_bytes(pickle.dumps(content))
    for where, name in (("train_list", "data_batch_1"), ("test_list", "test_batch")):
        monkeypatch.setattr(datasets.CIFAR10, where, [[name, calculate_md5(target / name)]])
    meta = datasets.CIFAR10.meta | {"md5": calculate_md5(target / "batches.meta")}
    monkeypatch.setattr(datasets.CIFAR10, "meta", meta)
    return batch


def test_cifar_layout_comes_before_the_archive(tmp_path, monkeypatch):
    batch = write_cifar(tmp_path, monkeypatch)
    (tmp_path / "cifar10.npz").write_bytes(b"not looked at")
    images = load("cifar10", root=tmp_path)
    assert torch.equal((images.x[3] * 255).round().byte().flatten(), torch.from_numpy(batch["data"][3]))
    assert not images.subset
    assert images.classes == tuple("abcdefghij")


def test_a_changed_cifar_file_is_never_unpickled(tmp_path, monkeypatch):
    write_cifar(tmp_path, monkeypatch)
    changed = tmp_path / "cifar-10-batches-py" / "test_batch"
    changed.write_bytes(b"cos\nsystem\n")
    with pytest.raises(ValueError, match="cifar-10-batches-py is damaged"):
        load("cifar10", root=tmp_path)


def test_svhn_layout(tmp_path, monkeypatch):
    path = tmp_path / "test_32x32.mat"
    pixels = RNG.integers(256, size=(32, 32, 3, 4), dtype=np.uint8)
    scipy.io.savemat(path, {"X": pixels, "y": np.array([[10], [1], [2], [9]])})
    monkeypatch.setitem(datasets.SVHN.split_list, "test", ["", path.name, calculate_md5(path)])
    images = load("svhn", "test", root=tmp_path)
    assert images.y.tolist() == [0, 1, 2, 9]
    assert images.n_classes == entry("svhn").n_classes
    assert torch.equal((images.x[1] * 255).round().byte(), torch.from_numpy(pixels[..., 1]).permute(2, 0, 1))
    with pytest.raises(DataNotFound):
        load("svhn", "train", root=tmp_path)


def write_celeba(root, monkeypatch):
    target = root / "celeba"
    (target / "img_align_celeba").mkdir(parents=True)
    names = [f"{number:06}.jpg" for number in range(1, 5)]
    for name in names:
        Image.new("RGB", (178, 218), (200, 0, 0)).save(target / "img_align_celeba" / name)
    attributes = ["Bald", "Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair", "Male"]
    values = ["1 -1 -1 -1 -1 1", "-1 -1 -1 -1 1 -1", "-1 1 1 -1 -1 -1", "-1 -1 -1 -1 -1 1"]
    rows = [f"{name} {value}" for name, value in zip(names, values, strict=True)]
    contents = {
        "list_attr_celeba.txt": ["4", " ".join(attributes), *rows],
        "list_eval_partition.txt": [f"{name} 0" for name in names],
        "identity_CelebA.txt": [f"{name} 1" for name in names],
        "list_bbox_celeba.txt": ["4", "image_id x", *(f"{name} 1" for name in names)],
        "list_landmarks_align_celeba.txt": ["4", "x", *(f"{name} 1" for name in names)],
    }
    for file, lines in contents.items():
        (target / file).write_text("\n".join(lines) + "\n")
    listed = [("", calculate_md5(target / file), file) for file in contents]
    monkeypatch.setattr(datasets.CelebA, "file_list", listed)


def test_celeba_layout_maps_attributes_to_hair_and_gender(tmp_path, monkeypatch):
    write_celeba(tmp_path, monkeypatch)
    hair = load("celeba", root=tmp_path)
    # The third face has two hair colours, the fourth none.
    assert [hair.classes[label] for label in hair.y] == ["Bald", "Gray"]
    assert hair.shape == (3, 178, 178)
    gender = load("celeba-gender", root=tmp_path, crop=False)
    assert [gender.classes[label] for label in gender.y] == ["Male", "Female", "Female", "Male"]
    assert gender.shape == (3, 218, 178)


def test_tiny_imagenet_layout(tmp_path):
    target = tmp_path / "tiny-imagenet-200"
    for wnid in ("n02", "n01"):
        (target / "train" / wnid / "images").mkdir(parents=True)
        Image.new("L", (64, 64), 9).save(target / "train" / wnid / "images" / f"{wnid}_0.JPEG")
    (target / "val" / "images").mkdir(parents=True)
    Image.new("RGB", (64, 64)).save(target / "val" / "images" / "val_0.JPEG")
    (target / "wnids.txt").write_text("n02\nn01\n")
    (target / "words.txt").write_text("n01\tgoldfish\nn02\tbullfrog\nn03\tother\n")
    annotations = target / "val" / "val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn02\t0\t0\t9\t9\n")
    train, test = (load("tiny-imagenet", split, root=tmp_path) for split in ("train", "test"))
    assert (train.classes, train.y.tolist(), test.y.tolist()) == (("goldfish", "bullfrog"), [0, 1], [1])
    assert train.subset
    annotations.write_text("val_0.JPEG\tn99\t0\t0\t9\t9\n")
    with pytest.raises(ValueError, match="val_annotations"):
        load("tiny-imagenet", "test", root=tmp_path)
