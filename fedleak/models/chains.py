"""The chain of fully connected layers at a model's end, found in the model itself: what the gradient bridge crosses."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models.inputs import dummy_inputs, input_shape, known_tokens, watched

_CHANGES_NOTHING = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Clone", "ToCopy")


class Link(NamedTuple):
    """One layer of a chain: fully connected, or a convolution whose output is 1 x 1."""

    name: str
    layer: nn.Linear | nn.Conv2d
    relu: bool
    """Whether a ReLU follows it."""

    @property
    def weight(self) -> str:
        """Name of the weight among the model's parameters."""
        return f"{self.name}.weight" if self.name else "weight"

    def matrix(self) -> Tensor:
        """Return the weight as a matrix [out, in] in double precision: a kernel is a row."""
        return self.layer.weight.detach().double().flatten(1)

    def outputs(self, vectors: Tensor) -> Tensor:
        """Return what the layer makes of these, ``[N, out]`` from ``[N, in]``, in double precision, before the ReLU."""
        product = vectors @ self.matrix().T
        return product if self.layer.bias is None else product + self.layer.bias.detach().double()

    def vectors(self, inputs: Tensor) -> Tensor:
        """Return what the matrix is multiplied with, ``[N, in]``, from the layer's inputs."""
        if isinstance(self.layer, nn.Linear):
            return inputs.flatten(1)
        conv = self.layer
        assert not isinstance(conv.padding, str)
        return nn.functional.unfold(inputs, conv.kernel_size, conv.dilation, conv.padding, conv.stride).flatten(1)


class Chain(NamedTuple):
    """The layers, from the lowest to the model's last, and why the chain goes no further down."""

    links: tuple[Link, ...]
    end: str

    def start(self, name: str) -> int:
        """Return where the layer of this name stands; a `ValueError` says what breaks the chain before it."""
        names = [link.name for link in self.links]
        if name not in names:
            raise ValueError(
                f"{name!r} is not in the chain {' - '.join(map(repr, names))}, which ends there: {self.end}"
            )
        return names.index(name)


def chain(model: nn.Module, shape: tuple[int, ...] | None = None) -> Chain:
    """Find the chain (Linear | Conv with 1 x 1 output) - ReLU - Linear - … - Linear that a model ends with.

    The layers, at least one, come from the autograd graph of one forward pass, so that it does not matter how the
    model is written: modules or functions, any names. Reshaping is ignored; anything else ends the chain. `shape` is
    that of one input, where `input_shape` cannot tell. Parameters, statistics and mode are left as they are. Raises
    `ValueError` if the model's outputs are not those of a fully connected layer.
    """
    modules = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    shapes: dict[str, torch.Size] = {}
    weights = {n: p.detach().requires_grad_() for n, p in model.named_parameters()}
    buffers = {n: b.clone() for n, b in model.named_buffers()}
    if shape is None and not known_tokens(model):
        shape = input_shape(model)
    noted = watched(modules, lambda name, _, y: shapes.update({name: y.shape}))
    with noted, torch.enable_grad(), torch.random.fork_rng(devices=[]):
        logits = torch.func.functional_call(model, (weights, buffers), (next(dummy_inputs(model, shape)),))
    owner = {id(p): n.removesuffix("weight").rstrip(".") for n, p in weights.items() if n.endswith("weight")}
    links: list[Link] = []
    node, relu = logits.grad_fn, False
    while True:
        kind = _kind(node)
        if kind in _CHANGES_NOTHING:
            node = node.next_functions[0][0]
        elif kind == "Relu" and not relu and links:
            node, relu = node.next_functions[0][0], True
        elif kind in ("Addmm", "Mm", "Convolution"):
            places = {"Addmm": (1, 2), "Mm": (0, 1), "Convolution": (0, 1)}[kind]
            below, weight = (node.next_functions[place][0] for place in places)
            while weight is not None and not hasattr(weight, "variable"):
                weight = weight.next_functions[0][0]
            name = owner.get(id(getattr(weight, "variable", None)))
            layer = modules.get(name) if name is not None else None
            end = _unfit(name, layer, shapes, bool(links))
            if end or name is None or layer is None:
                return _found(links, end)
            links.insert(0, Link(name, layer, relu))
            if kind == "Convolution":
                return Chain(tuple(links), f"{name!r} is a convolution, and the bridge starts at one at the latest")
            node, relu = below, False
        else:
            position = f"below {links[0].name!r}" if links else "at the outputs"
            what = "the images" if node is None else f"an operation that it cannot cross ({kind})"
            return _found(links, f"{position} come {what}" if node is None else f"{position} comes {what}")


def _kind(node: object) -> str:
    return type(node).__name__.rstrip("0123456789").removesuffix("Backward")


def _unfit(name: str | None, layer: nn.Module | None, shapes: dict[str, torch.Size], inside: bool) -> str:
    if name is None or layer is None:
        return "there comes a product that is no layer's"
    if isinstance(layer, nn.Conv2d):
        if not inside:
            return f"{name!r} is a convolution, and the outputs must be a fully connected layer's"
        if shapes[name][2:].numel() != 1:
            return f"{name!r} is a convolution with an output of {' x '.join(map(str, shapes[name][2:]))}, not 1 x 1"
        if layer.groups != 1:
            return f"{name!r} is a convolution in {layer.groups} groups"
    elif len(shapes[name]) != 2:
        return f"{name!r} is applied to more than one vector of an image"
    return ""


def _found(links: list[Link], end: str) -> Chain:
    if not links:
        raise ValueError(f"there is no chain of fully connected layers to bridge: {end}")
    return Chain(tuple(links), end)
