"""Does it matter that a trial's network and its batches are drawn from one seed? Three recorded tables, computed again.

The recorded experiments give one integer to the network's weights and to the batches' draws, so that both read the same
raw numbers. Here the weights get a seed of their own, spawned from the trial's by its role; the batches stay. Compared
is each cell's mean over the trials with the recorded one, paired by trial: where the seeds do not matter, one cell in
twenty is beyond the 95 % interval of its difference.

    FEDLEAK_DATA=… python benchmarks/seeds.py
"""

import io
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats
from torch import nn

from fedleak_book.experiments import Context, records, running, spawned

TABLES: dict[str, dict[str, Any]] = {
    "llg/fedavg_readings": {"data": ["mnist"]},
    "gdbr/table1": {"net": ["lenet", "mlp6"]},
    "rlu/table2": {"net": ["lenet"]},
}
"""Which settings of which recorded tables."""


class Spawning(Context):
    """Context with separate seeds for its networks."""

    def build(self, net: str, shape: tuple[int, ...], n_classes: int, *, seed: int, **options: Any) -> nn.Module:
        """Build a network from a seed that is spawned from the trial's."""
        return super().build(net, shape, n_classes, seed=spawned(seed, "weights"), **options)


def compared(name: str, only: dict[str, list[Any]]) -> dict[str, Any]:
    """Recompute settings of a table, and return the differences from the recorded cells."""
    paper, artefact = name.split("/")
    experiment = running.declared(paper)[artefact]
    record = records.recorded(paper, artefact)
    assert record is not None
    settings = [s for s in experiment.settings("paper") if all(s[key] in values for key, values in only.items())]
    with tempfile.TemporaryDirectory() as folder:
        rows = running.run(paper, experiment, Spawning("cpu"), settings, folder=Path(folder))
    rows = pd.read_csv(io.StringIO(rows.to_csv(index=False, float_format="%.7g")))  # as the recorded ones
    value, keys = next(iter(experiment.values)), [k for k in (*experiment.axes, *experiment.by) if k in rows]
    old, new = (t.groupby([*keys, "trial"], dropna=False)[value].mean() for t in (record[0], rows))
    gain = (new - old).dropna()
    cells = gain.groupby(level=keys, dropna=False).agg(["mean", "sem", "count"])
    moved = cells[cells["sem"] > 0]
    beyond = moved["mean"].abs() > moved["sem"] * stats.t.ppf(0.975, moved["count"] - 1)
    return {
        "table": name,
        "cells": len(cells),
        "that change": len(moved),
        "beyond their interval": int(beyond.sum()),
        "mean difference": f"{cells['mean'].mean():+.4f}",
        "largest": f"{cells['mean'].abs().max():.4f}",
    }


if __name__ == "__main__":
    print(pd.DataFrame(compared(name, only) for name, only in TABLES.items()).to_string(index=False))
