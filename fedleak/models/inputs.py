"""Make up inputs for a model, determine their shape, and run the model without changing it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.models.memory import remembered

_USUAL_SIDES = (28, 32, 64, 96, 128, 224, 299)
_TEXT_LENGTH = 8
"""Length of a made-up text."""
REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)
"""Exceptions of a model that rejects an input."""


@remembered
def embeddings(model: nn.Module) -> dict[str, nn.Embedding | nn.EmbeddingBag]:
    """Return the embeddings by name; none for a model with convolutions over pixels, which accepts no text."""
    modules = dict(model.named_modules())
    layers = {name: m for name, m in modules.items() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
    has_images = layers and any(isinstance(m, nn.Conv2d) for m in modules.values())
    return {} if has_images and not look_ups(model, layers, *_made_up_texts(model)) else layers


def _made_up_texts(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Return two batches of texts of two tokens in an unusual order, which share no token at any place."""
    length = (getattr(model, "input_shape", None) or (_TEXT_LENGTH,))[0]
    position = torch.arange(2 * length).view(2, length)
    tokens = as_inputs((position + position // 2 + position // 5) % 2, model)
    return tokens, 1 - tokens


def look_ups(model: nn.Module, layers: Mapping[str, nn.Module], *texts: Tensor) -> list[dict[str, Tensor]]:
    """Return for each batch of texts the inputs of each embedding, by name; empty if the model accepts none."""
    rows_by_text: list[dict[str, Tensor]] = []
    for x in texts:
        rows: dict[str, Tensor] = {}
        with watched(layers, lambda name, inputs, _, rows=rows: rows.update({name: inputs})):  # type: ignore[misc]
            if run(model, x) is not None:
                rows_by_text.append(rows)
    return rows_by_text


@remembered
def input_embeddings(model: nn.Module) -> tuple[str, ...] | None:
    """Return the names of the embeddings of the model's inputs, as opposed to positions or token types.

    Made-up texts identify them. It is the embedding whose inputs are the model's (of several the first that is
    trained); else those whose inputs change with the text, such as a table's columns or a text with a token before it.
    None if the model accepts no text.
    """
    layers = embeddings(model)
    texts = _made_up_texts(model)
    if not (found_rows := look_ups(model, layers, *texts)):
        return tuple(layers) if len(layers) == 1 else None
    first, other = found_rows
    if same := [name for name, rows in first.items() if torch.equal(rows, texts[0])]:
        return (min(same, key=lambda name: not layers[name].weight.requires_grad),)
    return tuple(name for name, rows in first.items() if not torch.equal(rows, other[name]))


@remembered
def known_tokens(model: nn.Module) -> int:
    """Return the number of tokens in the model's vocabulary; 0 if its inputs are not tokens.

    It is the size of the smallest of the `input_embeddings`. Raises `ValueError` if these are unknown because the model
    does not accept a made-up text.
    """
    layers = embeddings(model)
    sizes = sorted({m.num_embeddings for m in layers.values()})
    names = input_embeddings(model) if len(sizes) > 1 else tuple(layers)
    if names is None:
        raise ValueError(
            f"the model has embeddings of {', '.join(map(str, sizes))} entries, and which one takes its inputs is not "
            "known, because it takes no made-up text: note the length of one text, model.input_shape = (L,)"
        )
    return min((layers[name].num_embeddings for name in names or layers), default=0)


def as_inputs(x: Tensor, model: nn.Module) -> Tensor:
    """Return inputs on the model's device; floating-point ones in its precision."""
    reference = next(model.parameters())
    return x.to(reference) if x.is_floating_point() else x.to(reference.device)


def dummy_inputs(model: nn.Module, shape: tuple[int, ...] | None = None) -> Iterator[Tensor]:
    """Yield two random inputs of each shape that the model may accept.

    The shape is `shape`, or ``model.input_shape`` if `build` or the caller has set it. Otherwise the layers suggest it:
    a fully connected layer's inputs, a convolution's channels with usual square sizes, or a short text.
    """
    generator = torch.Generator().manual_seed(0)
    known_shape = shape or getattr(model, "input_shape", None)
    if n_tokens := known_tokens(model):
        yield as_inputs(torch.randint(n_tokens, (2, *(known_shape or (_TEXT_LENGTH,))), generator=generator), model)
        return
    for shape in [tuple(known_shape)] if known_shape else _suggest_shapes(model):
        yield as_inputs(torch.rand(2, *shape, generator=generator), model)


def _suggest_shapes(model: nn.Module) -> list[tuple[int, ...]]:
    flat = [(m.in_features,) for m in model.modules() if isinstance(m, nn.Linear)]
    channels = [m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)][:1]
    image_size = getattr(model, "image_size", None)  # an attribute of vision transformers
    sides = (image_size,) if isinstance(image_size, int) else _USUAL_SIDES
    return [*dict.fromkeys(flat), *((c, side, side) for c in channels for side in sides)]


@contextmanager
def watched(layers: Mapping[str, nn.Module], note: Callable[[str, Tensor, Tensor], None]) -> Iterator[None]:
    """Call ``note(name, inputs, outputs)`` at each forward pass of these layers in the block."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda _, inputs, outputs: note(name, inputs[0], outputs) if inputs else None

    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def forward(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs without changing its statistics; a compiled model runs uncompiled, with hooks."""
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    with torch.compiler.set_stance("force_eager"):
        return torch.func.functional_call(model, buffers, (x,))


@torch.no_grad()
def run(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs, or None if it rejects such inputs; statistics and random state do not change."""
    try:
        with torch.random.fork_rng(devices=[]):
            return forward(model, x)
    except REFUSALS:
        return None


def input_shape(model: nn.Module) -> tuple[int, ...]:
    """Return the shape of one input: ``model.input_shape``, or the only suggested shape that the model accepts.

    Raises `ValueError` if the model accepts none or several (adaptive pooling), or if its inputs are tokens.
    """
    if known_tokens(model):
        raise ValueError(
            "the model's inputs are integer tokens, and what was asked for makes up pixels: give auxiliary data (an "
            "audit: data, or shape=(L,)), or use an attack that needs no inputs"
        )
    if hasattr(model, "input_shape"):
        return tuple(model.input_shape)  # type: ignore[arg-type]
    accepted_shapes = [tuple(x.shape[1:]) for x in dummy_inputs(model) if run(model, x) is not None]
    if len(accepted_shapes) != 1:
        reason = "several usual sizes fit" if accepted_shapes else "no usual size fits"
        raise ValueError(f"cannot tell the input shape of this model ({reason}): pass shape=(C, H, W)")
    return accepted_shapes[0]
