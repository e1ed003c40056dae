"""An audit of a run that really took place: a folder of rounds, every update attacked, and the same report.

See `fedleak.federated.recording` for the folder.
"""

import copy
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedleak.attacks.contest import Attempt, attempt, contest, entrants, view
from fedleak.attacks.registry import ADVERSARIES, EAVESDROPPER, WHITE_BOX, WITH_AUXILIARY, Adversary, adversary_of, get
from fedleak.audit.case import Case, fresh, prepare
from fedleak.audit.findings import AS_IT_IS
from fedleak.audit.run import PRIOR, remedies, score
from fedleak.audit.run_report import RunReport, facts, sections
from fedleak.audit.setup import Setup
from fedleak.audit.untried import BEYOND
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protect
from fedleak.federated.recording import Contribution, read
from fedleak.models import batch_dependent, head, remember_passes
from fedleak.models.states import bare

UNSEEN = (
    (
        "what was not recorded",
        "clients and rounds that are not in the folder, and what travels beside the model",
    ),
    (
        "what was told wrongly",
        "samples, labels, steps and learning rate are taken as recorded; a mod sees only what the mods behind it leave",
    ),
)


class _Server(NamedTuple):
    """What the audit knows beside the run: the model and the data of a set-up, or neither."""

    case: Case | None
    adversary: Adversary
    seed: int
    seconds: float

    def model(self, one: Contribution) -> nn.Module:
        """Return the model as it was sent."""
        state, _ = one.states()
        if self.case is None:
            return bare(state)
        model = copy.deepcopy(self.case.attacked)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{one.path}: its state is not of the set-up's model: {reason:.300}") from error
        remember_passes(model)
        return model

    def held(self, one: Contribution, model: nn.Module, number: int) -> dict[str, Any]:
        """Return what attacks may take, by `fedleak.attacks.registry.INPUTS`."""
        held: dict[str, Any] = {
            "scheme": one.scheme,
            "seed": self.seed * 1_000_003 + number,
            "batch_size": one.batch_size,
        }
        case = self.case
        if case is not None:
            held["input_shape"] = case.shape
            held["runs"] = 3 if batch_dependent(model) else None
        if case is not None and case.setup.data is not None:
            held |= {"aux": case.aux, "prior": case.aux.class_counts.double() / len(case.aux)}
        return held

    def attempts(
        self, one: Contribution, update: Update, model: nn.Module, number: int, guesses: bool = False
    ) -> list[Attempt]:
        """Run every attack that applies to one update."""
        held, who = self.held(one, model, number), view(self.adversary, update, model)
        # Attacks that take the scheme read the change of the weights with it, and the others as plain SGD's.
        told = Update(update.tensors, update.kind, update.samples, update.steps, one.lr)
        blind = [attempt(attack, update, model, PRIOR, held) for attack in entrants() if attack.blind and guesses]
        seeing = [attack for attack in entrants() if not attack.blind and attack.sees == "one update"]
        return [*blind, *contest(told, model, who, held, attacks=seeing, plain=update, clock=time.perf_counter)]


def audit_run(
    folder: Path | str, setup: Setup | None = None, *, gaps: bool = False, progress: bool = False
) -> RunReport:
    """Attack every update of a recorded run with all that applies, and report.

    Parameters
    ----------
    folder
        Of the run.
    setup
        Of it count the model (its weights do not), the data (for adversaries who have some), the adversary, ``seed``
        and ``seconds``, after which no further remedy is tried. Without it the adversary has no model: the last matrix
        in the recorded states is taken for the head, and attacks that need no more are run.
    gaps
        Accept missing rounds.
    progress
        Show a progress bar.

    Raises
    ------
    ValueError, FileNotFoundError
        As for `fedleak.federated.recording.read`, or if the run is of another model than the set-up's.
    """
    started = time.perf_counter()
    run = read(folder, gaps=gaps)
    server, found = _server(setup), _Found()
    model, loaded = nn.Module(), ""
    for number, one in enumerate(tqdm(run, desc="audit", unit="update", disable=not progress)):
        if one.before != loaded:
            model, loaded = server.model(one), one.before
        update = one.update()
        if number == 0:
            known = facts(run, setup, view(server.adversary, update, model), update, model, Path(folder))
            found.sort_out(server, one, update, model)
        found.note(AS_IT_IS, number, one, server.attempts(one, update, model, number, guesses=True), model)
    tried: dict[str, Defence] = {}
    left_out: list[tuple[str, str]] = []
    for number, one in _spread([(number, one) for number, one in enumerate(run) if one.counts is not None]):
        if tried and time.perf_counter() - started > server.seconds:
            break
        update, model = one.update(), server.model(one)
        if not tried:
            tried, left_out = remedies(_as_case(server, update, model), None)  # type: ignore[arg-type]
        for name, defence in tried.items():
            shared = protect(update, fresh(defence, server.seed + number))
            found.note(name, number, one, server.attempts(one, shared, model, number), model)
    known["seconds"] = time.perf_counter() - started
    report = found.report(tuple(tried), left_out, known)
    known["sections"] = lambda mark: sections(report, mark)
    return report


