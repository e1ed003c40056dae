import gzip
import struct

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)


RNG = np.random.default_rng(0)


def _idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def write_mnist():
    """Give the function that writes random digits in MNIST's format below a folder, and returns where."""
    return _write_mnist


def _write_mnist(root, inside="MNIST/raw", compress=False, count=20):
    target = root / inside
    target.mkdir(parents=True)
    for prefix in ("train", "t10k"):
        arrays = {
            f"{prefix}-images-idx3-ubyte": RNG.integers(256, size=(count, 28, 28)),
            f"{prefix}-labels-idx1-ubyte": np.arange(count) % 10,
        }
        for name, array in arrays.items():
            content = _idx(array.astype(np.uint8))
            if compress:
                (target / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (target / name).write_bytes(content)
    return target
