"""An audit of a run that really took place: a folder of rounds, every update attacked, and the same report.

See `fedleak.recording` for the folder.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from fedleak.attacks.contest import view
from fedleak.attacks.registry import EAVESDROPPER, WHITE_BOX, WITH_AUXILIARY, Adversary, Attack, adversary_of, get
from fedleak.audit.canary import PrivacyResult
from fedleak.audit.case import RUNS, Case, fresh, prepare
from fedleak.audit.classifier import Classifier
from fedleak.audit.loop import UNLABELLED, Loop, Observation, less_than_server, taking_part
from fedleak.audit.report import Report
from fedleak.audit.setup import Setup
from fedleak.errors import likely
from fedleak.federated import Update
from fedleak.federated.defences import Defence, protect
from fedleak.federated.update import unwrapped, without_frozen
from fedleak.models import batch_dependent
from fedleak.models.states import bare, last_matrix
from fedleak.privacy.spending import spent

if TYPE_CHECKING:
    from fedleak.recording import Contribution

NO_MODEL = "pass --setup: the server has the model"


def audit_run(
    folder: Path | str,
    setup: Setup | None = None,
    *,
    gaps: bool = False,
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
    progress
        Show a progress bar.
    """
    from fedleak.recording import read  # needed for recorded runs alone
    from fedleak.recording.gaps import list_unrecorded

    started = time.perf_counter()
    missing: list[str] = []
    run = read(folder, gaps=gaps, missing=missing)
    source = Rounds(run, None if setup is None else prepare(setup))
    scored = [number for number, entry in enumerate(run) if entry.counts is not None]
    spread = sorted(range(len(scored)), key=lambda k: int(f"{k:024b}"[::-1], 2))  # over the run, where it is cut too
    remedied = {scored[k] for k in spread[: (setup or Setup).remedy_trials]}
    loop = Loop(source.adversary, source.seed, len(run), remedied, repeats=True, progress=progress)
    observations = source.observe()
    first = next(observations)
    update = first.update(None)
    attacks = taking_part(first.classifier, source.case, update.samples)
    loop.sort_out(attacks, first, update, _exclude)
    facts = {"dropped": missing, **_describe(run, source, update, first.classifier)}
    facts["name"] = Path(folder).resolve().name
    loop.run(chain([first], observations))
    facts["took"] = time.perf_counter() - started
    report = loop.report(first.classifier, facts)
    noted = list_unrecorded(Path(folder), {(entry.round, entry.node) for entry in run})
    both = dict.fromkeys((number, node) for number, node, _ in noted)
    report.unscored = [*report.unscored, *({"round": r, "node": node, "why": UNLABELLED} for r, node in both)]
    claims = Counter(entry.privacy for entry in run if entry.privacy is not None)
    report.privacy = [PrivacyResult(privacy, updates=updates) for privacy, updates in claims.items()]
    report.spent = spent(run)
    return report


