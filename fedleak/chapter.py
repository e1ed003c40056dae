"""What every notebook does the same way: its parameters, its cache, its recorded results, its comparison."""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from IPython.display import HTML, display
from matplotlib.figure import Figure

from fedleak import data, paths, report
from fedleak.data import Images
from fedleak.report import Measured, Published
from fedleak.sweep import Trial, sweep

NOW, RECORDED = "this run", "recorded"


@dataclass
class Chapter:
    """One run of one chapter.

    Parameters
    ----------
    paper
        Name of the notebook, of the folder of recorded results and of the file of published numbers.
    profile
        ``"quick"`` or ``"paper"``.
    device
        ``"auto"`` is the GPU where there is one.
    seed
        Seed of every sweep.
    trials
        Trials per setting; 0 is the profile's own number.
    data_root
        Folder of the data sets; "" is ``FEDLEAK_DATA``.
    record
        Whether the tables of this run are written to ``data/results/``.

    Raises
    ------
    ValueError
        For an unknown profile, a negative number of trials, a device that is not there, or a quick run to be recorded.
    """

    paper: str
    profile: str
    device: str
    seed: int
    trials: int
    data_root: str
    record: bool
    _used: dict[str, Images] = field(default_factory=dict, repr=False)
    _seconds: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        if self.profile not in ("quick", "paper"):
            raise ValueError(f"profile is 'quick' or 'paper', not {self.profile!r}")
        if self.trials < 0:
            raise ValueError(f"trials is 0 (the profile's own number) or more, got {self.trials}")
        if self.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError("device='cuda', but torch sees no GPU here: use device='cpu' or 'auto'")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError):
            raise ValueError(f"PyTorch cannot use device={self.device!r} here: 'cpu', 'cuda' or 'auto'") from None
        if self.record and self.profile != "paper":
            raise ValueError("only the paper profile is recorded: add profile='paper', or leave record off")

    @property
    def full(self) -> bool:
        """Whether this is the paper profile."""
        return self.profile == "paper"

    def pick(self, quick: Any, paper: Any) -> Any:
        """Return the profile's choice."""
        return paper if self.full else quick

    def count(self, quick: int, paper: int) -> int:
        """Return the number of trials: the one asked for, or the profile's."""
        return self.trials or self.pick(quick, paper)

    def load(self, name: str, split: str = "train", **options: Any) -> Images:
        """Load a data set and note it for the provenance."""
        images = data.load(name, split, root=self.data_root or None, **options)
        self._used[f"{name}/{split}"] = images
        return images

    @property
    def cache(self) -> Path:
        """Folder of this chapter's sweeps."""
        return paths.root() / "_build" / "cache" / self.paper

    def sweep(
        self,
        trial: Trial,
        grid: Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]],
        trials: int,
        chunk: int = 25,
    ) -> pd.DataFrame:
        """Run a sweep with this chapter's seed and cache; see `fedleak.sweep`."""
        table = sweep(trial, grid, trials, self.seed, self.cache / trial.__name__, chunk=min(chunk, trials))
        self._seconds += table.attrs["seconds"]
        return table

    def table(self, artefact: str, compute: Callable[[], pd.DataFrame], **facts: Any) -> pd.DataFrame:
        """Compute a table now, record it if asked to, and put the recorded rows beside it (column ``source``)."""
        self._seconds = 0.0
        table = compute()
        facts = report.provenance(
            profile=self.profile,
            seed=self.seed,
            trials=self.trials,
            device=torch.cuda.get_device_name() if self.device.startswith("cuda") else "cpu",
            threads=torch.get_num_threads(),
            seconds=round(self._seconds, 1),
            datasets=[
                {"name": key, "images": len(d), "digest": d.digest, "subset": d.subset, "source": d.source}
                for key, d in self._used.items()
            ],
            **facts,
        )
        if self.record:
            report.record(self.paper, artefact, table, facts)
        old = None if self.record else report.recorded(self.paper, artefact)
        pieces = [table.assign(source=NOW)]
        if old is not None:
            pieces.append(old[0].assign(source=RECORDED))
        return pd.concat(pieces, ignore_index=True)

    def keep(self, artefact: str, figure: Figure) -> Figure:
        """Return a figure for display; when this run is recorded, its picture is kept beside the table."""
        if self.record:
            picture = io.StringIO()
            figure.savefig(picture, format="svg", metadata={"Date": None})
            report.write_text(paths.recorded(self.paper) / f"{artefact}.svg", picture.getvalue())
        return figure

    def published(self) -> dict[str, Published]:
        """Return what the paper prints, by id."""
        return report.load_published(self.paper)[1]

    def compare(self, measured: Iterable[Measured]) -> pd.DataFrame:
        """Compare with the paper; leave the recorded rows, or else this run's, for the scoreboard."""
        head, published = report.load_published(self.paper)
        rows = report.compare(published, measured)
        recorded = {row["id"] for row in rows if row["source"] == RECORDED}
        chosen = [row for row in rows if (row["source"] == RECORDED) == (row["id"] in recorded)]
        now = [row for row in rows if row["source"] != RECORDED]
        document = {
            "paper": self.paper,
            "title": head["title"],
            "profile": self.profile,
            "rows": chosen,
            "this run": now,
        }
        report.write_text(paths.executed_comparison(self.paper), json.dumps(document, indent=1, ensure_ascii=False))
        return pd.DataFrame(rows)

    def show_comparison(self, comparison: pd.DataFrame) -> None:
        """Show every item once: published, recorded and of this run, with tolerance and status."""

        def cell(row: Any) -> str:
            if row["ours"] is None or pd.isna(row["ours"]):
                return f"– <br>{row['status']}"
            bounds = "" if pd.isna(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
            return f"{row['ours']:.3g}{bounds}, n = {row['n']:,}<br>{row['status']}"

        rows = []
        for _, group in comparison.groupby("id", sort=False):
            first = group.iloc[0]
            arrow = {"higher": " ↑", "lower": " ↓"}.get(first["direction"], "")
            line = {
                "what the paper says": f"<b>{first['item']}</b> {first['claim']} "
                f"<br><small>{first['where']}; {first['metric']}{arrow}</small>",
                "published": f"{first['published']}<br><small>± {first['tolerance']:g}: {first['why']}</small>",
            }
            for source in (RECORDED, NOW):
                found = group[group["source"] == source]
                if (comparison["source"] == source).any():
                    nothing = first["status"] if pd.isna(first["ours"]) else "–"
                    line[source] = nothing if found.empty else cell(found.iloc[0])
                    if source == RECORDED and not found.empty and found.iloc[0]["note"]:
                        line[source] += f"<br><small>{found.iloc[0]['note']}</small>"
            rows.append(line)
        show(pd.DataFrame(rows), "The paper's claims and values beside ours.")

    def show_provenance(self, artefacts: Iterable[str]) -> None:
        """Show, for every recorded artefact, when, where and how it was made, and on which data sets."""
        found = {artefact: report.recorded(self.paper, artefact) for artefact in artefacts}
        facts = {artefact: one[1] for artefact, one in found.items() if one is not None}
        if not facts:
            return
        keys = ("date", "commit", "device", "threads", "seconds", "seed", "torch", "python")
        rows = [{"artefact": artefact, **{k: fact.get(k) for k in keys}} for artefact, fact in facts.items()]
        show(pd.DataFrame(rows), "Where the recorded results come from.")
        sets = {(d["name"], d["digest"]): d for fact in facts.values() for d in fact["datasets"]}
        columns = {"name": "data set", "images": "images", "subset": "subset", "source": "source", "digest": "digest"}
        table = pd.DataFrame(sets.values(), columns=list(columns)).rename(columns=columns)
        show(
            table, "The data sets behind them.", {"images": "{:,}", "subset": lambda is_one: "yes" if is_one else "no"}
        )


def show(table: pd.DataFrame, caption: str, formats: dict[str, Any] | None = None) -> None:
    """Show a table with its caption, without the index, the same way everywhere."""
    style = table.style.hide(axis="index").format(formats or {}, precision=3, na_rep="–").set_caption(caption)
    style = style.set_uuid(hashlib.sha256(caption.encode()).hexdigest()[:8])
    display(HTML(style.to_html(table_attributes='class="dataframe table"')))
