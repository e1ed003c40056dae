"""Inputs made up for a model: what shape it takes, and whether tokens; passes that leave it as it was."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_LIKELY_SIDES = (28, 32, 64, 96, 128, 224, 299)
_TOKENS = 8
"""Length of a made-up text."""
_REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)
"""What a model raises that does not take an input."""


def known_tokens(model: nn.Module) -> int:
    """Return how many tokens the model knows; 0 if its inputs are none: no embedding, or a convolution over pixels."""
    if any(isinstance(m, nn.Conv2d) for m in model.modules()):
        return 0
    return min((m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)), default=0)


def as_inputs(x: Tensor, model: nn.Module) -> Tensor:
    """Return inputs on the model's device, floats in its precision."""
    like = next(model.parameters())
    return x.to(like) if x.is_floating_point() else x.to(like.device)


def dummy_inputs(model: nn.Module, shape: tuple[int, ...] | None = None) -> Iterator[Tensor]:
    """Yield two random inputs of every shape that the model may take.

    The shape is the given one, or the one that `build` or the caller noted (``model.input_shape``), or what the layers
    suggest: a fully connected layer's inputs, a convolution's channels with the usual square sizes, a short text.
    """
    generator = torch.Generator().manual_seed(0)
    noted = shape or getattr(model, "input_shape", None)
    if words := known_tokens(model):
        yield as_inputs(torch.randint(words, (2, *(noted or (_TOKENS,))), generator=generator), model)
        return
    for one in [tuple(noted)] if noted else _suggested(model):
        yield as_inputs(torch.rand(2, *one, generator=generator), model)


def _suggested(model: nn.Module) -> list[tuple[int, ...]]:
    flat = [(m.in_features,) for m in model.modules() if isinstance(m, nn.Linear)]
    channels = [m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)][:1]
    own = getattr(model, "image_size", None)  # as vision transformers have it
    sides = (own,) if isinstance(own, int) else _LIKELY_SIDES
    return [*dict.fromkeys(flat), *((c, side, side) for c in channels for side in sides)]


@contextmanager
def watched(layers: Mapping[str, nn.Module], note: Callable[[str, Tensor, Tensor], None]) -> Iterator[None]:
    """Call ``note(name, inputs, outputs)`` at every forward pass of these layers."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda _, inputs, outputs: note(name, inputs[0], outputs)

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def forward(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs; its statistics stay as they were."""
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    return torch.func.functional_call(model, buffers, (x,))


@torch.no_grad()
def run(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs, or None if it does not take such inputs; statistics and random state stay."""
    try:
        with torch.random.fork_rng(devices=[]):
            return forward(model, x)
    except _REFUSALS:
        return None


def input_shape(model: nn.Module) -> tuple[int, ...]:
    """Find the shape of one input: what `build` or the caller noted, or the only suggested one that fits.

    Raises `ValueError` if none fits, or several do (adaptive pooling): then the caller has to say it. If the inputs are
    tokens.
    """
    if known_tokens(model):
        raise ValueError(
            "the model's inputs are integer tokens, and what was asked for makes up pixels: give auxiliary data (an "
            "audit: data, or shape=(L,)), or use an attack that needs no inputs"
        )
    if hasattr(model, "input_shape"):
        return tuple(model.input_shape)  # type: ignore[arg-type]
    fitting = [tuple(x.shape[1:]) for x in dummy_inputs(model) if run(model, x) is not None]
    if len(fitting) != 1:
        found = "several usual sizes fit" if fitting else "no usual size fits"
        raise ValueError(f"cannot tell the input shape of this model ({found}): pass shape=(C, H, W)")
    return fitting[0]
