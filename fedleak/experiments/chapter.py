"""What every notebook does the same way: its parameters, its experiments and claims, its comparison with the paper."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import nn

from fedleak import data, models, paths
from fedleak.data import Images
from fedleak.experiments import claims, published, scoreboard
from fedleak.experiments.cache import note
from fedleak.experiments.experiment import NOW, RECORDED, Experiment
from fedleak.experiments.records import recorded
from fedleak.experiments.show import comparison, provenance
from fedleak.experiments.status import Measured
from fedleak.experiments.sweep import Trial
from fedleak.files import write_text
from fedleak.intervals import NUMBER, Kind


@dataclass
class Chapter:
    """One run of one chapter.

    Parameters
    ----------
    paper
        Name of the notebook, of the folder of recorded results and of the folder of published numbers.
    profile
        ``"quick"`` or ``"paper"``.
    device
        ``"auto"`` is the GPU where there is one. `images` and `build` put what they return there.
    seed
        Seed of every experiment.
    trials
        Trials per setting; 0 is each experiment's own number.
    data_root
        Folder of the data sets; "" is ``FEDLEAK_DATA``.
    record
        Whether the rows of this run are written to ``data/results/``; those of a quick run are kept apart, to be
        compared with (`fedleak.experiments.recheck`), and are not shown.
    scheduler
        Address of the Dask scheduler whose workers run the experiments; "" runs them here.
    kinds
        What each column is that an experiment averages, which decides its interval: a rate, a mean, a difference, a
        number.

    Raises
    ------
    ValueError
        For an unknown profile, a negative number of trials, or a device that is not there.
    ConnectionError
        If no scheduler answers at that address.
    """

    paper: str
    profile: str
    device: str
    seed: int
    trials: int
    data_root: str
    record: bool
    scheduler: str = ""
    kinds: Mapping[str, Kind] = field(default_factory=dict, repr=False)
    experiments: dict[str, Experiment] = field(default_factory=dict, repr=False)
    _claims: list[tuple[str, Measured]] = field(default_factory=list, repr=False)
    _images: dict[tuple, Images] = field(default_factory=dict, repr=False)
    _compared: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.profile not in ("quick", "paper"):
            raise ValueError(f"profile is 'quick' or 'paper', not {self.profile!r}")
        if self.trials < 0:
            raise ValueError(f"trials is 0 (each experiment's own number) or more, got {self.trials}")
        if self.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError("device='cuda', but torch sees no GPU here: use device='cpu' or 'auto'")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError):
            raise ValueError(f"PyTorch cannot use device={self.device!r} here: 'cpu', 'cuda' or 'auto'") from None
        if self.scheduler:
            from fedleak.experiments import cluster  # takes a second to import, and most runs need none

            cluster.reach(self.scheduler)

    def __reduce__(self) -> tuple[type["Chapter"], tuple[Any, ...]]:
        """Send a worker the parameters only: a trial loads its own data there, and needs no other experiment."""
        parameters = (self.paper, self.profile, self.device, self.seed, self.trials, self.data_root, self.record)
        return Chapter, parameters

    @property
    def full(self) -> bool:
        """Whether this is the paper profile."""
        return self.profile == "paper"

    @property
    def cache(self) -> Path:
        """Folder of this chapter's finished units."""
        return paths.units() / self.paper

    # --- what a trial starts from -----------------------------------------------------------------------------------

    def images(self, name: str, split: str = "train", **options: Any) -> Images:
        """Load a data set once, on the chapter's device, and note it for the provenance of the trial under way."""
        key = (name, split, *sorted(options.items()))
        if key not in self._images:
            self._images[key] = data.load(name, split, root=self.data_root or None, **options).to(self.device)
        found = self._images[key]
        facts = {"images": len(found), "digest": found.digest, "subset": found.subset, "source": found.source}
        note("data", f"{name}/{split}", {"name": f"{name}/{split}", **facts})
        note("device", str(found.x.device), True)
        return found

    def build(self, net: str, shape: tuple[int, ...], n_classes: int, **options: Any) -> nn.Module:
        """Build a freshly initialised model on the chapter's device; see `fedleak.models.build`."""
        model = models.build(net, shape, n_classes, **options).to(self.device)
        note("device", str(next(model.parameters()).device), True)
        return model

    # --- what it declares -------------------------------------------------------------------------------------------

    def experiment(
        self,
        artefact: str,
        *,
        quick: Sequence[Mapping[str, Any]],
        paper: Sequence[Mapping[str, Any]],
        values: str | Sequence[str] | Mapping[str, Kind],
        trials: int | tuple[int, int] = 1,
        by: str | Sequence[str] = (),
        facts: str | Sequence[str] = (),
        fixed: Mapping[str, Any] | None = None,
        times: str | Sequence[str] = (),
        rounding: str | Sequence[str] = (),
        version: int = 1,
        exact: bool = False,
        tables: str | Sequence[str] = (),
        newcomers: str | Sequence[str] = (),
    ) -> Callable[[Trial], Experiment]:
        """Declare an experiment; decorates its trial, ``trial(seed, **setting)``, and returns an `Experiment`.

        Parameters
        ----------
        artefact
            Name of the recorded table, and of the paper's table or figure that it reproduces.
        quick, paper
            The settings of the two profiles, as `grid` makes them; a setting may name its own ``trials``.
        values
            Columns that are averaged over the trials; the first is the one that figures show. What each is, is said
            here or in the chapter's `kinds`.
        trials
            Trials a setting in both profiles, or in each.
        by
            Columns beside the settings that make a cell, such as the attack's name.
        facts
            Columns of what the trial found itself working with, such as the images that a client holds: compared with
            the paper's settings like the settings themselves. The smallest counts.
        fixed
            Settings that are the same everywhere; those that are parameters of the trial are passed to it.
        times, rounding
            Columns of seconds, and of rounding errors, which do not come out the same again.
        version
            To be raised when the trial, or what it calls, changes what comes out.
        exact
            Whether nothing in it is random.
        tables
            The paper's tables that the cells belong to, where their names are not the artefact's.
        newcomers
            Columns of names, such as the attack's: of a name that the record lacks, `best` has this run's rows.
        """

        def declare(trial: Trial) -> Experiment:
            if artefact in self.experiments:
                raise ValueError(f"{self.paper} declares the experiment {artefact!r} twice")
            kinds = {**self.kinds, **(values if isinstance(values, Mapping) else {})}
            names = tuple(values) if isinstance(values, Mapping) else _names(values)
            if unknown := [name for name in names if name not in kinds]:
                raise ValueError(f"{artefact}: say in values= or in the chapter's kinds= what {', '.join(unknown)} is")
            made = Experiment(
                self,
                artefact,
                trial,
                quick,
                paper,
                (trials, trials) if isinstance(trials, int) else trials,
                by=_names(by),
                kinds={name: kinds[name] for name in names},
                facts=_names(facts),
                fixed=dict(fixed or {}),
                times=_names(times),
                rounding=_names(rounding),
                version=version,
                exact=exact,
                tables=_names(tables),
                newcomers=_names(newcomers),
            )
            self.experiments[artefact] = made
            return made

        return declare

    def claim(
        self,
        id: str,
        statistic: Callable[..., float] | float | None,
        of: Experiment | Sequence[Experiment] = (),
        *,
        value: str = "",
        wide: str | None = None,
        where: Mapping[str, Any] | Callable[[pd.DataFrame], Any] | None = None,
        rows: bool = False,
        kind: Kind = NUMBER,
        reading: str = "",
        note: str = "",
    ) -> None:
        """Measure what a paper says in words, from recorded rows and from this run's.

        Parameters
        ----------
        id
            Of the claim in ``claims.toml``.
        statistic
            Number made of the means by cell: it gets, for each experiment, a series over the cells, or with `wide` a
            frame with that column's values as columns. A number is itself the result, and exact; None was not tried.
        of
            The experiment, or several.
        value
            Column that is averaged; by default the experiment's first value.
        where
            Keeps the rows with these values (a list: one of them), or those that a function of the rows says.
        rows
            Give the statistic the trial rows themselves.
        kind
            What the number is: of a share, or of a difference of shares, the interval knows the ends.
        reading
            Name of one of several ways to read the paper: every one is claimed, and all have to agree.
        note
            What the reader should know of this number.
        """
        if statistic is None or not callable(statistic):
            self._claims.append((RECORDED, claims.said(id, statistic, reading, note)))
            return
        used = [of] if isinstance(of, Experiment) else list(of)
        sources = [(NOW, [e.rows for e in used])] if any(e.recorded is None for e in used) or not self.full else []
        if all(e.recorded is not None for e in used):
            sources.append((RECORDED, [e.recorded_trials for e in used]))
        asked = claims.Asked(id, statistic, value, wide, where, rows, kind, reading, note)
        for source, tables in sources:
            official = source == RECORDED or self.full
            found = asked.measure(used, tables, source, self.published if official else None)
            self._claims.append((RECORDED if official else NOW, found))

    # --- what it shows ----------------------------------------------------------------------------------------------

    @cached_property
    def published(self) -> published.Paper:
        """What the paper prints."""
        return published.load(self.paper)

    def compare(self) -> list[dict[str, Any]]:
        """Compare every published value with ours, and leave the rows for the book's pages; see `scoreboard.joined`.

        Only rows of the paper profile count: the recorded ones, or this run's where it is in that profile.
        """
        by_id: dict[str, list[Measured]] = {}
        for source, found in self._claims:
            if source == RECORDED:
                by_id.setdefault(found.id, []).append(found)
        if unknown := sorted({m.id for _, m in self._claims} - set(self.published.items)):
            raise ValueError(f"claims without an entry in {self.paper}/claims.toml: {', '.join(unknown)}")
        cells = {name: (e.counted, e.declared["tables"]) for name, e in self.experiments.items()}
        rows = scoreboard.joined(self.published, by_id, cells)
        live = {m.id: m.ours for source, m in self._claims if source == NOW}
        self._compared = [{**row, "now": live.get(row["id"])} for row in rows]
        document = {"paper": self.paper, "title": self.published.title, "profile": self.profile, "rows": self._compared}
        write_text(paths.executed_comparison(self.paper), json.dumps(document, indent=1, ensure_ascii=False))
        if self.record:
            scoreboard.keep(self.paper, by_id)
        return self._compared

    def show_comparison(self, keep: Callable[[dict[str, Any]], Any] = lambda row: True) -> None:
        """Show the published values beside ours: those that `keep` keeps."""
        comparison([row for row in self._compared or self.compare() if keep(row)])

    def keep(self, artefact: str, figure: Figure) -> Figure:
        """Return a figure for display; when this run is recorded, its picture is kept beside the table."""
        if self.record and self.full:
            picture = io.StringIO()
            figure.savefig(picture, format="svg", metadata={"Date": None})
            write_text(paths.recorded(self.paper) / f"{artefact}.svg", picture.getvalue())
        return figure

    def show_provenance(self) -> None:
        """Show, for every recorded experiment, when, where and how it was made, and on which data sets."""
        found = {artefact: recorded(self.paper, artefact) for artefact in self.experiments}
        provenance({artefact: one[1] for artefact, one in found.items() if one is not None})


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)
