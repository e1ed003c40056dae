"""iLRG, instance-wise batch label restoration (Ma et al., ICLR 2023): solve a linear system of probabilities."""

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, lsqr
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import bias_gradient, head_gradient
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.federated import Update
from fedleak.models import head

MAX_INVERTED, MAX_CLASSES = 2000, 12_000
"""Most classes whose system is inverted; more are solved by iteration, up to a matrix of probabilities of 1 GiB."""


def solve(weight: Tensor, bias: Tensor, weight_gradient: Tensor, bias_gradient: Tensor, samples: int) -> Tensor:
    """Solve for the real-valued counts ``[..., n]`` of any number of updates at once.

    Each class's mean embedding is ``e_i = grad W_i / grad b_i`` and its probabilities are ``p_i = softmax(W e_i + b)``;
    the counts k solve ``sum_j k_j = K`` and ``sum_j p_j[i] k_j - k_i = K grad b_i`` in the least-squares sense.
    Several updates, or one of at most `MAX_INVERTED` classes, are solved by the pseudo-inverse, one of more classes by
    LSQR, whose work grows with the square of the number of classes. Raises `ValueError` for more than `MAX_CLASSES`.

    Parameters
    ----------
    weight, bias
        The head's parameters, ``[n, m]`` and ``[n]``.
    weight_gradient, bias_gradient
        Mean gradients over the K `samples`, ``[..., n, m]`` and ``[..., n]``.
    """
    n_classes = len(bias)
    if n_classes > MAX_CLASSES:
        raise ValueError(
            f"the probabilities of {n_classes:,} classes would take {8 * n_classes**2 / 2**30:,.1f} GiB, more than "
            f"{8 * MAX_CLASSES**2 / 2**30:,.1f}: use llg"
        )
    nonzero_bias = bias_gradient.where(bias_gradient != 0, torch.finfo(bias_gradient.dtype).tiny ** 0.5)
    embeddings = weight_gradient / nonzero_bias.unsqueeze(-1)
    probabilities = (embeddings @ weight.T).add_(bias).softmax(-1)
    if n_classes > MAX_INVERTED and bias_gradient.dim() == 1:
        return _iterate(probabilities, bias_gradient, samples)
    system = probabilities.mT - torch.eye(n_classes, dtype=weight.dtype, device=weight.device)
    system = torch.cat([torch.ones_like(system[..., :1, :]), system], dim=-2)
    total = torch.full_like(bias_gradient[..., :1], samples)
    right = torch.cat([total, samples * bias_gradient], dim=-1).unsqueeze(-1)
    return (torch.linalg.pinv(system) @ right).squeeze(-1)


def _iterate(probabilities: Tensor, bias_gradient: Tensor, samples: int) -> Tensor:
    """Solve the same system by LSQR, which starts from 0 and so gives the solution of least norm."""
    n = len(bias_gradient)

    def product(counts: np.ndarray) -> np.ndarray:
        k = torch.from_numpy(counts.ravel()).to(probabilities)
        return torch.cat([k.sum()[None], k @ probabilities - k]).cpu().numpy()

    def transposed(residual: np.ndarray) -> np.ndarray:
        r = torch.from_numpy(residual.ravel()).to(probabilities)
        return (probabilities @ r[1:] - r[1:] + r[0]).cpu().numpy()

    system = LinearOperator((n + 1, n), matvec=product, rmatvec=transposed, dtype=np.float64)
    right = torch.cat([bias_gradient.new_tensor([1.0]), bias_gradient]).cpu().numpy() * samples
    return torch.from_numpy(lsqr(system, right, atol=1e-12, btol=1e-12, iter_lim=300)[0]).to(bias_gradient)


def round_counts(counts: Tensor, samples: int) -> Tensor:
    """Round real-valued counts to int64; those below 0 or above `samples` become 0, and the sum is free."""
    counts = counts.round().clamp(min=0)
    return counts.where(counts <= samples, 0).long()


@attack(
    "iLRG",
    paper="ma2023ilrg",
    equation="Eqs. 6–11",
    needs={Need.HEAD_GRADIENT, Need.BIAS_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL},
    summary="Each class's mean embedding and probabilities, and a linear system in the counts.",
    prepares=True,
)
def prepare(model: nn.Module) -> Prepared:
    """Prepare iLRG, which computes nothing beforehand; its counts ``[n]`` need not sum to ``update.samples``.

    `Result.facts` has the real-valued ``solution`` of the linear system, and its ``residual``: the largest violation
    of counts in [0, K] with the sum K, as a share of K. The residual exceeds 1 for 7 % of unchanged updates, in which
    the estimated embeddings mix classes, and for 70 % of updates that are ten times too large. ``recover`` raises
    `WithheldParameter` if the gradient of the head's weights or bias is not shared; `ValueError` if the head has no
    bias, a gradient is NaN or infinite, or its shape is not the model's.
    """

    def read(update: Update) -> Result:
        gradients, samples = (head_gradient(update, model), bias_gradient(update, model)), update.samples
        layer = head(model).layer
        solution = solve(layer.weight.detach().double(), layer.bias.detach().double(), *gradients, samples)
        violation = torch.stack([-solution.min(), solution.max() - samples, (solution.sum() - samples).abs()]).max()
        facts = {"solution": solution, "residual": max(float(violation), 0.0) / samples}
        return Result(round_counts(solution, samples), facts=facts)

    return Prepared("iLRG", read)


recover = once(prepare)
