"""Make up inputs for a model, determine their shape, and run the model without changing it."""

import copy
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedleak.errors import whole_number
from fedleak.models.memory import remembered

_USUAL_SIDES = (28, 32, 64, 96, 128, 224, 299)
_TEXT_LENGTH = 8
"""Length of a made-up text."""
REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)
"""Exceptions of a model that rejects an input."""


LookUps = dict[str, list[Tensor]]
"""The inputs of each embedding in each of its calls, by name."""


class TwoLookUps(NamedTuple):
    """What a model looks up for two batches of inputs."""

    x: Tensor
    """The inputs of the first."""
    first: LookUps
    second: LookUps


def embeddings(model: nn.Module) -> dict[str, nn.Embedding | nn.EmbeddingBag]:
    """Return the embeddings by name."""
    kinds = nn.Embedding | nn.EmbeddingBag
    return {name: module for name, module in model.named_modules() if isinstance(module, kinds)}


def look_ups(model: nn.Module, names: Collection[str], x: Tensor) -> LookUps | None:
    """Return what a model looks up in these embeddings for its inputs; None if it rejects them."""
    layers, calls = embeddings(model), {name: list[Tensor]() for name in names}
    with watched({name: layers[name] for name in names}, lambda name, rows, _: calls[name].append(rows)):
        return None if run(model, x) is None else calls


@remembered
def _tried_look_ups(model: nn.Module) -> TwoLookUps | None:
    """Return what a model looks up for two batches; None if it accepts none that are tried.

    They are ``model.example_inputs`` if the caller has set these, or else texts, of as large a vocabulary as possible,
    or else floating-point inputs of ``model.input_shape``.
    """
    layers = embeddings(model)
    if next(iter(layers.values())).weight.device.type != "cpu":  # elsewhere an index beyond the end ends the process
        return _tried_look_ups(copy.deepcopy(model).cpu())
    generator, sizes = torch.Generator().manual_seed(0), sorted(m.num_embeddings for m in layers.values())
    shape = getattr(model, "input_shape", None) or (_TEXT_LENGTH,)
    vocabularies = dict.fromkeys([sum(sizes), *sizes[::-1], 2])
    pairs = [torch.randint(size, (4, *shape), generator=generator) for size in vocabularies]
    pairs.append(torch.rand(4, *shape, generator=generator))
    if (example := getattr(model, "example_inputs", None)) is not None:
        pairs = [example]
    for x, other in ((as_inputs(x[::2], model), as_inputs(x[1::2], model)) for x in pairs if len(x) > 1):
        if (first := look_ups(model, layers, x)) is not None and (second := look_ups(model, layers, other)) is not None:
            return TwoLookUps(x, first, second)
    return None


