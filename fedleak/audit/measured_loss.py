"""The clients' loss in a set-up, measured where attacks read it: at the last layer's outputs, in each step."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.audit.classifier import Classifier
from fedleak.federated.losses import TOLERANCE, Loss, as_loss, differentiate, measure_factor
from fedleak.models.heads import same_logits

ROUNDING = 8
"""Largest rounding error of a probability, in units of its precision."""


class MeasuredLoss:
    """The clients' loss, whose gradient at the last layer's outputs is measured in each step of their training.

    Attacks read it as a multiple of softmax minus one-hot. Whether it is depends on the loss, and on what the model
    does behind the layer, forward and backward, at the outputs that clients have.

    Raises `ValueError` for a loss that does not take logits and labels, or does not return one number.

    Parameters
    ----------
    loss
        The loss as the user gives it; None for the mean cross-entropy.
    classifier
        The clients' model.
    logits
        Some of its outputs, ``[N, n]``.
    batch_size
        Samples per local step.
    """

    def __init__(self, loss: Any, classifier: Classifier, logits: Tensor, batch_size: int):
        self.loss: Loss = nn.functional.cross_entropy if loss is None else as_loss(copy.deepcopy(loss))
        self.departure = ""
        """How the gradient departs from the multiple, in the first step where it does."""
        self._head = classifier.head.layer
        self._outputs: Tensor | None = None
        # A look at a copy: a loss may change with its calls, and the clients' first call is to be its first.
        self._factor = 1.0 if loss is None else _measure_factor(as_loss(copy.deepcopy(loss)), logits, batch_size)

    @property
    def factor(self) -> float | None:
        """The factor by which the loss differs from the mean cross-entropy in all steps; None for any other loss."""
        return None if self.departure else self._factor

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Measure the training of the clients' model in the block."""

        def note(_: nn.Module, __: tuple[Any, ...], outputs: Tensor) -> Tensor:
            self._outputs = outputs if outputs.requires_grad else outputs.detach().requires_grad_()
            return self._outputs.clone()  # what is behind the layer may change it in place

        handle = self._head.register_forward_hook(note)
        try:
            yield
        finally:
            handle.remove()
            self._outputs = None

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of logits ``[B, n]`` and labels ``[B]``."""
        value = self.loss(logits, labels)
        outputs, self._outputs = self._outputs, None
        if outputs is not None and self._factor is not None:
            (gradient,) = torch.autograd.grad(value, outputs, retain_graph=True, materialize_grads=True)
            self._compare(gradient, outputs, logits.detach(), labels)
        return value

    def _compare(self, gradient: Tensor, outputs: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Note by how much a gradient departs from the multiple of the mean cross-entropy's."""
        factor = self._factor or 0.0
        expected = factor * differentiate(nn.functional.cross_entropy, logits, labels).double()
        difference = float((gradient.double() - expected).abs().max())
        largest = max(float(expected.abs().max()), float(gradient.abs().max()))
        rounding = ROUNDING * torch.finfo(logits.dtype).eps * abs(factor) / len(labels)
        if not difference <= TOLERANCE * largest + rounding:
            self.departure = self.departure or (
                f"the gradient at the last layer's outputs is not {factor:.3g} times that of the mean cross-entropy: "
                f"it departs by {difference / largest:.2g} of the largest entry"
            )
        elif self._head.weight.requires_grad and not same_logits(outputs.detach(), logits):
            self.departure = self.departure or "the model's outputs are not in all steps those of the last layer"


def _measure_factor(loss: Loss, logits: Tensor, batch_size: int) -> float | None:
    """Return a loss as a multiple of the mean cross-entropy on random logits, given some of the model's ``[N, n]``."""
    differentiate(loss, logits, torch.arange(len(logits)) % logits.shape[1])
    ends_in_log_softmax = torch.allclose(logits.logsumexp(1), torch.zeros(()).to(logits), atol=1e-4)
    probed = (lambda z, y: loss(z.log_softmax(1), y)) if ends_in_log_softmax else loss
    with torch.random.fork_rng(devices=[]):
        return measure_factor(probed, logits.shape[1], batch_size, logits.dtype)
