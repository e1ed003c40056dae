"""`audit`: attack the updates of a set-up, trial after trial, as it stands and with each remedy on top."""

import time
from collections import defaultdict

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedleak.attacks.contest import Attempt, attempt, contest, entrants, view
from fedleak.attacks.registry import ADVERSARIES, Adversary, Attack, Need, all_attacks
from fedleak.audit.case import Case, Trial, prepare
from fedleak.audit.facts import facts
from fedleak.audit.findings import AS_IT_IS
from fedleak.audit.images import invert_once
from fedleak.audit.report import Report
from fedleak.audit.setup import Setup
from fedleak.audit.untried import BEYOND, excluded
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protections
from fedleak.metrics import class_accuracy, instance_accuracy
from fedleak.models import head

SHARE = 3
"""An attack that has taken more than one part in so many of the time is not run again."""
PRIOR = Adversary("no update", frozenset({Need.SAMPLE_COUNT, Need.AUXILIARY_DATA}))
"""Who guesses: somebody who knows at most how often each class occurs."""


def score(found: Tensor, truth: Tensor) -> dict[str, float]:
    """Return instance accuracy, class accuracy and the share of exact counts over K clients, ``[K, n]`` both.

    An attack that names no label at all has found no instance.
    """
    named = found.sum(-1) > 0
    iacc, cacc = torch.zeros(len(found), dtype=torch.float64), (truth == 0).double().mean(-1)
    if named.any():
        iacc[named] = instance_accuracy(found[named], truth[named])
        cacc[named] = class_accuracy(found[named], truth[named])
    exact = (found == truth).all(-1).double()
    return {"iacc": iacc.mean().item(), "cacc": cacc.mean().item(), "exact": exact.mean().item()}


def remedies(case: Case, done: Trial) -> tuple[dict[str, Defence], list[tuple[str, str]]]:
    """Return what can be put on top of a set-up's defences, by a name that says it, and what cannot, with why.

    Strengths that are relative go by the size of the update's own entries: the root mean square of the head's weights,
    or of all.
    """
    found: dict[str, Defence] = {}
    left_out, seen, weight = [], case.seen(done), head(case.model).weight
    entries = [seen.tensors[weight]] if weight in seen.tensors else list(seen.tensors.values())
    size = torch.cat([t.flatten() for t in entries]).double().square().mean().sqrt().item() if entries else 0.0
    for kind in protections().values():
        for strength in kind.audited:
            value = strength * size if kind.relative else strength
            name = kind.words(value) + (f" ({strength:g} × the entries' size)" if kind.relative else "")
            try:
                defence = kind.make(value, case.model, 1, case.setup.seed)
                if not case.seen(done, defence).tensors:
                    raise ValueError("nothing would be shared")
                found[name] = defence
            except Exception as error:  # a defence of somebody's own may raise anything
                left_out.append((name, str(error).split("\n")[0]))
    return found, left_out


