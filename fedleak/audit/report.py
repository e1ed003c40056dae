"""What an audit found: one row an attack, what each remedy leaves, and what was not tried."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedleak.attacks.registry import ADVERSARIES
from fedleak.audit import writing
from fedleak.audit.images import ImageResult
from fedleak.report import interval, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AS_IT_IS = "as it is"
GUESS, PRIOR = "random guess", "prior-only guess"


def _rank(rows: list[dict[str, Any]]) -> Callable[[Any], tuple]:
    """Return the order of attacks: enough trials first, then instance accuracy, then the other metrics."""
    most = max((row["n"] for row in rows), default=0)
    return lambda row: (2 * row["n"] < most, -round(row["iacc"], 6), -row["exact"], -row["cacc"])


@dataclass
class Report:
    """What an audit found.

    Parameters
    ----------
    facts
        The set-up, as `fedleak.audit.facts.facts` has it.
    rows
        One row a recovery, tidy: ``scenario`` (as it is, or with a remedy), ``attack``, ``trial``, ``iacc``, ``cacc``,
        ``exact``, ``seconds``.
    scenarios
        The set-up as it is, and every remedy.
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
    scenarios: tuple[str, ...]
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
        (median) and ``first_seconds`` (with what is computed once for a model), ``random_guess`` and ``prior_guess``
        (instance accuracy on the same updates), and ``leaks``: better than both guesses, by the interval of the
        paired difference.
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
            found = [self._row(scenario, name) for name in dict.fromkeys(part["attack"]) if name not in (GUESS, PRIOR)]
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
        floors = {name: self._guess(name).reindex(part.index) for name in (GUESS, PRIOR)}
        row |= {"random_guess": floors[GUESS].mean(), "prior_guess": floors[PRIOR].mean()}
        floor = max(floors.values(), key=lambda values: values.mean())
        gain = interval((part["iacc"] - floor).to_numpy(), rate=False)[0]
        return {**row, "leaks": attack not in (GUESS, PRIOR) and bool(np.isfinite(gain) and gain > 0)}

    def _guess(self, name: str) -> pd.Series:
        return self.rows[self.rows["attack"] == name].set_index("trial")["iacc"]

    def ranking(self) -> list[str]:
        """Name the attacks that were run, best first; guesses are none."""
        tried = self.table[self.table["applies"]]
        return [name for name in tried["attack"] if name not in (GUESS, PRIOR)]

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

    def headline(self) -> tuple[str, str, str]:
        """Return three sentences: what leaks, to whom, and what would reduce it."""
        return writing.what(self), writing.whom(self), writing.remedy(self)

    def figure(self) -> "Figure":
        """Draw every attack's instance accuracy beside the guesses, and what each remedy leaves."""
        from fedleak.audit import drawing

        return drawing.figure(self)

    def to_markdown(self, figure: str = "", level: int = 1) -> str:
        """Return the report as Markdown.

        Parameters
        ----------
        figure
            Address of the figure, if there is to be one.
        level
            Of the title: 2 where the report is part of a page.
        """
        return writing.markdown(self, figure, level)

    def to_html(self) -> str:
        """Return the report as one HTML page that needs nothing else."""
        return writing.html(self)

    def save(self, path: Path | str) -> list[Path]:
        """Write the report: ``.html``, or ``.md`` with the figure as ``.svg`` beside it. Returns the files.

        Raises
        ------
        ValueError
            For another ending.
        PermissionError
            If the folder cannot be written to.
        """
        path = Path(path)
        writing.check_ending(path)
        if path.suffix == ".html":
            write_text(path, self.to_html())
            return [path]
        from fedleak.audit import drawing

        picture = path.with_suffix(".svg")
        write_text(picture, drawing.svg(self.figure()))
        write_text(path, self.to_markdown(figure=picture.name))
        return [path, picture]
