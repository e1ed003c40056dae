"""An audit of a run that really took place: a folder of rounds, every update attacked, and the same report.

See `fedleak.federated.recording` for the folder.
"""

import copy
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedleak.attacks.contest import FORESEEN, Attempt, attempt, contest, entrants, view
from fedleak.attacks.labels.adapter import adapters
from fedleak.attacks.registry import EAVESDROPPER, WHITE_BOX, WITH_AUXILIARY, Adversary, Attack, adversary_of, get
from fedleak.attacks.result import Prepared
from fedleak.audit.case import Case, fresh, prepare
from fedleak.audit.findings import AS_IT_IS, WordsResult
from fedleak.audit.run import PRIOR, excuses, remedies, score, weakest
from fedleak.audit.run_report import RunReport, facts
from fedleak.audit.setup import Setup
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protect
from fedleak.models import batch_dependent, head, known_tokens
from fedleak.models.states import bare, last_matrix

if TYPE_CHECKING:
    from fedleak.federated.recording import Contribution

REMEDY_TRIALS = 5
"""Updates that remedies are tried on where no set-up says."""


class _Server(NamedTuple):
    """What the audit knows beside the run: the model and the data of a set-up, or neither."""

    case: Case | None
    adversary: Adversary
    seed: int
    remedy_trials: int
    last: str
    """Where there is no set-up: which weight is taken for the last layer's."""

    def model(self, one: "Contribution") -> nn.Module:
        """Return the model as it was sent; what the set-up has frozen need not be."""
        state, _ = one.states()
        if self.case is None:
            return bare(state, self.last)
        model = copy.deepcopy(self.case.attacked)
        trained = dict(model.named_parameters())
        frozen = {name: tensor for name, tensor in model.state_dict().items() if name not in trained}
        sent = {**frozen, **state} if trained.keys() <= state.keys() else state
        try:
            model.load_state_dict(sent)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{one.path}: its state is not of the set-up's model: {reason:.300}") from error
        return model

    def update(self, one: "Contribution", model: nn.Module) -> Update:
        """Return what the server sees: trained parameters, each once, and not a last layer that did not move."""
        update, weight = one.update(), head(model).weight
        known = update.tensors.keys() if self.case is None else dict(model.named_parameters()).keys()
        unmoved = weight in update.tensors and not update.tensors[weight].any()
        return update.replace({k: t for k, t in update.tensors.items() if k in known and not (unmoved and k == weight)})

    def entrants(self, model: nn.Module) -> list[Attack]:
        """Return the attacks, and for a frozen last layer the one on adapters."""
        adapted = self.case is not None and head(model).weight not in dict(model.named_parameters())
        fits = adapted and self.case is not None and adapters(model, self.case.aux.x[:1])
        return [*entrants(trained=True), *([get("adapter fit")] if fits else [])]

    def held(self, one: "Contribution", model: nn.Module, number: int) -> dict[str, Any]:
        """Return what attacks may take, by `fedleak.attacks.registry.INPUTS`."""
        held: dict[str, Any] = {
            "scheme": one.scheme,
            "seed": self.seed * 1_000_003 + number,
            "batch_size": one.batch_size,
        }
        if (case := self.case) is not None:
            held |= {"input_shape": case.shape, "runs": 3 if batch_dependent(model) else None}
            if case.setup.data is not None:
                held |= {"aux": case.aux, "prior": case.aux.class_counts.double() / len(case.aux)}
        return held

    def put(self, update: Update, defence: Defence, number: int = 0) -> Update:
        """Return an update with a defence on top."""
        return protect(update, fresh(defence, self.seed + number))

    def sort_out(
        self, one: "Contribution", update: Update, model: nn.Module
    ) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """Return, by attack, the weakest who could run it, and the attacks that are not run, with why."""
        who, held = view(self.adversary, update, model), self.held(one, model, 0)
        adversaries, untried = {}, []
        for attack in self.entrants(model):
            if attack.blind:
                continue
            if attack.trained:
                untried.append(
                    (attack.name, "it is trained anew for every model and batch size, and each round has its own")
                )
            elif attack.sees == "aggregate":
                untried.append((attack.name, "it is made for secure aggregation; see its chapter"))
            elif lacks := attack.lacking(who):
                untried.append((attack.name, f"the adversary '{who.name}' lacks: {'; '.join(lacks)}"))
            else:
                adversaries[attack.name] = weakest(attack, who, update, model, held)
        return adversaries, untried

    def attempts(
        self,
        one: "Contribution",
        update: Update,
        model: nn.Module,
        number: int,
        kept: dict[str, Prepared],
        guesses: bool = False,
    ) -> list[Attempt]:
        """Run every attack that applies to one update; `kept` are those that are prepared for the model."""
        held, who = self.held(one, model, number), view(self.adversary, update, model)
        # Attacks that take the scheme read the change of the weights with it, and the others as plain SGD's.
        told = Update(update.tensors, update.kind, update.samples, update.steps, one.lr)
        blind = [attempt(attack, update, model, PRIOR, held) for attack in entrants() if attack.blind and guesses]
        seeing = [a for a in self.entrants(model) if not a.blind and a.sees == "one update" and not a.trained]
        how = {"attacks": seeing, "plain": update, "clock": time.perf_counter, "kept": kept}
        return [*blind, *contest(told, model, who, held, **how)]  # type: ignore[arg-type]


