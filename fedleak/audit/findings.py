"""What an audit found: one row an attack, what each remedy leaves, and what was not tried."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedleak.attacks.registry import ADVERSARIES
from fedleak.audit.images import ImageResult
from fedleak.intervals import interval

AS_IT_IS = "as it is"


def _rank(rows: list[dict[str, Any]]) -> Callable[[Any], tuple]:
    """Return the order of attacks: enough trials first, then instance accuracy, then the other metrics."""
    most = max((row["n"] for row in rows), default=0)
    return lambda row: (2 * row["n"] < most, -round(row["iacc"], 6), -row["exact"], -row["cacc"])


@dataclass
class Findings:
    """What an audit found, in tables.

    Parameters
    ----------
    facts
        The set-up, as `fedleak.audit.facts.facts` has it.
    rows
        One row a recovery, tidy: ``scenario`` (as it is, or with a remedy), ``attack``, ``trial``, ``iacc``, ``cacc``,
        ``exact``, ``seconds``.
    guesses
        The attacks that see nothing of an update: the floor for all others.
    scenarios
        The set-up as it is, and every remedy.
    left_out
        Remedies that cannot be put on this set-up, and why.
    adversaries
        Attack to the weakest of the registry's adversaries that can run it as it was run here.
    untried
        Attacks that were not run, and why.
    beyond
        What no attack here covers, and why.
    partly
        Attacks that failed in some of the trials, and with what.
    images
        One image inversion, if it was asked for.
    """

    facts: dict[str, Any]
    rows: pd.DataFrame
    guesses: tuple[str, ...]
    scenarios: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    adversaries: dict[str, str]
    untried: tuple[tuple[str, str], ...]
    beyond: tuple[tuple[str, str], ...]
    partly: dict[str, str]
    images: ImageResult | None = None

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row an attack, best first by the mean (those with few of the trials last), then the untried.

        Columns: ``attack``, ``adversary`` (the weakest that can run it), ``applies``, ``why`` (not, or remarks), means
        ``iacc``, ``cacc``, ``exact`` with 95 % intervals (``iacc_low`` …), ``n`` updates, ``seconds`` a recovery
        (median) and ``first_seconds`` (with what is computed once for a model), ``guess`` (instance accuracy of the
        best guess on the same updates), and ``leaks``: better than it, by the interval of the paired difference.
        """
        found = [self._row(AS_IT_IS, name) for name in dict.fromkeys(self.rows["attack"])]
        found.sort(key=_rank(found))
        missing = [{"attack": name, "applies": False, "why": why, "n": 0, "leaks": False} for name, why in self.untried]
        return pd.DataFrame([*found, *missing])

    @cached_property
    def remedies(self) -> pd.DataFrame:
        """One row a remedy (and one for the set-up as it is): the best attack that is left, as in `table`, or none."""
        best = []
        for scenario in self.scenarios:
            part = self.rows[self.rows["scenario"] == scenario]
            found = [self._row(scenario, name) for name in dict.fromkeys(part["attack"]) if name not in self.guesses]
            none = {"attack": "none applies", "applies": False, "n": 0}
            best.append({"remedy": scenario, **(min(found, key=_rank(found)) if found else none)})
        return pd.DataFrame(best).reindex(columns=["remedy", *self.table.columns])

    def _row(self, scenario: str, attack: str) -> dict[str, Any]:
        part = self.rows[(self.rows["scenario"] == scenario) & (self.rows["attack"] == attack)].set_index("trial")
        row = {"attack": attack, "adversary": self.adversaries.get(attack, "no access"), "applies": True}
        row |= {"why": self.partly.get(attack, ""), "n": len(part)}
        for metric in ("iacc", "cacc", "exact"):
            values = part[metric].to_numpy()
            low, high = interval(values)
            row |= {metric: values.mean(), f"{metric}_low": low, f"{metric}_high": high}
        row |= {"seconds": part["seconds"].median(), "first_seconds": part["seconds"].iloc[0]}
        as_is = self.rows[self.rows["scenario"] == AS_IT_IS].pivot(index="trial", columns="attack", values="iacc")
        floors = as_is[list(self.guesses)].reindex(part.index)
        floor = floors[floors.mean().idxmax()]
        gain = interval((part["iacc"] - floor).to_numpy(), rate=False)[0]
        leaks = attack not in self.guesses and bool(np.isfinite(gain) and gain > 0)
        return {**row, "guess": floor.mean(), "leaks": leaks}

    def ranking(self) -> list[str]:
        """Name the attacks that were run, best first; guesses are none."""
        tried = self.table[self.table["applies"]]
        return [name for name in tried["attack"] if name not in self.guesses]

    def by_adversary(self) -> list[tuple[str, pd.Series]]:
        """Return, from the weakest adversary up, who gets further than all before, and by which attack."""
        order = [adversary.name for adversary in ADVERSARIES]
        table, found, before = self.table[self.table["leaks"]], [], -math.inf
        for name in sorted(set(table["adversary"]), key=lambda n: order.index(n) if n in order else len(order)):
            best = table[table["adversary"] == name].iloc[0]
            if best["iacc"] > before:
                found.append((name, best))
                before = best["iacc"]
        return found
