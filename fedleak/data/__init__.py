"""Data of clients: `load(name)` gives `Images`, `compose` and `draw` make batches of them."""

from fedleak.data.batches import COMPOSITIONS, compose, draw
from fedleak.data.catalogue import Entry, catalogue, title
from fedleak.data.images import Images
from fedleak.data.sources import Finding, check, load

__all__ = ["COMPOSITIONS", "Entry", "Finding", "Images", "catalogue", "check", "compose", "draw", "load", "title"]
