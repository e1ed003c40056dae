"""Write and read a model's states as files that are named by their hash; see `fedleak.recording.folder`."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedleak.errors import extra
from fedleak.files import write_bytes

with extra("recordings"):
    from safetensors import SafetensorError
    from safetensors.torch import load, save

_DIGITS = 16


def place(folder: Path, name: str) -> Path:
    """Return the file of a state with this name in a run's folder."""
    return folder / "states" / f"{name}.safetensors"


def write_state(folder: Path, state: Mapping[str, Tensor]) -> str:
    """Write a state, unless it exists already, and return its name."""
    # Copies: safetensors rejects tied weights, which share memory. It does not keep the order of the names either.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    content = save(tensors, {"names": json.dumps(list(state))})
    name = hashlib.sha256(content).hexdigest()[:_DIGITS]
    if not place(folder, name).is_file():
        write_bytes(place(folder, name), content)
    return name


SCANNED_BYTES = 2**28
"""Size of the scanned states that stay in memory until they are read."""
_scanned: dict[tuple[Path, int, int], dict[str, Tensor]] = {}


def read_state(path: Path) -> dict[str, Tensor]:
    """Read a state; a `ValueError` if it is missing, or is not what was written."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    if (state := _scanned.get(_identify(path))) is not None:
        return dict(state)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest()[:_DIGITS] != path.stem:
        raise ValueError(f"{path} is not what was written: it is cut or changed")
    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return {name: tensors[name] for name in json.loads(header["__metadata__"]["names"])}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no state that fedleak wrote: {error or type(error).__name__}") from error


class Scan(NamedTuple):
    """What a state is of, without its tensors."""

    shapes: frozenset[tuple[str, torch.Size]]
    """Names and shapes; one number has one shape, as clients turn counters of shape () into arrays of one element."""
    odd: dict[str, str]
    """By name, how many entries of a tensor are NaN or infinite, if any are."""
    prints: dict[str, str]
    """By name, a hash of an odd tensor's content without NaN: an infinite attention mask does not change."""


def scan(path: Path) -> Scan:
    """Read a state and describe it; each file is read once, unless it changes."""
    return _scan(path, _identify(path) if path.is_file() else None)


def forget() -> None:
    """Free the memory of the states that were scanned."""
    _scanned.clear()


def _identify(path: Path) -> tuple[Path, int, int]:
    status = path.stat()
    return path, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=10_000)
def _scan(path: Path, identity: tuple[Path, int, int] | None) -> Scan:
    state = read_state(path)
    if identity is not None and identity[2] + sum(size for *_, size in _scanned) <= SCANNED_BYTES:
        _scanned[identity] = state
    counted = {name: int((~torch.isfinite(tensor)).sum()) for name, tensor in state.items()}
    odd = {name: f"{bad} of {state[name].numel()} entries of {name!r}" for name, bad in counted.items() if bad}
    sizes = ((name, tensor.shape if tensor.numel() > 1 else torch.Size()) for name, tensor in state.items())
    prints = {
        name: str(path) if state[name].isnan().any() else hashlib.sha256(_bytes(state[name])).hexdigest()
        for name in odd
    }
    return Scan(frozenset(sizes), odd, prints)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.flatten().view(torch.uint8).numpy().tobytes()
