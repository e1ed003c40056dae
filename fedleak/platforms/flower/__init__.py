"""Flower: record its runs, call its apps in one process, LIA-SA through its secure aggregation.

Needs the extra ``flower``. Nothing else of fedleak imports this package, so nothing else pays for it.
"""

from fedleak.errors import extra

with extra("flower"):
    import flwr  # noqa: F401

from fedleak.platforms.flower.grid import InProcess
from fedleak.platforms.flower.recording import recorded
from fedleak.platforms.flower.secagg import Fishing, fish, honest, secure_run

__all__ = [
    "Fishing",
    "InProcess",
    "fish",
    "honest",
    "recorded",
    "secure_run",
]
