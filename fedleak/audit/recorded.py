"""An audit of a run that really took place: a folder of rounds, every update attacked, and the same report.

See `fedleak.federated.recording` for the folder.
"""

import copy
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedleak.attacks.contest import Attempt, attempt, contest, view
from fedleak.attacks.registry import EAVESDROPPER, WHITE_BOX, WITH_AUXILIARY, Adversary, Attack, adversary_of, get
from fedleak.attacks.result import Prepared
from fedleak.audit.case import Case, about, fresh, prepare
from fedleak.audit.findings import AS_IT_IS, ASSUMPTIONS, PrivacyResult, WordsResult, noted, outcome
from fedleak.audit.report import Report
from fedleak.audit.run import PRIOR, count_words, remedies, sort_out, taking_part, weakest
from fedleak.audit.setup import Setup
from fedleak.errors import likely
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protect
from fedleak.federated.spending import spent
from fedleak.federated.update import unwrapped
from fedleak.models import batch_dependent, head
from fedleak.models.states import bare, last_matrix

if TYPE_CHECKING:
    from fedleak.federated.recording import Contribution

TOLERANCE = 0.01
"""A multiple of the mean cross-entropy nearer to 1 than this is not mentioned."""


class _Server(NamedTuple):
    case: Case | None
    adversary: Adversary
    seed: int
    remedy_trials: int
    last: str
    """Name of the weight that is taken for the last layer's if there is no set-up."""
    grounds: str
    """Origin of the model."""

    def model(self, contribution: "Contribution") -> nn.Module:
        """Return the model as it was sent; what the set-up has frozen need not be."""
        state, _ = contribution.states()
        if self.case is None:
            return bare(state, self.last)
        model = copy.deepcopy(self.case.attacked)
        state = unwrapped(state, model)
        expected = model.state_dict()
        single = {name for name, t in state.items() if name in expected and t.numel() == expected[name].numel() == 1}
        state = {name: t.reshape(expected[name].shape) if name in single else t for name, t in state.items()}
        trained = dict(model.named_parameters())
        frozen = {name: tensor for name, tensor in model.state_dict().items() if name not in trained}
        sent = {**frozen, **state} if trained.keys() <= state.keys() else state
        try:
            model.load_state_dict(sent)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            reason = f"{reason:.300}{likely(state)}"
            raise ValueError(f"{contribution.path}: its state is not of the set-up's model: {reason}") from error
        return model

    def update(self, contribution: "Contribution", model: nn.Module) -> Update:
        """Return what the server sees: trained parameters, each once, and not a last layer that did not move."""
        update, weight = contribution.update(), head(model).weight
        update = update.replace(unwrapped(update.tensors, model))
        names = update.tensors.keys() if self.case is None else dict(model.named_parameters()).keys()
        unmoved = weight in update.tensors and not update.tensors[weight].any()
        return update.replace({k: t for k, t in update.tensors.items() if k in names and not (unmoved and k == weight)})

    def put(self, update: Update, defence: Defence, number: int = 0) -> Update:
        """Return an update with a defence on top."""
        return protect(update, fresh(defence, self.seed + number))

    def knowledge(self, contribution: "Contribution", model: nn.Module, number: int) -> dict[str, Any]:
        """Return what attacks may take, by `fedleak.attacks.registry.INPUTS`."""
        knowledge: dict[str, Any] = {
            "scheme": contribution.scheme,
            "seed": self.seed * 1_000_003 + number,
            "batch_size": contribution.batch_size,
        }
        if (case := self.case) is not None:
            knowledge |= {"input_shape": case.shape, "runs": 3 if batch_dependent(model) else None}
            if case.setup.data is not None:
                knowledge |= {"aux": case.aux, "prior": case.aux.class_counts.double() / len(case.aux)}
        return knowledge

    def attempts(
        self, contribution: "Contribution", update: Update, model: nn.Module, number: int, prepared: dict[str, Prepared]
    ) -> Iterator[Attempt]:
        """Run every attack that applies to one update; `prepared` caches the attacks prepared for the model."""
        attacks = taking_part(model, self.case, update.samples)
        return contest(
            # Attacks that take the scheme read the change of the weights with it, and the others as plain SGD's.
            Update(update.tensors, update.kind, update.samples, update.steps, contribution.lr),
            model,
            view(self.adversary, update, model),
            self.knowledge(contribution, model, number),
            attacks=[attack for attack in attacks if not attack.blind and not _excluded(attack)],
            plain=update,
            clock=time.perf_counter,
            prepared=prepared,
        )


