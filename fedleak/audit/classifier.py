"""The classifier of an audit, and labelled samples of its inputs' shape."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedleak import models
from fedleak.audit.setup import Setup
from fedleak.data import Images
from fedleak.data.embedded import synthetic
from fedleak.data.images import refuse_negative
from fedleak.models.heads import Head, adds_up, same_logits
from fedleak.models.inputs import dummy_inputs, forward, run, watched
from fedleak.models.wrappers import inner_model


class Classifier(NamedTuple):
    """A model whose outputs are those of a linear layer, and what every part of an audit asks of it."""

    model: nn.Module
    head: Head
    trained: frozenset[str]
    """Names of the parameters that are trained; others are constants."""
    tokens: int
    """Number of tokens that the model knows; 0 for other inputs."""
    shape: tuple[int, ...] = ()
    """Shape of one input; empty if it is not known."""

    @classmethod
    def of(cls, model: nn.Module, shape: tuple[int, ...] = ()) -> "Classifier":
        """Examine a model."""
        trained = frozenset(name for name, p in model.named_parameters() if p.requires_grad)
        return cls(model, models.head(model), trained, models.known_tokens(model), shape)

    @property
    def n_classes(self) -> int:
        """Number of outputs."""
        return self.head.layer.out_features

    def with_state(self, state: Mapping[str, Tensor]) -> "Classifier":
        """Return a copy with these entries of its state; raise `RuntimeError` for entries of another model."""
        model = copy.deepcopy(self.model)
        expected = model.state_dict()
        # Clients turn counters of shape () into arrays of one element.
        single = {n for n, t in state.items() if n in expected and t.numel() == expected[n].numel() == 1}
        shaped = {n: t.reshape(expected[n].shape) if n in single else t for n, t in state.items()}
        is_part = shaped.keys() <= expected.keys() and not shaped.keys().isdisjoint(dict(model.named_parameters()))
        model.load_state_dict({**expected, **shaped} if is_part else shaped)
        return self._replace(model=model, head=models.head(model))


def make_classifier(setup: Setup) -> tuple[Classifier, "Samples", Tensor]:
    """Copy a set-up's model, and return it with samples of its inputs and its outputs for two of them ``[2, n]``.

    Raises `ValueError` for a model that is no classifier with a linear head, or data that do not fit it.
    """
    model = _copy_model(setup)
    x = setup.data.x if isinstance(setup.data, Images) else None if setup.data is None else setup.data[0]
    _refuse_other_outputs(model, setup, x)
    if x is not None:
        model.example_inputs = x[torch.linspace(0, len(x) - 1, 8).long()]
    shape = tuple(setup.shape or (models.input_shape(model) if x is None else x.shape[1:]))
    model.input_shape = shape  # type: ignore[assignment]
    classifier = Classifier.of(model, shape)
    if classifier.n_classes < 2:
        raise ValueError("a classifier has at least two outputs; one with a sigmoid is not covered")
    pool = _samples(setup.data, classifier, setup.seed)
    # The largest entries: a token that the model does not know is among them.
    largest = pool.x[pool.x.flatten(1).amax(1).topk(min(setup.batch_size, len(pool), 2)).indices]
    logits = _check(classifier, largest)
    _arrange_channels(model, models.as_inputs(largest, model))
    return classifier, pool, logits


def _copy_model(setup: Setup) -> nn.Module:
    original = setup.model
    if not isinstance(original, nn.Module):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(setup.seed)
            original = original()
        if not isinstance(original, nn.Module):
            raise ValueError(f"the function that makes the model gives a {type(original).__name__}, not an nn.Module")
    try:
        model = inner_model(copy.deepcopy(original).cpu())
    except RuntimeError as error:  # a module that keeps a computed tensor, such as torch.nn.utils.weight_norm's
        raise ValueError(
            f"the model cannot be copied ({str(error).split('. ')[0]}): keep no computed tensors as attributes, and "
            "use torch.nn.utils.parametrizations.weight_norm instead of torch.nn.utils.weight_norm"
        ) from error
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("the model has no parameter that is trained: all are frozen, or there is none")
    return model


def _refuse_other_outputs(model: nn.Module, setup: Setup, data: Tensor | None) -> None:
    """Refuse a model that does not return one tensor of logits ``[N, n]``, and say what to audit instead."""
    inputs = dummy_inputs(model, None if setup.shape is None else tuple(setup.shape))
    if data is not None:
        inputs = iter([models.as_inputs(data[:2], model)])
    outputs = next((y for x in inputs if (y := run(model, x)) is not None), None)
    if isinstance(outputs, Tensor) and outputs.dim() != 2:
        what, advice = f"tensor {list(outputs.shape)}", "one label per sample is covered, not one per token or pixel"
    elif outputs is not None and not isinstance(outputs, Tensor):
        what = type(outputs).__name__
        key = ".logits`" if hasattr(outputs, "logits") else "[key]`, with the key of the logits"
        advice = f"wrap it in a module whose forward returns the logits of one head: `self.model(x){key}"
    else:
        return
    raise ValueError(f"a classifier gives one tensor of logits [N, n], this model a {what}: {advice}")


def _arrange_channels(model: nn.Module, x: Tensor) -> None:
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
def _check(classifier: Classifier, x: Tensor) -> Tensor:
    """Return a model's outputs; refuse one that does not take inputs ``[N, ...]``, or whose head is not linear."""
    model, last = classifier.model, classifier.head
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


