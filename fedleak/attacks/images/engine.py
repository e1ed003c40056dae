"""The one loop behind the inversions: DLG, DLG-Adam, InvG and AGIC are descents for it.

N independent reconstructions of the same shape run in one step. Each has P dummy images, which one or more rounds
(views) share; the objective is the weighted sum of the views' distances, plus total variation.
"""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Descent, Inversion, Problem
from fedleak.models import input_shape

LOOK_EVERY = 25
"""Iterations between two looks for NaN, which a GPU has to be waited for."""


def invert(
    views: Sequence[View],
    descent: Descent,
    *,
    iterations: int,
    seed: int | Sequence[int] = 0,
    shape: tuple[int, ...] | None = None,
    snapshots: Sequence[int] = (),
    progress: bool = False,
    checkpoint: Path | str | None = None,
) -> Inversion:
    """Reconstruct N batches of images at once.

    Parameters
    ----------
    views
        The rounds; see `View`.
    descent
        The attack.
    iterations
        Steps of the optimiser.
    seed
        One for the start of every reconstruction; of a single number the n-th starts from seed + n.
    shape
        Shape of one image, where the model does not tell it.
    snapshots
        Numbers of iterations after which the images are kept.
    progress
        Show a progress bar.
    checkpoint
        File in which the state is kept every hundred iterations; a run that finds its own there goes on from it. It is
        removed at the end.

    Raises
    ------
    ValueError
        If `iterations` is below 1, the views do not go together, or there are more or fewer seeds than reconstructions.
    """
    if iterations < 1:
        raise ValueError(f"iterations is at least 1, got {iterations}")
    problem = Problem(views, descent, tuple(shape or input_shape(views[0].model)))
    dummies = problem.start(seed)
    if descent.optimiser == "lbfgs":
        return _lbfgs(problem, dummies, iterations, progress)
    return _adam(problem, dummies, iterations, sorted(snapshots), progress, checkpoint, seed)


def _adam(
    problem: Problem,
    dummies: list[Tensor],
    iterations: int,
    snapshots: Sequence[int],
    progress: bool,
    checkpoint: Path | str | None,
    seed: int | Sequence[int],
) -> Inversion:
    descent = problem.descent
    optimiser = torch.optim.Adam(dummies, lr=descent.lr)
    falls = [int(iterations * share) for share in descent.decay]
    diverged = torch.full((problem.runs,), -1, device=dummies[0].device)
    kept: dict[int, Tensor] = {}
    first, path = 0, Path(checkpoint) if checkpoint else None
    key = _key(problem, iterations, seed, snapshots) if path else ""
    if path and path.exists() and (state := torch.load(path, weights_only=True, map_location="cpu"))["key"] == key:
        first, diverged = state["iteration"], state["diverged"].to(diverged.device)
        kept = {after: images.to(diverged.device) for after, images in state["kept"].items()}
        for dummy, saved in zip(dummies, state["dummies"], strict=True):
            dummy.data.copy_(saved)
        optimiser.load_state_dict(state["optimiser"])
    said, good = False, [d.detach().clone() for d in dummies]
    bar = tqdm(total=iterations, initial=first, desc=descent.name, disable=not progress, leave=False)
    for iteration in range(first, iterations):
        values, grads = problem.evaluate(dummies)
        running = values.isfinite() & (diverged < 0)
        for grad in grads:
            running = running & grad.flatten(1).isfinite().all(1)
        diverged = torch.where(running | (diverged >= 0), diverged, iteration)
        # What has met NaN goes back to where the gradient was last finite, and stays there.
        good = [torch.where(_over(running, d), d.detach(), g) for d, g in zip(dummies, good, strict=True)]
        for dummy, grad in zip(dummies, grads, strict=True):
            dummy.grad = torch.where(
                _over(running, grad), grad.sign() if descent.signed and dummy is dummies[0] else grad, 0.0
            )
        for group in optimiser.param_groups:
            group["lr"] = descent.lr * 0.1 ** sum(iteration >= fall for fall in falls)
        optimiser.step()
        with torch.no_grad():
            if descent.box:
                dummies[0].copy_(torch.minimum(torch.maximum(dummies[0], problem.low), problem.high))
            for dummy, safe in zip(dummies, good, strict=True):
                dummy.copy_(torch.where(_over(running, dummy), dummy, safe))
        if iteration + 1 in snapshots:
            kept[iteration + 1] = problem.pixels(dummies[0].detach()).clone()
        bar.update()
        if (iteration + 1) % LOOK_EVERY == 0 or iteration + 1 == iterations:
            bar.set_postfix_str(f"distance {values.mean().item():.4g}", refresh=False)
            if not said and bool((diverged >= 0).any()):
                said = True
                warnings.warn(_complaint(descent, diverged), stacklevel=3)
            if path and ((iteration + 1) % (4 * LOOK_EVERY) == 0):
                state = {"key": key, "iteration": iteration + 1, "kept": kept, "diverged": diverged}
                _save(path, {**state, "dummies": [d.detach() for d in dummies], "optimiser": optimiser.state_dict()})
            if bool((diverged >= 0).all()):
                break
    bar.close()
    if path:
        path.unlink(missing_ok=True)
    values = problem.evaluate(dummies)[0].detach()
    images = problem.pixels(dummies[0].detach())
    return Inversion(images, dummies[1].detach() if descent.labels else None, values, diverged.cpu(), kept)


