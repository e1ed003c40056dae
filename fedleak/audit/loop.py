"""The loop of every audit: baselines, attacks and remedies on update after update, and the rows of their outcomes."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import groupby
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedleak.attacks.contest import Attempt, attempt, contest, entrants, view
from fedleak.attacks.registry import ADVERSARIES, WHITE_BOX, Adversary, Attack, Need, all_attacks
from fedleak.attacks.result import Prepared, Result
from fedleak.audit.case import Case
from fedleak.audit.classifier import Classifier
from fedleak.audit.report import Report
from fedleak.audit.tables import AS_IT_IS, WordsResult, count_words
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protections
from fedleak.metrics import class_accuracy, instance_accuracy
from fedleak.models.inputs import has_integer_inputs
from fedleak.models.memory import unchanged

UNLABELLED = "have no recorded labels"
ROW = ("scenario", "attack", "trial", "seconds", "iacc", "cacc", "exact", "reason", "broke", "unmet", "fits", "proven")
"""Columns of the outcomes, where there are none."""
PRIOR = Adversary("no update", frozenset({Need.SAMPLE_COUNT, Need.AUXILIARY_DATA}))
"""The adversary of the baselines: it knows at most how often each class occurs."""
PROVES_HARD_LABELS = ("iDLG",)
"""Attacks, also at another scale, whose proofs hold for a cross-entropy with hard labels alone; others compare with the
model's gradients."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Observation:
    """One update as the server sees it, and what an attack on it may take."""

    number: int
    classifier: Classifier
    """The model that the server sent."""
    knowledge: dict[str, Any]
    """Inputs of attacks, by `fedleak.attacks.registry.INPUTS`."""
    attacks: Sequence[Attack]
    """Attacks that may run on it, baselines included."""
    update: Callable[[Defence | None], Update]
    """Returns the update, with a defence added if one is given."""
    forms: Callable[[Update, Defence | None], dict[str, Any]] = lambda update, _: {"update": update}
    """Returns the arguments of `contest` that depend on the update: itself, and its further forms."""
    guessed: Sequence[tuple[Update, int]]
    """Each client's update, on which baselines guess, and their seed."""
    truth: Tensor | None
    """Label counts ``[K, n]`` of K clients; None if they are not known."""
    has_hard_labels: bool
    """Whether the loss is known to be a cross-entropy with one label per sample."""
    is_altered: bool
    """Whether a defence may break what attacks assume; otherwise what they contradict was not recorded rightly."""
    epochs: int = 1
    """How often every sample is in the update; scores are those of one epoch."""
    texts: Tensor | None = None
    """The clients' inputs, to compare recovered words with."""
    about: dict[str, Any] = field(default_factory=dict)
    """Further columns of the rows on this update."""

    def row(self, scenario: str, attempt: Attempt) -> dict[str, Any]:
        """Return a row on how an attack went: scored if there is a truth.

        Its ``reason`` says why it failed, None if it did not; ``broke`` whether it failed by an error of its own;
        ``fits`` whether its assumptions hold as far as they have to. ``proven`` is NaN for attacks that prove nothing.
        """
        name, result, truth = attempt.attack.name, attempt.result, self.truth
        if result is not None and self.epochs > 1 and not attempt.attack.blind:
            result = _take_one_epoch(result, self.epochs)
        row = {"scenario": scenario, "attack": name, "trial": self.number, **self.about, "seconds": attempt.seconds}
        row |= {"iacc": math.nan, "cacc": math.nan, "exact": math.nan, "reason": None, "broke": attempt.unforeseen}
        row["unmet"] = "; ".join(result.violated_assumptions) if result else ""
        row["fits"] = self.is_altered or not row["unmet"]
        is_proof = self.has_hard_labels or name.split(",")[0] not in PROVES_HARD_LABELS
        proven = result.proven if result is not None and is_proof else None
        row["proven"] = math.nan if proven is None else float(proven.sum())
        if result is None:
            row["reason"] = attempt.reason.strip().split("\n")[0]
        elif truth is not None and result.counts.numel() != truth.numel():
            clients = result.counts.numel() // result.counts.shape[-1]
            row["reason"] = f"it recovers the labels of {clients} clients, not of {len(truth)}"
        elif truth is not None:
            row |= score(result.counts.cpu().reshape(truth.shape), truth)
            if scenario == AS_IT_IS and result.low is not None and result.high is not None:
                low, high = result.low.cpu(), result.high.cpu()
                inside = (low <= truth[0]) & (truth[0] <= high)
                row |= {"held": inside.double().mean().item(), "width": (high - low).mean().item()}
        return row


def _take_one_epoch(result: Result, epochs: int) -> Result:
    from fedleak.attacks.labels.counts import apportion  # its package imports all label attacks, and scipy

    total = (result.counts.sum(-1, keepdim=True) / epochs).round()
    low, high = (end if end is None else end / epochs for end in (result.low, result.high))
    return replace(result, counts=apportion(result.counts / epochs, total), low=low, high=high)


