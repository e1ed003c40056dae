"""The findings of an audit: the outcome of every attempt, and leakage besides labels."""

import math
from typing import Any, Literal, NamedTuple

import pandas as pd
from torch import Tensor

from fedleak.attacks.contest import Attempt
from fedleak.federated.privacy import NEIGHBOURS, Privacy
from fedleak.metrics import class_accuracy, instance_accuracy

AS_IT_IS = "as it is"
PROVES_HARD_LABELS = ("iDLG",)
"""Attacks, also at another scale, whose proofs hold for a cross-entropy with hard labels alone; others compare with the
model's gradients."""


class ImageResult(NamedTuple):
    """The quality of one inversion of one update."""

    attack: str
    why: str = ""
    """Why there is no result, if there is none."""
    iterations: int = 0
    psnr: float = float("nan")
    """Mean peak signal-to-noise ratio in dB, of the reconstructions in the best order."""
    guess: float = float("nan")
    """The same, of as many other samples of the same data."""

    def text(self) -> str:
        """Return the result as a sentence."""
        if self.why:
            return f"{self.attack} was not run ({self.why})"
        came = f"{self.attack} reached {self.psnr:.1f} dB PSNR in {self.iterations} iterations (one update)"
        return f"{came}; other samples of the same data are at {self.guess:.1f} dB"


class WordsResult(NamedTuple):
    """The words of the clients' texts that updates reveal."""

    why: str = ""
    """Why the `unread` updates have no result."""
    named: int = 0
    """Number of words that the attack recovers, distinct per update."""
    right: int | None = None
    """Number of these that occur; None for a recorded run, which has no texts to compare with."""
    of: int = 0
    """Number of words that occur, distinct per update."""
    updates: int = 0
    """Number of updates whose words are counted."""
    unread: int = 0

    @property
    def share(self) -> float:
        """Words that are both recovered and present, as a share of those that are either."""
        return float(self.named > 0) if self.right is None else self.right / max(self.named + self.of - self.right, 1)

    def text(self) -> str:
        """Return the result as a sentence."""
        if not self.updates:
            return f"the rows of the embedding do not reveal them ({self.why})"
        many = f"the embedding rows that change reveal {self.named} words, distinct per update ({self.updates} updates)"
        if self.right is None:
            many += "; no texts were recorded for comparison"
        else:
            many += f": {self.right} of the {self.of} that occur, and {self.named - self.right} that do not"
        return many + f"; {self.unread} updates more do not reveal theirs ({self.why})" * bool(self.unread)


class PrivacyResult(NamedTuple):
    """A claim of differential privacy, and what a canary shows of it."""

    privacy: Privacy
    epsilon: float | None = None
    """A lower bound of ε with 95 % confidence for any mechanism; None for a recorded run."""
    gaussian: float | None = None
    """The bound if normal noise is the only randomness."""
    n: int = 0
    """Scored releases of each of two neighbours."""
    updates: int = 0
    """Number of updates of a recorded run that are made in this way."""

    def text(self) -> str:
        """Return the result as a sentence."""
        claim, by = self.privacy, f" by {self.privacy.by}" * bool(self.privacy.by)
        claimed = "no finite ε" if math.isinf(claim.claimed) else f"ε = {claim.claimed:.3g} at δ = {claim.delta:g}"
        claim_text = f"{claimed}{by} for each client and round ({NEIGHBOURS[claim.neighbours]})"
        if self.updates:
            return f"{claim_text}, of {self.updates} updates; a run has one release of each input, too few for a canary"
        if self.epsilon is None:
            return claim_text
        normal = "" if self.gaussian is None else f", and {self.gaussian:.3g} as the noise is normal"
        return (
            f"{claim_text}; a canary shows at least {self.epsilon:.3g}{normal} (95 %, {self.n} releases of each input)"
        )

    def wrong(self) -> list[str]:
        """Return the errors of the claim; empty if there are none."""
        least = max(self.epsilon or 0.0, self.gaussian or 0.0)
        above = [f"a canary shows that ε is at least {least:.3g}, more than is claimed"]
        return [*self.privacy.wrong(), *(above if least > self.privacy.claimed else [])]


