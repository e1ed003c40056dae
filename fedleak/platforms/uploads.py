"""Functions that the readers of several platforms' uploads share."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedleak.federated.update import is_statistic

PREFIXES = ("_module.", "module.")
"""Prefixes of all names of a client's model that Opacus or declearn has wrapped."""


def plain_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without the prefix that a wrapper has added to all of its names."""
    for prefix in PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            return {name.removeprefix(prefix): value for name, value in state.items()}
    return dict(state)


def parameter_changes(state: Mapping[str, Any], factor: float = 1.0) -> dict[str, Tensor]:
    """Return the parameters in an uploaded change of the weights, times `factor`, without statistics and counters.

    Raises `ValueError` for anything but arrays or tensors by name.
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise ValueError(f"an upload maps names to arrays, not a {type(state).__name__}")
    changes = {}
    for name, value in plain_names(state).items():
        if not hasattr(value, "dtype"):
            raise ValueError(f"the upload's {name!r} is a {type(value).__name__}, not an array or a tensor")
        tensor = torch.as_tensor(value).detach()
        if tensor.is_floating_point() and not is_statistic(name):
            changes[name] = tensor * factor
    if not changes:
        raise ValueError("the upload holds no parameter: is it encrypted or masked by secure aggregation?")
    return changes


def positive_weight(weight: Any) -> float:
    """Return the weight by which a client has multiplied its update; raise `ValueError` if it is not positive."""
    try:
        number = float(weight)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f"the weight of an upload is a positive number, got {weight!r}")
    return number
