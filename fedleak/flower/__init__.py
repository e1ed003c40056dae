"""Flower: record its runs, refuse crafted models, call its apps in one process, LIA-SA through its secure aggregation.

Needs the extra ``flower``. Nothing else of fedleak imports this package, so nothing else pays for it.
"""

from fedleak.errors import extra

with extra("flower"):
    import flwr  # noqa: F401

from fedleak.flower.claims import read_mod_claim
from fedleak.flower.grid import InProcess
from fedleak.flower.inspection import InspectionMod
from fedleak.flower.recording import recorded
from fedleak.flower.secagg import Fishing, fish, honest, secure_run

__all__ = [
    "Fishing",
    "InProcess",
    "InspectionMod",
    "fish",
    "honest",
    "read_mod_claim",
    "recorded",
    "secure_run",
]
