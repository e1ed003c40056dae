"""The privacy of Opacus' steps, as far as a recorder of a training loop can verify it."""

import inspect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from fedleak.federated.privacy import Privacy

UNLIKELY = 1e-6
"""Probability below which Poisson sampling is not taken to have drawn the batches."""


def of_opacus(
    steps: Sequence[tuple[float, float]],
    sizes: Sequence[int],
    model: nn.Module,
    optimiser: Any,
    before: Mapping[str, Tensor],
) -> Privacy:
    """Return the privacy of Opacus' steps.

    Sampling counts as Poisson's only if Opacus' engine was asked for it and the sizes of the batches allow it. Where
    the engine leaves no trace in the model (``grad_sample_mode="ew"``), no shuffled epochs may have such sizes.

    Parameters
    ----------
    steps
        Noise multiplier and sampling rate of each step, as `step_of` returns them.
    sizes
        Samples of each step; if they are not as many as the steps, they are not judged.
    model
        The model as wrapped by Opacus, whose hooks record whether the engine samples.
    optimiser
        Opacus' ``DPOptimizer``, which puts noise on its own parameters and on nothing else.
    before
        The state of the model (without Opacus' wrapper) before the steps.
    """
    history = tuple((noise, rate, count) for (noise, rate), count in Counter(steps).items())
    asked = _asked_for_poisson(model)
    if len(sizes) != len(steps):
        poisson = bool(asked)
    elif asked is None:
        poisson = not _shuffled(sizes, [rate for _, rate in steps])
    else:
        poisson = asked and _chance_of_shuffled(sizes, [rate for _, rate in steps]) > UNLIKELY
    noisy = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    after = getattr(model, "_module", model).state_dict(keep_vars=True)
    moved = [name for name, t in after.items() if id(t) not in noisy and not torch.equal(t, before[name])]
    return Privacy(neighbours="sample", history=history, poisson=poisson, by="Opacus", unprotected=tuple(moved))


def _asked_for_poisson(model: nn.Module) -> bool | None:
    """Return whether Opacus' engine samples: with Poisson sampling its hooks forbid to accumulate gradients."""
    inner = getattr(model, "_module", model)
    hooks = [hook for module in inner.modules() for hook in module._forward_hooks.values()]
    allowed = [getattr(getattr(hook, "__self__", None), "grad_accumulation_allowed", None) for hook in hooks]
    return None if set(allowed) <= {None} else False in allowed


def _shuffled(sizes: Sequence[int], rates: Sequence[float]) -> bool:
    """Return whether batches can be those of shuffled epochs: equal, but for one smaller size at most once an epoch."""
    smaller = [size for size in sizes if size != max(sizes)]
    return len(set(smaller)) <= 1 and len(smaller) <= math.ceil(sum(rates) - 1e-9)


def _chance_of_shuffled(sizes: Sequence[int], rates: Sequence[float]) -> float:
    """Bound the probability that Poisson sampling gives sizes which `_shuffled` allows, with as many that are equal."""
    if not _shuffled(sizes, rates):
        return 1.0
    mean = sum(sizes) / len(sizes)
    likely = stats.poisson.pmf(np.arange(int(mean + 20 * math.sqrt(mean) + 20)), mean)
    likely /= math.sqrt(1 - max(rates) + 1e-9)  # a binomial distribution is the narrower
    likely[1] += likely[0]  # Opacus can replace an empty batch by a random sample
    equal = sum(size == max(sizes) for size in sizes)
    return math.comb(len(sizes), equal) * float((likely.clip(max=1.0) ** equal).sum())


def step_of(optimiser: Any, hook: Any) -> tuple[float, float]:
    """Return noise multiplier and sampling rate of a step of Opacus' optimiser, whose accountant's hook tells the rate.

    Without an accountant the rate is 1, which claims nothing.
    """
    closure = inspect.getclosurevars(hook).nonlocals if inspect.isfunction(hook) else {}
    rate = float(closure.get("sample_rate", 1.0)) * optimiser.accumulated_iterations
    return float(optimiser.noise_multiplier), min(rate, 1.0)
