"""`audit`: attack the updates of a set-up, trial after trial, as it stands and with each remedy on top."""

import time
from collections import defaultdict
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedleak.attacks.labels.counts import whole_counts
from fedleak.attacks.labels.guess import uniform_counts
from fedleak.attacks.registry import ADVERSARIES, Adversary, Attack, Need, all_attacks
from fedleak.audit.case import Case, Round, prepare
from fedleak.audit.facts import facts
from fedleak.audit.images import invert_once
from fedleak.audit.report import AS_IT_IS, GUESS, PRIOR, Report
from fedleak.audit.setup import Setup
from fedleak.audit.untried import BEYOND, excluded
from fedleak.errors import WithheldParameter
from fedleak.federated import Update
from fedleak.federated.aggregation import plain_sum
from fedleak.federated.defences import Defence, PureNoise, Sparsification
from fedleak.federated.restricted import Withhold
from fedleak.metrics import class_accuracy, instance_accuracy
from fedleak.models import batch_dependent, head, remember_passes

PROBES = 4096
"""Where batch norm makes each probe batch of LLG* and LLG+ a pass of its own: images of all of them together."""
SHARE = 3
"""An attack that has taken more than one part in so many of the time is not run again."""


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


def remedies(case: Case, update: Update) -> dict[str, tuple[Defence, ...]]:
    """Return what could be put on top of a set-up's defences, by a name that says it.

    The noise goes by the size of the update's own entries: the root mean square of the head's weights, or of all.
    """
    last = head(case.model)
    shared = [name for name in (last.weight, last.bias) if name in update.tensors]
    found: dict[str, tuple[Defence, ...]] = {}
    if shared and len(shared) < len(update.tensors):
        found["last layer not shared"] = (Withhold(shared),)
    found["largest 1 % of each tensor sent"] = (Sparsification(0.99),)
    names = [last.weight] if last.weight in shared else list(update.tensors)
    size = torch.cat([update.tensors[name].flatten() for name in names]).double().square().mean().sqrt().item()
    for factor in (1, 10) if size > 0 else ():
        noise = PureNoise(factor * size, case.setup.seed)
        found[f"noise, σ = {noise.sigma:.2g} ({factor} × the entries' size)"] = (noise,)
    return found


