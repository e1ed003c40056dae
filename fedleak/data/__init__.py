"""What clients hold: `load(name)` gives `Images`, `compose` and `draw` make batches of them."""

from .batches import SCHEMES, compose, draw
from .catalogue import Entry, catalogue
from .images import Images
from .sources import Finding, check, load

__all__ = ["SCHEMES", "Entry", "Finding", "Images", "catalogue", "check", "compose", "draw", "load"]
