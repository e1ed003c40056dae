"""The report of a recorded run: that of a set-up, round by round and client by client too."""

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from fedleak.attacks.registry import Adversary, get
from fedleak.audit.guard import cases
from fedleak.audit.report import Report
from fedleak.audit.setup import Setup
from fedleak.audit.writing import percent
from fedleak.federated import Update
from fedleak.federated.recording import Contribution
from fedleak.models import head

MOST_ROWS = 20
"""Clients that a table of the report shows: those that leak most."""


class RunReport(Report):
    """What the audit of a recorded run found; as for a set-up, and with it how leakage goes with the rounds."""

    unscored: pd.DataFrame
    """One row a contribution without recorded labels: ``round``, ``node``, ``samples``, ``attack`` (the one that the
    others agree with most), ``counts`` that it names, ``agreement`` in [0, 1]; see `agreement`."""

    def headline(self) -> tuple[str, str, str]:
        """Return three sentences: what leaks, to whom, and what would reduce it."""
        if not self.rows.empty:
            return super().headline()
        what = f"No labels were recorded, so nothing is scored. {len(self.unscored)} updates were attacked; "
        what += f"the attacks agree on {percent(self.unscored['agreement'].mean())} of the labels."
        return what, f"To {self.facts['adversary']}.", "Not measured without labels: record them to see."

    def svg(self) -> str:
        """Return the figure as SVG; "" if nothing is scored."""
        return "" if self.rows.empty else super().svg()

    def to_markdown(self, figure: str = "", level: int = 1) -> str:
        """Return the report as Markdown; see `Report.to_markdown`."""
        if not self.rows.empty:
            return super().to_markdown(figure, level)
        names = ("What leaks", "To whom", "What would reduce it")
        said = [f"- **{name}.** {text}" for name, text in zip(names, self.headline(), strict=True)]
        title = f"{'#' * level} What the updates of {self.facts['name']} give away"
        return "\n".join([title, "", *said, "", *self.facts["lines"], "", *sections(self, "#" * (level + 1))])


def facts(
    run: Sequence[Contribution], setup: Setup | None, who: Adversary, update: Update, model: nn.Module, folder: Path
) -> dict[str, Any]:
    """Return what a report says of a run; ``lines`` stand where a set-up is described."""
    rounds, nodes = sorted({one.round for one in run}), {one.node for one in run}
    last, with_data = head(model), setup is not None and setup.data is not None
    size = sum(tensor.numel() for tensor in update.tensors.values())
    by = {"client": "its client mod or loop", "server": "the server"}
    own = "weights as recorded, of the set-up's model" if setup else "unknown: names and values as recorded"
    lines = [
        f"- Run: {len(run)} updates of {len(nodes)} clients in {len(rounds)} rounds ({rounds[0]} to {rounds[-1]}), "
        f"recorded by {' and '.join(by[name] for name in sorted({one.seen_by for one in run}))}.",
        f"- Model: {size:,} parameters, {last.layer.out_features} classes, last layer "
        f"`{last.name or 'the model itself'}`; {own}.",
        f"- A client shares the change of its weights after {_span(one.steps for one in run)} steps on "
        f"{_span(one.samples for one in run)} samples; optimiser {', '.join(sorted(set(map(_optimiser, run))))}.",
        f"- Adversary: {who.name}" + ("." if with_data else ", without data of its own."),
        f"- True labels are recorded for {sum(one.counts is not None for one in run)} of the {len(run)} updates.",
    ]
    if any(one.scheme is None for one in run):
        lines.append("- The optimiser is no SGD: its updates are no gradients; the attacks read them as if they were.")
    return {
        "name": folder.resolve().name,
        "lines": lines,
        "clients": 1,
        "samples": _span(one.samples for one in run),
        "classes": last.layer.out_features,
        "adversary": who.name,
        "auxiliary": "some" if with_data else 0,
        "inversions_lack": get("InvG").lacking(who),
        "trials": len(run),
        "seed": setup.seed if setup else 0,
        "seconds": 0.0,
        "versions": f"fedleak {version('fedleak')}, torch {torch.__version__}, {torch.get_num_threads()} threads",
    }


def sections(report: RunReport, mark: str) -> list[str]:
    """Return what the report of a run has that one of a set-up has not, as lines of Markdown."""
    lines = []
    if not report.rows.empty:
        rounds = [
            [r["case"], r["n"], r["attack"], f"{r['iacc']:.2f}", f"{r['exact']:.2f}", f"{r['guess']:.2f}"]
            for _, r in cases(report).iterrows()
        ]
        columns: tuple[str, ...] = ("", "Clients", "Best attack", "Labels right (iAcc)", "All exact", "Best guess")
        lines += [f"{mark} Round by round", "", *_markdown(columns, rounds), ""]
    if not report.unscored.empty:
        found = [
            [r["round"], f"`{r['node']}`", r["samples"], r["attack"], _named(r["counts"]), percent(r["agreement"])]
            for _, r in report.unscored.sort_values("agreement", ascending=False, kind="stable").iterrows()
        ]
        columns = ("Round", "Client", "Samples", "Attack", "Counts by class", "Agreement")
        lines += [f"{mark} Updates without recorded labels", "", *_markdown(columns, found[:MOST_ROWS]), ""]
        lines += [
            "Nothing here is scored. Of each update, the counts of the attack that the others agree with most, and the "
            "share of labels in which they agree on average: all that an attacker knows too" + _more(found),
            "",
        ]
    return lines


def _more(rows: list) -> str:
    return f"; {len(rows) - MOST_ROWS} more are not shown." if len(rows) > MOST_ROWS else "."


def _named(counts: list[int]) -> str:
    return ", ".join(f"{label}: {count}" for label, count in enumerate(counts) if count) or "none"


def _span(values: Iterable[int]) -> str:
    low, *_, high = sorted([*(values := list(values)), values[0]])
    return str(low) if low == high else f"{low} to {high}"


def _optimiser(one: Contribution) -> str:
    return f"{one.optimiser} (rate {one.lr:g}" + (f", momentum {one.momentum:g})" if one.momentum else ")")


def _markdown(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    lines = [list(columns), ["---" for _ in columns], *rows]
    return ["| " + " | ".join(str(cell).replace("*", r"\*") for cell in line) + " |" for line in lines]
