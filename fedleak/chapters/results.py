"""One run of a chapter: its parameters, its rows, the numbers of its prose, and its verdicts."""

import io
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from fedleak import intervals, paths
from fedleak.chapters import running
from fedleak.chapters.claim import Claims, kept
from fedleak.chapters.context import Context
from fedleak.chapters.experiment import Experiment
from fedleak.chapters.page import Number, figure_of, slug
from fedleak.experiments import published, records, scoreboard, status
from fedleak.experiments.records import NOW, RECORDED
from fedleak.experiments.status import Measured
from fedleak.files import write_text
from fedleak.intervals import Kind


class Results:
    """What a notebook shows: the rows of this run, and the recorded ones.

    Parameters
    ----------
    paper
        Name of the notebook, of the folder of recorded results and of the folder of published numbers.
    profile
        ``"quick"`` or ``"paper"``.
    device, data_root
        As in `Context`.
    seed
        Seed of every experiment.
    trials
        Trials per setting; 0 is each experiment's own number.
    record
        Whether the rows of this run are written to ``data/results/``; those of a quick run are kept apart, to be
        compared with (`fedleak recheck`), and are not shown.
    scheduler
        Address of the Dask scheduler whose workers run the experiments; "" runs them here.

    Raises
    ------
    ValueError
        For an unknown profile, a negative number of trials, or a device that is not there.
    ConnectionError
        If no scheduler answers at that address.
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
        if profile not in ("quick", "paper"):
            raise ValueError(f"profile is 'quick' or 'paper', not {profile!r}")
        if trials < 0:
            raise ValueError(f"trials is 0 (each experiment's own number) or more, got {trials}")
        self.paper, self.profile, self.seed, self.trials = paper, profile, seed, trials
        self.context, self.writing, self.scheduler, self.others = Context(device, data_root), record, scheduler, others
        if scheduler:
            from fedleak.experiments import cluster  # takes a second to import, and most runs need none

            cluster.reach(scheduler)
        self._rows: dict[str, pd.DataFrame] = {}
        self._best: dict[str, pd.DataFrame] = {}

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, experiment: Experiment) -> pd.DataFrame:
        """Return the trial rows of this run, which runs when they are first asked for."""
        if experiment.name not in self._rows:
            settings = experiment.settings(self.profile, self.trials)
            how: dict[str, Any] = {"seed": self.seed, "scheduler": self.scheduler, "others": self.others}
            rows = running.run(self.paper, experiment, self.context, settings, **how)
            if self.writing:
                facts = {"profile": self.profile, "seed": self.seed, "trials": self.trials}
                facts |= {"scheduler": "dask"} if self.scheduler else {}
                running.record(self.paper, experiment, rows, **facts)
            self._rows[experiment.name] = rows
        return self._rows[experiment.name]

    def recorded_rows(self, experiment: Experiment) -> pd.DataFrame | None:
        """Return the recorded rows; None where there are none, or where this run is to replace them."""
        if self.writing and self.profile == "paper":
            return None
        found = records.recorded(self.paper, experiment.name)
        return None if found is None else found[0]

    def best_rows(self, experiment: Experiment) -> pd.DataFrame:
        """Return the recorded rows, or this run's where nothing is recorded."""
        found = self.recorded_rows(experiment)
        return self.rows(experiment).assign(source=NOW) if found is None else found.assign(source=RECORDED)

    def cells(self, experiment: Experiment, rows: pd.DataFrame) -> pd.DataFrame:
        """Reduce rows to one a cell: mean, interval and n."""
        return records.settled(rows.drop(columns="source", errors="ignore"), {"declared": experiment.declared})

    def now(self, experiment: Experiment) -> pd.DataFrame:
        """Return the cells of this run."""
        return self.cells(experiment, self.rows(experiment)).assign(source=NOW)

    def best(self, experiment: Experiment) -> pd.DataFrame:
        """Return the recorded cells, or this run's where nothing is recorded."""
        if experiment.name not in self._best:
            rows = self.best_rows(experiment)
            self._best[experiment.name] = self.cells(experiment, rows).assign(source=rows["source"].iloc[0])
        return self._best[experiment.name].copy()

    def both(self, experiment: Experiment) -> pd.DataFrame:
        """Return the cells of this run and the recorded ones (column ``source``)."""
        best = self.best(experiment)
        return best if (best["source"] == NOW).all() else pd.concat([self.now(experiment), best], ignore_index=True)

    def cell(self, experiment: Experiment, value: str = "", **where: Any) -> Number:
        """Return the one cell of `best` that has these settings, as a number of the prose."""
        value, found = value or next(iter(experiment.values)), kept(self.best(experiment), where)
        if len(found) != 1:
            raise ValueError(f"{experiment.name} has {len(found)} cells with {where}")
        row = found.iloc[0]
        return Number(row[value], row[f"{value} low"], row[f"{value} high"], int(row["n"]))

    def each(self, experiment: Experiment, value: str = "", **where: Any) -> pd.Series:
        """Return the values of one cell by trial, to be paired with another cell's; see `mean`."""
        value, found = value or next(iter(experiment.values)), kept(self.best_rows(experiment), where)
        if (count := len(found[[c for c in (*experiment.axes, *experiment.by) if c in found]].drop_duplicates())) != 1:
            raise ValueError(f"{experiment.name} has {count} cells with {where}")
        return found.groupby("trial")[value].mean()

    def mean(self, values: pd.Series, kind: Kind = intervals.NUMBER) -> Number:
        """Return the mean of values of trials, such as paired differences (NaN: no pair), as a number of the prose."""
        values = values.dropna()
        return Number(values.mean(), *intervals.interval(values.to_numpy(), kind), len(values))

    def keep(self, name: str, figure: Figure) -> Figure:
        """Return a figure for display; of a run that records, its picture is kept beside the table of this name."""
        if self.writing and self.profile == "paper":
            picture = io.StringIO()
            figure.savefig(picture, format="svg", metadata={"Date": None})
            write_text(paths.recorded(self.paper) / f"{name}.svg", picture.getvalue())
        return figure

    # --- claims and verdicts ----------------------------------------------------------------------------------------

    @cached_property
    def published(self) -> published.Paper:
        """What the paper prints."""
        return published.load(self.paper)

    @cached_property
    def claims(self) -> Claims:
        """What the chapter measures of the paper's claims; none where no paper stands behind it."""
        if not (paths.root() / "notebooks" / self.paper / "claims.py").is_file():
            return Claims()
        return running.module(self.paper, "claims").CLAIMS

    @cached_property
    def measured(self) -> dict[str, list[Measured]]:
        """Every claim by id: as it was measured on the records, or by a paper run that records on its own rows."""
        return self._measure() if self.writing and self.profile == "paper" else scoreboard.kept(self.paper)

    def _measure(self) -> dict[str, list[Measured]]:
        """Measure every claim and reading."""
        tables = {e.name: self._official(e) for claim in self.claims for e in claim.of}
        found: dict[str, list[Measured]] = {}
        for claim in self.claims:
            rows = [tables[e.name] for e in claim.of]
            known = all(table is not None for table in rows)
            nothing = Measured(claim.id, None, source="—", reading=claim.reading, note="not recorded")
            found.setdefault(claim.id, []).append(claim.measure(rows, RECORDED, self.published) if known else nothing)
        if found and (unknown := sorted(set(found) - set(self.published.items))):
            raise ValueError(f"claims without an entry in {self.paper}/claims.toml: {', '.join(unknown)}")
        return found

    def _official(self, experiment: Experiment) -> pd.DataFrame | None:
        """Return the rows that count: the recorded ones, or a paper run's own."""
        return self.rows(experiment) if self.writing and self.profile == "paper" else self.recorded_rows(experiment)

    def __getitem__(self, id: str) -> Number:
        """Return a claim's number, of its first reading, as a number of the prose."""
        if id not in self.measured:
            raise ValueError(
                f"{self.paper} has measured no claim {id!r}: `fedleak claims {self.paper}`, if it is declared"
            )
        first = self.measured[id][0]
        return Number(float("nan") if first.ours is None else first.ours, first.low, first.high, first.n)

    @cached_property
    def values(self) -> list[dict[str, Any]]:
        """One row a published value: its status, and what was measured."""
        replaced = self.writing and self.profile == "paper"
        return scoreboard.joined(
            self.published, self.measured, {} if replaced else scoreboard.recorded_cells(self.paper)
        )

    def verdict(self, *anchors: str) -> str:
        """Return one line: how many of the paper's values on some figures agree, differ or are open."""
        rows = [row for row in self.values if row["anchor"] in anchors and not row["beyond"]]
        if not rows:
            raise ValueError(f"no value of {self.paper} has an anchor among {', '.join(anchors)}")
        count = Counter(WORDS[row["status"]] for row in rows)
        told = ", ".join(f"{count[w]} {w if count[w] != 1 else ONE[w]}" for w in ONE if count[w])
        scaled = sum(row["status"] in status.SCALED.values() for row in rows)
        smaller = f" ({scaled} at other settings than the paper's)" * bool(scaled)
        where = f"../book/evidence/{self.paper}.md#{slug(figure_of(rows[0]))}"
        if len(rows) == 1:
            values, told = "The paper's one value here", told.removeprefix("1 ")
        else:
            values = f"Of the paper's {len(rows)} values here"
        rules = "[by these rules](../book/scoreboard.md#how-to-read-it)"
        return f"*{values} {told}{smaller}, {rules}: [evidence]({where}).*"

    def keep_claims(self) -> None:
        """Measure the claims anew and write them beside the records, where there are any."""
        if self.claims:
            scoreboard.keep(self.paper, self._measure())


ONE = {
    "agree": "agrees",
    "are better": "is better",
    "differ": "differs",
    "are open": "is open",
    "were not tried": "was not tried",
}
WORDS: Mapping[str, str] = {
    status.MATCH: "agree",
    status.SCALED_AGREES: "agree",
    status.BETTER: "are better",
    status.DIFFERS: "differ",
    status.SCALED_DIFFERS: "differ",
    status.UNDECIDED: "are open",
    status.SCALED_UNDECIDED: "are open",
    status.NOT_ATTEMPTED: "were not tried",
}