def score(counts: Tensor, truth: Tensor) -> dict[str, float]:
    """Return instance accuracy, class accuracy and the share of exact counts over K clients, ``[K, n]`` both."""
    return {
        "iacc": instance_accuracy(counts, truth).mean().item(),
        "cacc": class_accuracy(counts, truth).mean().item(),
        "exact": (counts == truth).all(-1).double().mean().item(),
    }


def less_than_server(adversary: Adversary, update: Update, model: nn.Module) -> str:
    """Return what an adversary lacks that every server has, the model and all that is shared; "" if nothing."""
    missing = view(WHITE_BOX, update, model).has - adversary.has
    lacks = "; ".join(need.value for need in Need if need in missing)
    return lacks and f"the adversary '{adversary.name}' lacks what the server has: {lacks}"


def taking_part(classifier: Classifier, case: Case | None, samples: int) -> list[Attack]:
    """Return the attacks on update after update, and of those that run apart the ones that are for such updates."""
    x = None if case is None else case.aux.x[:1]
    return [*entrants(trained=True), *(a for a in all_attacks() if a.applies(classifier.model, x, samples))]


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
        self.bar = tqdm(desc="audit", unit="attack", disable=None if progress else True, smoothing=0.1)  # not in a log
        self.rows: list[dict[str, Any]] = []
        self.unscored: list[dict[str, Any]] = []
        self.words: WordsResult | None = None
        self.adversaries: dict[str, str] = {}
        self.untried: list[tuple[str, str]] = []
        self.remedies: dict[str, Defence] = {}
        self.left_out = [] if remedied else [("remedies", "remedy_trials=0")]
        self.over: set[tuple[str, str]] = set()
        self.prepared: dict[str, Prepared] = {}

    def sort_out(
        self, attacks: Iterable[Attack], first: Observation, update: Update, exclude: Callable[[Attack], str]
    ) -> None:
        """Note the weakest adversary who could run each attack, and the attacks that are not run, with why.

        `update` is the first one, and `exclude` says why an attack is not tried whatever the adversary has, or "".
        """
        adversary = view(self.adversary, update, first.classifier.model)
        for attack in (attack for attack in attacks if not attack.blind):
            why = exclude(attack)
            if (not why or attack.goal == "images") and (lacks := attack.lacking(adversary)):
                why = f"the adversary '{adversary.name}' lacks: {'; '.join(lacks)}"
            if why:
                self.untried.append((attack.name, why))
            else:
                self._note_weakest(attack, first, update)

    def _note_weakest(self, attack: Attack, observation: Observation, update: Update) -> None:
        """Note the first of the registry's adversaries that can run an attack with the same inputs."""
        adversary, *weaker = (
            view(candidate, update, observation.classifier.model) for candidate in (self.adversary, *ADVERSARIES)
        )
        used = attack.inputs(adversary, observation.knowledge).keys()
        able = (w for w in weaker if not attack.lacking(w) and attack.inputs(w, observation.knowledge).keys() == used)
        self.adversaries[attack.name] = next(able, adversary).name

    def run(self, observations: Iterable[Observation]) -> None:
        """Attack all updates, as they are and with each remedy."""
        for classifier, of_model in groupby(observations, lambda observation: observation.classifier):
            self.prepared = {}
            with unchanged(classifier.model):
                for observation in of_model:
                    self._attack(observation)

    def _attack(self, observation: Observation) -> None:
        update, remedied, first = observation.update(None), observation.number in self.remedied, len(self.rows)
        if remedied and not self.remedies:
            self._make_remedies(observation, update)
        attacks = sum(not attack.blind for attack in observation.attacks)
        self.bar.total = attacks * (self.updates + len(self.remedies) * len(self.remedied))
        self.rows += [observation.row(AS_IT_IS, blind) for blind in guess(observation)]
        self._attempt_all(AS_IT_IS, observation, update)
        if all(math.isnan(row["iacc"]) for row in self.rows[first:]):
            why = next((row["reason"] for row in self.rows[first:] if row["reason"]), "no attack applies")
            why = UNLABELLED if observation.truth is None else f"could not be scored: {why}"
            self.unscored.append({"trial": observation.number, **observation.about, "why": why})
        self.words = count_words(self.words, update, observation.classifier.model, observation.texts)
        for name, remedy in self.remedies.items() if remedied else ():
            self._attempt_all(name, observation, observation.update(remedy), remedy)

    def _attempt_all(
        self, scenario: str, observation: Observation, update: Update, remedy: Defence | None = None
    ) -> None:
        for answer in contest(
            model=observation.classifier.model,
            adversary=view(self.adversary, update, observation.classifier.model),
            knowledge=observation.knowledge,
            attacks=self._announced(observation, scenario),
            clock=time.perf_counter,
            prepared=self.prepared,
            **observation.forms(update, remedy),
        ):
            self.rows.append(observation.row(scenario, answer))
            if answer.counts is not None and answer.attack.name not in self.adversaries:  # it could not read the first
                self._note_weakest(answer.attack, observation, update)
            if not self.repeats and observation.number == 0 and self.rows[-1]["reason"] is not None:
                self.over.add((scenario, answer.attack.name))

    def _announced(self, observation: Observation, scenario: str) -> Iterator[Attack]:
        for attack in (attack for attack in observation.attacks if not attack.blind):
            if self.over.isdisjoint({(AS_IT_IS, attack.name), (scenario, attack.name)}):
                self.bar.set_postfix_str(f"update {observation.number + 1}, {scenario}: {attack.name}")
                yield attack
            self.bar.update()

    def _make_remedies(self, observation: Observation, update: Update) -> None:
        """Make the defences that can be added to a client's update, and note those that cannot, with the reason.

        Strengths that are relative go by the size of the update's own entries: the root mean square of the head's
        weights, or of all.
        """
        model, weight = observation.classifier.model, observation.classifier.head.weight
        entries = [update.tensors[weight]] if weight in update.tensors else list(update.tensors.values())
        size = torch.cat([t.flatten() for t in entries]).double().square().mean().sqrt().item() if entries else 0.0
        for kind in protections().values():
            for strength in kind.remedies:
                value = strength * size if kind.relative else strength
                name = kind.words(value) + (f" ({strength:g} × the entries' size)" if kind.relative else "")
                try:
                    defence = kind.make(value, model, 1, self.seed)
                    if not observation.update(defence).tensors:
                        raise ValueError("nothing would be shared")
                    self.remedies[name] = defence
                except Exception as error:  # a defence of somebody's own may raise anything
                    self.left_out.append((name, str(error).split("\n")[0]))

    def report(self, classifier: Classifier, facts: dict[str, Any]) -> Report:
        """Return the report on all updates so far, with these facts about them and those about any audit."""
        self.bar.close()
        facts |= {
            "classes": classifier.n_classes,
            "head": classifier.head.name or "the model itself",
            "tied": classifier.head.tied,
            "tokens": bool(classifier.tokens) or has_integer_inputs(classifier.model),
            "adversary": self.adversary.name,
            "versions": f"fedleak {version('fedleak')}, torch {torch.__version__}, {torch.get_num_threads()} threads",
            "seed": self.seed,
        }
        rows, remarks, never, broken = _summarise(self.rows)
        untried = [*((name, why) for name, why in self.untried if name not in self.adversaries), *never]
        scenarios = [AS_IT_IS, *self.remedies]
        report = Report(facts, rows, scenarios, self.left_out, self.adversaries, untried, remarks)
        report.words, report.broken, report.unscored = self.words, broken, self.unscored
        return report


