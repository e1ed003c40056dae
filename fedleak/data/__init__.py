"""Data of clients: `load(name)` gives `Images`, `compose` and `draw` make batches of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedleak.data.catalogue import Entry, catalogue, title

if TYPE_CHECKING:
    from fedleak.data.batches import COMPOSITIONS, compose, draw
    from fedleak.data.images import Images
    from fedleak.data.sources import Finding, check, load

__all__ = ["COMPOSITIONS", "Entry", "Finding", "Images", "catalogue", "check", "compose", "draw", "load", "title"]
_PLACES = {"COMPOSITIONS": "batches", "compose": "batches", "draw": "batches", "Images": "images"}
_PLACES |= dict.fromkeys(("Finding", "check", "load"), "sources")


def __getattr__(name: str) -> Any:
    """Import what needs PyTorch where it is used first: the catalogue alone needs none."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