def agreement(found: Mapping[str, Tensor]) -> pd.Series:
    """Return how much each attack's counts ``[n]`` agree with the others': the mean share of labels in common.

    It is an attacker's own measure of doubt, who has no truth to compare with. Attacks can agree and be wrong.
    """
    shares: dict[str, list[float]] = defaultdict(list)
    for (a, left), (b, right) in combinations(found.items(), 2):
        share = 2 * torch.minimum(left, right).sum().item() / max((left + right).sum().item(), 1)
        shares[a].append(share)
        shares[b].append(share)
    return pd.Series({name: sum(shares[name]) / max(len(shares[name]), 1) for name in found}, dtype=float)


class _Found:
    """What is found on the way."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.unscored: list[dict[str, Any]] = []
        self.failures: dict[str, list[str]] = {}
        self.adversaries: dict[str, str] = {}
        self.untried: list[tuple[str, str]] = []

    def note(self, scenario: str, number: int, one: Contribution, attempts: list[Attempt], model: nn.Module) -> None:
        """Score what came of the attacks on one update, or keep what they agree on."""
        truth = one.truth(head(model).layer.out_features)
        counts = {a.attack.name: a.found for a in attempts if a.found is not None}
        for a in attempts:
            if a.found is None and scenario == AS_IT_IS:
                self.failures.setdefault(a.attack.name, []).append(a.reason.strip().split("\n")[0])
            elif a.found is not None and truth is not None:
                about = {"scenario": scenario, "attack": a.attack.name, "trial": number, "round": one.round}
                row = {**about, "node": one.node, "seconds": a.seconds}
                self.rows.append({**row, **score(a.found[None], truth[None])})
        if truth is None:
            seen = {name: found for name, found in counts.items() if not get(name).blind}
            row = {"round": one.round, "node": one.node, "samples": one.samples, "attack": "none applies"}
            row |= {"counts": [], "agreement": 0.0}
            if seen:
                agreed = agreement(seen)
                best = str(agreed.idxmax())
                row |= {"attack": best, "counts": seen[best].tolist(), "agreement": agreed[best]}
            self.unscored.append(row)

    def sort_out(self, server: _Server, one: Contribution, update: Update, model: nn.Module) -> None:
        """Say of every attack who could run it, or why it is not run."""
        who, held = view(server.adversary, update, model), server.held(one, model, 0)
        for attack in entrants():
            if attack.blind:
                continue
            if attack.sees == "aggregate":
                self.untried.append((attack.name, "it is made for secure aggregation; see its chapter"))
            elif lacks := attack.lacking(who):
                self.untried.append((attack.name, f"the adversary '{who.name}' lacks: {'; '.join(lacks)}"))
            else:
                used = attack.inputs(who, held).keys()
                weaker = (view(adversary, update, model) for adversary in ADVERSARIES)
                able = (a.name for a in weaker if not attack.lacking(a) and attack.inputs(a, held).keys() == used)
                self.adversaries[attack.name] = next(able, who.name)

    def report(self, tried: tuple[str, ...], left_out: list[tuple[str, str]], known: dict[str, Any]) -> RunReport:
        """Put it together."""
        rows = pd.DataFrame(self.rows)
        ran = set(rows["attack"]) if self.rows else {row["attack"] for row in self.unscored}
        partly = {n: f"failed on {len(t)} of the updates: {t[0]}" for n, t in self.failures.items() if n in ran}
        self.untried += [(n, t[0]) for n, t in self.failures.items() if n not in ran and not get(n).blind]
        found = RunReport(
            facts=known,
            rows=rows,
            guesses=tuple(attack.name for attack in entrants() if attack.blind and attack.name in ran),
            scenarios=(AS_IT_IS, *tried),
            left_out=tuple(left_out),
            adversaries=self.adversaries,
            untried=tuple(self.untried),
            beyond=(*BEYOND, *UNSEEN),
            partly=partly,
        )
        found.unscored = pd.DataFrame(self.unscored)
        return found


def _server(setup: Setup | None) -> _Server:
    if setup is None:
        return _Server(None, EAVESDROPPER, 0, 90.0)
    usual = WHITE_BOX if setup.data is None else WITH_AUXILIARY
    return _Server(prepare(setup), adversary_of(setup.adversary or usual), setup.seed, setup.seconds)


def _as_case(server: _Server, update: Update, model: nn.Module) -> SimpleNamespace:
    """Return what `remedies` asks of a case."""

    def seen(_: Any, remedy: Defence | None = None) -> Update:
        return update if remedy is None else protect(update, fresh(remedy, server.seed))

    return SimpleNamespace(model=model, setup=SimpleNamespace(seed=server.seed), seen=seen)


def _spread(chosen: list) -> list:
    """Return the same in an order in which every beginning is spread over the run."""
    order = sorted(range(len(chosen)), key=lambda k: int(f"{k:024b}"[::-1], 2))
    return [chosen[k] for k in order]
