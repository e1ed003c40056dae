"""One round: what a client computes, what it shares, and what a defence makes of it."""

from fedleak.federated.client import fedavg, fedsgd
from fedleak.federated.update import Update

__all__ = ["Update", "fedavg", "fedsgd"]
