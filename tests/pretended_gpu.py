"""A GPU for a machine that has none: tensors on the wrong device are an error, as they are on a real one.

Tensors "on" it live in CPU memory and are known by their storage; every call of torch's Python interface is looked at.
Errors, as on a real GPU: an operation on tensors of both places (a CPU number without dimensions is none), an index on
the GPU into a tensor on the CPU, `.numpy()` of a tensor on the GPU, a CPU generator for numbers that are drawn there.
A real GPU draws other numbers than the CPU with the same seed: `drawn` lists the functions that drew some there.

    with PretendedGPU():
        model.to("cuda")
        assert fedsgd(model, x.to("cuda"), y.to("cuda")).tensors["weight"].device.type == "cuda"

Where there is a real GPU, it takes the place of the pretended one.

Limits: nothing is seen of what happens in C++, so that all of a backward pass counts as on the GPU if its outputs do,
and an operation that CUDA lacks works here. Times mean nothing.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

REAL = torch.cuda.is_available()
GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
ACROSS = {"copy_", "data", "__set__", "set_"}
ACROSS |= {"result_type", "can_cast", "is_same_size", "_has_compatible_shallow_copy_type"}
"""Functions that take tensors of both places."""
STRICT = {"stack", "cat", "concat", "hstack", "vstack", "linear"}
STRICT |= {"matmul", "__matmul__", "mm", "bmm", "einsum", "gather"}
"""Functions to which a CPU tensor without dimensions is a tensor like others."""
FROM_DATA = {"as_tensor", "tensor", "asarray", "scalar_tensor"}
"""Functions whose result is where they are told, whatever they are given."""
DRAW = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "dropout", "rand_like"}
DRAW |= {"randn_like", "randint_like", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_"}
DRAW |= {f"{name}_" for name in ("normal", "uniform", "random", "bernoulli", "exponential", "cauchy", "geometric")}


class _Generator(torch.Generator):
    """A generator that can be made for the pretended GPU."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        generator = super().__new__(cls)
        generator.on_gpu = torch.device(device).type == "cuda"
        return generator

    @property
    def device(self) -> torch.device:
        return GPU if self.on_gpu else CPU


