"""Head splitting: with fewer samples than classes, the head alone reveals every sample's input and label.

The gradient of the head's weights and bias is ``G = sum_i e_i a_i^T / B``, with a_i the head's input and a 1 for the
bias, and e_i = softmax(W a_i) - onehot(y_i), which depends on a_i and y_i alone. Let B G = U K V^T, of rank B. Then
every a_i lies in the span of V, every e_i in that of U, and a_j^T V K^-1 U^T e_i is 1 for i = j and 0 for all others.
So each sample solves, for its own label y and with the last entry of a = V z being 1,

    (I - U U^T) e(z, y) = 0    and    z^T K^-1 U^T e(z, y) = 1,

n - B equations for the B - 1 unknowns of z. Up to B = n / 2 the system is overdetermined: in general the batch's
samples solve it, and nothing else does. Levenberg and Marquardt's method finds them from starts near the middle of the
samples, for all labels at once; each solution is subtracted from G, and the search goes on with the remainder. In the
end all B have to solve the equations of the original G, and together explain it.

The attack needs no auxiliary data, no ReLU and no other layer's gradient. With auxiliary images it splits batches of up
to n - 1 samples, by the equations of all samples together (`fedleak.attacks.labels.joint`). The derivation is our own;
RLG separates the classes of a batch smaller than n by its space of errors, and SPEAR finds samples in such a space.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedleak.attacks.labels import joint
from fedleak.attacks.labels.inputs import head_with_bias, whole_gradient
from fedleak.attacks.labels.splitting import noise_floor
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import head, head_pass

STARTS, SPREAD, ROUNDS, ITERATIONS = 3, 0.1, 8, 100
"""Starts of each label; their spread about the middle, relative to its length; searches; steps of each."""
SOLVED, ROUNDING, COARSEST = 5.0, 1e-12, 1e-3
"""Largest residual of a solution: a multiple of the gradient's noise, or of double rounding; and an upper limit."""
ALIKE, TOGETHER, ENTRIES = 0.01, 0.01, 2**22
"""Inputs that differ by less, relative to their length, are one sample's; what all together may leave of the unit
matrix; entries of a search's outputs at once."""


class Space(NamedTuple):
    """The spaces of a gradient's samples, from its singular vectors."""

    inputs: Tensor
    """V, ``[d + 1, B]``."""
    errors: Tensor
    """U, ``[n, B]``."""
    inverse: Tensor
    """K^-1 U^T, ``[B, n]``."""
    tolerance: float
    """Largest residual of a solution: a few times the largest singular value that should be 0, relative to
    the smallest that should not."""

    @property
    def middle(self) -> Tensor:
        """The least z whose input ends in 1, ``[B]``."""
        return self.inputs[-1] / self.inputs[-1].square().sum()


def space(gradient: Tensor, samples: int) -> Space:
    """Return the spaces of a sum of `samples` products, ``[n, d + 1]``; a `ValueError` if it is not of that rank."""
    left_vectors, values, right = torch.linalg.svd(gradient, full_matrices=False)
    floor = noise_floor(values, samples, "head")
    left_vectors, values = left_vectors[:, :samples], values[:samples]
    tolerance = min(SOLVED * floor / float(values[-1]) + ROUNDING, COARSEST)
    return Space(right[:samples].T, left_vectors, left_vectors.T / values[:, None], tolerance)


