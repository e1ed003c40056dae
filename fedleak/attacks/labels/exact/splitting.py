"""Find the directions in a low-rank gradient's column space with the most zeros, by which SPEAR splits a batch."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

MAX_REFITTED, MAX_SHARPNESS = 512, 3.0
"""Most proposals that are refitted; largest exponent by which rows that look like zeros are drawn more often."""


class ColumnSpace(NamedTuple):
    """The column space of a gradient, in coordinates that all have the same noise."""

    basis: Tensor
    """Left singular vectors times singular values, ``[m, B]``."""
    noise: float
    """Standard deviation of the noise of the basis' entries."""


def noise_floor(values: Tensor, samples: int, part: str) -> float:
    """Return the largest singular value after the first `samples`: all of these would be 0 without rounding.

    Raises `ValueError` if a sample's singular value is less than 5 times as large; `part` names the gradient.
    """
    floor = max(float(values[samples]), float(values[0]) * torch.finfo(torch.double).eps)
    if values[samples - 1] < 5 * floor:
        rank = int((values > 5 * floor).sum())
        raise ValueError(
            f"the {part}'s gradient tells {rank} samples apart, not {samples}: the others' are in its noise"
        )
    return floor


def find_column_space(gradient: Tensor, samples: int, generator: torch.Generator) -> ColumnSpace:
    """Find the column space, of rank `samples`, of a gradient ``[m, n]`` by a random range finder.

    Raises `ValueError` if the gradient's rank is lower: a sample has no gradient of its own above the noise.
    """
    m, n = gradient.shape
    if not samples < min(m, n):
        raise ValueError(f"SPEAR splits fewer samples than the layer's {m} outputs and {n} inputs, got {samples}")
    probes = torch.randn(n, min(samples + 8, m, n), generator=generator, dtype=gradient.dtype).to(gradient.device)
    within = torch.linalg.qr(gradient @ probes).Q
    left_vectors, values, _ = torch.linalg.svd(within.mT @ gradient, full_matrices=False)
    floor = noise_floor(values, samples, "layer")
    return ColumnSpace(within @ left_vectors[:, :samples] * values[:samples], floor / (m**0.5 + n**0.5))


def is_zero(vectors: Tensor, noise: float, power: float = 0.5) -> Tensor:
    """Return whether entries of vectors ``[..., m]`` are zero: below a geometric mean of noise and vector size."""
    size = vectors.square().mean(-1, keepdim=True).sqrt()
    return vectors.abs() < noise**power * size ** (1 - power)


def refit_to_zeros(directions: Tensor, rows: Tensor, noise: float, power: float) -> Tensor:
    """Refit directions to vanish at all rows at which they nearly do; those with the most such rows come first."""
    pattern = is_zero(directions @ rows.T, noise, power).unique(dim=0)
    pattern = pattern[pattern.sum(1).argsort(descending=True)[:MAX_REFITTED]].to(rows)
    gram = pattern @ (rows[:, :, None] * rows[:, None]).flatten(1)
    return torch.linalg.eigh(gram.unflatten(1, [rows.shape[1]] * 2)).eigenvectors[..., 0]


def draw_proposals(space: ColumnSpace, activity: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw directions ``[k, B]`` of the space that vanish at B - 1 random rows, and refit each to all of its zeros.

    Rows with small `activity` ``[m]``, such as a unit's output for a mean input, are drawn more often.
    """
    live = space.basis.norm(dim=1) > 10 * space.noise
    rows, activity = space.basis[live], activity[live]
    samples = rows.shape[1]
    if samples == 1:
        return torch.ones_like(rows[:1])
    random_order = -torch.empty(count, len(rows), dtype=rows.dtype).exponential_(generator=generator).log()
    sharpness = MAX_SHARPNESS * torch.rand(count, 1, generator=generator).to(rows)
    standardised = (activity - activity.mean()) / activity.std().clamp(min=1e-300)
    drawn = (random_order.to(rows) - sharpness * standardised).topk(samples - 1).indices
    system = rows[drawn]
    directions = torch.linalg.solve_ex(system[..., :-1], -system[..., -1:]).result.squeeze(-1)
    directions = nn.functional.pad(directions, (0, 1), value=1.0)
    directions = nn.functional.normalize(directions[directions.isfinite().all(1)])
    return refit_to_zeros(refit_to_zeros(directions, rows, space.noise, 1 / 3), rows, space.noise, 1 / 2)


def choose_sparsest(directions: Tensor, space: ColumnSpace) -> Tensor:
    """Choose up to B independent directions ``[B, B]``, those with the most zeros first."""
    count = is_zero(directions @ space.basis.T, space.noise).sum(1)
    chosen: list[Tensor] = []
    remaining = directions[count.argsort(descending=True)]
    remainders = remaining.clone()  # components outside the span of the chosen directions
    while len(remaining) and len(chosen) < space.basis.shape[1]:
        independent = (remainders.norm(dim=1) > 0.02).nonzero().flatten()
        if not len(independent):
            break
        chosen.append(remaining[independent[0]])
        new = nn.functional.normalize(remainders[independent[0]], dim=0)
        remainders, remaining = remainders[independent], remaining[independent]
        remainders = remainders - (remainders @ new)[:, None] * new
    return torch.stack(chosen) if chosen else directions[:0]
