"""The loop of every audit: baselines, attacks and remedies on update after update, and the rows of their outcomes."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedleak.attacks.contest import Attempt, contest, entrants, view
from fedleak.attacks.registry import ADVERSARIES, Adversary, Attack, Need, all_attacks
from fedleak.attacks.result import Prepared
from fedleak.audit.beyond_labels import count_words
from fedleak.audit.case import Case
from fedleak.audit.findings import AS_IT_IS, WordsResult, list_broken, outcome
from fedleak.audit.report import Report
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protections
from fedleak.models import head

PRIOR = Adversary("no update", frozenset({Need.SAMPLE_COUNT, Need.AUXILIARY_DATA}))
"""The adversary of the baselines: it knows at most how often each class occurs."""


def weakest(attack: Attack, adversary: Adversary, update: Update, model: nn.Module, knowledge: dict[str, Any]) -> str:
    """Name the first of the registry's adversaries that can run an attack with the same inputs as `adversary`."""
    used = attack.inputs(adversary, knowledge).keys()
    weaker = (view(candidate, update, model) for candidate in ADVERSARIES)
    able = (w for w in weaker if not attack.lacking(w) and attack.inputs(w, knowledge).keys() == used)
    return next(able, adversary).name


def taking_part(model: nn.Module, case: Case | None, samples: int) -> list[Attack]:
    """Return the attacks on update after update, and of those that run apart the ones that are for such updates."""
    x = None if case is None else case.aux.x[:1]
    return [*entrants(trained=True), *(attack for attack in all_attacks() if attack.applies(model, x, samples))]