class Run:
    """An audit on its way: what is tried, what it found, and how long it took.

    Parameters
    ----------
    case
        The set-up, made ready.
    progress
        Show a bar.
    """

    def __init__(self, case: Case, progress: bool):
        self.case, self.progress = case, progress
        self.rows: list[dict] = []
        self.failures: dict[tuple[str, str], list[str]] = {}
        self.spent: dict[tuple[str, str], float] = defaultdict(float)
        self.over: set[tuple[str, str]] = set()
        self.untried: list[tuple[str, str]] = []
        self.adversaries: dict[str, str] = {}
        self.remedies: dict[str, Defence] = {}
        self.left_out: list[tuple[str, str]] = []
        self.guesses = [attack for attack in entrants() if attack.blind]
        self.attacks = [a for a in entrants() if not a.blind and not excluded(a, case.setup)]
        self.sent: dict[str, list[nn.Module]] = {}

    def trials(self) -> Trial:
        """Run all trials that there is time for; return the first."""
        case, setup = self.case, self.case.setup
        started = time.perf_counter()
        plain = extras = 0.0  # how long the latest trial took, and its remedies
        bar = tqdm(range(setup.trials), desc="audit", unit="update", disable=not self.progress)
        for number in bar:
            begun = time.perf_counter()
            left = setup.seconds - (begun - started)
            if number and left < 0:
                break
            done = case.trial(number)
            if number == 0:
                first = done
                self.sort_out(case.seen(done))
                self.remedies, self.left_out = remedies(case, done)
            fished = {name: case.trial(number, models) for name, models in self.sent.items()}
            self.guess(number, done)
            self.scenario(AS_IT_IS, None, number, done, fished)
            plain = time.perf_counter() - begun
            # The set-up as it is comes first: remedies are for the time that its own trials leave.
            if number == 0 or left > plain * (setup.trials - number) + extras:
                for name, remedy in self.remedies.items():
                    bar.set_postfix_str(name, refresh=False)
                    self.scenario(name, remedy, number, done, fished)
                extras = time.perf_counter() - begun - plain
        return first

    def sort_out(self, seen: Update) -> None:
        """Say of every attack who could run it, and of those that are not run why; make the models that are sent."""
        case, setup = self.case, self.case.setup
        who = view(setup.attacker, seen, case.model)
        for attack in all_attacks():
            if attack.blind:
                continue
            why = excluded(attack, setup)
            if (not why or attack.goal == "images") and (lacks := attack.lacking(who)):
                why = f"the adversary '{who.name}' lacks: {'; '.join(lacks)}"
            if not why and attack.sends:
                try:
                    self.sent[attack.name] = attack.sends(case.model, setup.clients, setup.seed)
                except Exception as error:  # an attack of somebody's own may raise anything
                    why = str(error) or type(error).__name__
            if why:
                self.untried.append((attack.name, why))
            else:
                self.adversaries[attack.name] = self.weakest(attack, who, seen)

    def weakest(self, attack: Attack, who: Adversary, seen: Update) -> str:
        """Name the first of the registry's adversaries that can run an attack as it is run here, or the set-up's."""
        used = attack.inputs(who, self.case.held).keys()
        for adversary in ADVERSARIES:
            weaker = view(adversary, seen, self.case.model)
            if not attack.lacking(weaker) and attack.inputs(weaker, self.case.held).keys() == used:
                return adversary.name
        return who.name

    def guess(self, number: int, done: Trial) -> None:
        """Note what somebody gets right who has seen no update."""
        seed = 2**31 + done.seed  # the labels are drawn from others; 32 bits count
        helds = [{**self.case.held, "seed": seed + 7919 * k} for k in range(len(done.updates))]
        for attack in self.guesses:
            each = [
                attempt(attack, update, self.case.attacked, PRIOR, held)
                for update, held in zip(done.updates, helds, strict=True)
            ]
            found = [one.found for one in each if one.found is not None]
            stacked = torch.stack(found) if len(found) == len(each) else None
            one = next((one for one in each if one.reason), each[0])
            self.note(AS_IT_IS, number, one._replace(found=stacked, seconds=0.0), done)

    def scenario(self, name: str, remedy: Defence | None, number: int, done: Trial, fished: dict[str, Trial]) -> None:
        """Run all attacks on the updates of one trial, as the set-up or one remedy has them shared."""
        case = self.case
        seen = case.seen(done, remedy)
        attempts = contest(
            seen,
            case.attacked,
            view(case.setup.attacker, seen, case.model),
            case.held,
            attacks=[attack for attack in self.attacks if (name, attack.name) not in self.over],
            fished={key: (case.seen(trial, remedy), self.sent[key]) for key, trial in fished.items()},
            clock=time.perf_counter,
        )
        for one in attempts:
            self.note(name, number, one, done)

    def note(self, scenario: str, number: int, one: Attempt, done: Trial) -> None:
        """Note how one attack went."""
        key, found, reason = (scenario, one.attack.name), one.found, one.reason
        if found is not None and found.numel() != done.truth.numel():
            reason = f"it names the labels of {found.numel() // found.shape[-1]} clients, not of {len(done.truth)}"
        if found is None or reason:
            self.failures.setdefault(key, []).append(reason.strip().split("\n")[0])
            if number == 0:
                self.over.add(key)
            return
        self.spent[key] += one.seconds
        if self.spent[key] > self.case.setup.seconds / SHARE:
            self.over.add(key)
        row = {"scenario": scenario, "attack": one.attack.name, "trial": number, "seconds": one.seconds}
        self.rows.append({**row, **score(found.reshape(done.truth.shape), done.truth)})


def audit(setup: Setup, *, progress: bool = False) -> Report:
    """Attack a set-up's updates with everything that applies, and report.

    Parameters
    ----------
    setup
        What is audited; nothing of it is changed.
    progress
        Show a progress bar.

    Raises
    ------
    ValueError
        If model, shape, data and defences do not fit each other; see `Setup` and `fedleak.audit.case.prepare`.
    """
    started = time.perf_counter()
    case = prepare(setup)
    run = Run(case, progress)
    first = run.trials()
    seen = case.seen(first)
    known = facts(case, seen, first)
    rows = pd.DataFrame(run.rows)
    partly = {}
    for (scenario, name), texts in run.failures.items():
        if scenario == AS_IT_IS and name in set(rows["attack"]):
            partly[name] = f"failed in {len(texts)} of its trials: {texts[0]}"
        elif scenario == AS_IT_IS:
            run.untried.append((name, texts[0]))
    guesses = tuple(attack.name for attack in run.guesses if attack.name in set(rows["attack"]))
    report = Report(
        facts=known,
        rows=rows,
        guesses=guesses,
        scenarios=(AS_IT_IS, *run.remedies),
        left_out=tuple(run.left_out),
        adversaries=run.adversaries,
        untried=tuple(run.untried),
        beyond=BEYOND,
        partly=partly,
    )
    if setup.images:
        report.images = invert_once(case, first, seen, report.ranking())
    report.facts["seconds"] = time.perf_counter() - started
    return report
