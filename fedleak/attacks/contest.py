"""Run all attacks that an adversary can run on the same update, as the arena and the audit do.

The registry has each attack's requirements, inputs and cost.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import OutOfMemoryError, Tensor, nn

from fedleak.attacks.plausible import Examination
from fedleak.attacks.registry import Adversary, Attack, Need, all_attacks
from fedleak.attacks.result import Prepared, Result
from fedleak.errors import WithheldParameter
from fedleak.federated import Update
from fedleak.models import head

EXPECTED_FAILURES = (ValueError, RuntimeError, WithheldParameter)
"""Exceptions by which an attack rejects an update; any other exception is a bug."""
UNEXPECTED = "unforeseen "
"""Prefix of `Attempt.reason` for failures that are not rejections: a bug, or CUDA out of memory."""


class Attempt(NamedTuple):
    """The outcome of one attack on one update."""

    attack: Attack
    result: Result | None
    """None if the attack failed."""
    seconds: float
    """Duration, including the preparation if that was needed."""
    reason: str
    """Why the attack failed; "" if it succeeded."""

    @property
    def counts(self) -> Tensor | None:
        """Counts ``[n]``, or ``[U, n]`` of an attack on an aggregate, on the CPU; None if it failed."""
        return None if self.result is None else self.result.counts.cpu()

    @property
    def unforeseen(self) -> bool:
        """Whether the attack failed without rejecting the update."""
        return self.reason.startswith(UNEXPECTED)


def entrants(*, trained: bool = False) -> list[Attack]:
    """Return the label attacks that can run on many updates: guesses first, then attacks that read the update.

    With `trained` attacks that are trained once per model and batch size follow.
    """
    attacks = [a for a in all_attacks() if a.goal == "labels" and a.cost == "seconds" and not a.standalone_reason]
    return sorted((a for a in attacks if trained or not a.trained), key=lambda a: (not a.blind, a.trained))


def view(adversary: Adversary, update: Update, model: nn.Module) -> Adversary:
    """Return the adversary restricted to the gradients that an update contains."""
    last = head(model)
    parameters = dict(model.named_parameters())
    trained = {name for name, p in parameters.items() if p.requires_grad} or parameters.keys()
    is_shared = {
        Need.HEAD_GRADIENT: last.weight in update.tensors,
        Need.BIAS_GRADIENT: last.bias in update.tensors,
        Need.BELOW_HEAD_GRADIENT: bool(update.tensors.keys() - {last.weight, last.bias}),
        Need.ADAPTER_GRADIENT: last.bias in update.tensors or last.weight not in trained,
        Need.ALL_GRADIENTS: all(name in update.tensors for name in trained),
    }
    return replace(adversary, has=adversary.has - {need for need, shared in is_shared.items() if not shared})


def attempt(
    attack: Attack,
    update: Update,
    model: nn.Module | Sequence[nn.Module],
    adversary: Adversary | str,
    knowledge: Mapping[str, Any],
    clock: Callable[[], float] = time.process_time,
    prepared: dict[str, Prepared] | None = None,
    checks: dict[Any, Examination] | None = None,
) -> Attempt:
    """Run one attack; an exception becomes the reason of its failure.

    Parameters as for `contest`; `model` is the list of models that were sent, for an attack that sends them. `checks`
    caches the contradictions of an update for the next attack on the same update and model.
    """
    first, then = attack.split(attack.inputs(adversary, knowledge))
    prepared, started = {} if prepared is None else prepared, clock()
    result, reason = None, ""
    try:
        if attack.name not in prepared:
            prepared[attack.name] = attack.prepare(model, adversary=adversary, **first)
        answer = _checking_once(prepared[attack.name], {} if checks is None else checks).recover(update, **then)
        n = head(model if isinstance(model, nn.Module) else model[0]).layer.out_features
        if answer.counts.shape[-1:] != (n,):
            raise TypeError(f"a label attack returns counts, torch.int64 [{n}]; this one {list(answer.counts.shape)}")
        result = answer
    except Exception as error:  # an error in one attack must not end the run of the others
        is_rejection = isinstance(error, EXPECTED_FAILURES) and not isinstance(error, OutOfMemoryError)
        kind = type(error).__name__
        reason = str(error) or kind if is_rejection else f"{UNEXPECTED}{kind}: {error}"
    return Attempt(attack, result, clock() - started, reason)


def _checking_once(prepared: Prepared, checks: dict[Any, Examination]) -> Prepared:
    """Return a prepared attack that computes the contradictions of an update only if `checks` lacks them."""
    check = prepared.check
    if check is None:
        return prepared

    def once(update: Update, scheme: Any = None) -> Examination:
        key = (id(update), id(scheme))  # both objects exist until the contest ends
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
    prepared: dict[str, Prepared] | None = None,
) -> Iterator[Attempt]:
    """Yield an `Attempt` of every attack that the adversary can run, one after the other, on the same update.

    Parameters
    ----------
    update, model
        The update that the server sees, one client's or the sum of all clients'; the model before the round.
    adversary
        The adversary, or the name of one of `fedleak.attacks.registry.ADVERSARIES`.
    knowledge
        Inputs of the attacks, by the names of `fedleak.attacks.registry.INPUTS`; each attack gets those it declares.
    attacks
        Attacks to run; by default all `entrants`.
    plain
        The update as plain SGD would have sent it, for attacks that do not take the scheme themselves; by default the
        update.
    manipulated
        For attacks of a server that sends manipulated models, by name: the update that it then sees, and the models.
        An attack that sends models and has no entry is skipped.
    clock
        Source of `Attempt.seconds`: processor time, or `time.perf_counter`.
    prepared
        Cache of prepared attacks, reused for the next update: one dictionary per model state and `knowledge`, apart
        from the inputs that belong to a single update.
    """
    checks: dict[Any, Examination] = {}
    for attack in entrants() if attacks is None else attacks:
        if attack.lacking(adversary) or (attack.sends and attack.name not in (manipulated or {})):
            continue
        if manipulated and attack.sends:
            yield attempt(attack, *manipulated[attack.name], adversary, knowledge, clock, prepared)
        else:
            readable = update if plain is None or "scheme" in attack.options else plain
            yield attempt(attack, readable, model, adversary, knowledge, clock, prepared, checks)
