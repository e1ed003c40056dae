"""The attacks: labels and images from updates, each registered with what it needs."""

from fedleak.attacks.registry import ADVERSARIES, Adversary, Attack, Need, all_attacks, attack, get
from fedleak.attacks.result import Prepared, Result, once

__all__ = ["ADVERSARIES", "Adversary", "Attack", "Need", "Prepared", "Result", "all_attacks", "attack", "get", "once"]
