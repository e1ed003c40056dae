"""One run of a chapter: its parameters, its rows, the numbers of its prose, and its verdicts."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pandas as pd

from fedleak_book import parameters, paths
from fedleak_book.evidence import judged, published, scoreboard, verdicts
from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.estimates import matching_rows
from fedleak_book.evidence.measurements import Measured
from fedleak_book.experiments import records, running
from fedleak_book.experiments.context import Context
from fedleak_book.experiments.kinds import NUMBER, Kind, interval
from fedleak_book.experiments.records import NOW, RECORDED, Record

ALONE = "by the tolerance alone"
REPRODUCED = {verdicts.AGREES: True, verdicts.WITHIN: ALONE, verdicts.BETTER: True, verdicts.DIFFERS: "not"}
"""How the line below a section's results counts a verdict; all others, such as open ones, are undecided."""


class Number(float):
    """A measured number with its 95 % interval over n trials; ``f"{x:.2f}"`` shows it, ``f"{x:.2f ci}"`` both."""

    low: float
    high: float
    n: int

    def __new__(cls, value: float, low: float = math.nan, high: float = math.nan, n: int = 0) -> "Number":
        """Make a number of its value, the ends of its interval (NaN: none) and the number of trials."""
        number = super().__new__(cls, value)
        number.low, number.high, number.n = float(low), float(high), n
        return number

    @classmethod
    def of(cls, row: Mapping[Any, Any], value: str) -> "Number":
        """Make a number of a row's value and the ends of its interval, columns ``value low`` and ``value high``."""
        return cls(row[value], row[f"{value} low"], row[f"{value} high"])

    @classmethod
    def measured(cls, fields: Mapping[str, Any]) -> "Number":
        """Make a number of what was measured for a claim: ``ours``, ``low``, ``high`` and ``n`` (None: nothing)."""
        ours, low, high = (math.nan if fields[end] is None else fields[end] for end in ("ours", "low", "high"))
        return cls(ours, low, high, fields["n"])

    @classmethod
    def least(cls, rows: pd.DataFrame, value: str) -> "Number":
        """Return the least of the rows' numbers; see `of`."""
        return cls.of(rows.loc[rows[value].idxmin()], value)

    @classmethod
    def most(cls, rows: pd.DataFrame, value: str) -> "Number":
        """Return the largest of the rows' numbers; see `of`."""
        return cls.of(rows.loc[rows[value].idxmax()], value)

    def __format__(self, how: str) -> str:
        plain, _, more = how.partition(" ")
        if math.isnan(self):
            raise ValueError("a sentence names a number that was not measured")
        text = format(float(self), plain)
        if more == "ci" and not math.isnan(self.low):
            low, high = (format(end, plain).removesuffix("%") for end in (self.low, self.high))
            text += f" [{low}, {high}]"
        return text.replace("-", "−")


