"""Compute the head's inputs and the model's probabilities in one forward pass, and remember them."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models.heads import head
from fedleak.models.inputs import forward, watched
from fedleak.models.memory import remembered


class HeadPass(NamedTuple):
    """The head's inputs and the softmax of one forward pass, which determine all last-layer gradients."""

    inputs: Tensor
    """Inputs of the head, ``[N, m]``."""
    probabilities: Tensor
    """Softmax of the outputs, ``[N, n]``."""

    def row_sums(self, index: Tensor, labels: Tensor) -> Tensor:
        """Return the row sums ``[..., n]`` of the head's weight gradient for many batches, without a backward pass.

        The mean cross-entropy gradient of the head is ``(P - Y)^T A / B`` with A the head's inputs, so its row
        sums are the batch mean of ``(p_k - y_k) * sum(a_k)`` (LLG, Eqs. 9 and 13).

        `index` has the batches' indices among the N samples, and `labels` their labels, both ``[..., B]``.
        """
        mass = self.inputs.sum(dim=1)
        n_classes = self.probabilities.shape[1]
        flat = index.reshape(-1, index.shape[-1])
        of_softmax = nn.functional.embedding_bag(flat, self.probabilities * mass[:, None], mode="mean")
        flat_labels = labels.to(of_softmax.device).reshape(flat.shape)
        of_labels = torch.zeros_like(of_softmax).scatter_add_(1, flat_labels, mass[flat]) / index.shape[-1]
        return (of_softmax - of_labels).reshape(*index.shape[:-1], n_classes)


def batch_dependent(model: nn.Module) -> bool:
    """Return whether one sample's output depends on the rest of its batch (batch norm in training mode)."""
    norms = (nn.modules.batchnorm._BatchNorm,)
    return any(isinstance(m, norms) and (m.training or m.running_mean is None) for m in model.modules())


REMEMBERED = MAX_CACHED_PASSES = 6
"""Most head passes that are remembered in a block of `fedleak.models.memory.unchanged`; `REMEMBERED` is the former
name."""


@remembered
def _passes(model: nn.Module) -> list[tuple[Tensor, HeadPass]]:
    """Return the latest passes of a model, with their inputs; outside of such a block an empty list."""
    return []


def _are_equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and a.equal(b)


def head_pass(model: nn.Module, x: Tensor, chunk: int = 2048) -> HeadPass:
    """Run images ``[N, C, H, W]`` through the model and return the `HeadPass`; running statistics do not change.

    The head has to be applied once. `chunk` images run at a time, but all at once if a sample's output depends on its
    batch. Raises `ValueError` without images.
    """
    if len(x) == 0:
        raise ValueError("no images to run through the model")
    passes = _passes(model)
    index_of_x = next((k for k, (other, _) in enumerate(passes) if other is x or _are_equal(other, x)), None)
    passes.append((x.clone(), _head_pass(model, x, chunk)) if index_of_x is None else passes.pop(index_of_x))
    del passes[:-MAX_CACHED_PASSES]
    return passes[-1][1]


@torch.no_grad()
def _head_pass(model: nn.Module, x: Tensor, chunk: int) -> HeadPass:
    inputs_of_head: list[Tensor] = []
    with watched({"head": head(model).layer}, lambda _, inputs, __: inputs_of_head.append(inputs)):
        logits = [forward(model, piece) for piece in ([x] if batch_dependent(model) else x.split(chunk))]
    return HeadPass(torch.cat(inputs_of_head), torch.cat(logits).softmax(dim=1))
