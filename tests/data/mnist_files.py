"""Files in MNIST's format."""

import gzip
import struct

import numpy as np

RNG = np.random.default_rng(0)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype("u1").tobytes()


def write_mnist(root, inside="MNIST/raw", compress=False, count=20):
    """Write random digits below a folder, and return where."""
    target = root / inside
    target.mkdir(parents=True)
    for part in ("train", "t10k"):
        images, labels = idx(RNG.integers(256, size=(count, 28, 28))), idx(np.arange(count) % 10)
        for name, content in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            path = target / (f"{name}.gz" if compress else name)
            path.write_bytes(gzip.compress(content) if compress else content)
    return target