def _excluded(attack: Attack) -> str:
    if attack.trained:
        return "it is trained anew for every model and batch size, and each round has its own"
    return "it is made for secure aggregation; see its chapter" if attack.sees == "aggregate" else ""


def audit_run(
    folder: Path | str,
    setup: Setup | None = None,
    *,
    gaps: bool = False,
    skip_nan: bool = False,
    progress: bool = False,
) -> Report:
    """Attack every update of a recorded run with all that applies, and report.

    Raises `ValueError` or `FileNotFoundError` as for `fedleak.federated.recording.read`, or if the run is of another
    model than the set-up's.

    Parameters
    ----------
    folder
        Folder of the run.
    setup
        Of it count the model (its weights do not), the data (for adversaries who have some), the adversary, ``seed``
        and ``remedy_trials``. Without it the adversary has no model: the last matrix in the recorded states is taken
        for the head, and attacks that need no more are run.
    gaps
        Accept missing rounds.
    skip_nan
        Leave out updates with NaN or infinity; the report names them.
    progress
        Show a progress bar.
    """
    from fedleak.federated.recording import read  # needed for recorded runs alone

    started = time.perf_counter()
    dropped: list[str] | None = [] if skip_nan else None
    missing: list[str] = []
    run = read(folder, gaps=gaps, dropped=dropped, missing=missing)
    if setup is None:
        classes = max((len(entry.counts) for entry in run if entry.counts), default=0)
        last, grounds = last_matrix(*run[0].states(), classes)
        grounds = f"{grounds}; the model is unknown"
        server = _Server(None, EAVESDROPPER, 0, Setup.remedy_trials, last, grounds)
    else:
        adversary = adversary_of(setup.adversary or (WHITE_BOX if setup.data is None else WITH_AUXILIARY))
        grounds = "weights as recorded, of the set-up's model"
        server = _Server(prepare(setup), adversary, setup.seed, setup.remedy_trials, "", grounds)
    rows: list[dict[str, Any]] = []
    unscored: list[dict[str, Any]] = []
    words: WordsResult | None = None
    tried: dict[str, Defence] = {}
    left_out: list[tuple[str, str]] = []
    scored = [number for number, entry in enumerate(run) if entry.counts is not None]
    spread = sorted(range(len(scored)), key=lambda k: int(f"{k:024b}"[::-1], 2))  # over the run, where it is cut too
    remedied = {scored[k] for k in spread[: server.remedy_trials]}
    model, loaded, prepared = nn.Module(), "", dict[str, Prepared]()
    for number, entry in enumerate(tqdm(run, desc="audit", unit="update", disable=not progress)):
        if entry.before != loaded:
            model, loaded, prepared = server.model(entry), entry.before, {}
        update, knowledge = server.update(entry, model), server.knowledge(entry, model, number)
        entrants = taking_part(model, server.case, update.samples)
        if number == 0:
            adversary = view(server.adversary, update, model)
            facts_of_run = {
                "name": Path(folder).resolve().name,
                "dropped": [*missing, *(dropped or ())],
                **facts(run, server, update, model),
            }
            adversaries, untried = sort_out(entrants, adversary, update, model, knowledge, _excluded)
        blind = [attempt(attack, update, model, PRIOR, knowledge) for attack in entrants if attack.blind]
        seeing = list(server.attempts(entry, update, model, number, prepared))
        rows += _noted(AS_IT_IS, number, entry, [*(answer for answer in blind if answer.result), *seeing], model)
        counts = {answer.attack.name: answer.counts for answer in seeing if answer.counts is not None}
        for name in counts:  # also what could not read the first
            adversaries[name] = adversaries.get(name) or weakest(get(name), server.adversary, update, model, knowledge)
        if entry.counts is None:
            agreed = agreement(counts) if counts else pd.Series({"none applies": 0.0})
            best = {"attack": agreed.idxmax(), "counts": [], "agreement": agreed.max()}
            best |= {"counts": counts[best["attack"]].tolist()} if counts else {}
            unscored.append({"round": entry.round, "node": entry.node, "samples": entry.samples, **best})
        if server.case is not None:
            words = count_words(words, update, model)
        if number in remedied and not tried:
            tried, left_out = remedies(model, update, server.seed, partial(server.put, update))
        for name, defence in tried.items() if number in remedied else ():
            shared = server.put(update, defence, number)
            rows += _noted(name, number, entry, server.attempts(entry, shared, model, number, prepared), model)
    table, remarks, never = outcome(rows)
    untried = [*((name, why) for name, why in untried if name not in adversaries), *never]
    facts_of_run["took"] = time.perf_counter() - started
    report = Report(facts_of_run, table, [AS_IT_IS, *tried], left_out, adversaries, untried, remarks)
    report.unscored, report.words = pd.DataFrame(unscored), words
    claims = Counter(entry.privacy for entry in run if entry.privacy is not None)
    report.privacy = [PrivacyResult(privacy, updates=updates) for privacy, updates in claims.items()]
    report.spent = spent(run)
    return report


