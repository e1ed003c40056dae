"""Values between the grader and a submission's process: JSON, tensors as their bytes; no pickled objects."""

import base64
import json
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LIMIT = 64 * 2**20
"""Largest message, in bytes."""
LARGEST, ENTRIES = 5_000_000, 100_000
"""Most entries of a tensor, and of lists and dictionaries in all."""
TYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Of the entries of a tensor, as PyTorch names them."""
_HEAD = struct.Struct("!Q")


def _packed(tensor: "torch.Tensor") -> dict[str, Any]:
    import torch

    raw = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return {"tensor": base64.b64encode(raw).decode(), "type": _type(tensor), "shape": list(tensor.shape)}


def _type(tensor: "torch.Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")


def encode(value: Any) -> bytes:
    """Return what `plain` returns as bytes, tuples as lists."""
    return json.dumps(value, default=_packed).encode()


def decode(data: bytes) -> Any:
    """Read a value; nothing is executed, whatever the bytes are. What `send` did not write is a `ValueError`."""
    try:
        return plain(json.loads(data, object_hook=_unpacked))
    except Exception as error:
        raise ValueError("no readable answer") from error


def _unpacked(entry: dict[str, Any]) -> Any:
    if "tensor" not in entry:
        return entry
    if entry["type"] not in TYPES:
        raise ValueError("a tensor of another type")
    import torch

    raw, kind = bytearray(base64.b64decode(entry["tensor"], validate=True)), getattr(torch, entry["type"])
    return (torch.frombuffer(raw, dtype=kind) if raw else torch.empty(0, dtype=kind)).reshape(entry["shape"])


def plain(value: Any, _entries_left: list[int] | None = None) -> Any:
    """Return a copy of a value, its tensors detached and on the CPU; numpy's numbers become Python's.

    Anything but tensors, numbers, text, lists, tuples and dictionaries, or too much of them, is a `TypeError`.
    """
    entries_left = [ENTRIES] if _entries_left is None else _entries_left
    entries_left[0] -= 1
    if entries_left[0] < 0:
        raise TypeError(f"a value with more than {ENTRIES:,} entries: return a tensor")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list | tuple):
        entries = [plain(entry, entries_left) for entry in value]
        return entries if isinstance(value, list) else tuple(entries)
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {key: plain(entry, entries_left) for key, entry in value.items()}
    import torch  # takes seconds, and a value without tensors needs none of it

    if isinstance(value, torch.Tensor):
        if value.numel() > LARGEST:
            raise TypeError(f"a tensor with more than {LARGEST:,} entries")
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise TypeError(f"expected a plain tensor, got a {type(value).__name__} of layout {value.layout}")
        if _type(value) not in TYPES:
            raise TypeError(f"expected real or whole numbers, got {value.dtype}")
        return value.detach().to("cpu", copy=True)
    if type(value).__module__ == "numpy":
        if getattr(value, "ndim", 1):
            return plain(torch.from_numpy(value.copy()), entries_left)
        if type(item := value.item()) in (bool, int, float, str):
            return item
    raise TypeError(f"expected tensors, numbers, text, lists or dictionaries, got a {type(value).__name__}")


def send(link: socket.socket, value: Any, until: float | None = None) -> None:
    """Send what `encode` takes; `TimeoutError` if not taken before `until` (of `time.monotonic`)."""
    data = encode(value)
    _wait(link, until)
    link.sendall(_HEAD.pack(len(data)) + data)


def receive(link: socket.socket, until: float | None = None) -> Any:
    """Wait for a value; `TimeoutError` after `until`, `EOFError` if nobody is there, `ValueError` for anything else."""
    (size,) = _HEAD.unpack(_read(link, _HEAD.size, until))
    if size > LIMIT:
        raise ValueError("too large an answer")
    return decode(_read(link, size, until))


def _read(link: socket.socket, size: int, until: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait(link, until)
        got = link.recv(min(size - len(data), 2**20))
        if not got:
            raise EOFError
        data += got
    return bytes(data)


def _wait(link: socket.socket, until: float | None) -> None:
    link.settimeout(None if until is None else max(until - time.monotonic(), 1e-3))