def input_embeddings(model: nn.Module) -> list[list[str]] | None:
    """Return the names of the embeddings of the model's inputs, as opposed to positions or token types.

    Those that look up the same rows are one group, trained ones before frozen ones. The embeddings whose inputs are the
    model's are the only group; else it is those whose inputs change with the model's, such as a table's columns or a
    text with a token before it. None if the model accepts none of the inputs that are tried.
    """
    layers = embeddings(model)
    if not layers or (tried := _tried_look_ups(model)) is None:
        return [[name] for name in layers] if len(layers) < 2 else None
    changing = [name for name in layers if not _are_equal(tried.first[name], tried.second[name])]
    groups: list[list[str]] = []
    for name in sorted(changing, key=lambda name: not layers[name].weight.requires_grad):
        group = next((group for group in groups if _are_equal(tried.first[name], tried.first[group[0]])), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    whole = [group for group in groups if any(torch.equal(rows, tried.x) for rows in tried.first[group[0]])]
    return whole or groups


def _are_equal(calls: list[Tensor], others: list[Tensor]) -> bool:
    return len(calls) == len(others) and all(map(torch.equal, calls, others))


def known_tokens(model: nn.Module) -> int:
    """Return the number of tokens in the model's vocabulary; 0 if its inputs are not tokens.

    It is the size of the smallest of the `input_embeddings`. Raises `ValueError` if these are unknown because the model
    does not accept a made-up text.
    """
    layers = embeddings(model)
    tried = _tried_look_ups(model) if layers else None
    has_images = any(isinstance(module, nn.Conv2d) for module in model.modules())
    if not layers or (tried.x.is_floating_point() if tried else has_images):
        return 0
    if tried is None and len(layers) > 1:
        sizes = sorted({m.num_embeddings for m in layers.values()})
        raise ValueError(
            f"the model has embeddings of {', '.join(map(str, sizes))} entries, and which one takes its inputs is not "
            "known, because it takes no made-up text: note the length of one text, model.input_shape = (L,)"
        )
    names = [name for group in input_embeddings(model) or () for name in group]
    return min(layers[name].num_embeddings for name in names or layers)


def as_inputs(x: Tensor, model: nn.Module) -> Tensor:
    """Return inputs on the model's device; floating-point ones in its precision."""
    reference = next(model.parameters())
    return x.to(reference) if x.is_floating_point() else x.to(reference.device)


def dummy_inputs(model: nn.Module, shape: tuple[int, ...] | None = None) -> Iterator[Tensor]:
    """Yield two random inputs of each shape that the model may accept.

    The shape is `shape`, or ``model.input_shape`` if `build` or the caller has set it. Otherwise the layers suggest it:
    a fully connected layer's inputs, a convolution's channels with usual square sizes, or a short text. Integers that
    no embedding takes are those of ``model.example_inputs``.
    """
    generator = torch.Generator().manual_seed(0)
    known_shape = shape or getattr(model, "input_shape", None)
    known_shape = known_shape and as_shape(known_shape)
    if n_tokens := known_tokens(model):
        yield as_inputs(torch.randint(n_tokens, (2, *(known_shape or (_TEXT_LENGTH,))), generator=generator), model)
        return
    example = getattr(model, "example_inputs", None)
    if example is not None and not example.is_floating_point():
        yield as_inputs(example[:2], model)
        return
    for shape in [known_shape] if known_shape else _suggest_shapes(model):
        yield as_inputs(torch.rand(2, *shape, generator=generator), model)


@remembered
def has_integer_inputs(model: nn.Module) -> bool:
    """Return whether a model reads its inputs as integers, such as tokens, however it looks them up.

    They are of that type, or a fraction that is added to them changes no output and has no gradient.
    """
    x = next((x for x in dummy_inputs(model) if run(model, x) is not None), None)
    if x is None or not x.is_floating_point():
        return x is not None
    whole = x.floor()
    before, after = run(model, whole), run(model, whole + 0.25)
    if not (isinstance(before, Tensor) and isinstance(after, Tensor) and torch.equal(before, after)):
        return False
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        outputs = forward(model, whole.requires_grad_())
    return not outputs.requires_grad or torch.autograd.grad(outputs.sum(), whole, allow_unused=True)[0] is None


def as_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of one input as a tuple; raise `ValueError` unless it is one or more sizes."""
    try:
        sizes = tuple(whole_number("a size", size) for size in shape)
    except (TypeError, ValueError):
        sizes = ()
    if not sizes or isinstance(shape, str):
        raise ValueError(f"the shape of one input is a tuple of sizes, such as (3, 32, 32), not {shape!r}")
    return sizes


def _suggest_shapes(model: nn.Module) -> list[tuple[int, ...]]:
    flat = [(m.in_features,) for m in model.modules() if isinstance(m, nn.Linear)]
    channels = [m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)][:1]
    image_size = getattr(model, "image_size", None)  # an attribute of vision transformers
    sides = (image_size,) if isinstance(image_size, int) else _USUAL_SIDES
    return [*dict.fromkeys(flat), *((c, side, side) for c in channels for side in sides)]


class Enough(Exception):
    """Ends a pass in which layers are `watched`: those behind are not asked for."""


@contextmanager
def watched(layers: Mapping[str, nn.Module], note: Callable[[str, Tensor, Tensor], None]) -> Iterator[None]:
    """Call ``note(name, inputs, outputs)`` at each forward pass of these layers in the block, which `Enough` ends."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], dict[str, Tensor], Tensor], None]:
        def call(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], outputs: Tensor) -> None:
            if inputs := [*args, *kwargs.values()]:
                note(name, inputs[0], outputs)

        return call

    handles = [layer.register_forward_hook(hook(name), with_kwargs=True) for name, layer in layers.items()]
    try:
        with suppress(Enough):
            yield
    finally:
        for handle in handles:
            handle.remove()


def forward(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs without changing its statistics; a compiled model runs uncompiled, with hooks."""
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    for name, layer in embeddings(model).items():
        if layer.max_norm is not None:  # which shortens the rows that are looked up, in place
            buffers[f"{name}.weight".lstrip(".")] = layer.weight.clone()
    # Whoever has compiled a model has imported the compiler, which takes four seconds.
    is_compiled = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
        return torch.func.functional_call(model, buffers, (x,))


@torch.no_grad()
def run(model: nn.Module, x: Tensor) -> Any:
    """Return the model's outputs, or None if it rejects such inputs; statistics and random state do not change."""
    try:
        with torch.random.fork_rng(devices=[]):
            return forward(model, x)
    except REFUSALS:
        return None


def require_pixels(model: nn.Module) -> None:
    """Raise `ValueError` if the model's inputs are tokens."""
    if known_tokens(model):
        raise ValueError(
            "the model's inputs are integer tokens, and what was asked for makes up pixels: give auxiliary data (an "
            "audit: data, or shape=(L,)), or use an attack that needs no inputs"
        )


def input_shape(model: nn.Module, shape: Any = None) -> tuple[int, ...]:
    """Return the shape of one input: `shape` or ``model.input_shape``, else the only suggested one that it accepts.

    Raises `ValueError` for other than sizes, if the model accepts none of the suggested shapes or several (adaptive
    pooling), or if its inputs are tokens.
    """
    require_pixels(model)
    if (known_shape := getattr(model, "input_shape", None) if shape is None else shape) is not None:
        return as_shape(known_shape)
    accepted_shapes = [tuple(x.shape[1:]) for x in dummy_inputs(model) if run(model, x) is not None]
    if len(accepted_shapes) != 1:
        reason = "several usual sizes fit" if accepted_shapes else "no usual size fits"
        raise ValueError(
            f"cannot tell the input shape of this model ({reason}): note it, model.input_shape = (C, H, W), or pass "
            "shape=(C, H, W) where this is an option"
        )
    return accepted_shapes[0]
