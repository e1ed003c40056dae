"""An audit of a run that really took place: a folder of rounds, every update attacked, and the same report.

See `fedleak.recording` for the folder.
"""

import copy
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

from fedleak.attacks.contest import Attempt, attempt, view
from fedleak.attacks.registry import EAVESDROPPER, WHITE_BOX, WITH_AUXILIARY, Adversary, Attack, adversary_of, get
from fedleak.audit.case import Case, fresh, prepare
from fedleak.audit.facts import about
from fedleak.audit.findings import PrivacyResult, noted
from fedleak.audit.loop import PRIOR, Loop, Observation, sort_out, taking_part
from fedleak.audit.report import Report
from fedleak.audit.setup import Setup
from fedleak.errors import likely
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protect
from fedleak.federated.spending import spent
from fedleak.federated.update import unwrapped
from fedleak.models import batch_dependent, head
from fedleak.models.states import bare, last_matrix

if TYPE_CHECKING:
    from fedleak.recording import Contribution

NO_MODEL = "pass --setup: the server has the model"


States = tuple[dict[str, Tensor], dict[str, Tensor]]


class _Server(NamedTuple):
    case: Case | None
    adversary: Adversary
    seed: int
    remedy_trials: int
    last: str
    """Name of the weight that is taken for the last layer's if there is no set-up."""
    grounds: str
    """Origin of the model."""

    def model(self, contribution: "Contribution", state: Mapping[str, Tensor]) -> nn.Module:
        """Return the model as it was sent; what the set-up has frozen, or a client does not share, need not be."""
        if self.case is None:
            return bare(state, self.last)
        model = copy.deepcopy(self.case.attacked)
        state = unwrapped(state, model)
        expected = model.state_dict()
        single = {name for name, t in state.items() if name in expected and t.numel() == expected[name].numel() == 1}
        state = {name: t.reshape(expected[name].shape) if name in single else t for name, t in state.items()}
        is_part = state.keys() <= expected.keys() and bool(state.keys() & dict(model.named_parameters()).keys())
        try:
            model.load_state_dict({**expected, **state} if is_part else state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            reason = f"{reason:.300}{likely(state)}"
            raise ValueError(f"{contribution.path}: its state is not of the set-up's model: {reason}") from error
        return model

    def update(self, contribution: "Contribution", states: States, model: nn.Module) -> Update:
        """Return what the server sees: trained parameters, each once, and not a last layer that did not move."""
        update, weight = contribution.update(states), head(model).weight
        update = update.replace(unwrapped(update.tensors, model))
        names = update.tensors.keys() if self.case is None else dict(model.named_parameters()).keys()
        unmoved = weight in update.tensors and not update.tensors[weight].any()
        return update.replace({k: t for k, t in update.tensors.items() if k in names and not (unmoved and k == weight)})

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

    def observe(self, number: int, entry: "Contribution", states: States, model: nn.Module) -> Observation:
        """Return one contribution as the server sees it."""
        knowledge, update = self.knowledge(entry, model, number), self.update(entry, states, model)
        candidates = taking_part(model, self.case, update.samples)

        def put(remedy: Defence | None) -> Update:
            return update if remedy is None else protect(update, fresh(remedy, self.seed + number))

        def arguments(update: Update, _: Defence | None) -> dict[str, Any]:
            # Attacks that take the scheme read the change of the weights with it, and the others as plain SGD's.
            change = Update(update.tensors, update.kind, update.samples, update.steps, entry.lr)
            return {"update": change, "plain": update}

        attacks = [attack for attack in candidates if not attack.blind and not _excluded(attack)]
        blind = (attempt(attack, update, model, PRIOR, knowledge) for attack in candidates if attack.blind)
        guesses = (answer for answer in blind if answer.result)
        return Observation(
            number, model, knowledge, attacks, put, arguments, guesses, partial(self.row, number, entry, model)
        )

    def row(
        self, number: int, entry: "Contribution", model: nn.Module, scenario: str, attempt: Attempt
    ) -> dict[str, Any]:
        """Return a row on how an attack on a contribution went."""
        truth = entry.truth(head(model).layer.out_features)
        about = {"round": entry.round, "node": entry.node, "open": entry.is_open, "private": entry.privacy is not None}
        about["doubt"] = NO_MODEL if self.case is None else entry.failed
        row = noted(scenario, number, attempt, None if truth is None else truth[None], not entry.failed, **about)
        # Noise breaks what attacks assume, and is a defence; without any, they contradict what was recorded.
        return {**row, "fits": not (row["unmet"] and entry.privacy is None)}


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

    Raises `ValueError` or `FileNotFoundError` as for `fedleak.recording.read`, or if the run is of another
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
    from fedleak.recording import read  # needed for recorded runs alone

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
    unscored = []
    scored = [number for number, entry in enumerate(run) if entry.counts is not None]
    spread = sorted(range(len(scored)), key=lambda k: int(f"{k:024b}"[::-1], 2))  # over the run, where it is cut too
    remedied = {scored[k] for k in spread[: server.remedy_trials]}
    loop = Loop(server.adversary, server.seed, len(run), remedied, repeats=True, progress=progress)
    model, loaded = nn.Module(), ""
    for number, entry in enumerate(run):
        states = entry.states()
        if entry.before != loaded:
            model, loaded, loop.prepared = server.model(entry, states[0]), entry.before, {}
        observation = server.observe(number, entry, states, model)
        if number == 0:
            update = observation.update(None)
            about_run = {"dropped": [*missing, *(dropped or ())], **facts(run, server, update, model)}
            about_run["name"] = Path(folder).resolve().name
            attacks, adversary = taking_part(model, server.case, update.samples), view(server.adversary, update, model)
            loop.adversaries, loop.untried = sort_out(
                attacks, adversary, update, model, observation.knowledge, _excluded
            )
        counts = loop.attack(observation)
        if entry.counts is None:
            unscored.append(_unscored(entry, counts))
    about_run["took"] = time.perf_counter() - started
    report = loop.report(about_run)
    report.unscored = pd.DataFrame(unscored)
    claims = Counter(entry.privacy for entry in run if entry.privacy is not None)
    report.privacy = [PrivacyResult(privacy, updates=updates) for privacy, updates in claims.items()]
    report.spent = spent(run)
    return report


def _unscored(entry: "Contribution", counts: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return a row on a contribution without labels: the attack that the others agree with most."""
    agreed = agreement(counts) if counts else pd.Series({"none applies": 0.0})
    name = str(agreed.idxmax())
    best = {"attack": name, "counts": counts[name].tolist() if counts else [], "agreement": agreed.max()}
    return {"round": entry.round, "node": entry.node, "samples": entry.samples, **best}


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
    failed = Counter(entry.failed for entry in run if entry.failed and entry not in other)
    optimisers = {f"{o.optimiser} (rate {o.lr:g}{f', momentum {o.momentum:g}' * bool(o.momentum)})" for o in run}
    recorders = {"client": "the clients", "server": "the server"}
    return {
        **about(model, server.adversary),
        "recorded": True,
        "others": f"{len(others)} of {len(run)} updates are made by {' and '.join(sorted(set(others)))}" * bool(others),
        "doubts": "; ".join(f"{reason} ({number} of {len(run)} updates)" for reason, number in failed.most_common(3)),
        "measured": sum(not entry.failed for entry in run),
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
