"""What an audit found: one row an attack, what each remedy leaves, and what was not tried."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from fedleak.attacks.registry import ADVERSARIES
from fedleak.intervals import LEAST, NUMBER, interval

AS_IT_IS = "as it is"


class ImageResult(NamedTuple):
    """How near one inversion of one update came."""

    attack: str
    why: str = ""
    """Why there is no result, if there is none."""
    iterations: int = 0
    psnr: float = float("nan")
    """Mean peak signal-to-noise ratio in dB, of the reconstructions in the best order."""
    guess: float = float("nan")
    """The same, of as many other samples of the same data."""


class WordsResult(NamedTuple):
    """Which words of the clients' texts an update gives away."""

    why: str = ""
    """Why there is no result, if there is none."""
    named: int = 0
    """Distinct words that the attack names, over all updates."""
    right: int | None = None
    """How many of them are there; None of a recorded run, which has no texts to compare with."""
    of: int = 0
    """How many there are."""
    updates: int = 0

    @property
    def share(self) -> float:
        """Words that are both named and there, of those that are either."""
        return 1.0 if self.right is None else self.right / max(self.named + self.of - self.right, 1)

    def text(self) -> str:
        """Say it."""
        if self.why:
            return f"the embedding's rows do not name them ({self.why})"
        many = (
            f"the embedding's rows that move name {self.named} words, distinct ones of each of {self.updates} updates"
        )
        if self.right is None:
            return f"{many}; no texts are recorded to compare with"
        return f"{many}: {self.right} of the {self.of} that are there, and {self.named - self.right} that are not"