def _over(runs: Tensor, like: Tensor) -> Tensor:
    return runs.view(-1, *[1] * (like.dim() - 1))


def _lbfgs(problem: Problem, dummies: list[Tensor], iterations: int, progress: bool) -> Inversion:
    """Run L-BFGS, one reconstruction after the other; the best iterate is returned, NaN is never one."""
    best = [d.detach().clone() for d in dummies]
    values = torch.full((problem.runs,), torch.inf).to(dummies[0])
    diverged = torch.full((problem.runs,), -1)
    for run in range(problem.runs):
        runs = slice(run, run + 1)
        own = [d.detach()[runs].clone().requires_grad_() for d in dummies]
        optimiser = torch.optim.LBFGS(own, lr=problem.descent.lr)

        def closure(own: list[Tensor] = own, runs: slice = runs) -> Tensor:
            value, grads = problem.evaluate(own, runs)
            for variable, grad in zip(own, grads, strict=True):
                variable.grad = grad
            return value[0]

        def keep(value: float, where: list[Tensor], runs: slice = runs, run: int = run) -> None:
            if value < values[run]:
                values[run] = value
                for held, found in zip(best, where, strict=True):
                    held[runs] = found.detach()

        for iteration in tqdm(range(iterations), desc=problem.descent.name, disable=not progress, leave=False):
            before = [d.detach().clone() for d in own]
            value: Any = optimiser.step(closure)  # the distance at `before`
            keep(value.item(), before)
            if not all(torch.isfinite(t).all() for t in own):
                diverged[run] = iteration
                break
            if value < 1e-12:
                break
        keep(closure().item(), own)
    if bool((diverged >= 0).any()):
        warnings.warn(_complaint(problem.descent, diverged), stacklevel=3)
    logits = best[1] if problem.descent.labels else None
    return Inversion(problem.pixels(best[0]), logits, values, diverged)


def _complaint(descent: Descent, diverged: Tensor) -> str:
    hit = (diverged >= 0).nonzero().flatten().tolist()
    return (
        f"{descent.name}: {len(hit)} of {len(diverged)} reconstructions met NaN, the first after "
        f"{int(diverged[hit].min())} iterations; they keep their last finite images. A smaller learning rate may help."
    )


def _key(problem: Problem, iterations: int, seed: int | Sequence[int], snapshots: Sequence[int]) -> str:
    digest = hashlib.sha256(repr((problem.descent, iterations, seed, list(snapshots), problem.pool)).encode())
    for view in problem.views:
        digest.update(repr((view.index, view.epoch_weight, view.simulate)).encode())
        for tensor in (*view.targets, *view.parameters.values(), view.alphas):
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        if view.labels is not None:
            digest.update(view.labels.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _save(path: Path, state: dict[str, Any]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(handle)
    torch.save(state, temporary)
    os.replace(temporary, path)