def audit_run(
    folder: Path | str,
    setup: Setup | None = None,
    *,
    gaps: bool = False,
    skip_nan: bool = False,
    progress: bool = False,
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
    skip_nan
        Leave out updates with NaN or infinity; the report names them.
    progress
        Show a progress bar.

    Raises
    ------
    ValueError, FileNotFoundError
        As for `fedleak.federated.recording.read`, or if the run is of another model than the set-up's.
    """
    from fedleak.federated.recording import read  # which nobody needs who has no recorded run

    started = time.perf_counter()
    dropped: list[str] | None = [] if skip_nan else None
    run = read(folder, gaps=gaps, dropped=dropped)
    server, grounds = _server(setup, run)
    found, words = _Found(), _Words()
    model, loaded, kept = nn.Module(), "", dict[str, Prepared]()
    for number, one in enumerate(tqdm(run, desc="audit", unit="update", disable=not progress)):
        if one.before != loaded:
            model, loaded, kept = server.model(one), one.before, {}
        update = server.update(one, model)
        if number == 0:
            who = view(server.adversary, update, model)
            known = facts(run, setup, who, update, model, Path(folder), grounds, dropped or [])
            adversaries, untried = server.sort_out(one, update, model)
        attempts = server.attempts(one, update, model, number, kept, guesses=True)
        for attack in (each.attack for each in attempts if each.found is not None and not each.attack.blind):
            if attack.name not in adversaries:  # it could not read the first
                adversaries[attack.name] = weakest(attack, server.adversary, update, model, server.held(one, model, 0))
        found.note(AS_IT_IS, number, one, attempts, model)
        if server.case is not None:
            words.note(update, model)
    tried: dict[str, Defence] = {}
    left_out: list[tuple[str, str]] = []
    scored = _spread([(number, one) for number, one in enumerate(run) if one.counts is not None])
    for number, one in scored[: server.remedy_trials]:
        model, kept = server.model(one), {}
        update = server.update(one, model)
        if not tried:
            tried, left_out = remedies(model, update, server.seed, partial(server.put, update))
        for name, defence in tried.items():
            shared = server.put(update, defence, number)
            found.note(name, number, one, server.attempts(one, shared, model, number, kept), model)
    partly, never = excuses(found.worked, found.failed)
    untried = [(name, why) for name, why in untried if name not in adversaries]
    rows, scenarios, untried = pd.DataFrame(found.rows), (AS_IT_IS, *tried), [*untried, *never]
    known["took"] = time.perf_counter() - started
    report = RunReport(known, rows, scenarios, tuple(left_out), adversaries, tuple(untried), partly)
    report.unscored, report.words = pd.DataFrame(found.unscored), words.found
    return report


def agreement(found: Mapping[str, Tensor]) -> pd.Series:
    """Return how much each attack's counts ``[n]`` agree with the others': the mean share of labels in common.

    It is an attacker's own measure of doubt, who has no truth to compare with. Attacks can agree and be wrong.
    """
    counts = torch.stack(list(found.values())).double()
    common, all_labels = torch.minimum(counts[:, None], counts), counts[:, None] + counts
    shares = 2 * common.sum(-1) / all_labels.sum(-1).clamp(min=1)
    return pd.Series((shares.fill_diagonal_(0).sum(1) / max(len(found) - 1, 1)).tolist(), list(found))


class _Found:
    """What is found on the way."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.unscored: list[dict[str, Any]] = []
        self.worked: set[str] = set()
        self.failed: list[tuple[str, str]] = []

    def note(self, scenario: str, number: int, one: "Contribution", attempts: list[Attempt], model: nn.Module) -> None:
        """Score what came of the attacks on one update, or keep what they agree on."""
        truth = one.truth(head(model).layer.out_features)
        about, seen = {"round": one.round, "node": one.node}, {}
        for each in attempts:
            attack, found, seconds, reason = each.attack, each.found, each.seconds, each.reason
            if found is None:
                if scenario == AS_IT_IS and not attack.blind:
                    self.failed.append((attack.name, reason.strip().split("\n")[0]))
                continue
            if scenario == AS_IT_IS:
                self.worked.add(attack.name)
            if truth is not None:
                row = {"scenario": scenario, "attack": attack.name, "trial": number, **about, "seconds": seconds}
                row["fits"] = one.scheme is not None
                self.rows.append({**row, **score(found[None], truth[None])})
            elif not attack.blind:
                seen[attack.name] = found
        if truth is None:
            best = {"attack": "none applies", "counts": [], "agreement": 0.0}
            if seen:
                agreed = agreement(seen)
                name = str(agreed.idxmax())
                best = {"attack": name, "counts": seen[name].tolist(), "agreement": agreed[name]}
            self.unscored.append({**about, "samples": one.samples, **best})


class _Words:
    """The words that the updates of a text model name."""

    found: WordsResult | None = None

    def note(self, update: Update, model: nn.Module) -> None:
        """Count those of one more update, as far as all so far could be read."""
        if known_tokens(model) and (self.found is None or not self.found.why):
            so_far = self.found or WordsResult()
            try:
                named = len(get("embedding rows")(update, model, adversary=WHITE_BOX))
                self.found = so_far._replace(named=so_far.named + named, updates=so_far.updates + 1)
            except FORESEEN as error:
                self.found = WordsResult(str(error))


def _server(setup: Setup | None, run: "list[Contribution]") -> tuple[_Server, str]:
    """Return what the audit knows, and on what grounds a layer is taken for the last."""
    if setup is None:
        classes = max((len(one.counts) for one in run if one.counts), default=0)
        last, grounds = last_matrix(*run[0].states(), classes)
        return _Server(None, EAVESDROPPER, 0, REMEDY_TRIALS, last), grounds
    usual = WHITE_BOX if setup.data is None else WITH_AUXILIARY
    who = adversary_of(setup.adversary or usual)
    return _Server(prepare(setup), who, setup.seed, setup.remedy_trials, ""), ""


def _spread(chosen: list) -> list:
    """Return the same in an order in which every beginning is spread over the run."""
    order = sorted(range(len(chosen)), key=lambda k: int(f"{k:024b}"[::-1], 2))
    return [chosen[k] for k in order]
