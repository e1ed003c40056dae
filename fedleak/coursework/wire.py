"""Values between the checks and a submission's process: tensors and plain values, never pickled objects."""

import io
from typing import Any

import torch

LIMIT = 64 * 2**20
"""Largest answer, in bytes."""
LARGEST, ENTRIES = 5_000_000, 100_000
"""Most entries of a tensor, and of lists and dictionaries in all."""


def encode(value: Any) -> bytes:
    """Return a value as bytes that `decode` reads."""
    buffer = io.BytesIO()
    torch.save(plain(value), buffer)
    return buffer.getvalue()


def decode(data: bytes) -> Any:
    """Read a value; nothing is executed, whatever the bytes are. What `encode` did not write is a `ValueError`."""
    try:
        return plain(torch.load(io.BytesIO(data), weights_only=True))
    except Exception as error:
        raise ValueError("no readable answer") from error


def plain(value: Any, _left: list[int] | None = None) -> Any:
    """Return a copy of a value, its tensors detached and on the CPU; numpy's numbers become Python's.

    Anything but tensors, numbers, text, lists, tuples and dictionaries, or too much of them, is a `TypeError`.
    """
    left = [ENTRIES] if _left is None else _left
    left[0] -= 1
    if left[0] < 0:
        raise TypeError(f"a value with more than {ENTRIES:,} entries: return a tensor")
    if isinstance(value, torch.Tensor):
        if value.numel() > LARGEST:
            raise TypeError(f"a tensor with more than {LARGEST:,} entries")
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise TypeError(f"expected a plain tensor, got a {type(value).__name__} of layout {value.layout}")
        return value.detach().to("cpu", copy=True)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list | tuple):
        made = [plain(entry, left) for entry in value]
        return made if isinstance(value, list) else tuple(made)
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {key: plain(entry, left) for key, entry in value.items()}
    if type(value).__module__ == "numpy":
        return value.item() if getattr(value, "ndim", 1) == 0 else torch.from_numpy(value.copy())
    raise TypeError(f"expected tensors, numbers, text, lists or dictionaries, got a {type(value).__name__}")
