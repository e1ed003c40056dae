"""The door through which every attack, of labels, images or words, gets its updates and its model.

Here is decided, once and for all attacks:

- names: wrappers' additions to names are removed (`fedleak.federated.update.unwrapped`), also if they are nested;
- place and precision: an update is moved to the model's device; models in half precision are read in single precision;
- what is zero: an update that is zero everywhere is refused;
- what has no gradient: parameters that a client froze are absent, also from complete states, which contain them as
  zeros; image attacks keep absent and unused parameters as constants;
- mode: batch norm and instance norm stay in the mode that the caller has set, which is the clients' (the papers measure
  both); all other layers are in evaluation mode, so that dropout is off. Random numbers come from a seed. Afterwards
  modes and PyTorch's global random state are as before;
- the head, where no usual input fits the model: inputs of the shape that the attack was given find it;
- contradictions between an update and its stated origin (`fedleak.attacks.plausible`).
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial, wraps
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from fedleak.attacks.plausible import Examination, examine
from fedleak.attacks.result import Prepared
from fedleak.data import Images
from fedleak.errors import SEEDS, whole_number
from fedleak.federated import Update
from fedleak.federated.update import is_zero, unwrapped, without_frozen
from fedleak.models import head
from fedleak.models.inputs import run
from fedleak.models.wrappers import NOTES, inner_model

Prepare = TypeVar("Prepare", bound=Callable[..., Any])
_HALVES = (torch.float16, torch.bfloat16)


@contextmanager
def quiet(*models: nn.Module, seed: int = 0) -> Iterator[None]:
    """Switch off what is random in models, apart from batch statistics, and draw random numbers from `seed`."""
    modules = [module for model in models for module in model.modules()]
    active = [module for module in modules if module.training and not isinstance(module, _NormBase)]
    # Opacus' hooks record samples in training mode, and raise in evaluation mode
    tables = [t for m in modules for t in (m._forward_hooks, m._backward_hooks, m._backward_pre_hooks) if t]
    hooks = [(table, key, hook) for table in tables for key, hook in table.items() if _is_of_opacus(hook)]
    devices = {p.device for model in models for p in model.parameters() if p.is_cuda and torch.cuda.is_initialized()}
    # cuDNN does not differentiate recurrent layers in evaluation mode, and never twice.
    is_recurrent = any(isinstance(module, nn.RNNBase) for module in modules)
    with torch.random.fork_rng(devices), torch.backends.cudnn.flags(False) if is_recurrent else nullcontext():
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        try:
            for module in active:
                module.training = False
            for table, key, _ in hooks:
                del table[key]
            yield
        finally:
            for module in active:
                module.training = True
            for table, key, hook in hooks:
                table[key] = hook


def _is_of_opacus(hook: Any) -> bool:
    module = getattr(getattr(hook, "func", hook), "__module__", None)
    return isinstance(module, str) and module.startswith("opacus.")


def find_head(model: nn.Module, shape: Sequence[int] | None) -> None:
    """Let a model's head be found with inputs of this shape, unless the caller has noted one; `head` remembers it."""
    if shape is None or any(note in vars(model) for note in NOTES):
        return
    vars(model)["input_shape"] = shape
    try:
        head(model)
    except (ValueError, TypeError):  # of a model without a head, or no shape at all: the attack says so if it needs one
        pass
    finally:
        del vars(model)["input_shape"]


def given_shape(args: Iterable[Any], options: Mapping[str, Any]) -> Sequence[int] | None:
    """Return the shape of one input that an attack's arguments show: its option ``shape``, or its auxiliary data's."""
    if (shape := options.get("shape")) is not None:
        return shape
    return next((images.x.shape[1:] for images in given_images(args, options)), None)


def given_images(args: Iterable[Any], options: Mapping[str, Any]) -> list[Images]:
    """Return the data sets among an attack's arguments."""
    return [images for images in (*args, *options.values()) if isinstance(images, Images)]


@contextmanager
def refused_inputs_named(model: nn.Module, data: Sequence[Images]) -> Iterator[None]:
    """Raise `ValueError` instead of PyTorch's error if the model does not run on one of these data sets."""
    try:
        yield
    except RuntimeError as error:
        for images in data:
            if run(model, images.x[:1]) is None:
                reason = str(error).strip().split("\n")[0]
                kind = f"inputs of shape {tuple(images.x.shape[1:])} on {images.x.device}"
                raise ValueError(f"the model does not run on the auxiliary data, {kind}: {reason}") from error
        raise


