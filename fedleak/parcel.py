"""A function of a notebook in a parcel for another process, or another machine: what is sent, and how it gets there.

A trial function of a notebook lives in no module that a worker could import. It is sent by value, with the values of
the notebook that it reads, with its cached functions (empty at first), and with its source, which
`fedleak.checkpoints` asks for. Data sets that the notebook has loaded are not sent: the worker loads them by name,
once, and compares checksums. What a notebook has made of a data set, say a part of it, is sent as it is.
"""

import functools
import io
import linecache
import pickle
import socket
import sys
from collections.abc import Callable, Hashable, Mapping
from types import FunctionType
from typing import Any

import cloudpickle
from dask.distributed import get_worker

from fedleak import data
from fedleak.data import Images
from fedleak.errors import DataNotFound

_loaded: dict[str, tuple[Hashable, ...]] = {}
"""How each data set was loaded that a worker can load by itself, by its checksum."""


def loadable(images: Images, name: str, split: str, root: str, options: Mapping[str, Any]) -> None:
    """Note that ``data.load(name, split, root=root or None, **options)`` gave these images: workers do the same.

    An empty `root` is what ``FEDLEAK_DATA`` names on the worker.
    """
    _loaded[images.digest] = (name, split, root, tuple(sorted(options.items())))


def packed(function: Callable[..., Any]) -> bytes:
    """Pickle a function of a notebook so that `unpacked` gives it back in another process, or on another machine."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(function)
    sources = {name: "".join(linecache.getlines(name)) for name in sorted(pickler.files)}
    return pickle.dumps((sources, file.getvalue()))


@functools.lru_cache(maxsize=2)
def unpacked(work: bytes) -> Callable[..., Any]:
    """Return the function; the same one for the same bytes, so that what it has cached is there for the next unit."""
    sources, function = pickle.loads(work)
    for name, text in sources.items():
        if text and not linecache.getlines(name):
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return pickle.loads(function)


class _Pickler(cloudpickle.Pickler):
    """cloudpickle that sends cached functions as functions, and data sets as the call that loads them."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.files: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Images) and value.digest in _loaded:
            return _load, (*_loaded[value.digest], value.digest, str(value.x.device))
        if isinstance(value, functools._lru_cache_wrapper) and not _importable(value):
            return _cached, (value.__wrapped__, value.cache_parameters())
        reduced = super().reducer_override(value)
        if isinstance(value, FunctionType) and reduced is not NotImplemented:
            self.files.add(value.__code__.co_filename)
        return reduced


def _importable(function: Any) -> bool:
    """Whether a worker finds this function in a module of its own."""
    module = function.__module__
    by_value = module == "__main__" or module in cloudpickle.list_registry_pickle_by_value()
    return not by_value and getattr(sys.modules.get(module), function.__qualname__, None) is function


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    return functools.lru_cache(**parameters)(function)


def _load(name: str, split: str, root: str, options: tuple[tuple[str, Any], ...], digest: str, device: str) -> Images:
    found = _load_once(name, split, root, options)
    if found.digest != digest:
        raise RuntimeError(
            f"{name}/{split} on worker {here()} is {found}; where the sweep was started, its checksum is {digest}"
        )
    return found.to(device)


@functools.cache
def _load_once(name: str, split: str, root: str, options: tuple[tuple[str, Any], ...]) -> Images:
    try:
        return data.load(name, split, root=root or None, **dict(options))
    except DataNotFound as error:
        raise DataNotFound(f"on worker {here()}: {error}") from None


def here() -> str:
    """Return which worker this is, or which machine."""
    try:
        return f"{get_worker().address} ({socket.gethostname()})"
    except ValueError:
        return socket.gethostname()
