"""`audit`: attack the updates of a set-up, trial after trial, as it stands and with each remedy on top."""

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from fedleak.attacks.contest import Attempt, attempt, view
from fedleak.attacks.labels import any_scale
from fedleak.attacks.labels.counts import apportion
from fedleak.attacks.registry import Attack, all_attacks
from fedleak.attacks.result import Result
from fedleak.audit.beyond_labels import invert_once
from fedleak.audit.canary import canary, claim
from fedleak.audit.case import Case, Trial, image_attack, prepare
from fedleak.audit.facts import describe_loss, facts
from fedleak.audit.findings import AS_IT_IS, noted
from fedleak.audit.loop import PRIOR, Loop, Observation, sort_out, taking_part
from fedleak.audit.report import Report
from fedleak.audit.setup import Setup
from fedleak.federated import Update
from fedleak.federated.defences import ClippedNoise, Defence, PureNoise
from fedleak.federated.losses import TOLERANCE
from fedleak.federated.restricted import Withhold
from fedleak.models import head
from fedleak.models.memory import unchanged


class Run:
    """An audit of a set-up on its way: what is tried, and the loop over its trials."""

    def __init__(self, case: Case, progress: bool, fast: bool = False):
        case = replace(case, knowledge={**case.knowledge, "progress": progress})
        self.case, self.fast, setup = case, fast, case.setup
        self.entrants = taking_part(case.attacked, case, setup.steps * setup.batch_size)
        self.sent: dict[str, list[nn.Module]] = {}
        self.first = case.trial(0)
        self.first_update = case.observe(self.first)
        self.adversary = view(setup.attacker, self.first_update, case.model)
        remedied = range(min(setup.trials, setup.remedy_trials))
        self.loop = Loop(setup.attacker, setup.seed, setup.trials, remedied, repeats=False, progress=progress)
        self.loop.left_out = [] if remedied else [("remedies", "remedy_trials=0")]
        self.loop.adversaries, self.loop.untried = sort_out(
            all_attacks(),
            self.adversary,
            self.first_update,
            case.model,
            case.knowledge,
            self._excluded,
        )

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
        with unchanged(self.case.attacked):
            for number in range(self.case.setup.trials):
                self.loop.attack(self.observe(number))
        doubt = self._doubt()
        for row in self.loop.rows:
            row["doubt"] = doubt

    def _doubt(self) -> str:
        """Return why low numbers are no all-clear: what the clients do that no attack undoes; "" if there is nothing.

        The mean cross-entropy times a factor, and clipping, change the scale alone, which one attack estimates. Noise
        has the mean 0, and withheld tensors are absent.
        """
        case, setup = self.case, self.case.setup
        if setup.dp_sgd is not None:
            return "the clients run DP-SGD: judge it by its ε (--epsilon-above)"
        factor = 1.0 if case.loss is None else case.form and case.form.factor(setup.batch_size)
        if not factor or factor <= 0:
            return f"the clients' loss is not the mean cross-entropy times a factor, but {describe_loss(case)}"
        others = [type(d).__name__ for d in setup.defences if not isinstance(d, PureNoise | Withhold | ClippedNoise)]
        if others:
            return f"no attack undoes the defence {others[0]}"
        last, shared = head(case.model), self.first_update.tensors
        trained = {name for name, p in case.model.named_parameters() if p.requires_grad}
        if last.weight in trained - shared.keys() and last.bias in shared:
            return "the last layer's bias is shared without its weight, which no attack reads"
        is_scaled = abs(factor - 1) > TOLERANCE or any(isinstance(d, ClippedNoise) for d in setup.defences)
        as_is = [row for row in self.loop.rows if row["scenario"] == AS_IT_IS and row["reason"] is None]
        read = sum(row["attack"] == any_scale.NAME for row in as_is)
        if is_scaled and (2 * read < setup.trials or (self.first_update.steps > 1 and not trained <= shared.keys())):
            return f"the scale of the updates is not known, and {any_scale.NAME!r} did not read them"
        return ""

    def observe(self, number: int) -> Observation:
        """Draw a trial, and return what the server sees of it."""
        case, trial = self.case, self.case.trial(number) if number else self.first
        manipulated = {name: case.trial(number, models) for name, models in self.sent.items()}
        attacks = [attack for attack in self.entrants if attack.name in self.loop.adversaries]

        def arguments(update: Update, remedy: Defence | None) -> dict[str, Any]:
            answers = {name: (case.observe(t, remedy), self.sent[name]) for name, t in manipulated.items()}
            return {"update": update, "manipulated": answers}

        forms = partial(case.observe, trial), arguments, self.guesses(trial), partial(self._row, number, trial)
        return Observation(number, case.attacked, case.knowledge, attacks, *forms, trial.x)

    def guesses(self, trial: Trial) -> Iterator[Attempt]:
        """Yield the attempts of the baselines, which see no update."""
        seed = 2**31 + trial.seed  # the labels are drawn from others; 32 bits count
        for attack in filter(lambda attack: attack.blind, self.entrants):
            attempts = [
                attempt(
                    attack,
                    self._one_epoch(update),
                    self.case.attacked,
                    PRIOR,
                    {**self.case.knowledge, "seed": seed + 7919 * k},
                )
                for k, update in enumerate(trial.updates)
            ]
            counts = [answer.counts for answer in attempts if answer.counts is not None]
            together = Result(torch.stack(counts)) if len(counts) == len(attempts) else None
            reason = next((answer.reason for answer in attempts if answer.reason), "")
            yield Attempt(attack, together, 0.0, reason)

    def _one_epoch(self, update: Update) -> Update:
        epochs = self.case.setup.epochs
        return replace(update, samples=update.samples // epochs, steps=update.steps // epochs)

    def _row(self, number: int, trial: Trial, scenario: str, attempt: Attempt) -> dict[str, Any]:
        attempt = attempt if attempt.attack.blind else self._per_epoch(attempt)
        loss, form = self.case.loss, self.case.form
        has_hard_labels = loss is None or (form is not None and (form.factor(self.case.setup.batch_size) or 0.0) > 0)
        row = noted(scenario, number, attempt, trial.truth, has_hard_labels)
        if scenario == AS_IT_IS and attempt.result is not None and attempt.result.low is not None:
            low, high = attempt.result.low.cpu(), attempt.result.high.cpu()  # type: ignore[union-attr]
            inside = (low <= trial.truth[0]) & (trial.truth[0] <= high)
            row |= {"held": inside.double().mean().item(), "width": (high - low).mean().item()}
        return row

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
    described = facts(case, run.first_update)
    report = run.loop.report(described)
    if (claimed := claim(setup, len(run.first_update.tensors))) is not None:
        report.privacy = [canary(case, claimed)]
    if setup.images:
        with warnings.catch_warnings(action="ignore"):
            by_name = {attack.name: attack for attack in run.entrants}
            ranking = [by_name[name] for name in report.ranking()]
            report.images = invert_once(case, run.first, run.first_update, ranking)
    described["took"] = time.perf_counter() - started
    return report