def _noted(
    scenario: str, number: int, entry: "Contribution", attempts: Iterable[Attempt], model: nn.Module
) -> list[dict[str, Any]]:
    truth = entry.truth(head(model).layer.out_features)
    about = {"round": entry.round, "node": entry.node, "assumed": " ".join(entry.assumed)}
    rows = [noted(scenario, number, attempt, None if truth is None else truth[None], **about) for attempt in attempts]
    # Noise breaks what attacks assume, and is a defence; without any, they contradict what was recorded.
    return [{**row, "fits": entry.scheme is not None and not (row["unmet"] and entry.privacy is None)} for row in rows]


def agreement(by_attack: Mapping[str, Tensor]) -> pd.Series:
    """Return how much each attack's counts ``[n]`` agree with the others': the mean share of labels in common.

    An attacker without the true labels can measure this too. Attacks can agree and be wrong.
    """
    counts = torch.stack(list(by_attack.values())).double()
    common, all_labels = torch.minimum(counts[:, None], counts), counts[:, None] + counts
    shares = 2 * common.sum(-1) / all_labels.sum(-1).clamp(min=1)
    return pd.Series((shares.fill_diagonal_(0).sum(1) / max(len(by_attack) - 1, 1)).tolist(), list(by_attack))


def facts(run: "Sequence[Contribution]", server: _Server, update: Update, model: nn.Module) -> dict[str, Any]:
    """Return what a report says of a run, of which these are the first update and its model."""
    rounds = sorted({entry.round for entry in run})
    other = [entry for entry in run if entry.optimiser not in ("sgd", "nag")]
    others = [entry.optimiser.replace("unknown", "an unknown optimiser") for entry in other]
    doubts = Counter(doubt for entry in run for doubt in entry.doubts if entry not in other)
    assumed = [text for name, text in ASSUMPTIONS.items() if any(name in entry.assumed for entry in run)]
    factors = [entry.factor for entry in run if abs(entry.factor - 1) > TOLERANCE]
    optimisers = {f"{o.optimiser} (rate {o.lr:g}{f', momentum {o.momentum:g}' * bool(o.momentum)})" for o in run}
    recorders = {"client": "its client mod, filter or loop", "server": "the server"}
    return {
        **about(model, server.adversary),
        "recorded": True,
        "others": f"{len(others)} of {len(run)} updates are made by {' and '.join(sorted(set(others)))}" * bool(others),
        "doubts": "; ".join(f"{doubt} ({number} of {len(run)} updates)" for doubt, number in doubts.most_common(3)),
        "assumed": " and ".join(assumed),
        "losses": ", ".join(sorted({entry.loss for entry in run if entry.loss})),
        "factors": f"{min(factors):.3g} to {max(factors):.3g}" if factors else "",
        "clients": 1,
        "updates": len(run),
        "nodes": len({entry.node for entry in run}),
        "rounds": f"{len(rounds)} rounds ({rounds[0]} to {rounds[-1]})",
        "seen_by": " and ".join(recorders[name] for name in sorted({entry.seen_by for entry in run})),
        "labelled": sum(entry.counts is not None for entry in run),
        "parallel": max(entry.clients for entry in run),
        "steps": _span([entry.steps for entry in run]),
        "samples": _span([entry.samples for entry in run]),
        "optimisers": ", ".join(sorted(optimisers)),
        "parameters": sum(tensor.numel() for tensor in update.tensors.values()),
        "grounds": server.grounds,
        "told": False,
        "auxiliary": "some" if server.case is not None and server.case.setup.data is not None else 0,
        "inversions_lack": get("InvG").lacking(view(server.adversary, update, model)),
        "seed": server.seed,
    }


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
