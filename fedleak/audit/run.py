"""Audit a set-up: attack the updates of its clients, as they stand and with each remedy on top."""

import copy
import time
import warnings
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from fedleak import models
from fedleak.attacks.contest import EXPECTED_FAILURES, contest, view
from fedleak.attacks.registry import Attack, all_attacks, get
from fedleak.audit.case import Case, Trial, prepare
from fedleak.audit.loop import Loop, Observation, less_than_server, taking_part
from fedleak.audit.report import Report
from fedleak.audit.setup import Setup
from fedleak.audit.tables import AS_IT_IS, ImageResult
from fedleak.federated import Update
from fedleak.federated.defences import ClippedNoise, Defence, PureNoise
from fedleak.federated.losses import TOLERANCE
from fedleak.federated.restricted import Withhold
from fedleak.intervals import interval
from fedleak.metrics import paired, psnr

MOST = 1000
"""Samples that the accuracy is measured on."""


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
    case = prepare(setup, progress)
    remedied = range(min(setup.trials, setup.remedy_trials))
    loop = Loop(setup.attacker, setup.seed, setup.trials, remedied, repeats=False, progress=progress)
    source = Trials(case, loop, fast)
    loop.run(source.observe(number) for number in range(setup.trials))
    doubt = source.doubt()
    less = less_than_server(setup.attacker, source.first_update, case.model)
    for row in loop.rows:
        row["doubt"] = less or doubt
    report = loop.report(case.classifier, {**_describe(case, source.first_update), "doubts": doubt})
    if (claimed := setup.claim(len(source.first_update.tensors))) is not None:
        report.privacy = [case.canary(claimed)]
    if setup.images:
        with warnings.catch_warnings(action="ignore"):
            by_name = {attack.name: attack for attack in source.attacks}
            report.images = _invert_once(
                case, source.first, source.first_update, [by_name[name] for name in report.ranking()]
            )
    report.facts["took"] = time.perf_counter() - started
    return report