def weakest(attack: Attack, case: Case, seen: Update) -> str:
    """Name the first of the registry's adversaries that can run an attack as it is run here, or the set-up's own."""
    aux = "aux" in case.options(attack, case.view(seen), 1)
    for adversary in ADVERSARIES:
        view = case.view(seen, adversary)
        if not attack.lacking(view) and (not aux or Need.AUXILIARY_DATA in view.has):
            return adversary.name
    return case.setup.attacker.name


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
        labels = [a for a in all_attacks() if a.goal == "labels" and a.name not in (GUESS, PRIOR)]
        self.scenarios: dict[str, tuple[Defence, ...]] = {AS_IT_IS: ()}
        self.attacks = [a for a in labels if not excluded(a, case.setup)]
        self.probes = 10
        if batch_dependent(case.attacked):
            self.probes = min(10, max(1, PROBES // (case.n_classes * case.setup.batch_size)))

    def trials(self) -> tuple[Round, Update]:
        """Run all trials that there is time for; return the first round, and what the server saw of it."""
        case, setup = self.case, self.case.setup
        models, why = case.sent()
        if why:
            self.attacks = [a for a in self.attacks if a.name != "LIA-SA"]
            self.untried.append(("LIA-SA", why))
        started = time.perf_counter()
        plain = extras = 0.0  # how long the latest trial took, and its remedies
        bar = tqdm(range(setup.trials), desc="audit", unit="update", disable=not self.progress)
        for trial in bar:
            begun = time.perf_counter()
            left = setup.seconds - (begun - started)
            if trial and left < 0:
                break
            done = case.round(trial, models)
            if trial == 0:
                first = done, self.server_sees(done)
                self.scenarios |= remedies(case, case.shared(done.updates[0]))
                self.sort_out(first[1])
            self.guess(trial, done)
            self.scenario(AS_IT_IS, trial, done, models)
            plain = time.perf_counter() - begun
            # The set-up as it is comes first: remedies are for the time that its own trials leave.
            if trial == 0 or left > plain * (setup.trials - trial) + extras:
                for name in list(self.scenarios)[1:]:
                    bar.set_postfix_str(name, refresh=False)
                    self.scenario(name, trial, done, models)
                extras = time.perf_counter() - begun - plain
        return first

    def scenario(self, name: str, trial: int, done: Round, models: list[nn.Module]) -> None:
        """Run all attacks on the updates of one trial, as the set-up or one remedy has them shared."""
        seen = self.server_sees(done, self.scenarios[name])
        view = self.case.view(seen)
        for attack in self.attacks:
            if (name, attack.name) not in self.over and not attack.lacking(view):
                self.attack(attack, name, trial, seen, view, done, models)

    def server_sees(self, done: Round, extra: tuple[Defence, ...] = ()) -> Update:
        """Return the one client's update, or the sum of all clients', after the defences."""
        shared = [self.case.shared(update, extra, client) for client, update in enumerate(done.updates)]
        if len(shared) == 1:
            return shared[0]
        if any(update.steps != 1 for update in shared):
            raise ValueError("secure aggregation is audited with one local step (LIA-SA works under FedSGD alone)")
        return plain_sum([Update({k: u.gradient(k) for k in u.tensors}, "gradient", u.samples) for u in shared])

    def sort_out(self, seen: Update) -> None:
        """Say of every attack who could run it, and of those that are not run why."""
        view = self.case.view(seen)
        for attack in all_attacks():
            if attack.name in (GUESS, PRIOR, *dict(self.untried)):
                continue
            why = excluded(attack, self.case.setup)
            if (not why or attack.goal == "images") and (lacks := attack.lacking(view)):
                why = f"the adversary '{view.name}' lacks: {'; '.join(lacks)}"
            if why:
                self.untried.append((attack.name, why))
            else:
                self.adversaries[attack.name] = weakest(attack, self.case, seen)

    def guess(self, trial: int, done: Round) -> None:
        """Note what somebody gets right who has seen no update: by a blind guess, and by one that knows the prior."""
        samples = done.updates[0].samples
        seed = 2**31 + (self.case.setup.seed + 1) * 1_000_003 + trial  # the labels are drawn from others; 32 bits count
        blind = uniform_counts(samples, self.case.n_classes, len(done.truth), torch.Generator().manual_seed(seed))
        prior = whole_counts(self.case.prior * samples, samples).expand(done.truth.shape)
        for name, found in ((GUESS, blind), (PRIOR, prior)):
            self.rows.append(
                {"scenario": AS_IT_IS, "attack": name, "trial": trial, "seconds": 0.0, **score(found, done.truth)}
            )

    def attack(
        self,
        attack: Attack,
        scenario: str,
        trial: int,
        seen: Update,
        view: Adversary,
        done: Round,
        models: list[nn.Module],
    ) -> None:
        """Run one attack on what the server sees of one trial, and note how it went."""
        case, key = self.case, (scenario, attack.name)
        options = case.options(attack, view, self.probes)
        model: Any = case.attacked
        if attack.sees == "aggregate":
            model, options = models, {"batch_size": case.setup.batch_size, "input_shape": case.shape}
        started = time.perf_counter()
        try:
            found = attack(seen, model, adversary=view, **options)
        except (ValueError, RuntimeError, WithheldParameter) as error:
            self.failures.setdefault(key, []).append(str(error).strip().split("\n")[0])
            if trial == 0:
                self.over.add(key)
            return
        seconds = time.perf_counter() - started
        self.spent[key] += seconds
        if self.spent[key] > case.setup.seconds / SHARE:
            self.over.add(key)
        found = found.cpu().reshape(done.truth.shape)
        row = {"scenario": scenario, "attack": attack.name, "trial": trial, "seconds": seconds}
        self.rows.append({**row, **score(found, done.truth)})


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
    with remember_passes(case.attacked):
        done, seen = run.trials()
        known = facts(case, seen, done)
    rows = pd.DataFrame(run.rows)
    for attack in run.attacks:
        complaints = run.failures.get((AS_IT_IS, attack.name))
        if complaints and attack.name not in set(rows["attack"]):
            run.untried.append((attack.name, complaints[0]))
    partly = {
        name: f"failed in {len(texts)} of its trials: {texts[0]}"
        for (scenario, name), texts in run.failures.items()
        if scenario == AS_IT_IS and name in set(rows["attack"])
    }
    report = Report(known, rows, tuple(run.scenarios), run.adversaries, tuple(run.untried), BEYOND, partly)
    if setup.images:
        report.images = invert_once(case, done, seen, report)
    report.facts["seconds"] = time.perf_counter() - started
    return report
