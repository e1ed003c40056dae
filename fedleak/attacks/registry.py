"""Every attack with what it needs, so that none is given more than its adversary has.

The book's threat-model tables are made from this registry, and `Attack.__call__` refuses to run an attack for an
adversary that lacks something it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any, Literal

from torch import nn

from fedleak.federated import Update


class Need(Enum):
    """Something an attack may require of its adversary."""

    HEAD_GRADIENT = "gradient of the last layer's weights"
    BIAS_GRADIENT = "gradient of the last layer's bias"
    ALL_GRADIENTS = "gradients of all layers"
    BELOW_HEAD_GRADIENT = "gradient of a layer below the last"
    SAMPLE_COUNT = "number of training samples"
    MODEL = "the model's architecture and weights"
    AUXILIARY_DATA = "labelled auxiliary data of the same classes"


@dataclass(frozen=True)
class Adversary:
    """What somebody who attacks has: things known, a place to look from, and whether the rules are kept."""

    name: str
    has: frozenset[Need]
    sees: Literal["one update", "aggregate"] = "one update"
    server: Literal["passive", "malicious"] = "passive"


_SHARED = frozenset(
    {Need.HEAD_GRADIENT, Need.BIAS_GRADIENT, Need.ALL_GRADIENTS, Need.BELOW_HEAD_GRADIENT, Need.SAMPLE_COUNT}
)
NOBODY = Adversary("no access", frozenset({Need.SAMPLE_COUNT}))
EAVESDROPPER = Adversary("shared gradients", _SHARED)
WHITE_BOX = Adversary("white-box model", _SHARED | {Need.MODEL})
WITH_AUXILIARY = Adversary("auxiliary knowledge", WHITE_BOX.has | {Need.AUXILIARY_DATA})
MALICIOUS_AGGREGATOR = Adversary("malicious server, secure aggregation", WHITE_BOX.has, "aggregate", "malicious")
RESTRICTED = Adversary(
    "white-box model, last layer withheld",
    frozenset({Need.BELOW_HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA}),
)
ADVERSARIES = (NOBODY, EAVESDROPPER, WHITE_BOX, WITH_AUXILIARY, MALICIOUS_AGGREGATOR, RESTRICTED)


@dataclass(frozen=True)
class Attack:
    """One attack, its source, and what its adversary must have.

    Parameters
    ----------
    name
        Unique name, as the papers write it.
    goal
        What it recovers.
    paper, equation
        Citation key of the paper, and the place in it.
    needs
        What the adversary must have.
    summary
        One sentence on how it works.
    run
        The function: ``run(update, model, **options)``.
    sees
        Whether it works on one client's update or needs only the aggregate.
    server
        Whether the server keeps to the protocol.
    """

    name: str
    goal: Literal["labels", "images"]
    paper: str
    equation: str
    needs: frozenset[Need]
    summary: str
    run: Callable[..., Any]
    sees: Literal["one update", "aggregate"] = "one update"
    server: Literal["passive", "malicious"] = "passive"

    def lacking(self, adversary: Adversary) -> list[str]:
        """Name what `adversary` lacks for this attack; empty if nothing."""
        lacks = [need.value for need in Need if need in self.needs - adversary.has]
        if self.sees == "one update" and adversary.sees == "aggregate":
            lacks.append("one client's own update")
        if self.server == "malicious" and adversary.server == "passive":
            lacks.append("the power to change the model it sends out")
        return lacks

    def __call__(self, update: Update, model: nn.Module, *, adversary: Adversary, **options: Any) -> Any:
        """Run the attack for an adversary.

        Raises
        ------
        ValueError
            If the adversary lacks something that the attack needs.
        """
        if lacks := self.lacking(adversary):
            raise ValueError(f"{self.name} needs what the adversary '{adversary.name}' lacks: {'; '.join(lacks)}")
        return self.run(update, model, **options)


_ATTACKS: dict[str, Attack] = {}


def register(attack: Attack) -> None:
    """Add an attack; a name that is taken by another function is an error."""
    taken = _ATTACKS.get(attack.name)
    if taken is not None:
        raise ValueError(f"an attack named {attack.name!r} is registered already")
    _ATTACKS[attack.name] = attack


def all_attacks() -> list[Attack]:
    """Return every attack of the package, in the order of registration."""
    for package in ("labels", "images"):
        import_module(f"fedleak.attacks.{package}")
    return list(_ATTACKS.values())


def get(name: str) -> Attack:
    """Return the attack with this name.

    Raises
    ------
    ValueError
        If there is none.
    """
    known = {attack.name: attack for attack in all_attacks()}
    if name not in known:
        raise ValueError(f"unknown attack {name!r}; known: {', '.join(known)}")
    return known[name]