class Rounds:
    """The recorded updates of a run, and who attacks them."""

    def __init__(self, run: "Sequence[Contribution]", case: Case | None):
        self.run, self.case = run, case
        if case is None:
            classes = max((len(entry.counts) for entry in run if entry.counts), default=0)
            self.last, grounds = last_matrix(*run[0].states(), classes)
            self.grounds = f"{grounds}; the model is unknown"
            self.adversary: Adversary = EAVESDROPPER
            self.seed = 0
        else:
            self.grounds = "weights as recorded, of the set-up's model"
            default = WHITE_BOX if case.setup.data is None else WITH_AUXILIARY
            self.adversary, self.seed = adversary_of(case.setup.adversary or default), case.setup.seed

    def observe(self) -> Iterator[Observation]:
        """Yield each contribution as the server sees it; each state is read once where clients follow its round."""
        sent, before = None, {}
        for number, entry in enumerate(self.run):
            if (entry.before, entry.by_batch) != sent:
                sent, before = (entry.before, entry.by_batch), entry.read_before()
                classifier = self._load(entry, before)
            yield self._observe(number, entry, (before, entry.read_after()), classifier)

    def _load(self, entry: "Contribution", state: Mapping[str, Tensor]) -> Classifier:
        """Return the model as it was sent, in the client's mode, if it noted this; else in the set-up's.

        What the set-up has frozen, or a client does not share, need not be in the state.
        """
        if self.case is None:
            return Classifier.of(bare(state, self.last))
        model, by_batch = self.case.model, entry.by_batch or []
        try:
            classifier = self.case.attacked.with_state(unwrapped(state, model))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            reason = f"{reason:.300}{likely(unwrapped(state, model))}"
            raise ValueError(f"{entry.path}: its state is not of the set-up's model: {reason}") from error
        # Wrappers rename the norms as they rename the state's other tensors.
        marked = unwrapped({name: name in by_batch for name in (*state, *by_batch)}, model)
        norms = {n: m for n, m in classifier.model.named_modules() if isinstance(m, _NormBase)}
        tensors = {f"{name}.{key}".lstrip("."): name for name, norm in norms.items() for key in norm.state_dict()}
        if unknown := [name for name, is_norm in marked.items() if is_norm and name not in tensors]:
            if not entry.failed:
                raise ValueError(f"{entry.path}: by_batch names {unknown[0]!r}, and the set-up has no such batch norm")
        elif entry.by_batch is not None:
            used = {tensors[name] for name, is_norm in marked.items() if is_norm}
            for name, norm in norms.items():
                norm.train(name in used)
        return classifier

    def _observe(
        self,
        number: int,
        entry: "Contribution",
        states: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
        classifier: Classifier,
    ) -> Observation:
        case = self.case
        update = entry.update(states)
        # What moved was trained, whatever the set-up's model freezes; parameters alone, each once.
        tensors = unwrapped(update.tensors, classifier.model)
        names = tensors.keys() if case is None else dict(classifier.model.named_parameters()).keys()
        moved = without_frozen(tensors, classifier.model)
        update = update.replace({name: tensor for name, tensor in moved.items() if name in names})
        seed = self.seed * 1_000_003 + number
        knowledge: dict[str, Any] = {"scheme": entry.scheme, "seed": seed, "batch_size": entry.batch_size}
        if case is not None:
            knowledge |= {
                "input_shape": classifier.shape,
                "runs": RUNS if batch_dependent(classifier.model) else None,
            }
            if case.setup.data is not None:
                knowledge |= {"aux": case.aux, "prior": case.aux.class_counts.double() / len(case.aux)}

        def put(remedy: Defence | None) -> Update:
            return update if remedy is None else protect(update, fresh(remedy, self.seed + number))

        truth = entry.truth(classifier.n_classes)
        less = NO_MODEL if case is None else less_than_server(self.adversary, update, classifier.model)
        about = {"round": entry.round, "node": entry.node, "private": entry.privacy is not None}
        about |= {"doubt": less or entry.failed, "open": entry.is_open and not less}
        return Observation(
            number=number,
            classifier=classifier,
            knowledge=knowledge,
            attacks=[a for a in taking_part(classifier, case, update.samples) if not _exclude(a)],
            update=put,
            forms=partial(_as_change, entry.lr),
            guessed=[(update, seed)],
            truth=None if truth is None else truth[None],
            has_hard_labels=not entry.failed,
            is_altered=entry.privacy is not None,
            about=about,
        )


def _as_change(lr: float, update: Update, _: Defence | None) -> dict[str, Any]:
    """Return an update as the change of the weights for attacks that take the scheme, and as plain SGD's for others."""
    return {"update": Update(update.tensors, update.kind, update.samples, update.steps, lr), "plain": update}


def _exclude(attack: Attack) -> str:
    if attack.trained:
        return "it is trained anew for every model and batch size, and each round has its own"
    return "it is made for secure aggregation; see its chapter" if attack.sees == "aggregate" else ""


def _describe(run: "Sequence[Contribution]", source: Rounds, update: Update, first: Classifier) -> dict[str, Any]:
    """Return what a report says of a run, of which these are the first update and its model."""
    rounds = sorted({entry.round for entry in run})
    failed = Counter(entry.failed for entry in run if entry.failed)
    optimisers = {f"{o.optimiser} (rate {o.lr:g}{f', momentum {o.momentum:g}' * bool(o.momentum)})" for o in run}
    recorders = {"client": "the clients", "server": "the server"}
    return {
        "recorded": True,
        "has_model": source.case is not None,
        "doubts": "; ".join(f"{reason} ({number} of {len(run)} updates)" for reason, number in failed.most_common(3)),
        "measured": sum(not entry.failed for entry in run),
        "clients": 1,
        "updates": len(run),
        "nodes": len({entry.node for entry in run}),
        "rounds": f"{len(rounds)} rounds ({rounds[0]} to {rounds[-1]})",
        "seen_by": " and ".join(recorders[name] for name in sorted({entry.seen_by for entry in run})),
        "labelled": sum(entry.counts is not None for entry in run),
        "steps": _span([entry.steps for entry in run]),
        "samples": _span([entry.samples for entry in run]),
        "optimisers": ", ".join(sorted(optimisers)),
        "parameters": sum(tensor.numel() for tensor in update.tensors.values()),
        "grounds": source.grounds,
        "told": False,
        "auxiliary": "some" if source.case is not None and source.case.setup.data is not None else 0,
        "inversions_lack": get("InvG").lacking(view(source.adversary, update, first.model)),
    }


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
