"""The registry of all attacks with their requirements, so that none gets more than its adversary has.

The book's threat-model tables, the arena and the audit use this registry; `Attack.__call__` raises for an adversary
that lacks a requirement.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Any, Literal, TypeVar, cast
from warnings import warn

from torch import Tensor, nn

from fedleak.attacks.door import enter, entering, given_seed
from fedleak.attacks.result import Prepared
from fedleak.errors import is_same_source
from fedleak.federated import Update

Function = TypeVar("Function", bound=Callable[..., Any])
Goal = Literal["labels", "images", "words"]


class Need(Enum):
    """Something an attack may require of its adversary."""

    HEAD_GRADIENT = "gradient of the last layer's weights"
    BIAS_GRADIENT = "gradient of the last layer's bias"
    ALL_GRADIENTS = "gradients of all layers"
    BELOW_HEAD_GRADIENT = "gradient of a layer below the last"
    ADAPTER_GRADIENT = "gradient of what adds to the last layer's outputs"
    SAMPLE_COUNT = "number of training samples"
    MODEL = "the model's architecture and weights"
    AUXILIARY_DATA = "labelled auxiliary data of the same classes"


@dataclass(frozen=True)
class Adversary:
    """An adversary: its knowledge, its view of the updates, and whether it keeps to the protocol."""

    name: str
    has: frozenset[Need]
    sees: Literal["one update", "aggregate"] = "one update"
    server: Literal["passive", "malicious"] = "passive"


_SHARED = frozenset(Need) - {Need.MODEL, Need.AUXILIARY_DATA}
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


INPUTS = {
    "aux": "labelled auxiliary data, an `Images`",
    "prior": "frequency of each class, [n], if it is known better than from the auxiliary data",
    "scheme": "training scheme of the client, a `Scheme`",
    "history": "h of the head's bias, [n], for schemes with a history",
    "smoothing": "label smoothing of the client, if it is known",
    "runs": "number of probe batches per label",
    "dummies": "number of dummy images of noise",
    "seed": "random seed of the draws for an update",
    "batch_size": "batch size B that the server prescribes",
    "input_shape": "shape of one input",
    "iterations": "training iterations of an attack that is trained once per model and batch size",
    "batches": "simulated batches per training iteration",
    "progress": "whether the training shows a progress bar",
    "seconds": "time limit of the training; a longer one is not begun",
    "defence": "the clients' defence, as `make(clients, seed)`, if the attacker knows it",
}
"""Inputs that `fedleak.attacks.contest` can give an attack besides update and model, by the name of the argument."""
_OF_DATA = {"aux", "prior"}


@dataclass(frozen=True)
class Attack:
    """One attack: its source, the requirements on its adversary, and its inputs.

    Raises `ValueError` if `options` has a name that is not in `INPUTS`.
    """

    name: str
    """Unique name, as in the papers."""
    goal: Goal
    needs: frozenset[Need]
    """Requirements on the adversary."""
    summary: str
    """Description of its method, in one sentence."""
    function: Callable[..., Any]
    """``recover(update, model, **options)``, which returns counts, images or words; with `prepares`, ``prepare``."""
    prepares: bool = False
    """Whether the function is ``prepare(model, **options)``, which returns a `Prepared`; other options are passed with
    each update."""
    paper: str = ""
    """Citation key of the paper; "" for an attack that no paper describes."""
    equation: str = ""
    """Equations or sections of the paper."""
    options: Iterable[str] = ()
    """Names in `INPUTS` that it uses if available; ``"aux"`` is implied for attacks that need auxiliary data."""
    cost: Literal["seconds", "minutes"] = "seconds"
    """Duration of one recovery; attacks that take minutes do not run on many updates."""
    sees: Literal["one update", "aggregate"] = "one update"
    """Whether it needs one client's update, or only the aggregate."""
    server: Literal["passive", "malicious"] = "passive"
    """Whether the server keeps to the protocol."""
    sends: Callable[[nn.Module, int, int], list[nn.Module]] | None = None
    """For a malicious server: ``sends(model, clients, seed)`` returns the models that it sends, one per client, with
    which the updates are read."""
    standalone_reason: str = ""
    """Why it cannot run on the same updates as the other attacks; "" if it can."""
    applies: Callable[[nn.Module, Tensor | None, int], bool] = lambda *_: False
    """For an attack with such a reason: whether it applies to one client's updates nevertheless, given the model, one
    input (None without auxiliary data) and the number of samples."""

    def __post_init__(self) -> None:
        options = frozenset(self.options) | ({"aux"} if Need.AUXILIARY_DATA in self.needs else set())
        if unknown := options - INPUTS.keys():
            raise ValueError(f"{self.name} takes {', '.join(sorted(unknown))}; there are: {', '.join(INPUTS)}")
        object.__setattr__(self, "options", options)

    @property
    def blind(self) -> bool:
        """Whether it ignores the update: a guess, which is a baseline."""
        return self.needs <= {Need.SAMPLE_COUNT, Need.AUXILIARY_DATA}

    @property
    def checks(self) -> bool:
        """Whether `plausible` checks its updates, as for attacks on one client's gradients."""
        return self.goal != "words" and not self.blind and self.sees == "one update" and self.server == "passive"

    @property
    def uses(self) -> frozenset[Need]:
        """All requirements, and optional auxiliary data."""
        return self.needs | ({Need.AUXILIARY_DATA} if _OF_DATA & set(self.options) else set())

    @property
    def trained(self) -> bool:
        """Whether its preparation trains for a number of iterations."""
        return "iterations" in self.options

    def inputs(self, adversary: Adversary | str, knowledge: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs in `knowledge` that it uses; auxiliary data and prior only if the adversary has them."""
        withheld_inputs = set() if Need.AUXILIARY_DATA in adversary_of(adversary).has else _OF_DATA
        used_inputs = set(self.options) - withheld_inputs
        return {name: value for name, value in knowledge.items() if name in used_inputs and value is not None}

    def lacking(self, adversary: Adversary | str) -> list[str]:
        """Return descriptions of the requirements that an adversary lacks; empty if it lacks none."""
        adversary = adversary_of(adversary)
        lacks = [need.value for need in Need if need in self.needs - adversary.has]
        if self.sees == "one update" and adversary.sees == "aggregate":
            lacks.append("one client's own update")
        if self.server == "malicious" and adversary.server == "passive":
            lacks.append("the power to change the model it sends out")
        return lacks

    def prepare(self, model: Any, *, adversary: Adversary | str, **options: Any) -> Prepared:
        """Prepare a label attack for updates of a model, or of a list of models for a server that sends them.

        Raises `ValueError` if the adversary is unknown or lacks a requirement, and as the attack documents.
        """
        adversary = adversary_of(adversary)
        if lacks := self.lacking(adversary):
            raise ValueError(f"{self.name} needs what the adversary '{adversary.name}' lacks: {'; '.join(lacks)}")
        if self.prepares:
            return self.function(model, **options)
        return self._enter(model, options)

    def _enter(self, model: Any, options: Mapping[str, Any], *args: Any) -> Prepared:
        def make(inner: Any) -> Prepared:
            return Prepared(self.name, lambda update, **more: self.function(update, inner, *args, **options, **more))

        return enter(model, make, checks=self.checks, seed=given_seed(options), args=args, options=options)

    def _answer(self, prepared: Prepared, update: Any, options: Mapping[str, Any]) -> Any:
        if self.goal == "labels":
            return prepared.recover(update, **options).counted()
        for one in update if isinstance(update, list | tuple) else [update]:
            for reason in prepared.check(one).contradictions if prepared.check else ():
                warn(f"{self.name}: {reason}", stacklevel=3)
        return prepared.read(update, **options)

    def split(self, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Split options into those for the preparation and those that are passed with each update."""
        parameters = signature(self.function).parameters if self.prepares else {}
        first = {name: value for name, value in options.items() if name in parameters}
        return first, {name: value for name, value in options.items() if name not in first}

    def __call__(self, update: Update, model: Any, *, adversary: Adversary | str, **options: Any) -> Any:
        """Run the attack for an adversary, or its name in `ADVERSARIES`; return counts, images or words.

        Raises `ValueError` as for `prepare`.
        """
        first, then = self.split(options)
        return self._answer(self.prepare(model, adversary=adversary, **first), update, then)


def adversary_of(chosen: Adversary | str) -> Adversary:
    """Return an adversary, or the one of `ADVERSARIES` with this name; `ValueError` for anything else."""
    if isinstance(chosen, str):
        by_name = {adversary.name: adversary for adversary in ADVERSARIES}
        if chosen not in by_name:
            raise ValueError(f"unknown adversary {chosen!r}; there are: {', '.join(map(repr, by_name))}")
        return by_name[chosen]
    if not isinstance(chosen, Adversary):
        raise ValueError(f"adversary is an Adversary of fedleak.attacks.registry or its name, not {chosen!r}")
    return chosen


_ATTACKS: dict[str, Attack] = {}


def register(attack: Attack) -> None:
    """Add an attack, in place of a previous definition of the same function, as when a notebook's cell runs again.

    Raises `ValueError` if another function has its name.
    """
    previous = _ATTACKS.get(attack.name)
    if previous is not None and not is_same_source(previous.function, attack.function):
        raise ValueError(f"an attack named {attack.name!r} is registered already: give yours another name")
    _ATTACKS[attack.name] = attack


def attack(name: str, *, needs: Iterable[Need], goal: Goal = "labels", **fields: Any) -> Callable[[Function], Function]:
    """Register the decorated function as an `Attack` with these fields; it gets updates and model through the door."""

    def decorate(function: Function) -> Function:
        entry = Attack(name, goal, frozenset(needs), function=function, **fields)
        if entry.prepares:
            entry = replace(entry, function=entering(function, checks=entry.checks))
        register(entry)
        if entry.prepares:
            return cast(Function, entry.function)

        @wraps(function)
        def run(update: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            return entry._answer(entry._enter(model, kwargs, *args), update, {})

        return cast(Function, run)

    return decorate


def all_attacks() -> list[Attack]:
    """Return all attacks of the package and all others that are registered, in the order of registration.

    All modules of `fedleak.attacks.labels` and `.images` are imported and register their attacks.
    """
    for package in ("labels", "images", "words", "text"):
        import_module(f"fedleak.attacks.{package}")
    return list(_ATTACKS.values())


def get(name: str) -> Attack:
    """Return the attack with this name. Raises `ValueError` if there is none."""
    by_name = {attack.name: attack for attack in all_attacks()}
    if name not in by_name:
        raise ValueError(f"unknown attack {name!r}; known: {', '.join(by_name)}")
    return by_name[name]