def guess(observation: Observation) -> Iterator[Attempt]:
    """Yield the attempts of the baselines, which see no update, on all clients together."""
    for attack in (attack for attack in observation.attacks if attack.blind):
        attempts = [
            attempt(attack, update, observation.classifier.model, PRIOR, {**observation.knowledge, "seed": seed})
            for update, seed in observation.guessed
        ]
        counts = [answer.counts for answer in attempts if answer.counts is not None]
        if len(counts) == len(attempts):
            yield Attempt(attack, Result(torch.stack(counts)), 0.0, "")


def _summarise(
    rows: list[dict[str, Any]],
) -> tuple[pd.DataFrame, dict[str, str], list[tuple[str, str]], dict[str, str]]:
    """Return the rows with scores, and of attacks without a remedy: remarks on those that worked, why others did not.

    A remark says how often and why an attack failed, and which of its assumptions were violated. Last come the attacks
    that failed to read more than half of the updates by an error of their own, with the error.
    """
    attempts = pd.DataFrame(rows, columns=None if rows else ROW)
    as_is = attempts[attempts["scenario"] == AS_IT_IS]
    worked = set(as_is.loc[as_is["reason"].isna(), "attack"])
    failed = as_is.dropna(subset="reason").groupby("attack", sort=False)["reason"].agg(list)
    remarks = {name: f"failed in {len(of)} of its trials: {of[0]}" for name, of in failed.items() if name in worked}
    for name, unmet in as_is[as_is["unmet"] != ""].groupby("attack", sort=False)["unmet"].first().items():
        remarks[name] = "; ".join(filter(None, [remarks.get(name), unmet]))
    never = [(name, of[0]) for name, of in failed.items() if name not in worked]
    errors = as_is[as_is["broke"]].groupby("attack", sort=False)["reason"].agg(list)
    broken = {name: of[0] for name, of in errors.items() if 2 * len(of) > as_is["trial"].nunique()}
    return attempts.dropna(subset="iacc").drop(columns=["reason", "unmet", "broke"]), remarks, never, broken
