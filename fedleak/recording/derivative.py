"""Compare a recorded gradient with how the last layer's outputs really change, by forward passes alone.

A hook on an activation and a backward pass of one's own change every gradient that is computed on the client's graph.
No forward pass sees them. So one pass is repeated twice in double precision, with the weights moved a little along the
gradient, and against it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

MAX_DEVIATION = 0.01
"""Largest deviation of the outputs' change from what the gradient says, as a mean over the weights' matrices."""
ROUNDING = 16
"""Deviation that the precision of a pass may add, in its smallest steps between numbers around 1."""
NEGLIGIBLE = 1e-4
"""Share of the whole gradient below which a tensor's own is not compared."""
STEP = 1e-5
"""Norm of the largest move of a tensor."""


class Call(NamedTuple):
    """An outermost call of a module: of the model, or of layers that a loop calls one by one."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: tuple[Tensor, ...]
    """State of the random generators of the processor, and of the model's device, before the call."""


class Passes:
    """The calls of a model's modules since the last step, as long as a trained parameter's gradient is not compared."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, nn.Parameter]):
        self.model, self.parameters = model, parameters
        self.current: Call | None = None
        self._compared: set[str] = set()
        self._returned: list[tuple[Call, list[Any]]] = []
        self._depth, self._is_repeating = 0, False
        self._handles: list[Any] = []

    def watch(self) -> None:
        """Register hooks on all modules, around those that they have."""
        modules = [module for module in self.model.modules() if not isinstance(module, torch.jit.ScriptModule)]
        for module in modules:
            enters = module.register_forward_pre_hook(self._enter, with_kwargs=True, prepend=True)
            self._handles += [enters, module.register_forward_hook(self._leave, always_call=True)]

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self.forget()

    def forget(self) -> None:
        """Free the memory of the calls so far."""
        self._returned.clear()

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_repeating:
            return
        self._depth += 1
        if self._depth == 1 and torch.is_grad_enabled() and self._expects_news():
            self.current = Call(module, args, kwargs, _random_states(self._device()))

    def _leave(self, _: nn.Module, __: Any, output: Any) -> None:
        if self._is_repeating:
            return
        self._depth -= 1
        if not self._depth and self.current is not None:
            self._returned.append((self.current, tree_leaves(output)))
            self.current = None

    def _expects_news(self) -> bool:
        return any(p.requires_grad and name not in self._compared for name, p in self.parameters.items())

    def _device(self) -> torch.device:
        return next(iter(self.parameters.values())).device

    def compare(
        self, call: Call | None, layer: nn.Module, logits: Tensor, errors: Tensor, gradients: Mapping[str, Tensor]
    ) -> str:
        """Return why these are no gradients of the outputs, as far as they are not compared yet; "" if they are.

        Parameters
        ----------
        call
            The call in which the layer gave its outputs.
        layer, logits, errors
            The last layer, its outputs ``[..., n]``, and the gradient of the loss with respect to them ``[N, n]``.
        gradients
            The recorded gradients with respect to the parameters.
        """
        if gradients.keys() <= self._compared:
            return ""
        sizes = {name: float(torch.linalg.vector_norm(g, dtype=torch.float64)) for name, g in gradients.items()}
        total = sum(size**2 for size in sizes.values()) ** 0.5
        known = {name for name, size in sizes.items() if size > NEGLIGIBLE * total}
        # With a bias of 0, inputs of 0 stand at the kink of a ReLU, whose derivative there is a convention.
        chosen = {name for name in known if gradients[name].dim() > 1} or known
        if chosen <= self._compared:
            return ""
        if call is None:
            return "the forward pass was not seen"
        self._compared |= known
        least = min(sizes[name] for name in chosen)
        moves = {name: STEP * least / sizes[name] ** 2 * gradients[name].double() for name in chosen}
        try:
            ahead, behind = (self._repeat(call, layer, logits, moves, sign) for sign in (1, -1))
        except Exception as error:  # of any code of the client's
            return f"the forward pass could not be repeated ({type(error).__name__}: {error!s:.200})"
        change = float((errors.double() * (ahead - behind).flatten(0, -2)).sum()) / 2
        off = abs(change / (len(chosen) * STEP * least) - 1)
        if off <= MAX_DEVIATION + ROUNDING * torch.finfo(logits.dtype).eps:
            return ""
        return (
            f"the gradient is not the derivative of the outputs ({off:.0%} off): a hook or a backward pass of its own "
            "changes it, or the forward pass gives other outputs when it is repeated"
        )

    @torch.no_grad()
    def _repeat(self, call: Call, layer: nn.Module, logits: Tensor, moves: Mapping[str, Tensor], sign: int) -> Tensor:
        """Return the layer's outputs with moved weights."""
        device, outputs, known = self._device(), list[Tensor](), dict[int, Any]()
        devices = [] if device.type == "cpu" else [device]
        handle = layer.register_forward_hook(lambda _, __, output: outputs.append(output))
        # Whoever has compiled a model has imported the compiler.
        eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
        self._is_repeating = True
        try:
            with (
                torch.random.fork_rng(devices, device_type="cuda" if device.type == "cpu" else device.type),
                torch.autocast(device.type, enabled=False),
                eager,
                _moved(self.model, {id(self.parameters[name]): sign * move for name, move in moves.items()}),
                _Double(next(iter(self.parameters.values())).dtype),
            ):
                self._call(call, known)
        finally:
            self._is_repeating = False
            handle.remove()
        same = [output for output in outputs if output.shape == logits.shape]
        return min(same, key=lambda output: float((output - logits).norm()))  # of several calls in one pass

    def _call(self, call: Call, known: dict[int, Any]) -> Any:
        """Repeat a call, and before it those whose results it takes."""
        if id(call) in known:
            return known[id(call)]

        def replace(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.requires_grad or value.is_leaf:
                return _double(value, copy=True)
            for earlier, results in self._returned:
                for place, result in enumerate(results):
                    if result is value:
                        return tree_leaves(self._call(earlier, known))[place]
            raise ValueError("a layer is given what an operation outside of the model has computed")

        args, kwargs = tree_map(replace, (call.args, call.kwargs))
        torch.set_rng_state(call.random[0])
        for state in call.random[1:]:
            torch.get_device_module(self._device()).set_rng_state(state, self._device())
        known[id(call)] = call.module(*args, **kwargs)
        return known[id(call)]


def _random_states(device: torch.device) -> tuple[Tensor, ...]:
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    return tuple(states)


@contextmanager
def _moved(model: nn.Module, moves: Mapping[int, Tensor]) -> Iterator[None]:
    """Have a model in double precision with other weights in the block; after it, its modules hold what they held.

    `moves` are by the parameters' identities. The parameters themselves are not touched: a graph may hold them.
    """
    scripted = [module for module in model.modules() if isinstance(module, torch.jit.ScriptModule)]
    if any(id(p) in moves for module in scripted for p in module.parameters()):
        raise TypeError("the weights of a scripted module cannot be exchanged")
    modules = [module for module in model.modules() if module not in scripted]
    held = [(m, dict(m.__dict__), dict(m._parameters), dict(m._buffers)) for m in modules]
    weights = {id(p): _double(p.detach(), copy=True) + moves.get(id(p), 0) for p in model.parameters()}
    others = {key: nn.Parameter(weight, requires_grad=False) for key, weight in weights.items()}
    try:
        for module, _, parameters, buffers in held:
            for name, parameter in parameters.items():
                setattr(module, name, others.get(id(parameter)))  # recurrent layers have a list of them, too
            module._buffers.update({n: b if b is None else _double(b, copy=True) for n, b in buffers.items()})
        yield
    finally:
        for module, attributes, parameters, buffers in held:
            for entries, old in ((module.__dict__, attributes), (module._buffers, buffers)):
                entries.clear()
                entries.update(old)
            for name, parameter in parameters.items():
                setattr(module, name, parameter)


def _double(value: Any, copy: bool = False) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    if not isinstance(value, Tensor):
        return value
    return value.to(torch.float64 if value.is_floating_point() else value.dtype, copy=copy)


class _Double(TorchDispatchMode):
    """Compute in double precision, whatever the code asks for, and draw the random numbers of another."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        convert: Callable[[Any], Any] = _double
        if torch.Tag.nondeterministic_seeded in function.tags and not function._schema.is_mutable:
            convert = self._drawn
        inputs, options = tree_map(convert, (args, kwargs or {}))
        result = function(*inputs, **options)
        if function is torch.ops.aten.native_dropout.default:  # a GPU's: its zeros are drawn, and not its scale
            result = args[0] * result[1] / max(1 - args[1], 1e-9), result[1]
        return tree_map(_double, result)

    def _drawn(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return self.dtype if value.is_floating_point else value
        return value.to(self.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
