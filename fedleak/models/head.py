"""The last fully connected layer: where it is, what goes into it, and the gradients that follow in closed form."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Head(NamedTuple):
    """The last fully connected layer of a model."""

    name: str
    layer: nn.Linear

    @property
    def weight(self) -> str:
        """Name of the weight among the model's parameters."""
        return f"{self.name}.weight" if self.name else "weight"

    @property
    def bias(self) -> str:
        """Name of the bias among the model's parameters (whether or not there is one)."""
        return f"{self.name}.bias" if self.name else "bias"


def head(model: nn.Module) -> Head:
    """Find the last `nn.Linear` in the order of the model's modules; a bare `nn.Linear` is its own head.

    Raises
    ------
    ValueError
        If the model has no fully connected layer.
    """
    linears = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if not linears:
        raise ValueError(f"{type(model).__name__} has no fully connected layer, so it has no head to attack")
    return Head(*linears[-1])


class HeadPass(NamedTuple):
    """One forward pass, seen from the head: all that last-layer gradients depend on."""

    inputs: Tensor
    """Inputs of the head, ``[N, m]``."""
    probabilities: Tensor
    """Softmax of the outputs, ``[N, n]``."""

    def row_sums(self, index: Tensor, labels: Tensor) -> Tensor:
        """Return the row sums of the head's weight gradient for many batches at once, without a backward pass.

        The mean cross-entropy gradient of the head is ``(P - Y)^T A / B`` with A the head's inputs, so its row
        sums are the batch mean of ``(p_k - y_k) * sum(a_k)`` (LLG, Eqs. 9 and 13).

        Parameters
        ----------
        index
            Which of the N samples are in a batch, ``[..., B]``; any number of leading dimensions.
        labels
            Their labels, ``[..., B]``.

        Returns
        -------
        Tensor
            ``[..., n]``
        """
        mass = self.inputs.sum(dim=1)
        n_classes = self.probabilities.shape[1]
        flat = index.reshape(-1, index.shape[-1])
        pulled = nn.functional.embedding_bag(flat, self.probabilities * mass[:, None], mode="mean")
        pushed = torch.zeros_like(pulled).scatter_add_(1, labels.reshape(flat.shape), mass[flat])
        return (pulled - pushed / index.shape[-1]).reshape(*index.shape[:-1], n_classes)


def batch_dependent(model: nn.Module) -> bool:
    """Say whether one sample's output depends on the rest of its batch (batch norm in training mode)."""
    norms = (nn.modules.batchnorm._BatchNorm,)
    return any(isinstance(m, norms) and (m.training or m.running_mean is None) for m in model.modules())


@torch.no_grad()
def head_pass(model: nn.Module, x: Tensor, chunk: int = 2048) -> HeadPass:
    """Run images through the model and keep what the head saw; running statistics are left as they were.

    Parameters
    ----------
    model
        Any classifier with a fully connected head that is applied once.
    x
        Images ``[N, C, H, W]``.
    chunk
        Images per pass. Ignored where batch norm in training mode makes the batch matter: then all at once.
    """
    if len(x) == 0:
        raise ValueError("no images to run through the model")
    remembered, passes = _MEMORY.get()
    if model is not remembered:
        return _head_pass(model, x, chunk)
    key = (tuple(x.shape), x.dtype, hashlib.sha256(x.detach().cpu().contiguous().numpy().tobytes()).digest())
    if key not in passes:
        passes[key] = _head_pass(model, x, chunk)
    return passes[key]


_MEMORY: ContextVar[tuple[nn.Module | None, dict]] = ContextVar("passes", default=(None, {}))


@contextmanager
def remember_passes(model: nn.Module) -> Iterator[None]:
    """Make every `head_pass` of this very model on the same images only once, as long as the context lasts.

    For many attacks on one model, whose weights and mode stay as they are. Copies of it are other models.
    """
    token = _MEMORY.set((model, {}))
    try:
        yield
    finally:
        _MEMORY.reset(token)


def _head_pass(model: nn.Module, x: Tensor, chunk: int) -> HeadPass:
    seen: list[Tensor] = []
    handle = head(model).layer.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    try:
        pieces = [x] if batch_dependent(model) else x.split(chunk)
        logits = [torch.func.functional_call(model, buffers, (piece,)) for piece in pieces]
    finally:
        handle.remove()
    return HeadPass(torch.cat(seen), torch.cat(logits).softmax(dim=1))


_LIKELY_SIDES = (28, 32, 64, 96, 128, 224, 299)


def input_shape(model: nn.Module) -> tuple[int, ...]:
    """Find the shape of one input: what `build` noted, or the only one of the usual square sizes that fits.

    Raises
    ------
    ValueError
        If no usual size fits, or several do (adaptive pooling): then the caller has to say it.
    """
    if hasattr(model, "input_shape"):
        return tuple(model.input_shape)  # type: ignore[arg-type]
    first = next((m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)), None)
    if isinstance(first, nn.Linear):
        return (first.in_features,)
    fitting = []
    for side in _LIKELY_SIDES if first is not None else ():
        assert isinstance(first, nn.Conv2d)
        shape = (first.in_channels, side, side)
        try:
            head_pass(model, torch.zeros(1, *shape, device=first.weight.device, dtype=first.weight.dtype))
        except (RuntimeError, ValueError):
            continue
        fitting.append(shape)
    if len(fitting) != 1:
        found = "several usual sizes fit" if fitting else "no usual size fits"
        raise ValueError(f"cannot tell the input shape of this model ({found}): pass shape=(C, H, W)")
    return fitting[0]
