"""One short image inversion, where it is asked for: how near it comes in the time that it is given."""

import time
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.contest import FORESEEN, contest, view
from fedleak.attacks.registry import Adversary, get
from fedleak.audit.case import Case, Trial
from fedleak.audit.untried import image_attack
from fedleak.federated import Update
from fedleak.metrics import paired, psnr

FIRST, MOST = 5, 10_000
"""Iterations that the speed is measured with (after one to warm up), and those after which no more are made."""


@dataclass(frozen=True)
class ImageResult:
    """How near one inversion of one update came.

    Parameters
    ----------
    attack
        Its name.
    iterations, seconds
        How long it ran.
    psnr, guess
        Mean peak signal-to-noise ratio in dB, of the reconstructions and of as many other samples of the same data,
        each set brought into the best order.
    why
        Why there is no result, if there is none.
    """

    attack: str
    iterations: int = 0
    seconds: float = 0.0
    psnr: float = float("nan")
    guess: float = float("nan")
    why: str = ""


def invert_once(case: Case, done: Trial, seen: Update, ranking: list[str]) -> ImageResult:
    """Invert the first trial's update for about as long as the set-up allows; labels are those that are recovered.

    `ranking` names the label attacks, best first. The number of iterations follows from the time that the first few
    take, so it depends on the machine.
    """
    attack, who = image_attack(case.setup), view(case.setup.attacker, seen, case.model)
    truth = done.x[0].flatten(0, 1)
    why = f"the adversary lacks: {'; '.join(lacks)}" if (lacks := attack.lacking(who)) else ""
    if truth.dim() != 4 or min(truth.shape[2:]) < 11:
        why = f"it is for images of at least 11 x 11 pixels, and the inputs are of shape {case.shape}"
    elif truth.min() < 0 or truth.max() > 1:
        why = "it looks for pixels in [0, 1]; the data are not, so put the normalisation into the model"
    if why:
        return ImageResult(attack.name, why=why)
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"labels": _labels(case, seen, who, ranking), "seed": case.setup.seed}
            for iterations in (1, FIRST):
                begun = time.perf_counter()
                attack(seen, case.attacked, adversary=who, iterations=iterations, **options)
            each = (time.perf_counter() - begun) / FIRST
            left = case.setup.images - (time.perf_counter() - started)
            iterations = int(min(max(left / each, 1), MOST))
            found = attack(seen, case.attacked, adversary=who, iterations=iterations, **options)
    except FORESEEN as error:
        return ImageResult(attack.name, why=str(error).strip().split("\n")[0])
    generator = torch.Generator().manual_seed(case.setup.seed)
    others = case.aux.x[torch.randint(len(case.aux), (len(truth),), generator=generator)].to(truth)
    near, guess = (float(psnr(paired(images.to(truth), truth), truth).mean()) for images in (found, others))
    return ImageResult(attack.name, iterations, time.perf_counter() - started, near, guess)


def _labels(case: Case, seen: Update, who: Adversary, ranking: list[str]) -> Tensor:
    """Return the labels that the best label attack of the audit reads off the update, ``[samples]``.

    Raises
    ------
    ValueError
        If no label attack names as many labels as there are samples.
    """
    for one in contest(seen, case.attacked, who, {**case.held, "runs": 1}, attacks=map(get, ranking)):
        counts = one.found
        if counts is not None and int(counts.sum()) == seen.samples:
            return torch.arange(len(counts)).repeat_interleave(counts)
    raise ValueError("it needs the labels first, and no label attack names as many as there are samples")
