"""The arena: predictions on tables of others, committed before the run, and what came of them.

Runs of seconds had been seen before they were written, on 5,000 digits and other networks: one or two networks of iLRG's
and of the first layer at B = 64, and two federations of three and two users.
"""

from collections.abc import Callable
from typing import NamedTuple

from fedleak_book.experiments import Number
from notebooks.arena import experiments_registered as e


class Prediction(NamedTuple):
    """A value, what is printed for it, the range that was predicted, and ours."""

    what: str
    printed: float | None
    low: float
    high: float
    ours: Callable[..., Number]

    @property
    def text(self):
        """In words."""
        of = "" if self.printed is None else f" (printed: {self.printed:.3f})"
        return f"{self.what}: {self.low:.2f} to {self.high:.2f}{of}."

    def measure(self, run):
        """Ours with its interval, and whether the mean is in the range."""
        ours = self.ours(run)
        value = f"{ours:.3f} [{ours.low:.3f}, {ours.high:.3f}]".replace("-", "−")
        return value, self.low <= ours <= self.high


def by_depth(hidden, printed, low, high):
    """iLRG's LnAcc at a depth."""
    cell = {"hidden": hidden, "attack": "iLRG"}
    return Prediction(
        f"iLRG, LnAcc, 784-300{'-300' * hidden}-10, B = 64",
        *(printed, low, high),
        lambda run: run.cell(e.DEPTH, "lnacc", **cell),
    )


def ceiling(data, batch_size, printed, low, high):
    """The samples that peeling can reach."""
    cell = {"data": data, "batch_size": batch_size, "inputs": "pixels", "bias": "none"}
    return Prediction(
        f"samples that peeling can reach, {data}, 1,000 neurons, B = {batch_size}",
        *(printed, low, high),
        lambda run: run.cell(e.EXCLUSIVE, "peeled", **cell),
    )


def lead(what, low, high, state, first, other):
    """Of one attack after so many rounds over another, in iAcc, paired by federation."""

    def ours(run):
        values = (
            run.by_trial(e.ROUNDS, state=state, attack=attack, rounds=rounds)
            for attack, rounds in (first, other)
        )
        return run.mean(next(values) - next(values))

    return Prediction(what, None, low, high, ours)


LAST, WHOLE = 5, "RLU, whole head"
PREDICTED = {
    "R1": by_depth(0, 0.328, 0.23, 0.43),
    "R2": by_depth(1, 0.598, 0.50, 0.70),
    "R3": by_depth(2, 0.768, 0.67, 0.87),
    "R4": by_depth(3, 1.000, 0.97, 1.00),
    "R5": by_depth(4, 0.996, 0.97, 1.00),
    "R6": ceiling("MNIST", 64, 0.484, 0.33, 0.63),
    "R7": ceiling("MNIST", 128, 0.017, 0.00, 0.05),
    "R8": ceiling("MNIST", 256, 0.002, 0.00, 0.02),
    "R9": ceiling("CIFAR-10", 64, 0.994, 0.97, 1.00),
    "R10": ceiling("CIFAR-10", 128, 0.666, 0.56, 0.77),
    "R11": ceiling("CIFAR-10", 256, 0.215, 0.11, 0.32),
    "R12": lead(
        "untrained, five rounds, lead of the whole head over after LDIA",
        *(0.10, 0.50, "untrained", (WHOLE, LAST), (e.LDIA, LAST)),
    ),
    "R13": lead(
        "trained, five rounds, lead of the learned attacker over after LDIA",
        *(-0.05, 0.05, "trained", ("learned", LAST), (e.LDIA, LAST)),
    ),
    "R14": lead(
        "trained, what five rounds give after LDIA over one",
        *(0.03, 0.15, "trained", (e.LDIA, LAST), (e.LDIA, 1)),
    ),
    "R15": lead(
        "trained, what five rounds give the learned attacker over one",
        *(0.00, 0.05, "trained", ("learned", LAST), ("learned", 1)),
    ),
}
