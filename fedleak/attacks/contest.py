"""Every attack that applies, on the same update: what the arena and the audit run.

A contest knows no attack by name. Which of them an adversary can run, what each of them takes and whether it is done in
seconds, the registry says.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import OutOfMemoryError, Tensor, nn

from fedleak.attacks.registry import Adversary, Attack, Need, all_attacks
from fedleak.attacks.result import Prepared, Result
from fedleak.errors import WithheldParameter
from fedleak.federated import Update
from fedleak.models import head

FORESEEN = (ValueError, RuntimeError, WithheldParameter)
"""What attacks raise where they cannot work. Anything else is a mistake, and is said to be one."""
UNFORESEEN = "unforeseen "
"""How the reason of a failure begins that is no refusal: a mistake, or a GPU's memory that ran out."""


class Attempt(NamedTuple):
    """What came of one attack on one update."""

    attack: Attack
    result: Result | None
    """None if it failed."""
    seconds: float
    """What it took, with the preparation if that was needed."""
    reason: str
    """Why it failed; "" if it did not."""

    @property
    def found(self) -> Tensor | None:
        """Counts ``[n]``, or ``[U, n]`` of an attack on an aggregate, on the CPU; None if it failed."""
        return None if self.result is None else self.result.counts.cpu()

    @property
    def unforeseen(self) -> bool:
        """Whether it failed without having refused."""
        return self.reason.startswith(UNFORESEEN)


def entrants(*, trained: bool = False) -> list[Attack]:
    """Return the label attacks that can be run on update after update: guesses first, then those that see something.

    With `trained` also, and last, those that are trained once for a model and a batch size.
    """
    found = [a for a in all_attacks() if a.goal == "labels" and a.cost == "seconds" and not a.apart]
    return sorted((a for a in found if trained or not a.trained), key=lambda a: (not a.blind, a.trained))


def view(adversary: Adversary, update: Update, model: nn.Module) -> Adversary:
    """Return the adversary with only those gradients that an update holds."""
    last = head(model)
    trained = dict(model.named_parameters())
    there = {
        Need.HEAD_GRADIENT: last.weight in update.tensors,
        Need.BIAS_GRADIENT: last.bias in update.tensors,
        Need.BELOW_HEAD_GRADIENT: bool(update.tensors.keys() - {last.weight, last.bias}),
        Need.ADAPTER_GRADIENT: last.bias in update.tensors or last.weight not in trained,
        Need.ALL_GRADIENTS: all(name in update.tensors for name in trained),
    }
    return replace(adversary, has=adversary.has - {need for need, is_there in there.items() if not is_there})


def attempt(
    attack: Attack,
    update: Update,
    model: nn.Module | Sequence[nn.Module],
    adversary: Adversary | str,
    knowledge: Mapping[str, Any],
    clock: Callable[[], float] = time.process_time,
    kept: dict[str, Prepared] | None = None,
    checks: dict[Any, tuple[str, ...]] | None = None,
) -> Attempt:
    """Run one attack; whatever it raises is the reason of its failure.

    Parameters as for `contest`; `model` is the list of models that were sent, for an attack that sends them. `checks`
    keeps the contradictions of an update for the next attack on the same update and model.
    """
    first, then = attack.split(attack.inputs(adversary, knowledge))
    kept, started = {} if kept is None else kept, clock()
    result, reason = None, ""
    try:
        if attack.name not in kept:
            kept[attack.name] = attack.prepare(model, adversary=adversary, **first)
        found = _checking_once(kept[attack.name], {} if checks is None else checks).recover(update, **then)
        n = head(model if isinstance(model, nn.Module) else model[0]).layer.out_features
        if found.counts.shape[-1:] != (n,):
            raise TypeError(f"a label attack returns counts, torch.int64 [{n}]; this one {list(found.counts.shape)}")
        result = found
    except Exception as error:  # one attack's mistake must not end the others' run
        refused = isinstance(error, FORESEEN) and not isinstance(error, OutOfMemoryError)
        told = type(error).__name__
        reason = str(error) or told if refused else f"{UNFORESEEN}{told}: {error}"
    return Attempt(attack, result, clock() - started, reason)


def _checking_once(prepared: Prepared, checks: dict[Any, tuple[str, ...]]) -> Prepared:
    """Return a prepared attack that computes the contradictions of an update only if `checks` lacks them."""
    check = prepared.check
    if check is None:
        return prepared

    def once(update: Update, scheme: Any = None) -> tuple[str, ...]:
        key = (id(update), id(scheme))  # both live as long as the contest
        if key not in checks:
            checks[key] = check(update, scheme=scheme)
        return checks[key]

    return replace(prepared, check=once)


def contest(
    update: Update,
    model: nn.Module,
    adversary: Adversary | str,
    knowledge: Mapping[str, Any],
    *,
    attacks: Iterable[Attack] | None = None,
    plain: Update | None = None,
    manipulated: Mapping[str, tuple[Update, Sequence[nn.Module]]] | None = None,
    clock: Callable[[], float] = time.process_time,
    kept: dict[str, Prepared] | None = None,
) -> Iterator[Attempt]:
    """Run every attack that the adversary can run, one after the other.

    Parameters
    ----------
    update, model
        What the server sees, one client's update or the sum of all; the model before the round.
    adversary
        Who attacks, or the name of one of `fedleak.attacks.registry.ADVERSARIES`.
    knowledge
        What the attacks may take, by the names of `fedleak.attacks.registry.INPUTS`; each gets what it declares.
    attacks
        Which; by default all `entrants`.
    plain
        The update as plain SGD would have sent it, for attacks that do not take the scheme themselves; by default the
        update.
    manipulated
        For attacks of a server that sends models of its own, by name: what it then sees, and the models. An attack
        that sends some, and is not here, is not run.
    clock
        What the seconds are taken from: processor time, or `time.perf_counter`.
    kept
        Where attacks are kept once they are prepared, and taken from for the next update: a dictionary for one model
        (in one state) and one `knowledge` but for what is told of each update.
    """
    checks: dict[Any, tuple[str, ...]] = {}
    for attack in entrants() if attacks is None else attacks:
        if attack.lacking(adversary) or (attack.sends and attack.name not in (manipulated or {})):
            continue
        if manipulated and attack.sends:
            yield attempt(attack, *manipulated[attack.name], adversary, knowledge, clock, kept)
        else:
            read = update if plain is None or "scheme" in attack.takes else plain
            yield attempt(attack, read, model, adversary, knowledge, clock, kept, checks)
