"""The update of one client as the server receives it, with one interface for gradients and weight changes."""

import copy
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from fedleak.errors import WRAPPERS, WithheldParameter, whole_number
from fedleak.models.memory import remembered

MOST_SAMPLES = 10**8
"""Most samples of an update; few enough to draw a label for each."""
Stacked = dict[str, Tensor]
"""The updates of K clients, ``[K, ...]`` by parameter name."""
T = TypeVar("T")
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
MODULES_TO_SAVE, MAGNITUDE = "modules_to_save", "lora_magnitude_vector"
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def is_statistic(name: str) -> bool:
    """Return whether an entry of a state is a batch norm's statistic or counter, and no parameter."""
    return name.rpartition(".")[2] in STATISTICS


@dataclass(frozen=True)
class Update:
    """One client's contribution to a round, as the server receives it.

    Raises `ValueError` for other tensors than described below, an unknown kind, numbers of samples or steps that are
    not whole or below 1, more steps than samples, more samples than `MOST_SAMPLES`, or no positive learning rate.

    Parameters
    ----------
    tensors
        Tensors by parameter name: dense, real, floating-point and in the parameter's shape. Withheld parameters are
        absent.
    kind
        ``"gradient"``: the mean gradient over a batch, summed over the local steps.
        ``"delta"``: the weights after the local steps minus those before.
    samples
        Number of training samples behind the update, over all steps (the papers' ``|D|``). The last batches may be
        smaller, so the steps need not divide it.
    steps
        Number of local optimisation steps, 1 for FedSGD.
    lr
        The client's learning rate; needed to read a ``"delta"``.
    """

    tensors: Mapping[str, Tensor]
    kind: Literal["gradient", "delta"]
    samples: int
    steps: int = 1
    lr: float | None = None

    def __post_init__(self) -> None:
        _check_tensors(self.tensors)
        if any(tensor.requires_grad for tensor in self.tensors.values()):  # such as parameters
            object.__setattr__(self, "tensors", {name: tensor.detach() for name, tensor in self.tensors.items()})
        if self.kind not in ("gradient", "delta"):
            raise ValueError(f"kind is 'gradient' or 'delta', not {self.kind!r}")
        for name in ("samples", "steps"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        if self.samples < self.steps:
            raise ValueError(f"every step takes a sample at least, got {self.samples} samples in {self.steps} steps")
        if self.samples > MOST_SAMPLES:
            raise ValueError(f"an update is of at most {MOST_SAMPLES:,} samples, got {self.samples:,}")
        if self.lr is not None:
            object.__setattr__(self, "lr", _as_rate(self.lr))
        elif self.kind == "delta":
            raise ValueError("an update of kind 'delta' is read with the client's learning rate: pass lr")

    @classmethod
    def from_states(
        cls, before: Mapping[str, Any], after: Mapping[str, Any], samples: int, steps: int, lr: float
    ) -> "Update":
        """Make an update of kind ``"delta"`` from two state dicts, as `nn.Module.state_dict` returns them.

        Flower's ``ArrayRecord`` is accepted, too. Batch norm's running statistics and tensors that are not
        floating-point (counters) are omitted, as they are no parameters. The difference is computed in the precision of
        `after`. Raises `ValueError` if the states are of different models, and as `Update` does.
        """
        before, after = (s.to_torch_state_dict() if hasattr(s, "to_torch_state_dict") else s for s in (before, after))
        for name, state in (("before", before), ("after", after)):
            if not isinstance(state, Mapping) or not all(isinstance(t, Tensor) for t in state.values()):
                raise ValueError(f"{name} is a state dict, names to tensors: pass model.state_dict()")
        before, after = ({n: t for n, t in s.items() if not is_statistic(n)} for s in (before, after))
        if before.keys() != after.keys():
            unmatched = ", ".join(map(repr, sorted(map(str, before.keys() ^ after.keys()))))
            raise ValueError(f"only one of the two states has {unmatched}: pass both complete states of the same model")
        changes = {}
        for name, old in before.items():
            new = after[name].detach().to(old.device)
            if not (old.is_floating_point() or old.is_complex()):
                continue
            if old.shape != new.shape:
                raise ValueError(
                    f"{name!r} has shape {tuple(old.shape)} before and {tuple(new.shape)} after: pass both states of "
                    "the same model"
                )
            # A client rounds the received state to its precision; only the difference to that is training.
            start = old.detach().to(new.dtype if new.is_floating_point() else old.dtype)
            common_dtype = torch.promote_types(torch.promote_types(start.dtype, new.dtype), torch.float32)
            # An attention mask's infinite entries, which are the same, do not change.
            changes[name] = (new.to(common_dtype) - start.to(common_dtype)).masked_fill_(new == start, 0)
        return cls(changes, "delta", samples, steps, lr)

    @property
    def batch_size(self) -> int:
        """Samples per local step, B.

        Raises `ValueError` if the steps do not divide the samples.
        """
        if self.samples % self.steps:
            raise ValueError(
                f"{self.samples} samples do not divide into {self.steps} equal local batches, and what was asked for "
                "needs equal ones: use an attack that does not"
            )
        return self.samples // self.steps

    def gradient(self, name: str) -> Tensor:
        """Return the mean gradient of one local step for parameter `name`, in the parameter's shape.

        Raises `WithheldParameter` if the client did not share it.
        """
        scale = self.steps if self.lr is None or self.kind == "gradient" else -self.lr * self.steps
        return self._shared(name) / scale

    def summed(self, name: str) -> Tensor:
        """Return the mean gradients of all local steps, summed, for parameter `name`; errors as for `gradient`."""
        return self._shared(name) if self.kind == "gradient" else self.gradient(name) * self.steps

    def delta(self, name: str, lr: float | None = None) -> Tensor:
        """Return the change of parameter `name` over the local steps, as plain SGD makes it; errors as for `gradient`.

        `lr` is the learning rate if the update does not have it. Raises `ValueError` if gradients were shared and the
        learning rate is unknown.
        """
        if self.kind == "delta":
            return self._shared(name)
        if (rate := self.lr or lr) is None:
            raise ValueError("the change of the weights follows from the learning rate: pass an update with lr")
        return self._shared(name) * -rate

    def model(self, before: nn.Module) -> nn.Module:
        """Return the client's model after its local steps; `before` is the model before them and is not modified.

        Frozen parameters that are not shared are as before, unless the whole model is frozen. Raises
        `WithheldParameter` if another parameter is not shared; `ValueError` as for `delta`, or if a parameter has
        another shape, or is NaN or infinite.
        """
        after, update = copy.deepcopy(before), self.replace(unwrapped(self.tensors, before))
        has_trained = any(parameter.requires_grad for parameter in after.parameters())
        with torch.no_grad():
            for name, parameter in after.named_parameters():
                if has_trained and not parameter.requires_grad and name not in update.tensors:
                    continue
                parameter.add_(fitting(update.delta(name), name, parameter).to(parameter))
        return after

    def without(self, *names: str) -> "Update":
        """Return the update with the named parameters withheld; raise `WithheldParameter` if one already is."""
        for name in names:
            self._shared(name)
        return self.replace({k: v for k, v in self.tensors.items() if k not in names})

    def replace(self, tensors: Mapping[str, Tensor]) -> "Update":
        """Return an update with other tensors and the same kind, samples, steps and learning rate."""
        return Update(tensors, self.kind, self.samples, self.steps, self.lr)

    def to(self, device: str | torch.device) -> "Update":
        """Return the update on `device`."""
        return self.replace({k: v.to(device) for k, v in self.tensors.items()})

    def _shared(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise WithheldParameter(name, sorted(self.tensors))
        return self.tensors[name]


def unwrapped(state: Mapping[str, T], model: nn.Module) -> dict[str, T]:
    """Return a state or an update with the model's parameter names, if these differ only by wrappers' additions.

    DataParallel, torch.compile and Opacus add ``module.``, ``_orig_mod.`` and ``_module.`` to names, of the model or of
    the update, and other wrappers another prefix to all names. States saved by peft lack the adapter's name,
    ``default``, and the wrappers of saved modules and magnitudes. If not all names can be matched, the names do not
    change.
    """
    expected = _state_names(model)
    if state.keys() <= expected:
        return dict(state)
    names, plain = {plain_name(name): name for name in expected}, {name: plain_name(name) for name in state}
    for prefix in _prefixes(plain.values()):
        renamed = {n: n if n in expected else names.get(p.removeprefix(prefix), n) for n, p in plain.items()}
        if set(renamed.values()) <= expected and len(set(renamed.values())) == len(state):
            return {renamed[name]: value for name, value in state.items()}
    for prefix in _prefixes(names):
        renamed = {name: names.get(prefix + p, name) for name, p in plain.items()}
        if set(renamed.values()) <= expected:
            return {renamed[name]: value for name, value in state.items()}
    return dict(state)


def _prefixes(names: Iterable[str]) -> list[str]:
    """Return the prefixes that all names have in common, up to a dot, from the shortest, the empty one."""
    places = zip(*(name.split(".")[:-1] for name in names), strict=False)
    parts = [place[0] for place in takewhile(lambda place: len(set(place)) == 1, places)]
    return ["".join(f"{part}." for part in parts[:length]) for length in range(len(parts) + 1)]


def is_zero(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether all entries of an update are zero, so that it says nothing of what was trained."""
    return not any(bool(tensor.any()) for tensor in tensors.values())


def without_frozen(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return an update without frozen parameters, which complete states contain as zeros.

    Frozen are zero updates of the model's frozen parameters, and of linear layers while other parameters moved: the
    client has frozen these, even if the attacker's model has not.
    """
    if is_zero(tensors):
        return dict(tensors)
    may_be_frozen = _names_of_freezable(model)
    return {name: tensor for name, tensor in tensors.items() if name not in may_be_frozen or bool(tensor.any())}


@remembered
def _state_names(model: nn.Module) -> frozenset[str]:
    return frozenset(model.state_dict())


@remembered
def _names_of_freezable(model: nn.Module) -> frozenset[str]:
    """Return the names of frozen parameters, and of all weights and biases of linear layers."""
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    names = {f"{name}.{part}".lstrip(".") for name in linear for part in ("weight", "bias")}
    return frozenset(names | {name for name, parameter in model.named_parameters() if not parameter.requires_grad})


def plain_name(name: str) -> str:
    """Return a parameter's name without the additions of wrappers."""
    parts = [part for part in name.split(".") if f"{part}." not in WRAPPERS]
    dropped_indices = [k for k, part in enumerate(parts) if part == "default" and k and "lora_" in parts[k - 1]]
    if MODULES_TO_SAVE in parts[:-2]:  # peft's modules_to_save.default
        dropped_indices += [k := parts.index(MODULES_TO_SAVE), k + 1]
    if MAGNITUDE in parts[:-1]:  # a module in the model, a tensor in what peft saves
        dropped_indices.append(len(parts) - 1)
    return ".".join(part for k, part in enumerate(parts) if k not in dropped_indices)


def fitting(tensor: Tensor, name: str, parameter: Tensor) -> Tensor:
    """Return a tensor of an update, detached, after checking that it fits the parameter of this `name`.

    Raises `ValueError` if the shapes differ, or an entry is NaN or infinite.
    """
    if tensor.shape != parameter.shape:
        raise ValueError(
            f"the update's {name!r} has shape {tuple(tensor.shape)}, "
            f"the model's has {tuple(parameter.shape)}: is it an update of this model?"
        )
    # a sum of finite entries may overflow, but no sum with a NaN or an infinity is finite
    if not torch.isfinite(tensor.sum()) and (bad := int((~torch.isfinite(tensor)).sum())):
        raise ValueError(f"{bad} of {tensor.numel()} entries of the update's {name!r} are NaN or infinite")
    return tensor.detach()


def _check_tensors(tensors: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise ValueError(f"tensors map parameter names to tensors: pass a dict, not {_describe(tensors)}")
    for name, tensor in tensors.items():
        if hasattr(tensor, "full_tensor"):
            raise ValueError(f"the update's {name!r} is a part of a distributed tensor: pass tensor.full_tensor()")
        dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor.is_meta
        if not isinstance(name, str) or not dense or tensor.is_nested or tensor.dtype not in _DTYPES:
            raise ValueError(
                f"the update's {name!r} is {_describe(tensor)}: names are strings, and tensors are dense, real and "
                "floating-point; leave out what is no parameter, and convert the rest "
                "(torch.as_tensor, Tensor.to_dense, Tensor.float)"
            )


def _describe(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    layout = "nested" if value.is_nested else "meta" if value.is_meta else str(value.layout).removeprefix("torch.")
    return f"a {layout} tensor of {value.dtype}"


def _as_rate(value: Any) -> float:
    number = value.item() if isinstance(value, Tensor) and value.dim() == 0 else value  # as an optimiser may have it
    if not isinstance(number, numbers.Real) or isinstance(number, bool):
        raise ValueError(f"the learning rate is a number, not {value!r}")
    try:
        rate = float(number)
    except OverflowError:
        rate = math.inf
    if not 0 < rate < math.inf:
        raise ValueError(f"the learning rate is positive, got {value}: pass a finite number")
    return rate
