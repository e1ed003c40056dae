"""Forward passes seen from the head: its inputs and the model's probabilities, computed once where many need them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models.heads import head
from fedleak.models.inputs import forward, watched


class HeadPass(NamedTuple):
    """One forward pass, seen from the head: all that last-layer gradients depend on."""

    inputs: Tensor
    """Inputs of the head, ``[N, m]``."""
    probabilities: Tensor
    """Softmax of the outputs, ``[N, n]``."""

    def row_sums(self, index: Tensor, labels: Tensor) -> Tensor:
        """Return the row sums ``[..., n]`` of the head's weight gradient for many batches, without a backward pass.

        The mean cross-entropy gradient of the head is ``(P - Y)^T A / B`` with A the head's inputs, so its row
        sums are the batch mean of ``(p_k - y_k) * sum(a_k)`` (LLG, Eqs. 9 and 13).

        `index` says which of the N samples are in a batch, `labels` are theirs, both ``[..., B]``.
        """
        mass = self.inputs.sum(dim=1)
        n_classes = self.probabilities.shape[1]
        flat = index.reshape(-1, index.shape[-1])
        pulled = nn.functional.embedding_bag(flat, self.probabilities * mass[:, None], mode="mean")
        pushed = torch.zeros_like(pulled).scatter_add_(1, labels.to(pulled.device).reshape(flat.shape), mass[flat])
        return (pulled - pushed / index.shape[-1]).reshape(*index.shape[:-1], n_classes)


def batch_dependent(model: nn.Module) -> bool:
    """Return whether one sample's output depends on the rest of its batch (batch norm in training mode)."""
    norms = (nn.modules.batchnorm._BatchNorm,)
    return any(isinstance(m, norms) and (m.training or m.running_mean is None) for m in model.modules())


class _Memory:
    def __init__(self, model: nn.Module):
        self.model = model
        self.passes: list[tuple[Tensor, HeadPass]] = []

    def recall(self, x: Tensor, compute: Callable[[], HeadPass]) -> HeadPass:
        """Return the pass of these inputs, computed unless it is among the latest."""
        place = next((k for k, (other, _) in enumerate(self.passes) if other is x or _same(other, x)), None)
        latest = (x.clone(), compute()) if place is None else self.passes.pop(place)
        self.passes = [*self.passes, latest][-REMEMBERED:]
        return latest[1]


_MEMORY: ContextVar[_Memory | None] = ContextVar("memory of head passes", default=None)
REMEMBERED = 6
"""Head passes that are remembered, at most."""


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and a.equal(b)


@contextmanager
def remembered_passes(model: nn.Module) -> Iterator[None]:
    """Compute each head pass of a model once, for all attacks that need it; the model must not change meanwhile."""
    token = _MEMORY.set(_Memory(model))
    try:
        yield
    finally:
        _MEMORY.reset(token)


def head_pass(model: nn.Module, x: Tensor, chunk: int = 2048) -> HeadPass:
    """Run images ``[N, C, H, W]`` through the model and keep what the head saw; running statistics stay.

    The head is applied once. `chunk` images are run at a time, but all at once where batch norm in training mode makes
    the batch matter.
    """
    if len(x) == 0:
        raise ValueError("no images to run through the model")
    memory = _MEMORY.get()
    if memory is not None and memory.model is model:
        return memory.recall(x, lambda: _head_pass(model, x, chunk))
    return _head_pass(model, x, chunk)


@torch.no_grad()
def _head_pass(model: nn.Module, x: Tensor, chunk: int) -> HeadPass:
    passed: list[Tensor] = []
    with watched({"head": head(model).layer}, lambda _, inputs, __: passed.append(inputs)):
        logits = [forward(model, piece) for piece in ([x] if batch_dependent(model) else x.split(chunk))]
    return HeadPass(torch.cat(passed), torch.cat(logits).softmax(dim=1))
