"""One short image inversion, where it is asked for: how near it comes in the time that it is given."""

import time
from typing import NamedTuple

import torch

from fedleak.attacks.contest import FORESEEN, contest, view
from fedleak.attacks.registry import Attack, get
from fedleak.audit.case import Case, Trial
from fedleak.audit.setup import Setup
from fedleak.federated import Update
from fedleak.metrics import paired, psnr

FIRST, MOST = 5, 10_000
"""Iterations that the speed is measured with (after one to warm up), and those after which no more are made."""


class ImageResult(NamedTuple):
    """How near one inversion of one update came."""

    attack: str
    why: str = ""
    """Why there is no result, if there is none."""
    iterations: int = 0
    seconds: float = 0.0
    psnr: float = float("nan")
    """Mean peak signal-to-noise ratio in dB, of the reconstructions in the best order."""
    guess: float = float("nan")
    """The same, of as many other samples of the same data."""


def image_attack(setup: Setup) -> Attack:
    """Return the one image attack that is run if it is asked for: of one local step, or of several."""
    return get("InvG" if setup.steps == 1 else "AGIC")


def invert_once(case: Case, done: Trial, seen: Update, ranking: list[str]) -> ImageResult:
    """Invert the first trial's update for about as long as the set-up allows; labels are those that are recovered.

    `ranking` names the label attacks, best first. The number of iterations follows from the time that the first few
    take, so it depends on the machine.
    """
    attack, who = image_attack(case.setup), view(case.setup.attacker, seen, case.model)
    truth, started = done.x[0].flatten(0, 1), time.perf_counter()
    try:
        if truth.dim() != 4 or min(truth.shape[2:]) < 11:
            raise ValueError(f"it is for images of at least 11 x 11 pixels, and the inputs are of shape {case.shape}")
        if truth.min() < 0 or truth.max() > 1:
            raise ValueError("it looks for pixels in [0, 1]; the data are not, so put the normalisation into the model")
        if lacks := attack.lacking(who):
            raise ValueError(f"the adversary lacks: {'; '.join(lacks)}")
        attempts = contest(seen, case.attacked, who, {**case.held, "runs": 1}, attacks=map(get, ranking))
        counts = next(
            (one.found for one in attempts if one.found is not None and one.found.sum() == seen.samples), None
        )
        if counts is None:
            raise ValueError("it needs the labels first, and no label attack names as many as there are samples")
        options = {"labels": torch.arange(len(counts)).repeat_interleave(counts), "seed": case.setup.seed}
        attack(seen, case.attacked, adversary=who, iterations=1, **options)
        begun = time.perf_counter()
        attack(seen, case.attacked, adversary=who, iterations=FIRST, **options)
        now = time.perf_counter()
        left = case.setup.images - (now - started)
        iterations = int(min(max(FIRST * left / (now - begun), 1), MOST))
        found = attack(seen, case.attacked, adversary=who, iterations=iterations, **options)
    except FORESEEN as error:
        return ImageResult(attack.name, str(error).strip().split("\n")[0])
    generator = torch.Generator().manual_seed(case.setup.seed)
    others = case.aux.x[torch.randint(len(case.aux), (len(truth),), generator=generator)].to(truth)
    near, guess = (float(psnr(paired(images.to(truth), truth), truth).mean()) for images in (found, others))
    return ImageResult(attack.name, "", iterations, time.perf_counter() - started, near, guess)
