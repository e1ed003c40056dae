"""What the tests of the texts share: a chapter's words, its recorded rows, and paired means with intervals."""

import json
from functools import cache

import pandas as pd
import pytest

from fedleak import paths
from fedleak.attacks.contest import held_out
from fedleak.experiments import seeds_of
from fedleak.intervals import NUMBER, interval

SAID = []


def of(chapter):
    """Mark a function that returns what the chapter has to say, word for word."""

    def keep(function):
        SAID.append(pytest.param(chapter, function, id=f"{chapter}-{function.__name__}"))
        return function

    return keep


@cache
def text(chapter):
    """A chapter's markdown and captions, or all errata, without line breaks."""
    if chapter == "errata":
        return " ".join((paths.root() / "data" / "errata.toml").read_text(encoding="utf-8").split())
    cells = json.loads((paths.root() / "notebooks" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    pieces = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    pieces += [cell["metadata"].get("mystnb", {}).get("figure", {}).get("caption", "") for cell in cells]
    return " ".join(" ".join(pieces).split())


def rows(chapter, table):
    return pd.read_csv(paths.recorded(chapter) / f"{table}.csv")


def printed(chapter, table):
    return pd.read_csv(paths.root() / "data" / "published" / chapter / f"{table}.csv")


def trials(table, by, value):
    """The mean of every trial, with the trials as rows."""
    return table.groupby(["trial", *by])[value].mean().unstack(by)


def listed(values, form="{:.2f}"):
    values = [form.format(v) for v in values]
    return f"{', '.join(values[:-1])} and {values[-1]}"


def by_network(gap):
    """Means over the updates of each trained network of the arena: of trial i that of its seed, of three."""
    return gap.groupby([seed % 3 for seed in seeds_of(0, 20)]).mean()


def leads(gap, unit=" dB", form=".1f"):
    low, high = interval(gap, NUMBER)
    return minus(f"{gap.mean():{form}}{unit} [{low:{form}}, {high:{form}}]")


def what_noise_costs():
    accuracy = rows("llg", "table1").pivot_table(
        index="trial", columns=["algorithm", "defence", "level"], values="accuracy"
    )
    lost = (100 * (accuracy[a, "none", 0.0] - accuracy[a, "noise", 1.0]) for a in ("FedSGD", "FedAvg"))
    return [leads(gap, unit) for gap, unit in zip(lost, (" points", ""), strict=True)]


FLOORS = ["prior guess", "random guess"]


def best(cell):
    """iAcc of the best attack that reads the update, scored on updates that it was not picked on."""
    wide = cell.pivot(index="trial", columns="attack", values="iacc").dropna(axis=1)
    wide = wide.drop(columns=FLOORS, errors="ignore")
    return held_out(wide.to_numpy())[0].mean()


def deep_cells():
    """Trained deep networks in the arena: by network and batch size, our attackers and the best published one."""
    table = pd.concat([rows("arena", name) for name in ("vgg_trained", "resnet_trained")])
    found = answered(table, ["net", "batch_size"])
    return found.rename(columns={"learned, training loss": "told", "RLU, whole head": "whole"})


def minus(text):
    return text.replace("-", "−")


def answered(table, by):
    """Mean iAcc of the attacks that answered every update of a cell; of the published ones the best."""
    wide = table.pivot_table(index=[*by, "trial"], columns="attack", values="iacc", sort=False)
    mean = wide.groupby(by, sort=False).agg(lambda v: v.mean(skipna=False))
    ours = ["learned", "learned, training loss", "RLU, whole head", "GDBR, whitened", "prior guess", "random guess"]
    rivals = mean.drop(columns=ours, errors="ignore").astype(float)
    return mean.assign(best=rivals.max(axis=1), which=rivals.idxmax(axis=1))


def halves(artefact, steps=None):
    """Coverage as simulated and iAcc by half and batch size, a column for each attack; what is said of the losses."""
    table = rows("learned", artefact)
    table = table[table["steps"] == steps] if steps else table
    parts = dict(tuple(table.groupby("composition")))
    shape = {"index": ["half", "batch_size"], "columns": "attack"}
    held = parts["simulated"].pivot_table(values="coverage", **shape)
    iacc = parts["unbalanced"].pivot_table(values="iacc", **shape)
    loss = table.groupby("half")["loss"].mean()
    return held, iacc, f"mean loss is {loss['members']:.2f} on members and {loss['others']:.2f} on others"


TOLD, WHOLE = "learned, knows the training loss", "RLU, whole head"