def sort_out(
    attacks: Iterable[Attack],
    adversary: Adversary,
    update: Update,
    model: nn.Module,
    knowledge: dict[str, Any],
    excluded: Callable[[Attack], str],
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return, by attack, the weakest who could run it, and the attacks that are not run, with why.

    `excluded` says why an attack is not tried whatever the adversary has; "" if it is tried.
    """
    adversaries: dict[str, str] = {}
    untried = []
    for attack in attacks:
        if attack.blind:
            continue
        why = excluded(attack)
        if (not why or attack.goal == "images") and (lacks := attack.lacking(adversary)):
            why = f"the adversary '{adversary.name}' lacks: {'; '.join(lacks)}"
        if why:
            untried.append((attack.name, why))
        else:
            adversaries[attack.name] = weakest(attack, adversary, update, model, knowledge)
    return adversaries, untried


def remedies(
    model: nn.Module, update: Update, seed: int, put: Callable[[Defence], Update]
) -> tuple[dict[str, Defence], list[tuple[str, str]]]:
    """Return the defences that can be added to a client's `update`, by name, and those that cannot, with the reason.

    `put` returns the update with a defence added. Strengths that are relative go by the size of the update's own
    entries: the root mean square of the head's weights, or of all.
    """
    defences: dict[str, Defence] = {}
    left_out, weight = [], head(model).weight
    entries = [update.tensors[weight]] if weight in update.tensors else list(update.tensors.values())
    size = torch.cat([t.flatten() for t in entries]).double().square().mean().sqrt().item() if entries else 0.0
    for kind in protections().values():
        for strength in kind.remedies:
            value = strength * size if kind.relative else strength
            name = kind.words(value) + (f" ({strength:g} × the entries' size)" if kind.relative else "")
            try:
                defence = kind.make(value, model, 1, seed)
                if not put(defence).tensors:
                    raise ValueError("nothing would be shared")
                defences[name] = defence
            except Exception as error:  # a defence of somebody's own may raise anything
                left_out.append((name, str(error).split("\n")[0]))
    return defences, left_out


@dataclass(frozen=True, eq=False)
class Observation:
    """One update as the server sees it, and what an attack on it may take."""

    number: int
    model: nn.Module
    knowledge: dict[str, Any]
    """Inputs of attacks, by `fedleak.attacks.registry.INPUTS`."""
    attacks: Sequence[Attack]
    """Attacks to run on it; the baselines are none of them."""
    update: Callable[[Defence | None], Update]
    """Returns the update, with a defence added if one is given."""
    arguments: Callable[[Update, Defence | None], dict[str, Any]]
    """Returns the arguments of `contest` that depend on the update: itself, and its further forms."""
    guesses: Iterable[Attempt]
    """The attempts of the baselines."""
    row: Callable[[str, Attempt], dict[str, Any]]
    """Returns a row on how an attack went in a scenario; see `fedleak.audit.findings.noted`."""
    texts: Tensor | None = None
    """The clients' inputs, to compare recovered words with."""


class Loop:
    """Attacks on update after update: the outcomes so far, and who could have run each attack.

    `adversary` is the adversary before it is known what an update shares, `updates` and `remedied` are the number of
    all updates and the numbers of those that are attacked with remedies too. What failed on the first update is run
    on the others only if it `repeats`.
    """

    def __init__(
        self, adversary: Adversary, seed: int, updates: int, remedied: Collection[int], repeats: bool, progress: bool
    ):
        self.adversary, self.seed, self.repeats = adversary, seed, repeats
        self.updates, self.remedied = updates, remedied
        self.bar = tqdm(desc="audit", unit="attack", disable=not progress, smoothing=0.1)
        self.rows: list[dict[str, Any]] = []
        self.words: WordsResult | None = None
        self.adversaries: dict[str, str] = {}
        self.untried: list[tuple[str, str]] = []
        self.remedies: dict[str, Defence] = {}
        self.left_out: list[tuple[str, str]] = []
        self.over: set[tuple[str, str]] = set()
        self.prepared: dict[str, Prepared] = {}

    def attack(self, observation: Observation) -> dict[str, Tensor]:
        """Attack one update, as it is and with each remedy; return the counts as it is, by attack."""
        update, remedied = observation.update(None), observation.number in self.remedied
        if remedied and not self.remedies:
            self.remedies, self.left_out = remedies(observation.model, update, self.seed, observation.update)
        self.bar.total = len(observation.attacks) * (self.updates + len(self.remedies) * len(self.remedied))
        self.rows += [observation.row(AS_IT_IS, guess) for guess in observation.guesses]
        counts = {}
        for answer in self._attempts(AS_IT_IS, observation, update):
            if answer.counts is not None:
                counts[answer.attack.name] = answer.counts
                if answer.attack.name not in self.adversaries:  # it could not read the first update
                    named = weakest(answer.attack, self.adversary, update, observation.model, observation.knowledge)
                    self.adversaries[answer.attack.name] = named
        self.words = count_words(self.words, update, observation.model, observation.texts)
        for name, remedy in self.remedies.items() if remedied else ():
            self._attempts(name, observation, observation.update(remedy), remedy)
        return counts

    def _attempts(
        self, scenario: str, observation: Observation, update: Update, remedy: Defence | None = None
    ) -> list[Attempt]:
        attempts = []
        for answer in contest(
            model=observation.model,
            adversary=view(self.adversary, update, observation.model),
            knowledge=observation.knowledge,
            attacks=self._announced(observation, scenario),
            clock=time.perf_counter,
            prepared=self.prepared,
            **observation.arguments(update, remedy),
        ):
            attempts.append(answer)
            self.rows.append(observation.row(scenario, answer))
            if not self.repeats and observation.number == 0 and self.rows[-1]["reason"] is not None:
                self.over.add((scenario, answer.attack.name))
        return attempts

    def _announced(self, observation: Observation, scenario: str) -> Iterator[Attack]:
        for attack in observation.attacks:
            if self.over.isdisjoint({(AS_IT_IS, attack.name), (scenario, attack.name)}):
                self.bar.set_postfix_str(f"update {observation.number + 1}, {scenario}: {attack.name}")
                yield attack
            self.bar.update()

    def report(self, facts: dict[str, Any]) -> Report:
        """Return the report on all updates so far, with these facts about them."""
        self.bar.close()
        rows, remarks, never = outcome(self.rows)
        untried = [*((name, why) for name, why in self.untried if name not in self.adversaries), *never]
        scenarios = [AS_IT_IS, *self.remedies]
        report = Report(facts, rows, scenarios, self.left_out, self.adversaries, untried, remarks)
        report.words, report.broken = self.words, list_broken(self.rows)
        return report
