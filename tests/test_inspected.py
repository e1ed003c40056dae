"""The page on the guard for clients counts what is recorded, and nothing else."""

import sys

import pandas as pd
import pytest

from fedleak import paths
from fedleak.experiments import running
from fedleak.federated.inspection import inspect_model
from fedleak.models import build

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import inspected

PLAIN = {"net": "lenet", "stage": "0 steps", "batch": "mixed", "noise": 0.0, "spared": 0.0}


def row(sent, refused, weights=0.0, read=float("nan"), checks=(), **more):
    found = {name: float(name in checks) for name in inspected.CHECKS}
    return {**PLAIN, "sent": sent, "refused": refused, "weights": weights, "read": read} | found | more


@pytest.fixture
def rows():
    return pd.DataFrame(
        [
            row("honest", 0.0),
            row("honest", 1.0, checks=["silent"], net="mlp6"),
            row("honest", 1.0, checks=["saturated"], batch="one class"),
            row("honest", 0.0, net="mlp6", batch="one class"),
            row("EludingSA", 1.0, 1.0, 1.0, ["dead", "silent"]),
            row("EludingSA", 1.0, 0.0, 0.5, ["silent"], noise=0.1),
            row("EludingSA", 0.0, 0.0, 0.7, noise=0.1, net="mlp6"),
            row("EludingSA", 0.0, 0.0, 0.2, spared=0.2),
        ]
    )


def lines(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")][2:]


def test_false_positives_are_those_of_honest_models(rows):
    (line,) = lines(inspected.honest(rows))
    assert line[:4] == ["0 steps", "0 of 2", "1 of 2", "1 of 2"]
    assert line[4] == "silent activations: MLP-6 1; saturated softmax: LeNet 1"


def test_what_is_crafted_as_published_stands_apart_from_what_is_hidden(rows):
    (line,) = lines(inspected.crafted(rows))
    assert line == ["EludingSA", "1 of 1", "1 of 1", "1", "0", "0", "0", "1", "0"]
    found = lines(inspected.disguised(rows))
    assert [one[1:4] for one in found] == [
        ["as published", "1 of 1", "1 of 1"],
        ["noise 0.1", "0 of 2", "1 of 2"],
        ["20% of units honest", "0 of 1", "0 of 1"],
    ]
    assert found[1][4] == "0.6 (0.5 to 0.7) of the sum’s squared norm"


def test_what_gets_past_is_what_is_refused_least_and_of_that_what_reads_most(rows):
    told = inspected.escapes(rows)
    assert told.endswith(
        ": EludingSA with 20% of units honest is refused 0 of 1 times and reads 0.2 of the sum’s squared norm."
    )
    rows.loc[rows["noise"] > 0, "refused"] = 0.0
    assert "noise 0.1 is refused 0 of 2 times and reads 0.6" in inspected.escapes(rows)


def test_the_sentence_counts_all(rows):
    told = inspected.in_short(rows.assign(trial=range(len(rows))))
    assert "at 4 networks" in told
    assert "1 of 1 models that are crafted as published, 1 of 3 whose server" in told
    assert "2 of 4 times an honest model (0 of 4 by the weights alone)" in told


def test_the_experiments_checks_are_those_of_the_page_and_of_the_package():
    module = running.module("arena", "experiments_inspected")
    assert module.CHECKS == inspected.CHECKS
    assert all(name in (inspect_model.__doc__ or "").replace("``", "") for name in inspected.CHECKS.values())
    assert set(module.NETS) == set(module.RIGHT_BEFORE)


@pytest.mark.parametrize("units", [True, False])
def test_pruning_takes_the_share_that_it_says(units):
    module = running.module("arena", "experiments_inspected")
    model = module.pruned(build("lenet", (1, 28, 28), 10, seed=0), 0.5, units)
    weight, bias = model[7].weight, model[7].bias
    assert (weight == 0).float().mean().item() == pytest.approx(0.5, abs=0.01)
    gone = (weight == 0).all(1)
    assert int(gone.sum()) == 60 * units
    assert not bias[gone].any()
    assert bias[~gone].all()
    assert not (model[11].weight == 0).all(1).any(), "the head keeps its classes"
