"""Optimise dummy images: the loop that DLG, DLG-Adam, InvG and AGIC share.

N independent reconstructions of the same shape run at once. Each has P dummy images, which one or more rounds (views)
share; the objective is the weighted sum of the views' distances, plus total variation.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedleak.attacks.door import quiet
from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Descent, Inversion, Problem
from fedleak.attacks.images.ranges import ADVICE, MATCHED, UNCHECKED, Box, clipping_changes, pressure
from fedleak.errors import whole_number
from fedleak.memory import all_freed_memory_kept

NAN_CHECK_INTERVAL = 25
"""Iterations between two checks whether all reconstructions have diverged; each check waits for the GPU."""


def invert(
    views: Sequence[View],
    descent: Descent,
    *,
    iterations: int,
    seed: int | Sequence[int] = 0,
    shape: tuple[int, ...] | None = None,
    snapshots: Sequence[int] = (),
    box: Box = "pixels",
) -> Inversion:
    """Reconstruct N batches of images at once from one or more rounds.

    Raises `ValueError` if `iterations` is below 1, the views do not go together, there are more or fewer seeds than
    reconstructions, or the model has tokens as inputs or an operation without a second derivative.

    Parameters
    ----------
    views, descent, iterations
        The rounds, the optimisation, and its number of steps.
    seed
        A random seed per reconstruction, or one number: reconstruction n then starts from seed + n.
    shape
        Shape of one image, ``(C, H, W)``, if it does not follow from the model.
    snapshots
        Numbers of iterations after which the images are stored.
    box
        Range of the inputs, ``(low, high)``, such as (-1, 1) for images that the clients' loader normalised; None for
        any. By default images are pixels in [0, 1], and rows, signals and sequences have no range.
    """
    whole_number("iterations", iterations)
    if isinstance(snapshots, int):
        raise ValueError(f"snapshots are numbers of iterations, such as [10, 100]; got {snapshots}")
    problem = Problem(views, descent, shape, box)
    dummies = problem.start(seed)
    with _single_precision(), all_freed_memory_kept(), _second_derivatives(), quiet(*[view.net for view in views]):
        if descent.optimiser == "lbfgs":
            result = _lbfgs(problem, dummies, iterations, snapshots)
        else:
            result = _adam(problem, dummies, iterations, snapshots)
        _note_range(problem, result)
    result.box, result.attack = problem.box, descent.name
    nan_iterations = result.diverged[result.diverged >= 0]
    if len(nan_iterations):
        warnings.warn(
            f"{descent.name}: {len(nan_iterations)} of {problem.runs} reconstructions met NaN, the first after "
            f"{int(nan_iterations.min())} iterations; they keep their last finite images. "
            "A smaller learning rate may help.",
            stacklevel=2,
        )
    _warn_of_failure(problem, result)
    return result


def _warn_of_failure(problem: Problem, result: Inversion) -> None:
    """Warn if squared differences end larger than those of zeros: then the search has failed."""
    if problem.descent.distance == "l2":
        squares = sum(view.epoch_weight * view.squares for view in problem.views)
        if n_failed := int((result.values.to(squares) > squares).sum()):
            warnings.warn(
                f"{problem.descent.name}: the gradients of {n_failed} of {problem.runs} reconstructions are further "
                "from the update's than zeros are: the search has failed. Another seed or more iterations may help.",
                stacklevel=4,
            )


def _note_range(problem: Problem, result: Inversion) -> None:
    """Warn if pixels in [0, 1] are assumed and excluded by model, updates or images; note it if nothing shows them.

    What shows pixels are example inputs that the caller noted, and images that match their gradients without being
    clipped.
    """
    if not problem.is_assumed:
        return
    fact, images, is_shown = problem.contradiction() or result.pressure, result.images, problem.has_examples
    if not fact and not problem.descent.box and problem.descent.distance == "l2":
        squares = sum(view.epoch_weight * view.squares for view in problem.views)
        matches = images[result.values.to(squares) < MATCHED["l2"] * squares]
        # Fewer equations than unknowns have solutions in the range and outside, whatever the inputs are.
        if sum(target[0].numel() for view in problem.views for target in view.targets) >= images[0].numel():
            fact, is_shown = clipping_changes(matches), is_shown or len(matches) > 0
    if not fact:
        result.unchecked = () if is_shown else (UNCHECKED,)
        return
    smoothed = " and smoothed" if problem.descent.total_variation else ""
    warnings.warn(
        f"{problem.descent.name}: the inputs are no pixels in [0, 1], to which they are clipped{smoothed}: {fact}. "
        f"{ADVICE[0].upper()}{ADVICE[1:]}",
        stacklevel=4,
    )


def _adam(problem: Problem, dummies: list[Tensor], iterations: int, snapshots: Sequence[int]) -> Inversion:
    descent = problem.descent
    optimiser = torch.optim.Adam(dummies, lr=descent.lr)
    decay_iterations = [int(iterations * share) for share in descent.decay]
    diverged = torch.full((problem.runs,), -1, device=dummies[0].device)
    snapshot_images: dict[int, Tensor] = {}
    last_finite = [d.detach().clone() for d in dummies]
    evaluate = _make_evaluation(problem, dummies)
    for iteration in range(iterations):
        values, grads = evaluate()
        is_running = values.isfinite() & (diverged < 0)
        for grad in grads:
            is_running = is_running & grad.flatten(1).isfinite().all(1)
        diverged = torch.where(is_running | (diverged >= 0), diverged, iteration)
        # A diverged reconstruction returns to the images of its last finite gradient and stays there.
        pairs = zip(dummies, last_finite, strict=True)
        last_finite = [torch.where(_expand(is_running, d), d.detach(), finite) for d, finite in pairs]
        for dummy, grad in zip(dummies, grads, strict=True):
            slope = grad.sign() if descent.signed and dummy is dummies[0] else grad
            dummy.grad = torch.where(_expand(is_running, grad), slope, 0.0)
        for group in optimiser.param_groups:
            group["lr"] = descent.lr * 0.1 ** sum(iteration >= k for k in decay_iterations)
        optimiser.step()
        with torch.no_grad():
            if descent.box and problem.box:
                dummies[0].copy_(torch.minimum(torch.maximum(dummies[0], problem.low), problem.high))
            for dummy, finite in zip(dummies, last_finite, strict=True):
                dummy.copy_(torch.where(_expand(is_running, dummy), dummy, finite))
        if iteration + 1 in snapshots:
            snapshot_images[iteration + 1] = problem.pixels(dummies[0].detach()).clone()
        if (iteration + 1) % NAN_CHECK_INTERVAL == 0 and bool((diverged >= 0).all()):
            break
    images, labels = problem.pixels(dummies[0].detach()), dummies[1].detach() if descent.labels else None
    result = Inversion(images, labels, problem.distances(dummies), diverged.cpu(), snapshot_images)
    if descent.box and problem.is_assumed:  # the slopes at the last step's start, because nothing else needs new ones
        result.pressure = pressure(problem.pixels(last_finite[0]), grads[0], values)
    return result


@contextlib.contextmanager
def _single_precision() -> Iterator[None]:
    """Compute a GPU's convolutions with all 23 bits: with TF32's 10, second derivatives are off by 6 %."""
    previous, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = previous


@contextlib.contextmanager
def _second_derivatives() -> Iterator[None]:
    """Compute attention by the kernel that has a second derivative; `ValueError` for operations that have none."""
    with sdpa_kernel(SDPBackend.MATH):
        try:
            yield
        except RuntimeError as error:
            if not any(part in str(error) for part in ("derivative for", "not implemented", "double backward")):
                raise
            reason = str(error).strip().split("\n")[0]
            raise ValueError(
                f"an inversion differentiates the model's gradients, and an operation has no such derivative: {reason}"
            ) from error


def _make_evaluation(problem: Problem, dummies: list[Tensor]) -> Callable[[], tuple[Tensor, list[Tensor]]]:
    """Return a function that evaluates the objective at the dummies; on a GPU it replays one CUDA graph."""
    if not (dummies[0].is_cuda and torch.cuda.is_initialized()):
        return lambda: problem.evaluate(dummies)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            problem.evaluate(dummies)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = problem.evaluate(dummies)

    def replay() -> tuple[Tensor, list[Tensor]]:
        graph.replay()
        return result

    return replay


def _expand(runs: Tensor, like: Tensor) -> Tensor:
    return runs.view(-1, *[1] * (like.dim() - 1))


def _lbfgs(problem: Problem, dummies: list[Tensor], iterations: int, snapshots: Sequence[int]) -> Inversion:
    """Run L-BFGS, one reconstruction after the other, and return the best finite iterates."""
    results = [_lbfgs_of_one(problem, dummies, run, iterations, snapshots) for run in range(problem.runs)]
    of_runs, values, diverged, films = zip(*results, strict=True)
    best = [torch.cat(parts) for parts in zip(*of_runs, strict=True)]
    stored = {n: problem.pixels(torch.cat([film[n] for film in films])) for n in films[0]}
    labels = best[1] if problem.descent.labels else None
    images = problem.pixels(best[0])
    return Inversion(images, labels, dummies[0].new_tensor(values), torch.tensor(diverged), stored)


def _lbfgs_of_one(
    problem: Problem, dummies: list[Tensor], run: int, iterations: int, snapshots: Sequence[int]
) -> tuple[list[Tensor], float, int, dict[int, Tensor]]:
    """Return one reconstruction's best dummies, their distance, the iteration of the first NaN, or -1, and snapshots.

    A search that ends early keeps its last finite images.
    """
    variables = [d.detach()[run : run + 1].clone().requires_grad_() for d in dummies]
    optimiser = torch.optim.LBFGS(variables, lr=problem.descent.lr)

    def closure() -> Tensor:
        value, grads = problem.evaluate(variables, slice(run, run + 1))
        for variable, grad in zip(variables, grads, strict=True):
            variable.grad = grad
        return value[0]

    best, best_value, diverged = [d.detach().clone() for d in variables], math.inf, -1
    film: dict[int, Tensor] = {}
    for iteration in range(iterations):
        previous = [d.detach().clone() for d in variables]
        value = float(optimiser.step(closure))  # the distance at `previous`
        if value < best_value:
            best, best_value = previous, value
        if not all(torch.isfinite(t).all() for t in variables):
            diverged = iteration
            break
        if iteration + 1 in snapshots:
            film[iteration + 1] = variables[0].detach().clone()
        if value < 1e-12:
            break
    if (value := closure().item()) < best_value:
        best, best_value = [d.detach() for d in variables], value
    last = previous[0] if diverged >= 0 else variables[0].detach()
    return best, best_value, diverged, {n: film.get(n, last) for n in snapshots if 0 < n <= iterations}