def solve(spaces: Space, weight: Tensor, labels: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the equations of samples of these labels ``[k]``, each from a start ``[k, B]`` for z.

    Returns z ``[k, B]``, and the norm of its residual, ``[k]``, with errors of length 1.
    """
    onehot = nn.functional.one_hot(labels, len(weight)).to(weight)
    last = spaces.inputs[-1]
    free = torch.linalg.qr(last[:, None], mode="complete").Q[:, 1:]
    outputs = weight @ spaces.inputs
    slopes = outputs @ free
    y, damping = (start - spaces.middle) @ free, torch.full_like(start[:, :1], 0.01)

    def beyond(vectors: Tensor) -> Tensor:  # the part outside the span of the errors
        return vectors - spaces.errors @ (spaces.errors.T @ vectors)

    def equations(y: Tensor) -> tuple[Tensor, ...]:
        z = spaces.middle + y @ free.T
        p = (z @ outputs.T).softmax(1)
        size = (p - onehot).norm(dim=1, keepdim=True)  # a tiny error nearly solves the first equation
        unit = (p - onehot) / size
        scale = (z * (unit * size @ spaces.inverse.T)).sum(1, keepdim=True) - 1
        return z, p, size, unit, torch.cat([beyond(unit[..., None]).squeeze(-1), scale], 1)

    now = equations(y)
    for _ in range(ITERATIONS):
        z, p, size, unit, residual = now
        moved = p[..., None] * (slopes - (p @ slopes)[:, None])
        turned = (moved - unit[..., None] * torch.einsum("kn,knb->kb", unit, moved)[:, None]) / size[..., None]
        scaled = (unit * size @ spaces.inverse.T) @ free + torch.einsum("kn,knb->kb", z @ spaces.inverse, moved)
        jacobian = torch.cat([beyond(turned), scaled[:, None]], 1)
        normal = jacobian.mT @ jacobian
        diagonal = normal.diagonal(dim1=1, dim2=2)  # Marquardt's damping, relative to each unknown's curvature
        system = normal + torch.diag_embed(damping * diagonal + 1e-30)
        step = torch.linalg.solve_ex(system, jacobian.mT @ residual[..., None]).result.squeeze(-1)
        tried = equations(y - step)
        better = tried[-1].square().sum(1, keepdim=True) < residual.square().sum(1, keepdim=True)  # not of NaN
        y = torch.where(better, y - step, y)
        damping = torch.where(better, (damping / 4).clamp(min=1e-14), (damping * 6).clamp(max=1e12))
        now = tuple(torch.where(better.view(-1, *[1] * (a.dim() - 1)), a, b) for a, b in zip(tried, now, strict=True))
    return now[0], now[-1].norm(dim=1)


def search(spaces: Space, weight: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the distinct solutions from starts of every label: inputs ``[k, d + 1]`` and labels ``[k]``."""
    middle, last, size = spaces.middle, spaces.inputs[-1], spaces.inputs.shape[1]
    labels = torch.arange(len(weight), device=last.device).repeat(STARTS)
    start = torch.randn(len(labels), size, generator=generator, dtype=last.dtype).to(last) * middle.norm() * SPREAD
    start = middle + start - (start @ last)[:, None] * middle
    parts = zip(*(tensor.split(max(1, ENTRIES // (len(weight) * size))) for tensor in (labels, start)), strict=True)
    z, missed = (torch.cat(part) for part in zip(*(solve(spaces, weight, *part) for part in parts), strict=True))
    chosen: list[int] = []
    for k in missed.argsort()[: int((missed < spaces.tolerance).sum())].tolist():
        far = (z[chosen] - z[k]).norm(dim=1) > ALIKE * z[k].norm()
        if bool((far | (labels[chosen] != labels[k])).all()):
            chosen.append(k)
    return z[chosen] @ spaces.inputs.T, labels[chosen]


def split(gradient: Tensor, weight: Tensor, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Split the mean gradient of a head ``[n, d + 1]`` into its samples: inputs ``[B, d + 1]`` and labels ``[B]``.

    `weight` is the head's, ``[n, d + 1]``; both have the bias as their last column and are in double precision; `seed`
    is that of the starts. Raises `ValueError` as `prepare` says.
    """
    generator, total = torch.Generator().manual_seed(seed), samples * gradient
    whole, rest = space(total, samples), total
    inputs, labels = total.new_zeros(0, total.shape[1]), torch.zeros(0, dtype=torch.long, device=total.device)
    for _ in range(ROUNDS):
        solutions = search(space(rest, samples - len(labels)), weight, generator)
        inputs, labels = torch.cat([inputs, solutions[0]]), torch.cat([labels, solutions[1]])
        if len(labels) >= samples:
            break
        rest = total - errors_of(inputs, weight, labels).T @ inputs  # the next search is for the others
    if len(labels) == samples:
        z, missed = solve(whole, weight, labels, inputs @ whole.inputs)
        inputs = z @ whole.inputs.T
        fit = z @ whole.inverse @ errors_of(inputs, weight, labels).T
        if bool((missed < whole.tolerance).all()) and (fit - torch.eye(samples).to(fit)).abs().max() < TOGETHER:
            return inputs, labels
    raise ValueError(f"the search finds {len(labels)} of {samples} samples, or they do not fit together")


def errors_of(inputs: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Return softmax less onehot of samples, ``[k, n]``."""
    return (inputs @ weight.T).softmax(1) - nn.functional.one_hot(labels, len(weight)).to(weight)


def has_few_samples(model: nn.Module, _: Tensor | None, samples: int) -> bool:
    """Return whether an update has few enough samples for its search."""
    classes = head(model).layer.out_features
    return samples < classes and samples <= max(joint.MOST, classes // 2)


@attack(
    "head splitting",
    needs={Need.HEAD_GRADIENT, Need.BIAS_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL},
    summary="Solves the samples' equations in the head's gradient, of fewer samples than classes.",
    options={"seed", "aux"},
    prepares=True,
    standalone_reason="it reads batches of fewer samples than there are classes",
    applies=has_few_samples,
)
def prepare(model: nn.Module, aux: Images | None = None) -> Prepared:
    """Prepare the attack; its `Result` has the counts ``[n]``, all of them ``proven``.

    Raises `ValueError` if the head has no bias; when an update is read, for several local steps or more samples than
    n / 2 (with `aux`, n - 1); NaN, infinite or other models' gradients; samples that are equal up to rounding,
    such as the same image twice; or if not all samples were found. `WithheldParameter` if a gradient of the head is not
    shared.

    Parameters
    ----------
    model
        Before the round.
    aux
        Labelled images, whose inputs are starts of the search for all samples together.
    """
    named = head_with_bias(model)
    last = named.layer
    assert last.bias is not None
    weight = torch.cat([last.weight, last.bias[:, None]], 1).detach().double()
    starts = [] if aux is None else _starts(model, aux, len(weight))
    size = float(np.mean([np.linalg.norm(inputs, axis=1).mean() for inputs in starts])) if starts else 0.0

    def read(update: Update, *, seed: int = 0) -> Result:
        samples, n = update.samples, len(weight)
        if update.steps != 1 or samples > (n - 1 if starts else n // 2):
            raise ValueError(
                f"head splitting reads one step of at most half as many samples as the {n} classes, with auxiliary "
                f"images of fewer samples than classes; got {update.steps} steps, {samples} samples"
            )
        gradient, labels = whole_gradient(update, model), None
        if 2 * samples <= n:
            try:
                _, labels = split(gradient, weight, samples, seed)
            except ValueError:
                if not starts:
                    raise
        if labels is None:
            total = samples * gradient
            floor = noise_floor(torch.linalg.svdvals(total), samples, "head")
            rounding = torch.finfo(update.tensors[named.weight].dtype).eps * size
            numbers = total.cpu().numpy(), weight.cpu().numpy()
            recovered = joint.labels_of(*numbers, samples, floor, rounding, starts, seed)
            labels = torch.from_numpy(recovered).to(weight.device)
        counts = labels.bincount(minlength=n)
        return Result(counts, proven=counts)

    return Prepared("head splitting", read)


def _starts(model: nn.Module, aux: Images, n_classes: int) -> list[np.ndarray]:
    """Return the head's inputs with a 1, ``[k, d + 1]`` per class; all inputs for a class without images."""
    x = aux.x.to(next(model.parameters()).dtype) if aux.x.is_floating_point() else aux.x
    inputs = nn.functional.pad(head_pass(model, x).inputs.double(), (0, 1), value=1.0).cpu().numpy()
    labels = aux.y.cpu().numpy()
    return [inputs[labels == y] if (labels == y).any() else inputs for y in range(n_classes)]


recover = once(prepare, seed=0)
