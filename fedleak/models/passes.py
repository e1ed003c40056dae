"""Compute the head's inputs and the model's probabilities in one forward pass, and remember them."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models.heads import head
from fedleak.models.inputs import forward, run, watched
from fedleak.models.memory import is_unchanged, remembered


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


MAX_ENTRIES_AT_ONCE = 2**25
"""Most entries of inputs that run at a time: 128 MiB, beside the layers' outputs."""
MAX_BYTES = 2**30
"""Memory that inputs which depend on each other take at a time, at most, if there are more than two; others twice."""
MAX_CACHED_PASSES = 6
"""Most head passes that are remembered in a block of `fedleak.models.memory.unchanged`."""


@remembered
def _passes(model: nn.Module) -> dict[bytes, HeadPass]:
    """Return the latest passes of a model by the digests of their inputs; outside of such a block an empty table."""
    return {}


def _digest(x: Tensor) -> bytes:
    """Return a digest of shape, type, device and entries, which takes less memory than the entries."""
    digest = blake2b(f"{tuple(x.shape)} {x.dtype} {x.device}".encode(), digest_size=16)
    for sample in x.detach().cpu():
        digest.update(sample.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.digest()


def head_pass(model: nn.Module, x: Tensor, chunk: int = 2048) -> HeadPass:
    """Run images ``[N, C, H, W]`` through the model and return the `HeadPass`; running statistics do not change.

    The head has to be applied once. `chunk` images run at a time, or as many as `places_at_once` allows. Raises
    `ValueError` without images.
    """
    if len(x) == 0:
        raise ValueError("no images to run through the model")
    if not is_unchanged(model):
        return _head_pass(model, x, chunk)
    passes, digest = _passes(model), _digest(x)
    passes[digest] = passes.pop(digest) if digest in passes else _head_pass(model, x, chunk)
    for oldest in list(passes)[:-MAX_CACHED_PASSES]:
        del passes[oldest]
    return passes[digest]


def places_at_once(model: nn.Module, x: Tensor, chunk: int, *, has_graph: bool = False) -> list[slice]:
    """Return which of the inputs ``[N, ...]`` run at a time: `chunk`, but fewer large ones.

    If a sample's output depends on its batch, they are one batch as long as this takes at most `MAX_BYTES`; with
    `has_graph` the outputs of all layers are held, for derivatives. Otherwise they are as few batches as possible, to
    which the samples are dealt in turn, so that samples in the order of their classes give batches of all classes.
    """
    is_large = x.numel() > MAX_ENTRIES_AT_ONCE // 32
    if not batch_dependent(model):
        size = min(chunk, MAX_ENTRIES_AT_ONCE // x[0].numel())
        size = max(1, min(size, 2 * MAX_BYTES // bytes_per_sample(model, x)) if is_large else size)
        return [slice(start, start + size) for start in range(0, len(x), size)]
    batches = 1
    if is_large:
        batches = -(-len(x) // max(2, MAX_BYTES // bytes_per_sample(model, x, has_graph)))
    return [slice(k, None, batches) for k in range(batches)]


def in_order(parts: Sequence[Tensor], places: Sequence[slice]) -> Tensor:
    """Join the parts of `places_at_once` in the order of the samples."""
    if len(parts) == 1:
        return parts[0]
    joined = parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:])
    for part, place in zip(parts, places, strict=True):
        joined[place] = part
    return joined


def bytes_per_sample(model: nn.Module, x: Tensor, has_graph: bool = False) -> int:
    """Measure the memory of a pass, per sample, on two inputs: the largest layer's inputs and outputs.

    With `has_graph` it is that of all layers.
    """
    sizes = [2 * x[0].numel() * x.element_size()]

    def record(_: str, inputs: Tensor, outputs: Tensor) -> None:
        sizes.append(sum(t.numel() * t.element_size() for t in (inputs, outputs) if isinstance(t, Tensor)))

    layers = {name: layer for name, layer in model.named_modules() if not any(layer.children())}
    with watched(layers, record):
        run(model, x[:2])
    return max(1, (sum(sizes) if has_graph else max(sizes)) // 2)


@torch.no_grad()
def _head_pass(model: nn.Module, x: Tensor, chunk: int) -> HeadPass:
    inputs_of_head: list[Tensor] = []
    places = places_at_once(model, x, chunk)
    with watched({"head": head(model).layer}, lambda _, inputs, __: inputs_of_head.append(inputs)):
        parts = [_softmax(forward(model, x[place])) for place in places]
    return HeadPass(in_order(inputs_of_head, places), in_order(parts, places))


def _softmax(logits: Tensor) -> Tensor:
    if not isinstance(logits, Tensor):
        kind = type(logits).__name__
        raise ValueError(f"the model returns a {kind}, not a tensor of logits: wrap it in a module that returns them")
    return logits.softmax(dim=1)


def add_rows(matrices: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values ``[N, L, r]`` to these rows ``[N, L]`` of the matrices ``[N, n, r]``, in place."""
    first = matrices.shape[1] * torch.arange(len(matrices), device=rows.device)[:, None]
    matrices.view(-1, matrices.shape[2]).index_add_(0, (first + rows).flatten(), values.flatten(0, 1))


def embedding_gradients(model: nn.Module, x: Tensor, labels: Tensor, chunk: int = 2048) -> tuple[Tensor, Tensor]:
    """Return what an embedding that shares the head's weight adds to each sample's gradient of that weight.

    Parameters
    ----------
    model
        The model; running statistics do not change.
    x, labels
        Samples ``[N, ...]`` and their labels ``[N]``.
    chunk
        Samples that run at a time, or as many as `places_at_once` allows.

    Returns
    -------
    tuple
        Tokens ``[N, L]``, and the gradients of each sample's cross-entropy with respect to their embeddings,
        ``[N, L, m]``: they are added to the rows of these tokens. L is 0 where no embedding shares the weight, and at
        most the number of the head's rows.
    """
    layer = head(model).layer
    tied = {n: m for n, m in model.named_modules() if isinstance(m, nn.Embedding) and m.weight is layer.weight}
    if not tied or not layer.weight.requires_grad:
        return labels.new_empty(len(x), 0), layer.weight.new_empty(len(x), 0, layer.in_features)
    pieces, places = [], places_at_once(model, x, chunk, has_graph=True)
    for part, part_labels in ((x[place], labels[place]) for place in places):
        calls: list[tuple[str, Tensor, Tensor]] = []
        # cuDNN does not differentiate recurrent layers in evaluation mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            with watched(tied, lambda *call, calls=calls: calls.append(call)):
                loss = nn.functional.cross_entropy(forward(model, part), part_labels, reduction="sum")
            gradients = torch.autograd.grad(loss, [embeddings for *_, embeddings in calls])
        for gradient, (name, tokens, _) in zip(gradients, calls, strict=True):
            if (padding := tied[name].padding_idx) is not None:
                gradient[tokens == padding] = 0  # padding has no gradient
        rows = torch.cat([tokens.reshape(len(part), -1) for _, tokens, _ in calls], 1)
        values = torch.cat([g.reshape(len(part), -1, g.shape[-1]) for g in gradients], 1)
        if rows.shape[1] > len(layer.weight):  # long texts: the sum of every word's gradients is smaller
            sums = values.new_zeros(len(part), *layer.weight.shape)
            add_rows(sums, rows, values)
            values, rows = sums, torch.arange(len(layer.weight), device=rows.device).expand(len(part), -1)
        pieces.append((rows, values))
    return in_order([rows for rows, _ in pieces], places), in_order([gradients for _, gradients in pieces], places)