class Trials:
    """The updates of a case's trials, and who attacks them."""

    def __init__(self, case: Case, loop: Loop, fast: bool):
        self.case, self.loop, setup = case, loop, case.setup
        self.attacks = taking_part(case.attacked, case, setup.steps * setup.batch_size)
        self.sent: dict[str, list[nn.Module]] = {}
        self.first = case.trial(0)
        self.first_update = case.observe(self.first)
        self.adversary = view(setup.attacker, self.first_update, case.model)
        loop.sort_out(all_attacks(), self.observe(0), self.first_update, partial(self._exclude, fast=fast))
        self.attacks = [attack for attack in self.attacks if attack.blind or attack.name in loop.adversaries]

    def _exclude(self, attack: Attack, fast: bool) -> str:
        setup = self.case.setup
        if attack.trained and fast:
            return "a fast audit leaves out attackers that are trained, and may miss what they recover"
        if attack.sees == "aggregate" and setup.clients == 1:
            return "it is made for secure aggregation; here every update is seen by itself"
        if attack.standalone_reason and attack not in self.attacks:
            return attack.standalone_reason
        if attack.goal == "images" and not setup.images:
            return "it applies, but an inversion takes minutes an update; ask for a short one with images=ITERATIONS"
        if attack.goal == "images" and attack != (chosen := _image_attack(setup)):
            return f"one image attack is run, {chosen.name}"
        if attack.goal != "images" and attack.cost == "minutes":
            return "a recovery takes minutes, too long for every update"
        if attack.sends and not attack.lacking(self.adversary):
            try:
                self.sent[attack.name] = attack.sends(self.case.model, setup.clients, setup.seed)
            except Exception as error:  # an attack of somebody's own may raise anything
                return str(error) or type(error).__name__
        return ""

    def observe(self, number: int) -> Observation:
        """Draw a trial, and return what the server sees of it."""
        case, setup, trial = self.case, self.case.setup, self.case.trial(number) if number else self.first
        manipulated = {name: case.trial(number, models) for name, models in self.sent.items()}

        def forms(update: Update, remedy: Defence | None) -> dict[str, Any]:
            answers = {name: (case.observe(t, remedy), self.sent[name]) for name, t in manipulated.items()}
            return {"update": update, "manipulated": answers}

        per_epoch = [
            replace(u, samples=u.samples // setup.epochs, steps=u.steps // setup.epochs) for u in trial.updates
        ]
        seeds = range(2**31 + trial.seed, 2**63, 7919)  # the labels are drawn from others; 32 bits count
        return Observation(
            number=number,
            classifier=case.attacked,
            knowledge=case.knowledge,
            attacks=self.attacks,
            update=partial(case.observe, trial),
            forms=forms,
            guessed=list(zip(per_epoch, seeds, strict=False)),
            truth=trial.truth,
            has_hard_labels=(case.loss.factor or 0.0) > 0,
            is_altered=True,
            epochs=setup.epochs,
            texts=trial.x,
        )

    def doubt(self) -> str:
        """Return why low numbers are no all-clear: what the clients do that no attack undoes; "" if there is nothing.

        The mean cross-entropy times a factor, and clipping, change the scale alone, which one attack estimates. Noise
        has the mean 0, and withheld tensors are absent.
        """
        from fedleak.attacks.labels import any_scale  # scipy's optimisers take half a second to import

        case, setup = self.case, self.case.setup
        if setup.dp_sgd is not None:
            return "the clients run DP-SGD: judge it by its ε (--epsilon-above)"
        if case.loss.departure:
            return case.loss.departure
        factor = case.loss.factor
        if not factor or factor <= 0:
            return f"the clients' loss is {_describe_loss(case)}"
        others = [type(d).__name__ for d in setup.defences if not isinstance(d, PureNoise | Withhold | ClippedNoise)]
        if others:
            return f"no attack undoes the defence {others[0]}"
        last, trained, shared = case.classifier.head, case.classifier.trained, self.first_update.tensors
        if last.weight in trained - shared.keys() and last.bias in shared:
            return "the last layer's bias is shared without its weight, which no attack reads"
        is_scaled = abs(factor - 1) > TOLERANCE or any(isinstance(d, ClippedNoise) for d in setup.defences)
        as_is = [row for row in self.loop.rows if row["scenario"] == AS_IT_IS and row["reason"] is None]
        read = sum(row["attack"] == any_scale.NAME for row in as_is)
        if is_scaled and (2 * read < setup.trials or (self.first_update.steps > 1 and not trained <= shared.keys())):
            return f"the scale of the updates is not known, and {any_scale.NAME!r} did not read them"
        return ""


def _image_attack(setup: Setup) -> Attack:
    """Return the image attack to run on request: InvG for one local step, AGIC for several."""
    return get("InvG" if setup.steps == 1 else "AGIC")


def _invert_once(case: Case, done: Trial, update: Update, ranking: Iterable[Attack]) -> ImageResult:
    """Invert the first trial's update; labels are those that are recovered, by the best of `ranking` that can.

    The box of the search is that of pixels where all inputs lie in it, and otherwise that of the adversary's samples.
    """
    attack, adversary = _image_attack(case.setup), view(case.setup.attacker, update, case.model)
    truth = done.x[0].flatten(0, 1)
    try:
        if truth.dim() != 4 or min(truth.shape[2:]) < 11:
            shape = case.classifier.shape
            raise ValueError(f"it is for images of at least 11 x 11 pixels, and the inputs are of shape {shape}")
        if case.setup.epochs > 1:
            raise ValueError("it takes the samples of every step for new ones, and several epochs have the same again")
        if lacks := attack.lacking(adversary):
            raise ValueError(f"the adversary lacks: {'; '.join(lacks)}")
        low, high = float(case.aux.x.min()), float(case.aux.x.max())
        is_pixels = min(low, float(truth.min())) >= 0 and max(high, float(truth.max())) <= 1
        attempts = contest(update, case.attacked.model, adversary, {**case.knowledge, "runs": 1}, attacks=ranking)
        answers = (attempt.counts for attempt in attempts)
        counts = next((c for c in answers if c is not None and c.sum() == update.samples), None)
        if counts is None:
            raise ValueError("it needs the labels first, and no label attack names as many as there are samples")
        options: dict[str, Any] = {"box": (0.0, 1.0) if is_pixels else (low, high), "seed": case.setup.seed}
        options["labels"] = torch.arange(len(counts)).repeat_interleave(counts)
        images = attack(update, case.attacked.model, adversary=adversary, iterations=case.setup.images, **options)
    except EXPECTED_FAILURES as error:
        return ImageResult(attack.name, str(error).strip().split("\n")[0])
    generator = torch.Generator().manual_seed(case.setup.seed)
    others = case.aux.x[torch.randint(len(case.aux), (len(truth),), generator=generator)].to(truth)
    offset, width = (0.0, 1.0) if is_pixels else (low, high - low)
    near, guess = (_measure_psnr((found - offset) / width, (truth - offset) / width) for found in (images, others))
    return ImageResult(attack.name, "", case.setup.images, near, guess)


def _measure_psnr(images: torch.Tensor, truth: torch.Tensor) -> float:
    return float(psnr(paired(images.to(truth), truth), truth).mean())


def _describe_loss(case: Case) -> str:
    """Return the clients' loss in words: its name, and its factor."""
    loss = case.setup.loss
    if loss is None:
        return "mean cross-entropy"
    name = getattr(getattr(loss, "func", loss), "__name__", type(loss).__name__)
    factor = "no multiple of" if case.loss.factor is None else f"{case.loss.factor:.3g} times"
    return f"{name} ({factor} the mean cross-entropy)"


def _describe(case: Case, update: Update) -> dict[str, Any]:
    """Return a report's facts about a set-up whose server sees updates like `update`."""
    setup, model, clients, synthetic = case.setup, case.model, case.clients, case.setup.data is None
    chance, accuracy, trained = (clients.class_counts.max() / len(clients)).item(), None, None
    if not synthetic:
        evaluated = copy.deepcopy(case.attacked.model).eval()
        some = torch.randperm(len(clients), generator=torch.Generator().manual_seed(setup.seed))[:MOST]
        passed = models.head_pass(evaluated, models.as_inputs(clients.x[some], model), chunk=200)
        right = (passed.probabilities.argmax(1) == clients.y[some]).double().numpy()
        accuracy, trained = right.mean().item(), interval(right)[0] > chance
    hidden = ("model", "data", "loss")
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return {
        **{field.name: getattr(setup, field.name) for field in fields(setup) if field.name not in hidden},
        "recorded": False,
        "loss": _describe_loss(case),
        "name": setup.name or type(model).__name__,
        "parameters": sum(p.numel() for p in weights.values()),
        "mode": "training" if model.training else "evaluation",
        "shape": case.classifier.shape,
        "samples": setup.steps * setup.batch_size,
        "defences": [
            repr(d) if is_dataclass(d) else getattr(d, "__name__", type(d).__name__)
            for d in (*filter(None, [setup.dp_sgd]), *setup.defences)
        ],
        "told": case.knowledge["defence"] is not None,
        "withheld": [name for name in weights if name not in update.tensors],
        "server": setup.attacker.server,
        "synthetic": synthetic,
        "inversions_lack": _image_attack(setup).lacking(view(setup.attacker, update, model)),
        "data": "synthetic data of the right shape" if synthetic else f"{clients.name}: {len(clients)} samples",
        "auxiliary": len(case.aux),
        "accuracy": accuracy,
        "chance": chance,
        "trained": trained,
    }
