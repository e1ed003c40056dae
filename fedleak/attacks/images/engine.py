"""The one loop behind the inversions: DLG, DLG-Adam, InvG and AGIC are descents for it.

N independent reconstructions of the same shape run in one step. Each has P dummy images, which one or more rounds
(views) share; the objective is the weighted sum of the views' distances, plus total variation.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

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
) -> Inversion:
    """Reconstruct N batches of images at once from one or more rounds.

    Raises `ValueError` if `iterations` is below 1, the views do not go together, or there are more or fewer seeds than
    reconstructions.

    Parameters
    ----------
    views, descent, iterations
        The rounds, the attack, and the steps of its optimiser.
    seed
        A seed per reconstruction, or one number: reconstruction n then starts from seed + n.
    shape
        Shape of one image, where the model does not tell it.
    snapshots
        Numbers of iterations after which the images are kept.
    """
    if iterations < 1:
        raise ValueError(f"iterations is at least 1, got {iterations}")
    problem = Problem(views, descent, tuple(shape or input_shape(views[0].model)))
    dummies = problem.start(seed)
    with _single_precision():
        if descent.optimiser == "lbfgs":
            found = _lbfgs(problem, dummies, iterations)
        else:
            found = _adam(problem, dummies, iterations, snapshots)
    hit = found.diverged[found.diverged >= 0]
    if len(hit):
        warnings.warn(
            f"{descent.name}: {len(hit)} of {problem.runs} reconstructions met NaN, the first after {int(hit.min())} "
            "iterations; they keep their last finite images. A smaller learning rate may help.",
            stacklevel=2,
        )
    return found


def _adam(problem: Problem, dummies: list[Tensor], iterations: int, snapshots: Sequence[int]) -> Inversion:
    descent = problem.descent
    optimiser = torch.optim.Adam(dummies, lr=descent.lr)
    falls = [int(iterations * share) for share in descent.decay]
    diverged = torch.full((problem.runs,), -1, device=dummies[0].device)
    kept: dict[int, Tensor] = {}
    good = [d.detach().clone() for d in dummies]
    evaluate = _graphed(problem, dummies)
    for iteration in range(iterations):
        values, grads = evaluate()
        running = values.isfinite() & (diverged < 0)
        for grad in grads:
            running = running & grad.flatten(1).isfinite().all(1)
        diverged = torch.where(running | (diverged >= 0), diverged, iteration)
        # What has met NaN goes back to where the gradient was last finite, and stays there.
        good = [torch.where(_over(running, d), d.detach(), g) for d, g in zip(dummies, good, strict=True)]
        for dummy, grad in zip(dummies, grads, strict=True):
            slope = grad.sign() if descent.signed and dummy is dummies[0] else grad
            dummy.grad = torch.where(_over(running, grad), slope, 0.0)
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
        if (iteration + 1) % LOOK_EVERY == 0 and bool((diverged >= 0).all()):
            break
    values = problem.evaluate(dummies)[0].detach()
    images = problem.pixels(dummies[0].detach())
    return Inversion(images, dummies[1].detach() if descent.labels else None, values, diverged.cpu(), kept)


@contextlib.contextmanager
def _single_precision() -> Iterator[None]:
    """Let convolutions on a GPU keep all 23 bits: with TF32's 10, the gradient of a gradient is off by 6 %."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _graphed(problem: Problem, dummies: list[Tensor]) -> Callable[[], tuple[Tensor, list[Tensor]]]:
    """Return what evaluates the objective at the dummies; on a GPU as one graph, whose kernels are launched at once."""
    if not (dummies[0].is_cuda and torch.cuda.is_initialized()):
        return lambda: problem.evaluate(dummies)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            problem.evaluate(dummies)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found = problem.evaluate(dummies)

    def replayed() -> tuple[Tensor, list[Tensor]]:
        graph.replay()
        return found

    return replayed


def _over(runs: Tensor, like: Tensor) -> Tensor:
    return runs.view(-1, *[1] * (like.dim() - 1))


def _lbfgs(problem: Problem, dummies: list[Tensor], iterations: int) -> Inversion:
    """Run L-BFGS, one reconstruction after the other; the best iterate is returned, NaN is never one."""
    ends = [_lbfgs_of_one(problem, dummies, run, iterations) for run in range(problem.runs)]
    best = [torch.cat(parts) for parts in zip(*(own for own, _, _ in ends), strict=True)]
    values = dummies[0].new_tensor([value for _, value, _ in ends])
    diverged = torch.tensor([iteration for _, _, iteration in ends])
    return Inversion(problem.pixels(best[0]), best[1] if problem.descent.labels else None, values, diverged)


def _lbfgs_of_one(
    problem: Problem, dummies: list[Tensor], run: int, iterations: int
) -> tuple[list[Tensor], float, int]:
    """Return one reconstruction's best dummies, their distance, and the iteration that met NaN or -1."""
    own = [d.detach()[run : run + 1].clone().requires_grad_() for d in dummies]
    optimiser = torch.optim.LBFGS(own, lr=problem.descent.lr)

    def closure() -> Tensor:
        value, grads = problem.evaluate(own, slice(run, run + 1))
        for variable, grad in zip(own, grads, strict=True):
            variable.grad = grad
        return value[0]

    best, least, diverged = [d.detach().clone() for d in own], math.inf, -1
    for iteration in range(iterations):
        before = [d.detach().clone() for d in own]
        value = float(optimiser.step(closure))  # the distance at `before`
        if value < least:
            best, least = before, value
        if not all(torch.isfinite(t).all() for t in own):
            diverged = iteration
            break
        if value < 1e-12:
            break
    if (value := closure().item()) < least:
        best, least = [d.detach() for d in own], value
    return best, least, diverged