@dataclass
class Findings:
    """What an audit found.

    Parameters
    ----------
    facts
        The set-up, as `fedleak.audit.case.facts` has it.
    rows
        One row a recovery, tidy: ``scenario`` (as it is, or with a remedy), ``attack``, ``trial``, ``iacc``, ``cacc``,
        ``exact``, ``seconds``; of attacks that give intervals also ``held``, the share of the counts in them,
        and ``width``, their mean width in samples.
    scenarios
        The set-up as it is, and every remedy.
    left_out
        Remedies that cannot be put on this set-up, and why.
    adversaries
        Attack to the weakest of the registry's adversaries that can run it as it was run here.
    untried
        Attacks that were not run, and why.
    partly
        Attacks that failed in some of the trials, and with what.
    images
        One image inversion, if it was asked for.
    words
        What the embedding gives away, of a model whose inputs are tokens.
    verdicts
        Of `fedleak.audit.guard`, if there are limits.
    baseline
        An earlier report's JSON, read, to compare with.
    """

    facts: dict[str, Any]
    rows: pd.DataFrame
    scenarios: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    adversaries: dict[str, str]
    untried: tuple[tuple[str, str], ...]
    partly: dict[str, str]
    images: ImageResult | None = None
    words: WordsResult | None = None
    verdicts: Sequence[Any] = ()
    baseline: dict[str, Any] | None = None

    @cached_property
    def guesses(self) -> list[str]:
        """The attacks that see nothing of an update: the floor for all others."""
        return [name for name in dict.fromkeys(self.rows["attack"]) if name not in self.adversaries]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row an attack, best first by the mean (those with few of the trials last), then the untried.

        Columns: ``attack``, ``adversary`` (the weakest that can run it), ``applies``, ``why`` (not, or remarks), means
        ``iacc``, ``cacc``, ``exact`` with 95 % intervals (``iacc_low`` …; over the means of three recorded clients or
        more, else over updates), ``n`` updates, ``seconds`` a recovery
        (median) and ``first_seconds`` (with what is computed once for a model), ``guess`` (instance accuracy of the
        best guess on the same updates), and ``leaks``: better than it, by the interval of the paired difference.
        """
        found = self._ranked.query("scenario == @AS_IT_IS").drop(columns="scenario")
        missing = [{"attack": name, "applies": False, "why": why, "n": 0, "leaks": False} for name, why in self.untried]
        return pd.DataFrame([*found.to_dict("records"), *missing])

    @cached_property
    def remedies(self) -> pd.DataFrame:
        """One row a remedy (and one for the set-up as it is): the best attack that is left, as in `table`, or none."""
        attacks = self._ranked[~self._ranked["attack"].isin(self.guesses)]
        best = {row["scenario"]: row for row in attacks.drop_duplicates("scenario").to_dict("records")}
        none = {"attack": "none applies", "applies": False, "n": 0}
        found = [{"remedy": scenario, **best.get(scenario, none)} for scenario in self.scenarios]
        return pd.DataFrame(found).reindex(columns=["remedy", *self.table.columns])

    @cached_property
    def _ranked(self) -> pd.DataFrame:
        """One row a scenario and attack, as in `table`; of each scenario the best first."""
        as_is = self.rows[self.rows["scenario"] == AS_IT_IS].pivot(index="trial", columns="attack", values="iacc")
        floors = as_is[self.guesses]
        parts = self.rows.groupby(["scenario", "attack"], sort=False)
        found = pd.DataFrame(
            [self._row(scenario, attack, part.set_index("trial"), floors) for (scenario, attack), part in parts]
        )
        few = 2 * found["n"] < found.groupby("scenario")["n"].transform("max")
        order = found.assign(few=few, iacc=found["iacc"].round(6)).sort_values(
            ["few", "iacc", "exact", "cacc"], ascending=[True, False, False, False]
        )
        return found.loc[order.index]

    def _row(self, scenario: str, attack: str, part: pd.DataFrame, floors: pd.DataFrame) -> dict[str, Any]:
        row: dict[str, Any] = {"scenario": scenario, "attack": attack, "applies": True}
        row |= {
            "adversary": self.adversaries.get(attack, "–"),
            "why": self.partly.get(attack, ""),
            "n": len(part),
        }
        several = "node" in part and part["node"].nunique() >= LEAST
        unit = part["node"] if several else part.index  # one client's updates are not independent
        for metric in ("iacc", "cacc", "exact"):
            low, high = interval(part.groupby(unit, sort=False)[metric].mean().to_numpy())
            row |= {metric: part[metric].mean(), f"{metric}_low": low, f"{metric}_high": high}
        row |= {"seconds": part["seconds"].median(), "first_seconds": part["seconds"].iloc[0]}
        floors = floors.reindex(part.index)
        floor = floors[floors.mean().idxmax()]
        lead = part["iacc"] - floor
        by = [lead.groupby(u, sort=False).mean().to_numpy() for u in (unit, part.index)]
        gain, over_updates = (interval(each, NUMBER)[0] for each in by)  # NaN: too few, or all equal
        gain = over_updates if math.isnan(gain) else gain
        return {**row, "guess": floor.mean(), "leaks": bool(gain > 0) and attack not in self.guesses}

    def sure(self) -> pd.DataFrame:
        """Return the means of ``held`` and ``width``, a row an attack that gives intervals."""
        columns = ["held", "width"]
        return self.rows.reindex(columns=["attack", *columns]).groupby("attack")[columns].mean().dropna()

    @property
    def measured(self) -> bool:
        """Whether any attack that sees something of an update could be scored."""
        return not self.rows.empty and bool(self.ranking())

    def ranking(self) -> list[str]:
        """Name the attacks that were run, best first; guesses are none."""
        return [name for name in self.table.query("applies")["attack"] if name not in self.guesses]

    def by_adversary(self) -> list[tuple[str, pd.Series]]:
        """Return, from the weakest adversary up, who gets further than all before, and by which attack."""
        place = {adversary.name: k for k, adversary in enumerate(ADVERSARIES)}
        best = self.table.query("leaks").drop_duplicates("adversary")
        best = best.sort_values("adversary", key=lambda names: names.map(place).fillna(len(place)))
        best = best[best["iacc"] > best["iacc"].cummax().shift(fill_value=-1.0)]
        return [(row["adversary"], row) for _, row in best.iterrows()]
