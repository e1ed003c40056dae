"""What Flower's mods and strategies for differential privacy claim; see `fedleak.federated.privacy`."""

import math
from typing import Any

from flwr.clientapp.mod import LocalDpMod

from fedleak.federated.privacy import DELTA, Privacy


def of_mod(mod: LocalDpMod) -> Privacy:
    """Return what Flower's mod claims: it adds noise by the sensitivity that it is told, whatever norm it clips to.

    Two updates clipped to a norm C lie up to 2 C apart.
    """
    delta = mod.delta or DELTA
    history: tuple[tuple[float, float, int], ...] = ()
    if mod.epsilon > 0 and mod.delta > 0:
        deviation = mod.sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / mod.epsilon
        history = ((deviation / (2 * mod.clipping_norm), 1.0, 1),)
    return Privacy(neighbours="client", history=history, delta=delta, stated=mod.epsilon, by="LocalDpMod")


def of_strategy(strategy: Any) -> Privacy | None:
    """Return what one of Flower's ``DifferentialPrivacy…`` strategies claims; None of another.

    All of them add the noise after aggregation, those with clipping in the clients too.
    """
    name = type(strategy).__name__
    if not name.startswith("DifferentialPrivacy"):
        return None
    config = getattr(getattr(strategy, "accountant", None), "config", None)
    delta = getattr(config, "target_delta", DELTA)
    history = ((float(strategy.noise_multiplier), 1.0, 1),)
    return Privacy(neighbours="client added", history=history, delta=delta, aggregated=True, by=name)
