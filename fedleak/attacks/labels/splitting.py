"""The directions of a low-rank gradient that vanish at many rows: how SPEAR splits a batch into its samples."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

REFITTED, SHARP = 512, 3.0
"""Proposals that are refitted; how much more often a row is drawn that looks like a zero, at most (an exponent)."""


class Columns(NamedTuple):
    """The column space of a gradient, with the same noise in all coordinates."""

    basis: Tensor
    """Left singular vectors times singular values, ``[m, B]``."""
    noise: float
    """Standard deviation of its entries' noise, from the largest singular value that should be 0."""


def noise_floor(values: Tensor, samples: int, part: str) -> float:
    """Return the largest of a part's singular values that should be 0, those after the first `samples`.

    Raises `ValueError` if it does not stand back far behind these: samples without a gradient of their own.
    """
    floor = max(float(values[samples]), float(values[0]) * torch.finfo(torch.double).eps)
    if values[samples - 1] < 5 * floor:
        rank = int((values > 5 * floor).sum())
        raise ValueError(
            f"the {part}'s gradient tells {rank} samples apart, not {samples}: the others' are in its noise"
        )
    return floor


def columns(gradient: Tensor, samples: int, generator: torch.Generator) -> Columns:
    """Find the `samples` directions of a gradient ``[m, n]``, by a random range finder.

    Raises `ValueError` if the gradient is not of this rank: samples without a gradient of their own above the noise.
    """
    m, n = gradient.shape
    if not samples < min(m, n):
        raise ValueError(f"SPEAR splits fewer samples than the layer's {m} outputs and {n} inputs, got {samples}")
    probes = torch.randn(n, min(samples + 8, m, n), generator=generator, dtype=gradient.dtype).to(gradient.device)
    within = torch.linalg.qr(gradient @ probes).Q
    left_vectors, values, _ = torch.linalg.svd(within.mT @ gradient, full_matrices=False)
    floor = noise_floor(values, samples, "layer")
    return Columns(within @ left_vectors[:, :samples] * values[:samples], floor / (m**0.5 + n**0.5))


def zeros(vectors: Tensor, noise: float, power: float = 0.5) -> Tensor:
    """Return a mask of zero entries of vectors ``[..., m]``: below a geometric mean of noise and their own size."""
    size = vectors.square().mean(-1, keepdim=True).sqrt()
    return vectors.abs() < noise**power * size ** (1 - power)


def refit(directions: Tensor, rows: Tensor, noise: float, power: float) -> Tensor:
    """Return the directions that come nearest to vanishing at all rows where these nearly do, the most rows first."""
    pattern = zeros(directions @ rows.T, noise, power).unique(dim=0)
    pattern = pattern[pattern.sum(1).argsort(descending=True)[:REFITTED]].to(rows)
    gram = pattern @ (rows[:, :, None] * rows[:, None]).flatten(1)
    return torch.linalg.eigh(gram.unflatten(1, [rows.shape[1]] * 2)).eigenvectors[..., 0]


def proposals(space: Columns, lean: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw directions ``[k, B]`` of the space that vanish at B - 1 random rows, and refit each to all of its zeros.

    Rows with little `lean` ``[m]``, what the units say of a mean input, are drawn more often.
    """
    live = space.basis.norm(dim=1) > 10 * space.noise
    rows, lean = space.basis[live], lean[live]
    samples = rows.shape[1]
    if samples == 1:
        return torch.ones_like(rows[:1])
    lots = -torch.empty(count, len(rows), dtype=rows.dtype).exponential_(generator=generator).log()
    sharp = SHARP * torch.rand(count, 1, generator=generator).to(rows)
    drawn = (lots.to(rows) - sharp * (lean - lean.mean()) / lean.std().clamp(min=1e-300)).topk(samples - 1).indices
    system = rows[drawn]
    directions = torch.linalg.solve_ex(system[..., :-1], -system[..., -1:]).result.squeeze(-1)
    directions = nn.functional.pad(directions, (0, 1), value=1.0)
    directions = nn.functional.normalize(directions[directions.isfinite().all(1)])
    return refit(refit(directions, rows, space.noise, 1 / 3), rows, space.noise, 1 / 2)


def sparsest(directions: Tensor, space: Columns) -> Tensor:
    """Choose B independent directions ``[B, B]``, those with the most zeros first; fewer where there are no more."""
    count = zeros(directions @ space.basis.T, space.noise).sum(1)
    chosen: list[Tensor] = []
    remaining = directions[count.argsort(descending=True)]
    rest = remaining.clone()  # what of each is not in the span of the chosen
    while len(remaining) and len(chosen) < space.basis.shape[1]:
        free = (rest.norm(dim=1) > 0.02).nonzero().flatten()
        if not len(free):
            break
        chosen.append(remaining[free[0]])
        new = nn.functional.normalize(rest[free[0]], dim=0)
        rest, remaining = rest[free], remaining[free]
        rest = rest - (rest @ new)[:, None] * new
    return torch.stack(chosen) if chosen else directions[:0]