class PretendedGPU(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, StorageWeakRef] = {}
        self.drawn: list[str] = []
        """The functions that have drawn numbers here."""
        self.backward = False
        self.patches = contextlib.ExitStack()

    def __enter__(self) -> "PretendedGPU":
        run = torch.autograd._engine_run_backward
        for target, name, value in (
            (torch, "Generator", _Generator),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "is_current_stream_capturing", lambda: False),
            (torch.accelerator, "current_accelerator", lambda check_available=False: None),
            (torch.cuda, "get_device_name", lambda device=None: "pretended GPU"),
            (torch.cuda, "manual_seed_all", lambda seed: None),
            (torch.autograd, "_engine_run_backward", lambda *args, **kwargs: self.run_backward(run, args, kwargs)),
        ):
            self.patches.enter_context(mock.patch.object(target, name, value))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.patches.close()

    # --- where a tensor is ------------------------------------------------------------------------------------------

    def on_gpu(self, tensor: Tensor) -> bool:
        return self.backward or self.is_registered(tensor)

    def is_registered(self, tensor: Tensor) -> bool:
        tensor = _plain(tensor)
        return tensor.layout == torch.strided and tensor.untyped_storage()._cdata in self.storages

    def put(self, tensor: Tensor) -> Tensor:
        storage = _plain(tensor).untyped_storage()
        if storage._cdata not in self.storages:
            if len(self.storages) > 20_000:
                self.storages = {key: ref for key, ref in self.storages.items() if not ref.expired()}
            # A weak reference keeps the number from being given to another storage.
            self.storages[storage._cdata] = StorageWeakRef(storage)
        return tensor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", str(func))
        if func == Tensor.device.__get__:
            return GPU if self.on_gpu(args[0]) else CPU
        if func == Tensor.is_cuda.__get__ or func == Tensor.is_cpu.__get__:
            return self.on_gpu(args[0]) == (func == Tensor.is_cuda.__get__)
        if name in ("to", "cuda", "cpu") and isinstance(args[0], Tensor):
            return self.moved(name, args[0], args[1:], kwargs)
        if name in FROM_DATA:
            return self.from_data(func, args, kwargs)
        if name in ("numpy", "__array__") and self.on_gpu(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy: use Tensor.cpu() first")
        device = kwargs.pop("device", None)
        to_gpu = None if device is None else torch.device(device).type == "cuda"
        given = list(_tensors(args[:1] if name == "__deepcopy__" else (args, kwargs)))
        on_gpu = to_gpu if to_gpu is not None else any(self.on_gpu(t) for t in given)
        if to_gpu is None or not name.startswith("new_"):
            self.check(name, args, given, to_gpu)
        self.check_generator(name, kwargs, on_gpu)
        if name == "lstsq" and on_gpu and kwargs.get("driver") not in (None, "gels"):
            raise RuntimeError("torch.linalg.lstsq on CUDA takes the driver 'gels' alone")
        if device is not None and to_gpu is False:
            kwargs["device"] = device
        if name in DRAW and on_gpu:
            self.drawn.append(name)
        out = func(*args, **kwargs)
        if on_gpu and name != "copy_":
            for tensor in _tensors(out):
                self.put(tensor)
        return out

    def moved(self, name: str, tensor: Tensor, rest: Any, options: dict[str, Any]) -> Tensor:
        target = torch.device(name) if name != "to" else options.pop("device", None)
        keep = []
        for option in rest if name == "to" else ():
            if isinstance(option, Tensor):
                target = GPU if self.on_gpu(option) else CPU
                keep.append(option.dtype)
            elif isinstance(option, str | torch.device):
                target = torch.device(option)
            elif isinstance(option, torch.dtype):
                keep.append(option)
        out = tensor.to(*keep, **options) if keep or options else tensor
        on_gpu = self.on_gpu(tensor) if target is None else torch.device(target).type == "cuda"
        if on_gpu != self.on_gpu(tensor) and _shared(out, tensor):
            out = out.clone()
        return self.put(out) if on_gpu else out

    def from_data(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        data, device = args[0], kwargs.pop("device", None)
        on_gpu = isinstance(data, Tensor) and self.on_gpu(data)
        target = on_gpu if device is None else torch.device(device).type == "cuda"
        out = func(*args, **kwargs)
        if isinstance(data, Tensor) and on_gpu != target and _shared(out, data):
            out = out.clone()
        return self.put(out) if target else out

    # --- what a real one refuses ------------------------------------------------------------------------------------

    def check(self, name: str, args: Any, given: list[Tensor], to_gpu: bool | None) -> None:
        if name in ACROSS or self.backward:
            return
        if name in ("__getitem__", "__setitem__"):
            index = [t for t in _tensors(args[1]) if t.dim() or t.dtype == torch.bool]
            if not self.on_gpu(args[0]) and any(self.on_gpu(t) for t in index):
                raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
            value = args[2] if len(args) > 2 else None
            given = [args[0], value] if index and isinstance(value, Tensor) else [args[0]]
        written = (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name.endswith("__"))
        numbers = {id(t) for t in given[1 if written else 0 :] if not t.dim() and not self.on_gpu(t)}
        if name in STRICT:
            numbers = set()
        places = {self.on_gpu(t) for t in given if id(t) not in numbers}
        if len(places) > 1:
            raise RuntimeError(f"expected all tensors to be on the same device, found cuda:0 and cpu ({name})")

    def check_generator(self, name: str, kwargs: dict[str, Any], on_gpu: bool) -> None:
        generator = kwargs.get("generator")
        if generator is not None and (getattr(generator, "on_gpu", False)) != on_gpu:
            raise RuntimeError(f"{name}: numbers on {GPU if on_gpu else CPU} need a generator of this device")

    def run_backward(self, run: Any, args: Any, kwargs: Any) -> Any:
        """Run a backward pass under this mode, so that Python code in it finds itself on the GPU."""
        roots = list(_tensors(args[0]))
        before, self.backward = self.backward, self.backward or any(self.is_registered(t) for t in roots)
        TorchFunctionMode.__enter__(self)
        try:
            return run(*args, **kwargs)
        finally:
            TorchFunctionMode.__exit__(self, None, None, None)
            self.backward = before


if REAL:

    class PretendedGPU(contextlib.nullcontext[None]):  # type: ignore[no-redef]
        drawn: tuple[str, ...] = ()

        def __enter__(self) -> "PretendedGPU":
            torch.backends.cudnn.allow_tf32 = False
            return self


def _plain(tensor: Tensor) -> Tensor:
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def _shared(first: Tensor, second: Tensor) -> bool:
    return _plain(first).untyped_storage()._cdata == _plain(second).untyped_storage()._cdata


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
