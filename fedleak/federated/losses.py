"""The clients' loss: any function of logits and labels; measure the form of those that an informed attacker can undo.

For many losses the gradient with respect to a sample's logits is ``(t p - T) / D``: p is the softmax, T the target of
the sample's class, t its sum, and D is 1 or a sum over the batch. Cross-entropy with class weights w has T = w_c e_c
and D = sum_i w_{y_i}; label smoothing spreads T; reduction "sum" has D = 1; a factor of the loss is a factor of T.
`measure_form` differentiates the loss, so that modules, lambdas and `functools.partial` are treated in the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""``loss(logits [N, n], labels [N])`` returns one number."""
_DENSE = (nn.BCEWithLogitsLoss, nn.MSELoss, nn.MultiLabelSoftMarginLoss)
"""PyTorch's modules whose targets have the logits' shape, and which therefore get one-hot labels."""
TOLERANCE = 1e-3
"""Tolerance of a measured gradient, as a share of its largest entry."""


@dataclass(frozen=True, eq=False)
class LossForm:
    """Targets and norms of a loss whose gradient for sample i is ``(t[y_i] p_i - T[y_i]) / D``, float64."""

    targets: Tensor
    """T, ``[n, n]``, a row per class."""
    norms: Tensor | None
    """d ``[n]``, where D is the sum of ``d[y_i]`` over the batch; None where D is 1."""

    @property
    def weights(self) -> Tensor:
        """Sums of the targets, t ``[n]``."""
        return self.targets.sum(1)

    def factor(self, batch_size: float) -> float | None:
        """Return the gradient as a multiple of the mean cross-entropy's; None if it is not a multiple."""
        first = float(self.targets[0, 0])
        cross_entropy_targets = first * torch.eye(len(self.targets), dtype=torch.float64)
        if not torch.allclose(self.targets, cross_entropy_targets, atol=TOLERANCE * abs(first)):
            return None
        if self.norms is None:
            return first * batch_size
        return first / float(self.norms[0]) if torch.allclose(self.norms, self.norms[:1], rtol=TOLERANCE) else None

    def predicts(self, labels: Tensor, probabilities: Tensor, gradient: Tensor) -> bool:
        """Return whether a batch's gradient with respect to its logits, ``[N, n]``, has this form."""
        norm = 1.0 if self.norms is None else self.norms[labels].sum()
        expected = (self.weights[labels, None] * probabilities - self.targets[labels]) / norm
        return bool((expected - gradient).abs().max() <= TOLERANCE * gradient.abs().max())

    def describe(self) -> str:
        """Return a description of the form."""
        n, diagonal = len(self.targets), self.targets.diagonal()
        smoothing = float(1 - diagonal.sum() / self.targets.sum()) * n / (n - 1)
        weights = diagonal / (1 - smoothing + smoothing / n) / (1 if self.norms is None else self.norms.mean())
        parts = ["summed over the batch" if self.norms is None else "mean over the batch"]
        if not torch.allclose(weights, weights[:1], rtol=TOLERANCE):
            parts.append(f"class weights from {weights.min():.3g} to {weights.max():.3g}")
        elif abs(weights[0] - 1) > TOLERANCE:
            parts.append(f"times {weights[0]:.3g}")
        if smoothing > TOLERANCE:
            parts.append(f"labels smoothed by {smoothing:.3g}")
        return f"cross-entropy, {', '.join(parts)}"


def as_loss(loss: Any) -> Loss:
    """Return a module or function as a loss of logits and labels; modules with dense targets get one-hot labels."""
    if isinstance(loss, _DENSE):
        return lambda logits, labels: loss(logits, nn.functional.one_hot(labels, logits.shape[1]).to(logits))
    return loss


def differentiate(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of a loss with respect to the logits ``[N, n]``.

    Raises `ValueError` if the loss does not accept them, does not return one number, or does not depend on the logits.
    """
    z = logits.detach().clone().requires_grad_()
    problem = f"the loss does not take logits {list(z.shape)} and labels {list(labels.shape)}"
    try:
        with torch.enable_grad():
            value = loss(z, labels)
            if not isinstance(value, Tensor) or value.numel() != 1:
                given = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
                raise ValueError(f"a loss is one number, this one {given}: reduce it over the batch")
            return torch.autograd.grad(value.sum(), z)[0]
    except (RuntimeError, TypeError, IndexError) as error:
        raise ValueError(f"{problem}: {str(error).strip().splitlines()[0]}") from error


def measure_form(loss: Loss, n_classes: int, dtype: torch.dtype = torch.float32) -> LossForm | None:
    """Measure the form of a loss on random logits; None if its gradient has no such form (focal, a sigmoid per class).

    Raises `ValueError` as `differentiate` does.
    """
    generator = torch.Generator().manual_seed(0)

    def sample(labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = 2 * torch.randn(len(labels), n_classes, generator=generator).to(dtype)
        return logits.double().softmax(1), differentiate(loss, logits, labels).double()

    def targets_over_norm(*labels: int) -> Tensor:
        """Return T / D of each sample: two draws of the logits give t / D, and thus the constant part."""
        (p, first), (q, second) = sample(torch.tensor(labels)), sample(torch.tensor(labels))
        weights = ((first - second) * (p - q)).sum(1) / (p - q).square().sum(1)
        return weights[:, None] * p - first

    candidates = ((c, targets_over_norm(c)[0]) for c in range(n_classes))
    reference, target = next(((c, t) for c, t in candidates if torch.isfinite(t).all() and t.sum() > 0), (0, None))
    if target is None:
        return None
    pairs = torch.stack([targets_over_norm(c, reference) for c in range(n_classes)])
    totals = target.sum() / pairs[:, 1].sum(1)  # D of class c and the reference, in units of the reference's
    norms = None if torch.allclose(totals, torch.ones(()).to(totals), rtol=TOLERANCE) else totals - 1
    form = LossForm(pairs[:, 0] * totals[:, None], norms)
    batches = (torch.randint(n_classes, (size,), generator=generator) for size in (2, 7, 16))
    checks = (torch.cat([labels, torch.tensor([reference])]) for labels in batches)
    return form if all(form.predicts(labels, *sample(labels)) for labels in checks) else None
