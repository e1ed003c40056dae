"""Compose the ε of each client's recorded rounds by one accountant."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedleak.privacy.claim import NEIGHBOURS, Privacy, account_epsilon


class Spent(NamedTuple):
    """The differential privacy of one client over all of its recorded rounds."""

    node: str
    rounds: tuple[int, ...]
    """Rounds in which the client participated; other rounds are independent of its data."""
    neighbours: str
    """A key of `NEIGHBOURS`."""
    claimed: float
    """ε by the claims of the rounds; infinity if one of them has no finite claim."""
    epsilon: float
    """ε against an observer of the updates; for mechanisms without an accountant the sum of the stated ε."""
    delta: float
    """δ of both ε."""
    aggregated: bool
    """Whether the claims are of the published model."""

    def text(self) -> str:
        """Return a description: the client, its rounds, and ε."""

        def write(epsilon: float) -> str:
            return "no finite ε" if math.isinf(epsilon) else f"ε = {epsilon:.3g}"

        rounds = f"round {self.rounds[0]}" if len(self.rounds) == 1 else f"{len(self.rounds)} rounds"
        claimed = f"{self.node}, {rounds}: {write(self.claimed)} at δ = {self.delta:g}"
        claimed += f" ({NEIGHBOURS[self.neighbours]})"
        if self.aggregated:
            return f"{claimed}, of the published models; for whoever sees the updates {write(self.epsilon)}"
        differs = self.epsilon > 1.001 * self.claimed + 0.011
        return f"{claimed}; {write(self.epsilon)} follows" if differs else claimed


def spent(run: Sequence[Any]) -> list[Spent]:
    """Compute the ε of each client with a claim over its recorded rounds, the largest first.

    Parameters
    ----------
    run
        Contributions, as `fedleak.recording.read` returns them.
    """
    clients: dict[str, list[Any]] = {}
    for part in run:
        clients.setdefault(part.node, []).append(part)
    spendings = []
    for node, parts in clients.items():
        for neighbours in dict.fromkeys(part.privacy.neighbours for part in parts if part.privacy is not None):
            claims = [part.privacy for part in parts if part.privacy and part.privacy.neighbours == neighbours]
            total = compose(claims, node, [part.round for part in parts])
            if len(claims) < len(parts):  # a round without a claim protects nothing
                total = total._replace(claimed=math.inf, epsilon=math.inf)
            spendings.append(total)
    return sorted(spendings, key=lambda s: (-s.epsilon, -s.claimed, -len(s.rounds), s.node))


def compose(claims: Sequence[Privacy], node: str = "", rounds: Sequence[int] = ()) -> Spent:
    """Compose claims on the same data: Gaussian mechanisms by one accountant, stated ε by addition.

    Parameters
    ----------
    claims
        Claims for the same neighbours, at least one.
    node, rounds
        The client, and its rounds.
    """
    stated = [claim for claim in claims if claim.stated is not None]
    computed = [claim for claim in claims if claim.stated is None]
    unknown = [claim for claim in claims if not claim.history]
    accountable = [claim for claim in claims if claim.history]
    delta = sum(claim.delta for claim in stated) + max((claim.delta for claim in computed), default=0.0)
    claimed = sum(claim.claimed for claim in stated)
    claimed += _accounted(computed, delta - sum(claim.delta for claim in stated), in_effect=False)
    epsilon = sum(claim.claimed for claim in unknown)
    epsilon += _accounted(accountable, delta - sum(claim.delta for claim in unknown), in_effect=True)
    aggregated = any(claim.aggregated for claim in claims)
    if aggregated or not all(claim.clipped for claim in claims):
        epsilon = math.inf
    return Spent(node, tuple(rounds), claims[0].neighbours, claimed, epsilon, delta, aggregated)


def _accounted(claims: Sequence[Privacy], delta: float, in_effect: bool) -> float:
    if not claims:
        return 0.0
    if not all(claim.clipped and claim.history for claim in claims):
        return math.inf
    steps: Counter[tuple[float, float]] = Counter()
    for claim in claims:
        for noise, rate, count in claim.mechanisms if in_effect else claim.history:
            steps[noise, rate] += count
    return account_epsilon(tuple((noise, rate, count) for (noise, rate), count in sorted(steps.items())), delta)
