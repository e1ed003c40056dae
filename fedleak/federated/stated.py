"""Compare what a recorder is told with what it measured: stated facts, and the state that leaves the client."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

MEASURED_BY = {name: "labels" for name in ("samples", "batch_size", "counts")} | {"loss": "loss", "factor": "loss"}
"""The verified fact that a stated field contradicts, if it is not the step."""


def compare_stated(measured: dict[str, Any], stated: Mapping[str, Any]) -> None:
    """Turn every stated fact that differs from the measured one into a doubt; what it contradicts is not verified.

    Raises `ValueError` for the fields that a measurement alone can fill.
    """
    if reserved := {"verified", "doubts"} & stated.keys():
        raise ValueError(f"{min(reserved)} is measured and cannot be stated")
    for name, value in stated.items():
        measurement = measured.get(name)
        if isinstance(value, int | float) and isinstance(measurement, int | float):
            is_equal = math.isclose(value, measurement, rel_tol=1e-3)
        else:
            is_equal = measurement is None or value == measurement
        if is_equal:
            continue
        contradicted = MEASURED_BY.get(name, "step")
        measured["verified"] = [fact for fact in measured["verified"] if fact != contradicted]
        measured["doubts"] = [*measured["doubts"], f"{name} was stated as {value} and measured as {measurement}"]


def require_names(sent: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> None:
    """Raise `ValueError` if a sent state has names that the trained model lacks, or not all of its real tensors."""
    unknown = sorted(sent.keys() - trained.keys())
    missing = sorted(name for name, tensor in trained.items() if tensor.is_floating_point() and name not in sent)
    if unknown or missing:
        raise ValueError(
            "sent() has to return a state with all of the model's names and no others; "
            + (f"{unknown[0]!r} is no name of the model" if unknown else f"{missing[0]!r} is missing")
        )


def parameters_differ(
    before: Mapping[str, Tensor], parameters: Mapping[str, Tensor], sent: Mapping[str, Tensor]
) -> bool:
    """Return whether any sent parameter differs from the trained one by more than a thousandth of its change.

    Each parameter is compared by itself, so that neither a large one nor a buffer hides another. A parameter that
    hardly changed may differ by a millionth of the change of all, and each by the rounding of its own numbers.
    """
    trained = {name: p.detach() for name, p in parameters.items()}
    changes = {name: (p - before[name]).norm().item() for name, p in trained.items()}
    least = 1e-3 * math.hypot(*changes.values())
    for name, p in trained.items():
        allowed = 1e-3 * max(changes[name], least) + 4 * torch.finfo(p.dtype).eps * p.norm().item()
        if not (sent[name].to(p) - p).norm().item() <= allowed:  # also for NaN
            return True
    return False