def given_seed(options: Mapping[str, Any]) -> int:
    """Return an attack's option ``seed``, the first of several, by default 0; `ValueError` for what is no seed."""
    seed = options.get("seed", 0)
    several = isinstance(seed, list | tuple | range)
    seeds = [whole_number("seed", one, *SEEDS) for one in (seed if several else [seed])]
    return seeds[0] if seeds else 0


def admit(update: Update, model: nn.Module) -> Update:
    """Return an update by the model's names, on its device, without the parameters that the client froze.

    A weight that several layers share has the first of its names. Raises `ValueError` for anything but an `Update`, and
    for an update that is zero everywhere.
    """
    if not isinstance(update, Update):
        raise ValueError(f"an attack reads a fedleak.Update, not a {type(update).__name__}")
    if is_zero(update.tensors):
        raise ValueError("the update is zero in every tensor: nothing was trained, so there is nothing to read")
    tensors = without_frozen(unwrapped(update.tensors, model), model)
    first_names = {id(p): name for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in tensors and (first_name := first_names[id(parameter)]) not in tensors:
            tensors[first_name] = tensors.pop(name)
    places = {name: parameter.device for name, parameter in model.named_parameters()}
    tensors = {name: tensor.to(places.get(name, tensor.device)) for name, tensor in tensors.items()}
    is_same = tensors.keys() == update.tensors.keys() and all(t is update.tensors[name] for name, t in tensors.items())
    return update if is_same else update.replace(tensors)


def enter(
    model: Any,
    make: Callable[[Any], Prepared],
    *,
    checks: bool = True,
    seed: int = 0,
    args: Iterable[Any] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Prepared:
    """Prepare an attack behind the door.

    Parameters
    ----------
    model
        The caller's model, or a list of models for a server that sends them.
    make
        ``make(model)`` prepares the attack for the model inside of its wrappers; for a list, for the list of these.
    checks
        Whether updates are checked for contradictions.
    seed
        Seed of random numbers that a model draws.
    args, options
        The attack's arguments. They may show the shape of one input (`given_shape`); if they have auxiliary data on
        which the model does not run, that is a `ValueError`.
    """
    is_list = isinstance(model, list | tuple) and len(model) > 0
    for one in model if is_list else [model]:
        if not isinstance(one, nn.Module):
            kind = one.__name__ if isinstance(one, type) else type(one).__name__
            raise ValueError(
                f"an attack's model is the nn.Module before the round, not a {kind}: build it, load its state"
            )
    if is_list and checks:
        raise ValueError(f"this attack reads updates of one model, not of {len(model)}: call it for each")
    models = [inner_model(m) for m in (model if is_list else [model])]
    first, dropout = models[0], nn.modules.dropout._DropoutNd
    active = [n for n, m in first.named_modules() if isinstance(m, dropout) and m.training and m.p > 0 and is_list]
    embeddings = f"dropout is active ({', '.join(active)}): the clients' embeddings are random, not preset"
    of_presets = Examination((embeddings,) if active else ())
    if not is_list and any(p.dtype in _HALVES for p in first.parameters()):
        models = [copy.deepcopy(first).float()]
    if not is_list:
        find_head(models[0], given_shape(args, options))
    data = given_images(args, options)
    with quiet(*models, seed=seed), refused_inputs_named(models[0], data):
        prepared = make(models if is_list else models[0])

    @wraps(prepared.read)
    def read(updates: Any, **of_the_update: Any) -> Any:
        given_seed(of_the_update)
        many = isinstance(updates, list | tuple)
        admitted = [admit(update, first) for update in updates] if many else admit(updates, first)
        with quiet(*models, seed=seed), refused_inputs_named(models[0], data):
            return prepared.read(admitted, **of_the_update)

    check = partial(examine, model=first) if checks else lambda update, scheme=None: of_presets
    return replace(prepared, read=read, check=check)


def entering(prepare: Prepare, *, checks: bool = True) -> Prepare:
    """Decorate an attack's ``prepare(model, ...)``: it gets its model, and each update, through the door."""

    @wraps(prepare)
    def prepare_behind(model: Any, *args: Any, **kwargs: Any) -> Any:
        given_seed(kwargs)  # the attack draws from it
        return enter(model, lambda inner: prepare(inner, *args, **kwargs), checks=checks, args=args, options=kwargs)

    return cast(Prepare, prepare_behind)
