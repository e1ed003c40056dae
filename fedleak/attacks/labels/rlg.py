"""RLG, revealing labels from gradients (Dang et al., NeurIPS 2021): infer which classes occur from the last layer.

Each sample adds a vector to the columns of the head's gradient that is negative at its class and at no other. With
fewer samples than classes the column space is small, and the singular vectors span it. A plane separates a class that
occurs from all others: a direction of the space is negative there and nowhere else. As in the released code this is one
linear program per class. The code's shortcuts (a perceptron first, at most 199 other classes) are omitted, and the
tolerance for zeros is smaller; `book/compared.md` compares both on the same gradients.

The attack infers a set. Counts are our addition: the samples are spread evenly over the inferred classes.
"""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Result
from fedleak.federated import Update

RANK_TOLERANCE, SLACK = 1e-6, 1e-4
"""Share of the largest singular value below which others count as 0; how far below 0 an r_j may be if r_c is -1."""
MAX_SLACK = 0.1
"""Slack above which classes that do not occur were separable, too: 8 for 6 in a batch, in half precision."""
MAX_ENTRIES = 2**25
"""Most entries of all classes' linear programs: less than a minute of a core."""


def find_separable_classes(gradient: Tensor, samples: int) -> tuple[Tensor, float]:
    """Return which classes occur, bool ``[n]``, and the slack, from the head's weight gradient ``[n, d]``, float64.

    Class c occurs if some direction r of the column space has ``r_c = -1`` and, up to `SLACK`, ``r_j >= 0`` for all
    other j. The space has at most one direction per sample; the remaining singular values are rounding, as of a
    difference of weights, and widen the slack; from 1 on, every class has such a direction. Raises `ValueError` if the
    gradient is 0 or has rank n - 1 or more: then every class has one, too; or if the programs have more than
    `MAX_ENTRIES` entries.
    """
    left_vectors, values, _ = torch.linalg.svd(gradient, full_matrices=False)
    rank = min(int((values > RANK_TOLERANCE * values[0]).sum()), samples)
    if not 0 < rank < len(left_vectors) - 1:
        raise ValueError(
            "RLG needs a gradient of a rank below the number of classes less one, "
            f"got {rank} for {len(left_vectors)} classes: take a smaller batch, or more classes"
        )
    if (entries := len(left_vectors) ** 2 * rank) > MAX_ENTRIES:
        raise ValueError(
            f"RLG solves a linear program a class: those of {len(left_vectors):,} classes at rank {rank} have "
            f"{entries:,} entries together, more than {MAX_ENTRIES:,}: use llg"
        )
    space = left_vectors[:, :rank].cpu().numpy()
    slack = SLACK + 10 * float(values[rank : rank + 1].sum() / values[rank - 1])
    is_separable = np.zeros(len(space), dtype=bool)
    for c in range(len(space)):
        others = np.delete(space, c, axis=0)
        slacks = np.full(len(others), slack)
        solution = linprog(np.zeros(rank), -others, slacks, space[c : c + 1], [-1.0], bounds=(None, None))
        is_separable[c] = solution.status == 0
    return torch.from_numpy(is_separable).to(gradient.device), slack


@attack(
    "RLG",
    paper="dang2021rlg",
    needs={Need.HEAD_GRADIENT, Need.SAMPLE_COUNT},
    summary="A class occurs if a plane separates its singular vector from all others'; the samples are spread evenly.",
)
def recover(update: Update, model: nn.Module) -> Result:
    """Recover counts ``[n]`` that sum to ``update.samples``, spread evenly over the classes that RLG infers.

    Raises `WithheldParameter` if the gradient of the head's weights is not shared; `ValueError` if it is NaN, infinite
    or another model's, if its rank is n - 1 or more, or if no class can be separated. It is a violated assumption that
    rounding or noise stays below `MAX_SLACK`.
    """
    gradient = head_gradient(update, model)
    occurs, slack = find_separable_classes(gradient, update.samples)
    if not occurs.any():
        raise ValueError("RLG finds no class that a plane separates from the others")
    counts = round_to_total(occurs * update.samples / occurs.sum(), update.samples)
    violated: tuple[str, ...] = ()
    if slack > MAX_SLACK or occurs.sum() > update.samples:
        violated = (
            f"{int(occurs.sum())} classes are separable: rounding or noise in the gradient is too large for its "
            "smallest directions, so that some of these classes may not occur",
        )
    return Result(counts, violated_assumptions=violated)
