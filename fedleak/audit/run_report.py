"""The report of a recorded run: that of a set-up, round by round and client by client too."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import nn

from fedleak.attacks.registry import Adversary, get
from fedleak.audit.case import versions
from fedleak.audit.guard import cases
from fedleak.audit.report import WHO, Report
from fedleak.audit.setup import Setup
from fedleak.audit.writing import as_table, percent, plain
from fedleak.federated import Update
from fedleak.models import head, known_tokens

if TYPE_CHECKING:
    from fedleak.federated.recording import Contribution

MOST_ROWS = 20
"""Clients that a table of the report shows: those that leak most."""


@dataclass
class RunReport(Report):
    """What the audit of a recorded run found; as for a set-up, and with it how leakage goes with the rounds."""

    unscored: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row a contribution without recorded labels: ``round``, ``node``, ``samples``, ``attack`` (the one that the
    others agree with most), ``counts`` that it names, ``agreement`` in [0, 1]; see `agreement`."""

    spread = "over the clients, each by the mean of its updates (of fewer than three clients: over the updates)"
    unseen = """\
- **what was not recorded**: clients and rounds that are not in the folder, and what travels beside the model.
- **what was told wrongly**: samples, labels, steps and learning rate are taken as recorded; a mod sees only what the
  mods behind it leave.
"""

    def headline(self) -> tuple[str, str, str]:
        """Return three sentences: what leaks, to whom, and what would reduce it."""
        if not self.rows.empty:
            return super().headline()
        what = f"No labels were recorded, so nothing is scored. {len(self.unscored)} updates were attacked; "
        what += f"the attacks agree on {percent(self.unscored['agreement'].mean())} of the labels."
        whom = WHO.get(self.facts["adversary"], self.facts["adversary"]).format(**self.facts)
        return what, f"To {whom}.", "Not measured without labels: record them to see."

    def svg(self) -> str:
        """Return the figure as SVG; "" if nothing is scored."""
        return "" if self.rows.empty else super().svg()

    def to_markdown(self, figure: str = "", level: int = 1) -> str:
        """Return the report as Markdown; see `Report.to_markdown`."""
        if not self.rows.empty:
            return super().to_markdown(figure, level)
        return f"{self._top('#' * level)}\n{self._sections('#' * level)}"

    def _facts(self) -> str:
        return self.facts["about"]

    def _warning(self) -> str:
        if not (others := self.facts["others"]):
            return ""
        return f"Not SGD: {others}. All attacks here read a change as SGD's, so that a low number is no all-clear."

    def _sections(self, mark: str) -> str:
        text = ""
        if not self.rows.empty:
            found = cases(self).query("attack != ''")
            shares = found[["iacc", "exact", "guess"]].map("{:.2f}".format)
            shares.columns = ["Labels right (iAcc)", "All exact", "Best guess"]
            read = found["n"].astype(str) + " of " + found["of"].astype(str)
            rounds = {"": found["case"], "Updates read": read, "Best attack": found["attack"].map(plain)}
            text += f"{mark}# Round by round\n\n{as_table(pd.DataFrame(rounds).join(shares))}\n\n"
        if not self.unscored.empty:
            best = self.unscored.sort_values("agreement", ascending=False, kind="stable")
            updates = {
                "Round": best["round"],
                "Client": "`" + best["node"] + "`",
                "Samples": best["samples"],
                "Attack": best["attack"].map(plain),
                "Counts by class": best["counts"].map(_named),
                "Agreement": best["agreement"].map(percent),
            }
            more = f"; {len(best) - MOST_ROWS} more are not shown" if len(best) > MOST_ROWS else ""
            text += f"""\
{mark}# Updates without recorded labels

{as_table(pd.DataFrame(updates)[:MOST_ROWS])}

Nothing here is scored. Of each update, the counts of the attack that the others agree with most, and the share of
labels in which they agree on average: all that an attacker knows too{more}.

"""
        return text


def facts(
    run: "Sequence[Contribution]",
    setup: Setup | None,
    who: Adversary,
    update: Update,
    model: nn.Module,
    folder: Path,
    grounds: str,
    dropped: Sequence[str],
) -> dict[str, Any]:
    """Return what a report says of a run; ``about`` stands where a set-up is described."""
    rounds, nodes = sorted({one.round for one in run}), {one.node for one in run}
    last, with_data = head(model), setup is not None and setup.data is not None
    size = sum(tensor.numel() for tensor in update.tensors.values())
    by = {"client": "its client mod or loop", "server": "the server"}
    own = "weights as recorded, of the set-up's model" if setup else f"{grounds}; the model is unknown"
    parallel = max(one.clients for one in run)
    samples = _span([one.samples for one in run])
    about = f"""\
- Run: {len(run)} updates of {len(nodes)} clients in {len(rounds)} rounds ({rounds[0]} to {rounds[-1]}), recorded by \
{" and ".join(by[name] for name in sorted({one.seen_by for one in run}))}.
- Model: {size:,} parameters, {last.layer.out_features} classes, last layer `{last.name or "the model itself"}`; {own}.
- A client shares the change of its weights after {_span([one.steps for one in run])} steps on {samples} samples; \
optimiser {plain(", ".join(sorted(set(map(_optimiser, run)))))}.
- Adversary: {who.name}{"" if with_data else ", without data of its own"}.
- True labels are recorded for {sum(one.counts is not None for one in run)} of the {len(run)} updates.
"""
    if parallel > 1:
        about += (
            f"- The server sees the mean over up to {parallel} clients in parallel: it is read as one batch of all.\n"
        )
    if last.tied:
        about += f"- The last layer's weight is that of `{last.tied}` too, and its gradient that of both.\n"
    about += "".join(f"- Left out: {plain(text)}.\n" for text in dropped)
    others = [one.optimiser.replace("unknown", "an unknown optimiser") for one in run if one.scheme is None]
    kinds = " and ".join(sorted(set(others)))
    return {
        "name": folder.resolve().name,
        "about": about,
        "clients": 1,
        "others": f"{len(others)} of {len(run)} updates are made by {kinds}" if others else "",
        "tokens": bool(known_tokens(model)),
        "samples": samples,
        "adversary": who.name,
        "auxiliary": "some" if with_data else 0,
        "inversions_lack": get("InvG").lacking(who),
        "seed": setup.seed if setup else 0,
        "versions": versions(),
    }


def _named(counts: list[int]) -> str:
    return ", ".join(f"{label}: {count}" for label, count in enumerate(counts) if count) or "none"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _optimiser(one: "Contribution") -> str:
    return f"{one.optimiser} (rate {one.lr:g}" + (f", momentum {one.momentum:g})" if one.momentum else ")")
