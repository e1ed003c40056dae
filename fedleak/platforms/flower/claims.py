"""Read the privacy claims of Flower's mods and strategies, and check them with the messages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import RecordDict
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from fedleak.privacy.claim import DELTA, Privacy

LOCAL, CENTRAL = "LocalDpMod", "DifferentialPrivacy"
COUNTS = ("num-examples", "num_examples")
"""Names of the metric with a client's number of samples, in Flower's two interfaces."""


def read_mod_claim(mod: Any) -> Privacy:
    """Return the claim of Flower's `LocalDpMod`, whose noise depends on the stated sensitivity, not on the clipping.

    Two updates that are clipped to a norm C differ by up to 2 C.
    """
    delta = mod.delta or DELTA
    history: tuple[tuple[float, float, int], ...] = ()
    if mod.epsilon > 0 and mod.delta > 0:
        deviation = mod.sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / mod.epsilon
        history = ((deviation / (2 * mod.clipping_norm), 1.0, 1),)
    return Privacy(neighbours="client", history=history, delta=delta, stated=mod.epsilon, by=LOCAL)


def read_strategy_claim(strategy: Any, weights: Sequence[float]) -> Privacy | None:
    """Return the claim of a ``DifferentialPrivacy…`` strategy for one round; None for another strategy.

    All of them add the noise after aggregation, also those with clipping in the clients. Its deviation is for a plain
    mean over ``num_sampled_clients``; in a weighted mean, or with fewer replies, one client has more influence.

    Parameters
    ----------
    strategy
        A strategy of either of Flower's interfaces.
    weights
        Weight of each client that replied.
    """
    dp_class = next((base.__name__ for base in type(strategy).__mro__ if base.__name__.startswith(CENTRAL)), None)
    noise, inner = getattr(strategy, "noise_multiplier", None), getattr(strategy, "strategy", None)
    if dp_class is None or noise is None:
        return None
    by, total = type(strategy).__name__, sum(map(abs, weights))
    share = max(map(abs, weights)) / total if total > 0 else math.inf
    noise = noise / (strategy.num_sampled_clients * share)
    if not _is_mean(inner):
        noise, by = 0.0, f"{by} around {type(inner).__name__} (no weighted mean: nothing bounds a client's influence)"
    if noise and (count := getattr(strategy, "clipped_count_stddev", None)):
        # Andrew et al. 2021, Theorem 1: the strategy keeps the noise of the update alone, and the count leaks too.
        noise = (noise**-2 + (2 * count) ** -2) ** -0.5
    config = getattr(getattr(strategy, "accountant", None), "config", None)
    delta = getattr(config, "target_delta", DELTA)
    history = ((float(noise), 1.0, 1),)
    return Privacy(neighbours="client added", history=history, delta=delta, aggregated=True, by=by)


def _is_mean(strategy: Any) -> bool:
    modern, legacy = (getattr(type(strategy), name, None) for name in ("aggregate_train", "aggregate_fit"))
    return modern is FedAvg.aggregate_train or legacy is LegacyFedAvg.aggregate_fit


def check_claim(claim: Privacy, strategy: Any, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Privacy:
    """Return a strategy's claim, corrected by a client's states: tensors without clipping, a norm above the bound."""
    clipped = True
    if "ClientSide" in claim.by:
        squares = [(t.double() - before[name].double()).square().sum() for name, t in after.items() if t.dim()]
        clipped = bool(torch.stack(squares).sum().sqrt() <= strategy.clipping_norm * 1.001) if squares else True
    # Tensors of shape () are changed neither by Flower's clipping nor by the noise of `LocalDpMod`.
    return replace(claim, clipped=clipped, unprotected=tuple(name for name, t in after.items() if not t.dim()))


def weighting_key(strategy: Any) -> str:
    """Return the metric by which a strategy, or its wrapped strategy, weights its clients."""
    while not hasattr(strategy, "weighted_by_key") and hasattr(strategy, "strategy"):
        strategy = strategy.strategy
    return str(getattr(strategy, "weighted_by_key", COUNTS[0]))


def find_metric(content: RecordDict, *names: str) -> Any:
    """Return the first of these metrics in a reply, or None."""
    values = (record[name] for name in names for record in content.metric_records.values() if name in record)
    return next(values, None)


def count_examples(content: RecordDict, named: int | str | None, key: str = COUNTS[0]) -> int:
    """Return the number of samples that a client states, 0 if it does not state one.

    Raises `ValueError` if the metric is no number of samples.

    Parameters
    ----------
    content
        Content of the client's reply.
    named
        The number, or its metric's name; by default one of `COUNTS`, then `key`.
    key
        The metric by which the strategy weights.
    """
    if isinstance(named, int):
        return named
    names = (named,) if named else (*COUNTS, key)
    value = find_metric(content, *names)
    if value is None:
        return 0
    if not isinstance(value, int | float) or not (value >= 0 and float(value).is_integer()):
        raise ValueError(f"the metric {names[-1]!r}, {value}, is no number of samples: pass examples=..., its name")
    return int(value)
