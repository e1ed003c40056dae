"""The ε of several rounds: the recorded rounds of each client, composed by one accountant."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedleak.federated.privacy import NEIGHBOURS, Privacy, accounted

if TYPE_CHECKING:
    from fedleak.federated.recording import Contribution


class Spent(NamedTuple):
    """The differential privacy of one client over all of its recorded rounds."""

    node: str
    rounds: tuple[int, ...]
    """The rounds in which the client took part; all others are independent of its data."""
    neighbours: str
    """A key of `NEIGHBOURS`."""
    claimed: float
    """ε by the claims of the rounds; infinity if one of them has no claim, or none that is finite."""
    epsilon: float
    """ε that follows for whoever sees the updates; the sum of the stated ε for mechanisms without an accountant."""
    delta: float
    """At which both hold."""
    aggregated: bool
    """Whether the claims are of the published model."""

    def text(self) -> str:
        """Write the client, its rounds, and ε."""

        def write(epsilon: float) -> str:
            return "no finite ε" if math.isinf(epsilon) else f"ε = {epsilon:.3g}"

        rounds = f"round {self.rounds[0]}" if len(self.rounds) == 1 else f"{len(self.rounds)} rounds"
        claimed = f"{self.node}, {rounds}: {write(self.claimed)} at δ = {self.delta:g}"
        claimed += f" ({NEIGHBOURS[self.neighbours]})"
        if self.aggregated:
            return f"{claimed}, of the published models; for whoever sees the updates {write(self.epsilon)}"
        differs = self.epsilon > 1.001 * self.claimed + 0.011
        return f"{claimed}; {write(self.epsilon)} follows" if differs else claimed


def spent(run: Sequence["Contribution"]) -> list[Spent]:
    """Return the ε of every client over its recorded rounds, the largest first; nothing of clients without a claim."""
    clients: dict[str, list[Contribution]] = {}
    for part in run:
        clients.setdefault(part.node, []).append(part)
    spendings = []
    for node, parts in clients.items():
        for neighbours in dict.fromkeys(part.privacy.neighbours for part in parts if part.privacy is not None):
            claims = [part.privacy for part in parts if part.privacy and part.privacy.neighbours == neighbours]
            total = compose(claims)
            if len(claims) < len(parts):  # a round without a claim protects nothing
                total = total._replace(claimed=math.inf, epsilon=math.inf)
            spendings.append(Spent(node, tuple(part.round for part in parts), neighbours, *total))
    return sorted(spendings, key=lambda s: (-s.epsilon, -s.claimed, -len(s.rounds), s.node))


class Total(NamedTuple):
    """The last four fields of `Spent`."""

    claimed: float
    epsilon: float
    delta: float
    aggregated: bool


def compose(claims: Sequence[Privacy]) -> Total:
    """Compose claims on the same data: Gaussian mechanisms by one accountant, and stated ε by adding.

    Parameters
    ----------
    claims
        Claims for the same neighbours, at least one.
    """
    stated = [claim for claim in claims if claim.stated is not None]
    computed = [claim for claim in claims if claim.stated is None]
    unknown = [claim for claim in claims if not claim.history]
    accountable = [claim for claim in claims if claim.history]
    delta = sum(claim.delta for claim in stated) + max((claim.delta for claim in computed), default=0.0)
    claimed = sum(claim.claimed for claim in stated)
    claimed += _accounted(computed, delta - sum(claim.delta for claim in stated), followed=False)
    epsilon = sum(claim.claimed for claim in unknown)
    epsilon += _accounted(accountable, delta - sum(claim.delta for claim in unknown), followed=True)
    aggregated = any(claim.aggregated for claim in claims)
    if aggregated or not all(claim.clipped for claim in claims):
        epsilon = math.inf
    return Total(claimed, epsilon, delta, aggregated)


def _accounted(claims: Sequence[Privacy], delta: float, followed: bool) -> float:
    if not claims:
        return 0.0
    if not all(claim.clipped and claim.history for claim in claims):
        return math.inf
    steps: Counter[tuple[float, float]] = Counter()
    for claim in claims:
        for noise, rate, count in claim.mechanisms if followed else claim.history:
            steps[noise, rate] += count
    return accounted(tuple((noise, rate, count) for (noise, rate), count in sorted(steps.items())), delta)
