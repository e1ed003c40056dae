"""Inputs made up for a model: what shape it takes, and whether tokens; passes that leave it as it was."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_LIKELY_SIDES = (28, 32, 64, 96, 128, 224, 299)
_TOKENS = 8
"""Length of a made-up text."""
REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)
"""Exceptions of a model that rejects an input."""


def embeddings(model: nn.Module) -> dict[str, nn.Embedding | nn.EmbeddingBag]:
    """Return the embeddings by name; none of a model that convolves pixels."""
    modules = dict(model.named_modules())
    if any(isinstance(m, nn.Conv2d) for m in modules.values()):
        return {}
    return {name: m for name, m in modules.items() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}


def input_embedding(model: nn.Module) -> str | None:
    """Return the name of the embedding that takes the model's inputs as they are, not positions or token types.

    A made-up text of two tokens tells, in an order that is no other's. "" if the inputs are divided among several
    embeddings, as columns of a table are; None if the model takes no such text.
    """
    length = (getattr(model, "input_shape", None) or (_TOKENS,))[0]
    place = torch.arange(2 * length).view(2, length)
    tokens = as_inputs((place + place // 2 + place // 5) % 2, model)
    reached: list[str] = []
    with watched(embeddings(model), lambda name, x, _: reached.append(name) if torch.equal(x, tokens) else None):
        outputs = run(model, tokens)
    return reached[0] if reached else None if outputs is None else ""


def known_tokens(model: nn.Module) -> int:
    """Return how many tokens the model knows; 0 if its inputs are none: no embedding, or a convolution over pixels.

    Of several embeddings the one that takes the inputs counts (`input_embedding`); where they are divided among
    several, the smallest. Raises `ValueError` if that is not known, because the model takes no made-up text.
    """
    layers = embeddings(model)
    sizes = sorted({m.num_embeddings for m in layers.values()})
    name = input_embedding(model) if len(sizes) > 1 else ""
    if name is None:
        raise ValueError(
            f"the model has embeddings of {', '.join(map(str, sizes))} entries, and which one takes its inputs is not "
            "known, because it takes no made-up text: note the length of one text, model.input_shape = (L,)"
        )
    return layers[name].num_embeddings if name else min(sizes, default=0)


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
    for shape in [tuple(noted)] if noted else _suggested(model):
        yield as_inputs(torch.rand(2, *shape, generator=generator), model)


def _suggested(model: nn.Module) -> list[tuple[int, ...]]:
    flat = [(m.in_features,) for m in model.modules() if isinstance(m, nn.Linear)]
    channels = [m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)][:1]
    image_size = getattr(model, "image_size", None)  # as vision transformers have it
    sides = (image_size,) if isinstance(image_size, int) else _LIKELY_SIDES
    return [*dict.fromkeys(flat), *((c, side, side) for c in channels for side in sides)]


@contextmanager
def watched(layers: Mapping[str, nn.Module], note: Callable[[str, Tensor, Tensor], None]) -> Iterator[None]:
    """Call ``note(name, inputs, outputs)`` at every forward pass of these layers."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda _, inputs, outputs: note(name, inputs[0], outputs) if inputs else None

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def forward(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs; its statistics stay as they were. What is compiled runs uncompiled, with hooks."""
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    with torch.compiler.set_stance("force_eager"):
        return torch.func.functional_call(model, buffers, (x,))


@torch.no_grad()
def run(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs, or None if it does not take such inputs; statistics and random state stay."""
    try:
        with torch.random.fork_rng(devices=[]):
            return forward(model, x)
    except REFUSALS:
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
        reason = "several usual sizes fit" if fitting else "no usual size fits"
        raise ValueError(f"cannot tell the input shape of this model ({reason}): pass shape=(C, H, W)")
    return fitting[0]