SYNTHETIC, PER_CLASS, FEWEST_PER_CLASS = 2000, 40, 2
"""Synthetic samples, or this many per class if that is more; the fewest per class, one for clients and adversary each,
if memory does not suffice."""
FAVOURED_BYTES, MAX_BYTES = 2**30, 2**32
"""Memory that synthetic samples take at most if there are more than the fewest, and at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Images):
    """Labelled samples ``[N, ...]`` of any shape and range, or tokens ``[N, L]``: `Images` without rules for pixels."""

    def __post_init__(self) -> None:
        if self.x.dim() < 2 or len(self.x) != len(self.y) or self.y.dim() != 1 or len(self.y) == 0:
            raise ValueError(f"data are x [N, ...] and y [N], got {list(self.x.shape)} and {list(self.y.shape)}")
        tokens = self.x.dtype == torch.int64 and self.x.dim() == 2
        if not (tokens or self.x.is_floating_point()) or self.y.is_floating_point():
            raise ValueError(
                "data are x of floats, or of tokens (int64 [N, L]), and y of whole numbers, "
                f"got {self.x.dtype} {list(self.x.shape)} and {self.y.dtype}"
            )
        if tokens:
            refuse_negative(self.x, "data")
        if not all(end.isfinite() for end in self.x.aminmax()):  # without a second tensor of their size
            raise ValueError("the data's x hold NaN or infinite entries")
        if self.y.min() < 0 or self.y.max() >= self.n_classes:
            raise ValueError(
                f"the data's labels are {int(self.y.min())} to {int(self.y.max())}, but the model has the classes "
                f"0 to {self.n_classes - 1}"
            )


def _samples(data: Images | tuple[Tensor, Tensor] | None, classifier: Classifier, seed: int) -> Samples:
    """Return the data as `Samples` of the model's classes, on the CPU; where there are none, images or random texts."""
    shape, n_classes, tokens = classifier.shape, classifier.n_classes, classifier.tokens
    names = tuple(f"class {c}" for c in range(n_classes))
    about: tuple[Any, ...] = ()
    if isinstance(data, Images):
        x, y, names = data.x, data.y, (data.classes + names[data.n_classes :])[:n_classes]
        about = (data.name, data.split, data.subset, data.source, data.licence)
    elif data is not None:
        x, y = data
    else:
        about = ("synthetic", "train", False, "made by fedleak", "none")
        count = synthetic_count(shape, n_classes, 8 if tokens else 4)
        if tokens:
            x = torch.randint(tokens, (count, *shape), generator=torch.Generator().manual_seed(seed))
            y = torch.arange(count) % n_classes
        else:
            picture = (*[1] * (3 - len(shape)), *shape) if len(shape) <= 3 else (1, 1, math.prod(shape))
            x, y, names = synthetic("train", picture, n_classes, count, seed)  # type: ignore[arg-type]
            x = x.view(count, *shape)
    labelled = Samples(
        x.detach().cpu(), y.detach().cpu() if y.is_floating_point() else y.detach().cpu().long(), names, *about
    )
    if labelled.shape != shape:
        raise ValueError(f"the data are of shape {labelled.shape}, the model's inputs of shape {shape}")
    return labelled


def synthetic_count(shape: tuple[int, ...], n_classes: int, bytes_per_entry: int) -> int:
    """Return the number of synthetic samples; raise `ValueError` if the fewest take more memory than `MAX_BYTES`."""
    size, fewest = math.prod(shape) * bytes_per_entry, FEWEST_PER_CLASS * n_classes
    if fewest * size > MAX_BYTES:
        raise ValueError(
            f"synthetic samples of {n_classes:,} classes and of shape {tuple(shape)} would take "
            f"{fewest * size / 2**30:,.1f} GiB, more than {MAX_BYTES / 2**30:g}: pass data, or smaller inputs by shape"
        )
    return min(max(SYNTHETIC, PER_CLASS * n_classes), max(FAVOURED_BYTES // size, fewest))


def divide(pool: Samples, per_class: int, seed: int) -> tuple[Samples, Samples]:
    """Divide into the clients' half and the adversary's, with at most `per_class` samples per class."""
    if len(pool) < 2:
        raise ValueError("one sample cannot be divided between clients and adversary: give more data")
    clients, others = pool.split_indices(seed)
    shuffled = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))]
    labels = pool.y[shuffled]
    chosen = [shuffled[labels == c][:per_class] for c in range(pool.n_classes)]
    return pool.take(clients), pool.take(torch.cat(chosen))