class Results:
    """The results that a notebook shows: the rows of this run, and the recorded ones.

    `paper` is the name of the notebook, of the folder of recorded results and of the folder of published numbers;
    `profile` is ``"quick"`` or ``"paper"``; `trials` are those of a setting, 0 each experiment's own number. With
    `record` the rows of this run are written to ``data/results/``; those of a quick run are kept apart, to be compared
    with (`fedleak recheck`), and are not shown. The other parameters are those of `Context` and of `running.run`; a
    scheduler that does not answer is a `ConnectionError`.
    """

    def __init__(
        self,
        paper: str,
        profile: str = "quick",
        device: str = "auto",
        seed: int = 0,
        trials: int = 0,
        data_root: str = "",
        record: bool = False,
        scheduler: str = "",
        others: str = "again",
    ):
        asked = {"profile": profile, "device": device, "seed": seed, "trials": trials}
        parameters.check(asked | {"data_root": data_root, "record": record, "scheduler": scheduler})
        self.paper, self.profile, self.trials, self.context = paper, profile, trials, Context(device, data_root)
        self.how: dict[str, Any] = {"seed": seed, "scheduler": scheduler, "others": others}
        self.writing, self.replaces = record, record and profile == "paper"
        if scheduler:
            from fedleak_book.experiments import cluster  # takes a second to import, and most runs need none

            cluster.reach(scheduler)
        self._rows: dict[str, pd.DataFrame] = {}
        self._records: dict[str, Record] = {}
        self._best: dict[str, pd.DataFrame] = {}

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, name: str) -> pd.DataFrame:
        """Return the trial rows of this run, which runs, and is recorded, when they are first asked for."""
        if name not in self._rows:
            experiment = running.named(self.paper, name)
            settings = experiment.settings(self.profile, self.trials)
            how = self.how
            if how["others"] == "use":
                how = {**how, "recorded": records.recorded(self.paper, name, self.profile)}
            rows = running.run(self.paper, experiment, self.context, settings, **how)
            if self.writing:
                facts = {**rows.attrs, "profile": self.profile, "seed": self.how["seed"], "trials": self.trials}
                facts |= {"scheduler": "dask"} if self.how["scheduler"] else {}
                facts["declared"] = experiment.declared
                records.record(self.paper, name, rows.drop(columns="seed"), facts)
            self._rows[name] = rows
        return self._rows[name]

    def recorded(self, name: str) -> Record | None:
        """Return what is recorded; None if nothing is. A run that replaces records computes and writes it first."""
        if self.replaces and name in running.declared(self.paper):
            self.rows(name)
        return records.load(self.paper, name)

    def _record(self, name: str) -> Record:
        """Return what is recorded, or this run's rows where nothing is, with their ``source`` as a column."""
        if name not in self._records:
            recorded = self.recorded(name)
            rows = self.rows(name).assign(source=NOW) if recorded is None else recorded.rows.assign(source=RECORDED)
            facts = recorded.facts if recorded else {"declared": running.named(self.paper, name).declared}
            self._records[name] = Record(name, rows, facts)
        return self._records[name]

    def best_rows(self, name: str) -> pd.DataFrame:
        """Return the recorded rows, or this run's where nothing is recorded."""
        return self._record(name).rows.copy(deep=False)

    def best(self, name: str) -> pd.DataFrame:
        """Return the cells of `best_rows`: mean, interval and n."""
        if name not in self._best:
            record = self._record(name)
            cells = replace(record, rows=record.rows.drop(columns="source")).cells()
            self._best[name] = cells.assign(source=record.rows["source"].iloc[0])
        return self._best[name].copy()

    def cells(self, name: str, **settings: Any) -> pd.DataFrame:
        """Return the cells of `best` that have these settings (a list: one of them)."""
        return matching_rows(self.best(name), settings)

    def cell(self, name: str, value: str = "", **settings: Any) -> Number:
        """Return the one cell of `best` that has these settings, as a number of the prose."""
        value, cells = value or self._record(name).first, self.cells(name, **settings)
        if len(cells) != 1:
            raise ValueError(f"{name} has {len(cells)} cells with {settings}")
        row = cells.iloc[0]
        return Number(row[value], row[f"{value} low"], row[f"{value} high"], int(row["n"]))

    def by_trial(self, name: str, value: str = "", **settings: Any) -> pd.Series:
        """Return the values of one `cell` by trial, to be paired with another cell's; see `mean`."""
        value = value or self._record(name).first
        self.cell(name, value, **settings)
        return matching_rows(self.best_rows(name), settings).groupby("trial")[value].mean()

    def mean(self, values: pd.Series, kind: Kind = NUMBER) -> Number:
        """Return the mean of values of trials, such as paired differences (NaN: no pair), as a number of the prose."""
        values = values.dropna()
        return Number(values.mean(), *interval(values.to_numpy(), kind), len(values))

    # --- claims and verdicts ----------------------------------------------------------------------------------------

    @cached_property
    def published(self) -> published.Paper:
        """The paper's printed values."""
        return published.load(self.paper)

    @cached_property
    def measured(self) -> dict[str, Number]:
        """The number of every published value, by id: that of the first reading where there are several."""
        return {row["id"]: Number.measured(row) for row in self.values}

    def measure(self) -> dict[str, list[Measured]]:
        """Measure every claim and reading on the records; none where no paper stands behind the chapter."""
        if not (paths.root() / "notebooks" / self.paper / "claims.py").is_file():
            return {}
        claims: Claims = running.module(self.paper, "claims").CLAIMS
        tables = {name: self.recorded(name) for name in dict.fromkeys(name for claim in claims for name in claim.of)}
        for name in (name for name, record in tables.items() if record is None):
            running.named(self.paper, name)  # a name that is neither recorded nor declared is an error
        measured: dict[str, list[Measured]] = {}
        run = self if self.replaces else Recorded(self.paper, device="cpu")
        for claim in claims:
            if claim.prediction:
                measured |= {one.id: [one] for one in claim.measure_run(run)}
            else:
                recorded = [tables[name] for name in claim.of]
                measured.setdefault(claim.id, []).append(claim.measure(recorded, self.published))
        if unknown := sorted(set(measured) - set(self.published.items)):
            raise ValueError(f"claims without an entry in {self.paper}/claims.toml: {', '.join(unknown)}")
        return measured

    def __getitem__(self, id: str) -> Number:
        """Return a claim's number, of its first reading, as a number of the prose."""
        if id not in self.measured:
            raise ValueError(f"no published value of {self.paper} has the id {id!r}")
        return self.measured[id]

    @cached_property
    def values(self) -> list[dict[str, Any]]:
        """One row per published value: verdict, grade and measurement. A run that replaces records judges anew."""
        if self.replaces and (claims := self.measure()):
            judged.keep(self.paper, claims)
        return scoreboard.rows(self.paper)

    def verdict(self, *anchors: str) -> str:
        """Return one line of at most ten words: how many of the printed values on some figures are reproduced."""
        rows = [row for row in self.values if row["anchor"] in anchors and not row["beyond"]]
        if not rows:
            raise ValueError(f"no value of {self.paper} has an anchor among {', '.join(anchors)}")
        counts: Counter[Any] = Counter(REPRODUCED.get(row["verdict"], "undecided") for row in rows)
        rest = "".join(f", {counts[word]} {word}" for word in (ALONE, "not", "undecided") if counts[word])
        sentence = f"{counts[True]} of {len(rows)} printed values reproduced{rest}"
        if len(rows) == 1:
            outcomes: dict[Any, str] = {True: "reproduced", ALONE: f"reproduced {ALONE}", "not": "not reproduced"}
            sentence = f"Printed value {outcomes.get(next(iter(counts)), 'undecided')}"
        return f"*{sentence} ([details](../book/evidence/{self.paper}.md#{slug(figure_of(rows[0]))})).*"


class Recorded(Results):
    """The recorded results; what is not recorded is a `FileNotFoundError`, and does not run."""

    def rows(self, name: str) -> pd.DataFrame:
        """Raise, instead of running the experiment."""
        raise FileNotFoundError(f"`fedleak record {self.paper} {name}`: {name} is not recorded")


def figure_of(row: Mapping[str, Any]) -> str:
    """Return the evidence page's heading for a value: its figure or table, and a panel that the lecture shows apart."""
    item = str(row["item"])
    if not (match := re.match(r"((?:Fig\.|Table) ([0-9IVX]+))(?: \((\w)\))?", item)):
        return item.partition(" (")[0]
    separate = match[3] and str(row.get("anchor", "")).endswith(f"-{match[2]}{match[3]}")
    return match[0] if separate else match[1]


def slug(heading: str) -> str:
    """Return the anchor that a page gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
