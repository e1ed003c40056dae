"""`audit`: attack the updates of a set-up, trial after trial, as it stands and with each remedy on top."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from fedleak.attacks.contest import Attempt, attempt, contest, entrants, view
from fedleak.attacks.labels.counts import apportion
from fedleak.attacks.registry import ADVERSARIES, Adversary, Attack, Need, all_attacks
from fedleak.attacks.result import Prepared, Result
from fedleak.audit.beyond_labels import count_words as count_words
from fedleak.audit.beyond_labels import invert_once
from fedleak.audit.canary import canary, claim
from fedleak.audit.case import Case, Trial, facts, image_attack, prepare
from fedleak.audit.findings import AS_IT_IS, WordsResult, noted, outcome
from fedleak.audit.informed import informed_attacks
from fedleak.audit.report import Report
from fedleak.audit.setup import Setup
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protections
from fedleak.models import head
from fedleak.models.passes import remembered_passes

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


class Run:
    """An audit on its way: what is tried, what it found, and how long it took."""

    def __init__(self, case: Case, progress: bool, fast: bool = False):
        case = replace(case, knowledge={**case.knowledge, "progress": progress})
        self.case, self.progress, self.fast = case, progress, fast
        entrants = taking_part(case.attacked, case, case.setup.steps * case.setup.batch_size)
        informed = informed_attacks(case.form, case.setup.batch_size, entrants) if case.form else []
        self.entrants = [*entrants, *informed]
        self.rows: list[dict[str, Any]] = []
        self.words: WordsResult | None = None
        self.over: set[tuple[str, str]] = set()  # what failed on the first update is not tried again
        self.sent: dict[str, list[nn.Module]] = {}
        self.prepared: dict[str, Prepared] = {}  # attacks, prepared for all updates
        self.bar: tqdm[Any] | None = None
        self.first = case.trial(0)
        self.first_update = case.observe(self.first)
        self.adversary = view(case.setup.attacker, self.first_update, case.model)
        self.adversaries, self.untried = sort_out(
            [*all_attacks(), *informed], self.adversary, self.first_update, case.model, case.knowledge, self._excluded
        )
        self.remedies: dict[str, Defence] = {}
        self.left_out = [("remedies", "remedy_trials=0")]
        if case.setup.remedy_trials:
            self.remedies, self.left_out = remedies(
                case.model, self.first_update, case.setup.seed, lambda remedy: case.observe(self.first, remedy)
            )
        if case.loss is not None and case.form is None:
            why = "the loss is not a cross-entropy with a factor, class weights or soft targets"
            self.untried.append(("attackers who are informed of the loss", why))

    def _excluded(self, attack: Attack) -> str:
        setup = self.case.setup
        if attack.trained and self.fast:
            return "a fast audit leaves out attackers that are trained, and may miss what they recover"
        if attack.sees == "aggregate" and setup.clients == 1:
            return "it is made for secure aggregation; here every update is seen by itself"
        if attack.standalone_reason and attack not in self.entrants:
            return attack.standalone_reason
        if attack.goal == "images" and not setup.images:
            return "it applies, but an inversion takes minutes an update; ask for a short one with images=ITERATIONS"
        if attack.goal == "images" and attack != (chosen := image_attack(setup)):
            return f"one image attack is run, {chosen.name}"
        if attack.goal != "images" and attack.cost == "minutes":
            return "a recovery takes minutes, too long for every update"
        if attack.sends and not attack.lacking(self.adversary):
            try:
                self.sent[attack.name] = attack.sends(self.case.model, setup.clients, setup.seed)
            except Exception as error:  # an attack of somebody's own may raise anything
                return str(error) or type(error).__name__
        return ""

    def trials(self) -> None:
        """Run all trials, and the remedies on the first of them."""
        setup = self.case.setup
        remedied = min(setup.trials, setup.remedy_trials)
        total = len(self.adversaries) * (setup.trials + len(self.remedies) * remedied)
        self.bar = tqdm(total=total, desc="audit", unit="attack", disable=not self.progress, smoothing=0.1)
        with self.bar, remembered_passes(self.case.attacked):
            self._trials()

    def _trials(self) -> None:
        case, setup = self.case, self.case.setup
        for number in range(setup.trials):
            trial = case.trial(number) if number else self.first
            manipulated = {name: case.trial(number, models) for name, models in self.sent.items()}
            self.guess(number, trial)
            update = self.scenario(AS_IT_IS, None, number, trial, manipulated)
            self.words = count_words(self.words, update, case.model, trial.x)
            for name, remedy in self.remedies.items() if number < setup.remedy_trials else ():
                self.scenario(name, remedy, number, trial, manipulated)

    def guess(self, number: int, done: Trial) -> None:
        """Score the baselines, which see no update."""
        seed = 2**31 + done.seed  # the labels are drawn from others; 32 bits count
        for attack in filter(lambda attack: attack.blind, self.entrants):
            attempts = [
                attempt(
                    attack,
                    self._one_epoch(update),
                    self.case.attacked,
                    PRIOR,
                    {**self.case.knowledge, "seed": seed + 7919 * k},
                )
                for k, update in enumerate(done.updates)
            ]
            counts = [answer.counts for answer in attempts if answer.counts is not None]
            together = Result(torch.stack(counts)) if len(counts) == len(attempts) else None
            reason = next((answer.reason for answer in attempts if answer.reason), "")
            self.note(AS_IT_IS, number, Attempt(attack, together, 0.0, reason), done)

    def scenario(
        self, name: str, remedy: Defence | None, number: int, done: Trial, manipulated: dict[str, Trial]
    ) -> Update:
        """Run all attacks on the updates of one trial, as the set-up or one remedy has them shared; return these."""
        case = self.case
        update = case.observe(done, remedy)
        over = {attack for where, attack in self.over if where in (AS_IT_IS, name)}
        adversary = view(case.setup.attacker, update, case.model)
        attempts = contest(
            update,
            case.attacked,
            adversary,
            case.knowledge,
            attacks=self._announced([a for a in self.entrants if a.name in self.adversaries], over, number, name),
            manipulated={key: (case.observe(trial, remedy), self.sent[key]) for key, trial in manipulated.items()},
            clock=time.perf_counter,
            prepared=self.prepared,
        )
        for answer in map(self._per_epoch, attempts):
            self.note(name, number, answer, done)
            if remedy is None and answer.result is not None and answer.result.low is not None:
                low, high = answer.result.low.cpu(), answer.result.high.cpu()  # type: ignore[union-attr]
                inside = (low <= done.truth[0]) & (done.truth[0] <= high)
                self.rows[-1] |= {"held": inside.double().mean().item(), "width": (high - low).mean().item()}
        return update

    def _announced(self, attacks: list[Attack], over: set[str], number: int, scenario: str) -> Iterator[Attack]:
        for attack in attacks:
            if attack.name not in over:
                if self.bar is not None:
                    self.bar.set_postfix_str(f"update {number + 1}, {scenario}: {attack.name}")
                yield attack
            if self.bar is not None:
                self.bar.update()

    def _one_epoch(self, update: Update) -> Update:
        setup = self.case.setup
        return replace(update, samples=update.samples // setup.epochs, steps=update.steps // setup.epochs)

    def _per_epoch(self, attempt: Attempt) -> Attempt:
        """Return an attempt with the counts of one epoch, of an update that has every sample once an epoch."""
        epochs, result = self.case.setup.epochs, attempt.result
        if result is None or epochs == 1:
            return attempt
        total = (result.counts.sum(-1, keepdim=True) / epochs).round()
        low, high = (end if end is None else end / epochs for end in (result.low, result.high))
        return attempt._replace(
            result=replace(result, counts=apportion(result.counts / epochs, total), low=low, high=high)
        )

    def note(self, scenario: str, number: int, attempt: Attempt, done: Trial) -> None:
        """Note how one attack went."""
        self.rows.append(noted(scenario, number, attempt, done.truth))
        if number == 0 and self.rows[-1]["reason"] is not None:
            self.over.add((scenario, attempt.attack.name))


def audit(setup: Setup, *, progress: bool = False, fast: bool = False) -> Report:
    """Attack a set-up's updates with everything that applies, and report.

    Raises `ValueError` if model, shape, data and defences do not fit each other; see `Setup` and
    `fedleak.audit.case.prepare`.

    Parameters
    ----------
    setup
        The set-up to audit; it is not modified.
    progress
        Show a progress bar: the attack that is running, and the time that is left.
    fast
        Leave out attackers that are trained for the model, which take most of the time; the report names them.
    """
    started = time.perf_counter()
    case = prepare(setup)
    run = Run(case, progress, fast)
    run.trials()
    rows, remarks, never = outcome(run.rows)
    untried, known = [*run.untried, *never], facts(case, run.first_update)
    report = Report(known, rows, [AS_IT_IS, *run.remedies], run.left_out, run.adversaries, untried, remarks)
    report.words = run.words
    if (claimed := claim(setup, len(run.first_update.tensors))) is not None:
        report.privacy = [canary(case, claimed)]
    if setup.images:
        with warnings.catch_warnings(action="ignore"):
            by_name = {attack.name: attack for attack in run.entrants}
            ranking = [by_name[name] for name in report.ranking()]
            report.images = invert_once(case, run.first, run.first_update, ranking)
    known["took"] = time.perf_counter() - started
    return report
