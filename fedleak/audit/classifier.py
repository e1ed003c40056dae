"""The model of a set-up: copied, and checked to be a classifier with a linear head."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fedleak import models
from fedleak.audit.setup import Setup
from fedleak.data import Images
from fedleak.models.heads import adds_up, same_logits
from fedleak.models.inputs import dummy_inputs, forward, run, watched


def copy_model(setup: Setup) -> nn.Module:
    """Copy or make the model; frozen parameters become constants, which are neither trained nor shared."""
    original = setup.model
    if not isinstance(original, nn.Module):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(setup.seed)
            original = original()
        if not isinstance(original, nn.Module):
            raise ValueError(f"the function that makes the model gives a {type(original).__name__}, not an nn.Module")
    try:
        model = copy.deepcopy(original).cpu()
    except RuntimeError as error:  # a module that keeps a computed tensor, such as torch.nn.utils.weight_norm's
        raise ValueError(
            f"the model cannot be copied ({str(error).split('. ')[0]}): keep no computed tensors as attributes, and "
            "use torch.nn.utils.parametrizations.weight_norm instead of torch.nn.utils.weight_norm"
        ) from error
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and not parameter.requires_grad:
                del module._parameters[name]
                module.register_buffer(name, parameter.detach())
    if not list(model.parameters()):
        raise ValueError("the model has no parameter that is trained: all are frozen, or there is none")
    return model


def refuse_other_outputs(model: nn.Module, setup: Setup) -> None:
    """Refuse a model that does not return one tensor of logits ``[N, n]``, and say what to audit instead."""
    data = setup.data
    inputs = dummy_inputs(model, None if setup.shape is None else tuple(setup.shape))
    if data is not None:
        inputs = iter([models.as_inputs((data.x if isinstance(data, Images) else data[0])[:2], model)])
    x, outputs = next(((x, y) for x in inputs if (y := run(model, x)) is not None), (None, None))
    if isinstance(outputs, Tensor) and outputs.dim() != 2:
        what, advice = f"tensor {list(outputs.shape)}", "one label per sample is covered, not one per token or pixel"
    elif outputs is not None and not isinstance(outputs, Tensor):
        key = ".logits" if hasattr(outputs, "logits") else _key_of_logits(model, x, outputs)
        what = type(outputs).__name__
        advice = f"wrap it in a module whose forward returns the logits of one head, say `self.model(x){key}`"
    else:
        return
    raise ValueError(f"a classifier gives one tensor of logits [N, n], this model a {what}: {advice}")


def _key_of_logits(model: nn.Module, x: Any, outputs: Any) -> str:
    """Return the subscript of the outputs that the last linear layer made; the first one's if none are."""
    if not isinstance(outputs, tuple | list | dict):
        return "[0]"
    made: list[Tensor] = []
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    with watched(linears, lambda _, __, y: made.append(y)):
        entries = run(model, x)
    entries = dict(entries if isinstance(entries, dict) else enumerate(entries))
    tensors = {key: value for key, value in entries.items() if isinstance(value, Tensor)}
    matching = [key for y in reversed(made) for key, value in tensors.items() if same_logits(y, value)]
    return f"[{next(iter([*matching, *entries]))!r}]"


def arrange_channels(model: nn.Module, x: Tensor) -> None:
    """Store the weights of convolutions channels last, which is faster on processors, if the model runs with them.

    It does not if its forward needs contiguous activations (``view``); then nothing changes.
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions or run(model, x) is None:
        return
    for memory_format in (torch.channels_last, torch.contiguous_format):
        for layer in convolutions:
            layer.weight.data = layer.weight.data.contiguous(memory_format=memory_format)
        if run(model, x) is not None:
            return


@torch.no_grad()
def check(model: nn.Module, x: Tensor) -> Tensor:
    """Return a model's outputs; refuse one that does not take inputs ``[N, ...]``, or whose head is not linear."""
    last = models.head(model)
    outputs: list[Tensor] = []
    try:
        with torch.random.fork_rng(devices=[]), watched({"head": last.layer}, lambda _, __, y: outputs.append(y)):
            logits = forward(model, models.as_inputs(x, model))
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"the model does not take {len(x)} inputs of {x.dtype} {tuple(x.shape[1:])} in "
            f"{'training' if model.training else 'evaluation'} mode: {reason}"
        ) from error
    same = len(outputs) == 1 and same_logits(outputs[0], logits)
    if not same and not adds_up(model, last.layer, models.as_inputs(x, model)):
        correct = ", or set model.head_name to the layer that makes them" if hasattr(model, "head_name") else ""
        raise ValueError(
            "the last layer has to be linear: the model's outputs are not those of "
            f"{last.name or 'the model itself'!r}. Return logits, without a softmax{correct}"
        )
    return logits