class Verdict(NamedTuple):
    """The verdict on one round, one update, the words, or the ε of a client."""

    case: str
    status: Literal["kept", "leak", "not measurable"]
    why: str
    """The reason, with the attack and its adversary."""
    seconds: float = 0.0


def score(counts: Tensor, truth: Tensor) -> dict[str, float]:
    """Return instance accuracy, class accuracy and the share of exact counts over K clients, ``[K, n]`` both."""
    return {
        "iacc": instance_accuracy(counts, truth).mean().item(),
        "cacc": class_accuracy(counts, truth).mean().item(),
        "exact": (counts == truth).all(-1).double().mean().item(),
    }


def noted(
    scenario: str, number: int, attempt: Attempt, truth: Tensor | None, has_hard_labels: bool, **about: Any
) -> dict[str, Any]:
    """Return a row on how an attack on update `number` went: scored if there is the truth ``[K, n]``.

    Its ``reason`` says why it failed, None if it did not; ``broke`` whether it failed by an error of its own.
    ``proven`` is NaN for attacks that prove nothing, as `PROVES_HARD_LABELS` do unless the loss is known to be a
    cross-entropy with one label per sample.
    """
    row = {"scenario": scenario, "attack": attempt.attack.name, "trial": number, **about, "seconds": attempt.seconds}
    row |= {"iacc": math.nan, "cacc": math.nan, "exact": math.nan, "reason": None, "broke": attempt.unforeseen}
    row["unmet"] = "; ".join(attempt.result.violated_assumptions) if attempt.result else ""
    proven = attempt.result.proven if attempt.result else None
    proven = proven if has_hard_labels or attempt.attack.name.split(",")[0] not in PROVES_HARD_LABELS else None
    row["proven"] = math.nan if proven is None else float(proven.sum())
    if attempt.counts is None:
        row["reason"] = attempt.reason.strip().split("\n")[0]
    elif truth is not None and attempt.counts.numel() != truth.numel():
        named = attempt.counts.numel() // attempt.counts.shape[-1]
        row["reason"] = f"it recovers the labels of {named} clients, not of {len(truth)}"
    elif truth is not None:
        row |= score(attempt.counts.reshape(truth.shape), truth)
    return row


def list_broken(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return, by attack, the error of its own by which it failed to read more than half of the updates."""
    as_is = [row for row in rows if row["scenario"] == AS_IT_IS]
    broken: dict[str, list[str]] = {}
    for row in as_is:
        if row["broke"]:
            broken.setdefault(row["attack"], []).append(row["reason"])
    updates = len({row["trial"] for row in as_is})
    return {name: reasons[0] for name, reasons in broken.items() if 2 * len(reasons) > updates}


def outcome(rows: list[dict[str, Any]]) -> tuple[pd.DataFrame, dict[str, str], list[tuple[str, str]]]:
    """Return the rows with scores, what to know of attacks that worked, and those that failed in all trials, with why.

    A remark says how often and why an attack failed, and which of its assumptions were violated, without a remedy.
    """
    attempts = pd.DataFrame(rows)
    as_is = attempts[attempts["scenario"] == AS_IT_IS]
    worked = set(as_is.loc[as_is["reason"].isna(), "attack"])
    failed = as_is.dropna(subset="reason").groupby("attack", sort=False)["reason"].agg(list)
    remarks = {name: f"failed in {len(of)} of its trials: {of[0]}" for name, of in failed.items() if name in worked}
    for name, unmet in as_is[as_is["unmet"] != ""].groupby("attack", sort=False)["unmet"].first().items():
        remarks[name] = "; ".join(filter(None, [remarks.get(name), unmet]))
    never = [(name, of[0]) for name, of in failed.items() if name not in worked]
    return attempts.dropna(subset="iacc").drop(columns=["reason", "unmet", "broke"]), remarks, never
