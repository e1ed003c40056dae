"""RLG, revealing labels from gradients (Dang et al., NeurIPS 2021): which classes occur, from the last layer alone.

Every sample adds a vector to the columns of the head's gradient that is negative at its own class and at no other. Of
fewer samples than classes the columns' space is small; the singular vectors span it, and a class that occurs can be
told from the others by a plane: a direction of the space is negative there and nowhere else. As in the released code
this is one linear program a class. Its shortcuts (a perceptron first, at most 199 other classes) are left out, and what
may count as 0 is smaller here; `book/compared.md` has both on the same gradients.

It names a set. Counts are our addition: the samples are spread evenly over the classes named.
"""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update

NOISE, SLACK = 1e-6, 1e-4
"""Singular values below this share of the largest count as 0; what a 1 may leave of a 0, in single precision."""


def separable(gradient: Tensor, samples: int) -> Tensor:
    """Return the classes that occur, bool ``[n]``, from the gradient of the head's weights ``[n, d]``, float64.

    Class c does if some direction r of the columns' space has ``r_c = -1``, and ``r_j >= 0`` for all others, but for
    `SLACK`. The space has at most one direction a sample; what is left beside these is rounding, as of a difference of
    weights, and widens the slack. Raises `ValueError` if the gradient is 0, or of the rank n - 1 or above: then such a
    direction is there for every class.
    """
    left_vectors, values, _ = torch.linalg.svd(gradient, full_matrices=False)
    rank = min(int((values > NOISE * values[0]).sum()), samples)
    if not 0 < rank < len(left_vectors) - 1:
        raise ValueError(
            "RLG needs a gradient of a rank below the number of classes less one, "
            f"got {rank} for {len(left_vectors)} classes: take a smaller batch, or more classes"
        )
    space = left_vectors[:, :rank].cpu().numpy()
    slack = SLACK + 10 * float(values[rank : rank + 1].sum() / values[rank - 1])
    is_separable = np.zeros(len(space), dtype=bool)
    for c in range(len(space)):
        others = np.delete(space, c, axis=0)
        bound = np.full(len(others), slack)
        answer = linprog(np.zeros(rank), -others, bound, space[c : c + 1], [-1.0], bounds=(None, None))
        is_separable[c] = answer.status == 0
    return torch.from_numpy(is_separable).to(gradient.device)


@attack(
    "RLG",
    paper="dang2021rlg",
    needs={Need.HEAD_GRADIENT, Need.SAMPLE_COUNT},
    summary="A class occurs if a plane separates its singular vector from all others'; the samples are spread evenly.",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Recover counts ``[n]`` that sum to ``update.samples``: evenly over the classes that RLG says occur.

    Raises `WithheldParameter` if the gradient of the head's weights is not shared; `ValueError` for NaN, infinite or
    other models' gradients; if the batch has as many directions as classes less one, or more; if no class can be
    separated.
    """
    gradient = head_gradient(update, model)
    occurs = separable(gradient, update.samples)
    if not occurs.any():
        raise ValueError("RLG finds no class that a plane separates from the others")
    return round_to_total(occurs * update.samples / occurs.sum(), update.samples)
