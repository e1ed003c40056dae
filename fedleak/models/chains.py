"""Find the chain of fully connected layers at a model's end, which the gradient bridge crosses."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models.inputs import dummy_inputs, input_shape, known_tokens, watched
from fedleak.models.memory import remembered

_RESHAPING = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Clone", "ToCopy")


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
        """Return the weight as a matrix [out, in] in double precision; each convolution kernel is a row."""
        return self.layer.weight.detach().double().flatten(1)

    def outputs(self, vectors: Tensor) -> Tensor:
        """Compute the layer's outputs ``[N, out]`` for vectors ``[N, in]``, in double precision, before the ReLU."""
        product = vectors @ self.matrix().T
        return product if self.layer.bias is None else product + self.layer.bias.detach().double()

    def vectors(self, inputs: Tensor) -> Tensor:
        """Return the layer's inputs as vectors ``[N, in]``, which its matrix multiplies."""
        if isinstance(self.layer, nn.Linear):
            return inputs.flatten(1)
        conv = self.layer
        assert not isinstance(conv.padding, str)
        return nn.functional.unfold(inputs, conv.kernel_size, conv.dilation, conv.padding, conv.stride).flatten(1)


class Chain(NamedTuple):
    """The layers of a chain, from the lowest to the model's last, and the reason why it ends below."""

    links: tuple[Link, ...]
    end: str

    def start(self, name: str) -> int:
        """Return the index of the layer with this name; raise `ValueError` if the chain ends above it."""
        names = [link.name for link in self.links]
        if name not in names:
            raise ValueError(
                f"{name!r} is not in the chain {' - '.join(map(repr, names))}, which ends there: {self.end}"
            )
        return names.index(name)


@remembered
def chain(model: nn.Module, shape: tuple[int, ...] | None = None) -> Chain:
    """Find the chain (Linear | Conv with 1 x 1 output) - ReLU - Linear - … - Linear that a model ends with.

    The layers, at least one, are read from the autograd graph of one forward pass, and thus found in models of modules
    or functions. Reshaping is ignored; any other operation ends the chain. `shape` is that of one input, if
    `input_shape` cannot determine it. Parameters, statistics and mode do not change. Raises `ValueError` if the model's
    outputs are not those of a fully connected layer.
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
    layer_names = {id(p): n.removesuffix("weight").rstrip(".") for n, p in weights.items() if n.endswith("weight")}
    links: list[Link] = []
    node, relu = logits.grad_fn, False
    while True:
        operation_name = _operation_name(node)
        if operation_name in _RESHAPING:
            node = node.next_functions[0][0]
        elif operation_name == "Relu" and not relu and links:
            node, relu = node.next_functions[0][0], True
        elif operation_name in ("Addmm", "Mm", "Convolution"):
            operands = {"Addmm": (1, 2), "Mm": (0, 1), "Convolution": (0, 1)}[operation_name]
            below, weight = (node.next_functions[place][0] for place in operands)
            while weight is not None and not hasattr(weight, "variable"):
                weight = weight.next_functions[0][0]
            name = layer_names.get(id(getattr(weight, "variable", None)))
            layer = modules.get(name) if name is not None else None
            end = _why_not_a_link(name, layer, shapes, bool(links))
            if end or name is None or layer is None:
                return _make_chain(links, end)
            links.insert(0, Link(name, layer, relu))
            if operation_name == "Convolution":
                return Chain(tuple(links), f"{name!r} is a convolution, and the bridge starts at one at the latest")
            node, relu = below, False
        else:
            position = f"below {links[0].name!r}" if links else "at the outputs"
            operation = f"comes an operation that it cannot cross ({operation_name})"
            return _make_chain(links, f"{position} {'come the images' if node is None else operation}")


def _operation_name(node: object) -> str:
    return type(node).__name__.rstrip("0123456789").removesuffix("Backward")


def _why_not_a_link(name: str | None, layer: nn.Module | None, shapes: dict[str, torch.Size], inside: bool) -> str:
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


def _make_chain(links: list[Link], end: str) -> Chain:
    if not links:
        raise ValueError(f"there is no chain of fully connected layers to bridge: {end}")
    return Chain(tuple(links), end)
