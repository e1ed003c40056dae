"""Privacy claims of Flower's mods and strategies, and the part that the messages confirm."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import RecordDict
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from fedleak.federated.privacy import DELTA, Privacy

LOCAL, CENTRAL = "LocalDpMod", "DifferentialPrivacy"
COUNTS = ("num-examples", "num_examples")
"""Names of the metric that holds a client's number of samples, in Flower's two interfaces."""


def of_mod(mod: Any) -> Privacy:
    """Return what Flower's `LocalDpMod` claims: its noise follows the sensitivity given, whatever it clips to.

    Two updates clipped to a norm C lie up to 2 C apart.
    """
    delta = mod.delta or DELTA
    history: tuple[tuple[float, float, int], ...] = ()
    if mod.epsilon > 0 and mod.delta > 0:
        deviation = mod.sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / mod.epsilon
        history = ((deviation / (2 * mod.clipping_norm), 1.0, 1),)
    return Privacy(neighbours="client", history=history, delta=delta, stated=mod.epsilon, by=LOCAL)


def of_strategy(strategy: Any, weights: Sequence[float]) -> Privacy | None:
    """Return what a ``DifferentialPrivacy…`` strategy claims of one round; None of another strategy.

    All of them add the noise after aggregation, those with clipping in the clients too. Its deviation is that for a
    plain mean over ``num_sampled_clients``; in a weighted mean, or with fewer replies, one client moves more.

    Parameters
    ----------
    strategy
        One of Flower's, of either interface.
    weights
        The weight of each client that replied.
    """
    kind = next((base.__name__ for base in type(strategy).__mro__ if base.__name__.startswith(CENTRAL)), None)
    noise, inner = getattr(strategy, "noise_multiplier", None), getattr(strategy, "strategy", None)
    if kind is None or noise is None:
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
    new, legacy = (getattr(type(strategy), name, None) for name in ("aggregate_train", "aggregate_fit"))
    return new is FedAvg.aggregate_train or legacy is LegacyFedAvg.aggregate_fit


def checked(claim: Privacy, strategy: Any, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Privacy:
    """Return a strategy's claim with what a client's states show: tensors without clipping, a norm above the bound."""
    clipped = True
    if "ClientSide" in claim.by:
        squares = [(t.double() - before[name].double()).square().sum() for name, t in after.items() if t.dim()]
        clipped = bool(torch.stack(squares).sum().sqrt() <= strategy.clipping_norm * 1.001) if squares else True
    return replace(claim, clipped=clipped, unprotected=tuple(scalars(after)))


def scalars(state: Mapping[str, Tensor]) -> Iterator[str]:
    """Name the tensors of shape ``()``: Flower's clipping, and `LocalDpMod`'s noise, work in place and miss them."""
    return (name for name, tensor in state.items() if not tensor.dim())


def weighting_key(strategy: Any) -> str:
    """Return the metric by which a strategy, or the one that it wraps, weights its clients."""
    while not hasattr(strategy, "weighted_by_key") and hasattr(strategy, "strategy"):
        strategy = strategy.strategy
    return str(getattr(strategy, "weighted_by_key", COUNTS[0]))


def metric(content: RecordDict, *names: str) -> Any:
    """Return the first of these metrics that a reply has; None without."""
    values = (record[name] for name in names for record in content.metric_records.values() if name in record)
    return next(values, None)


def examples_of(content: RecordDict, named: int | str | None, key: str = COUNTS[0]) -> int:
    """Return the number of samples that a client says it has, 0 if it does not say.

    Raises `ValueError` if the metric is no number of samples.

    Parameters
    ----------
    content
        Content of the client's reply.
    named
        The number, or the name of the metric that holds it; None: see `COUNTS`, then `key`.
    key
        The metric by which the strategy weights.
    """
    if isinstance(named, int):
        return named
    names = (named,) if named else (*COUNTS, key)
    value = metric(content, *names)
    if value is None:
        return 0
    if not isinstance(value, int | float) or not (value >= 0 and float(value).is_integer()):
        raise ValueError(f"the metric {names[-1]!r}, {value}, is no number of samples: pass examples=..., its name")
    return int(value)
