"""Counts with a given sum: solve equations for them, and round estimates to integers."""

import torch
from torch import Tensor


def project(values: Tensor, total: int | Tensor) -> Tensor:
    """Project values ``[..., n]`` on the points without negative entries whose sum is `total` (float64).

    `total` is one number, or non-negative numbers ``[..., 1]``.
    """
    v = values.double()
    ordered = v.sort(dim=-1, descending=True).values
    rank = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    excess = (ordered.cumsum(-1) - total) / rank
    n_positive = (ordered > excess).sum(-1, keepdim=True).clamp(min=1)
    return (v - excess.gather(-1, n_positive - 1)).clamp(min=0)


def round_to_total(values: Tensor, total: int) -> Tensor:
    """Round estimates ``[..., n]`` to non-negative integers ``[..., n]`` that sum to `total`.

    The estimates are projected on this sum and rounded down; the largest remainders then get one more. Raises
    `ValueError` if an estimate is NaN or infinite, or `total` is below 1.
    """
    if total < 1:
        raise ValueError(f"the number of samples is at least 1, got {total}")
    if not torch.isfinite(values).all():
        raise ValueError("estimated counts are NaN or infinite")
    return apportion(values, total)


def apportion(values: Tensor, total: int | Tensor) -> Tensor:
    """Round as `round_to_total`, without its checks; `total` is as for `project`."""
    v = project(values, total)
    floors = (v + 1e-9).floor()  # an integer with rounding errors is not rounded down
    missing = (total - floors.sum(-1, keepdim=True)).round()
    order = (v - floors).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return (floors + (order < missing)).long()


def solve(system: Tensor, target: Tensor, samples: int) -> Tensor:
    """Solve ``A n = t`` (RLU's Eq. 10) exactly by least squares, for counts n that are not negative and sum to K.

    On the simplex ``A n - t`` is ``G n`` with ``G = A - t 1'/K``, so that the solution is the point of the columns'
    convex hull that is nearest to 0. Lawson and Hanson's non-negative least squares find it: the minimiser of
    ``|G x|^2 + (sum x - 1)^2`` over x >= 0 is a multiple of it.

    Parameters
    ----------
    system, target
        A and t, ``[rows, n]`` and ``[rows]``.
    samples
        K.

    Returns
    -------
    Tensor
        Real counts ``[n]``.
    """
    from scipy.optimize import nnls  # half a second to import

    matrix = system - target[:, None] / samples
    matrix = matrix / matrix.norm(dim=0).max().clamp(min=1e-300)
    with_sum = torch.cat([matrix, torch.ones_like(matrix[:1])]).cpu().numpy()
    right_side = torch.cat([torch.zeros_like(target), torch.ones_like(target[:1])]).cpu().numpy()
    direction, _ = nnls(with_sum, right_side, maxiter=50 * with_sum.shape[1])
    return torch.from_numpy(samples * direction / direction.sum()).to(system)
