"""Read the privacy of Opacus' steps, as far as a recorder of a training loop can verify it."""

import inspect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedleak.privacy.claim import Privacy

MIN_POISSON_PROBABILITY = 1e-6
"""Smallest probability of the batches' sizes under Poisson sampling at which they count as drawn by it."""


def read_opacus_privacy(
    steps: Sequence[tuple[float, float]],
    sizes: Sequence[int],
    model: nn.Module,
    optimiser: Any,
    before: Mapping[str, Tensor],
) -> Privacy:
    """Return the privacy of Opacus' steps.

    Sampling counts as Poisson's only if Opacus' engine was configured for it and the batches' sizes are plausible. If
    the engine leaves no trace in the model (``grad_sample_mode="ew"``), shuffled epochs must not have such sizes.

    Parameters
    ----------
    steps
        Noise multiplier and sampling rate of each step, as `read_step_noise` returns them.
    sizes
        Number of samples per step; ignored unless there is one for each step.
    model
        The model that Opacus has wrapped; its hooks show whether the engine samples.
    optimiser
        Opacus' ``DPOptimizer``, which adds noise to its own parameters alone.
    before
        The state of the model (without Opacus' wrapper) before the steps.
    """
    history = tuple((noise, rate, count) for (noise, rate), count in Counter(steps).items())
    requested = _requests_poisson(model)
    if len(sizes) != len(steps):
        poisson = bool(requested)
    elif requested is None:
        poisson = not _may_be_shuffled(sizes, [rate for _, rate in steps])
    else:
        poisson = requested and _bound_chance_of_shuffled(sizes, [rate for _, rate in steps]) > MIN_POISSON_PROBABILITY
    ids_with_noise = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    after = getattr(model, "_module", model).state_dict(keep_vars=True)
    noiseless = [name for name, t in after.items() if id(t) not in ids_with_noise and not torch.equal(t, before[name])]
    return Privacy(neighbours="sample", history=history, poisson=poisson, by="Opacus", unprotected=tuple(noiseless))


def _requests_poisson(model: nn.Module) -> bool | None:
    """Return whether Opacus' engine samples: with Poisson sampling its hooks forbid the accumulation of gradients."""
    inner = getattr(model, "_module", model)
    hooks = [hook for module in inner.modules() for hook in module._forward_hooks.values()]
    allowed = [getattr(getattr(hook, "__self__", None), "grad_accumulation_allowed", None) for hook in hooks]
    return None if set(allowed) <= {None} else False in allowed


def _may_be_shuffled(sizes: Sequence[int], rates: Sequence[float]) -> bool:
    """Return whether sizes may be those of shuffled epochs: equal, except for one smaller batch per epoch."""
    smaller = [size for size in sizes if size != max(sizes)]
    return len(set(smaller)) <= 1 and len(smaller) <= math.ceil(sum(rates) - 1e-9)


def _bound_chance_of_shuffled(sizes: Sequence[int], rates: Sequence[float]) -> float:
    """Bound the probability that Poisson sampling gives as many equal sizes, if `_may_be_shuffled` allows them."""
    if not _may_be_shuffled(sizes, rates):
        return 1.0
    from scipy import stats  # which takes a second to import

    mean = sum(sizes) / len(sizes)
    chances = stats.poisson.pmf(np.arange(int(mean + 20 * math.sqrt(mean) + 20)), mean)
    chances /= math.sqrt(1 - max(rates) + 1e-9)  # a binomial distribution is narrower
    chances[1] += chances[0]  # Opacus can replace an empty batch by a random sample
    equal = sum(size == max(sizes) for size in sizes)
    return math.comb(len(sizes), equal) * float((chances.clip(max=1.0) ** equal).sum())


def read_step_noise(optimiser: Any, hook: Any) -> tuple[float, float]:
    """Return noise multiplier and sampling rate of a step of Opacus' optimiser; the accountant's hook has the rate.

    Without an accountant the rate is 1, which claims no amplification.
    """
    closure = inspect.getclosurevars(hook).nonlocals if inspect.isfunction(hook) else {}
    rate = float(closure.get("sample_rate", 1.0)) * optimiser.accumulated_iterations
    return float(optimiser.noise_multiplier), min(rate, 1.0)
