"""The page on differential privacy shows the records' best attacks, bounds and claims, and nothing else."""

import sys

import pandas as pd
import pytest

from fedleak import paths

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import private

PLACES = {"epsilon": 4.0, "state": "untrained"}


@pytest.fixture
def read():
    """Six updates under two mechanisms: an attack that is good on the even ones alone, and a steady one."""
    rows = []
    for mechanism, steady in ((private.SAMPLE, 0.75), (private.AFTER, 1.0)):
        for trial in range(6):
            values = {"LLG+": 0.0 if trial % 2 else 0.5, "GDBR": steady, "prior guess": 0.25, "random guess": 0.5}
            for attack, iacc in values.items():
                rows.append({"mechanism": mechanism, **PLACES, "trial": trial, "attack": attack, "iacc": iacc})
    return pd.DataFrame(rows)


@pytest.fixture
def bounds():
    rows = [{"mechanism": private.SAMPLE, **PLACES, "bound": b, "gaussian": 3 * b} for b in (1.0, 1.2, 0.8)]
    return pd.DataFrame(rows)


def test_the_best_attack_is_scored_on_updates_that_it_was_not_picked_on(read):
    named = private.best(read, 32)
    assert list(named["attack"]) == ["GDBR", "GDBR"]
    assert list(named["iacc"]) == [0.75, 1.0]
    assert (named["guess"] == 0.5).all()
    assert named["low"][1] > 0.9
    assert named["high"][1] == 1


def test_the_table_has_claim_bound_and_labels(read, bounds):
    lines = private.both(private.best(read, 32), bounds).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")][2:]
    assert cells[0][:4] == ["DP-SGD (one sample)", "4", "1 (0.8 to 1.2)", "3 (2.4 to 3.6)"]
    assert cells[0][4].startswith("75 [")
    assert cells[0][4].endswith("(GDBR)")
    assert cells[1][2:4] == ["–", "–"], "no canary was run there"


def test_the_sentence_counts_what_is_above_its_claim(read, bounds):
    clipped = read[read["mechanism"] == private.SAMPLE].assign(mechanism=private.CLIENT, iacc=0.125)
    above = [bounds.assign(mechanism=m, above=[0.0, k > 1, k > 0]) for k, m in enumerate(private.WORDS)]
    told = private.in_short(private.best(pd.concat([read, clipped]), 32), pd.concat(above))
    assert told.startswith(
        "At an ε of 4 for one sample, 75% of a fresh network's labels are named; at an ε of 4 for the"
    )
    assert "client 12%, where the best guess names 12%" in told
    assert "0 of 3 canaries of DP-SGD and 1 of 3 of the clipped update, 2 of 3 without clipping and 2 of 3 with" in told


def test_the_figure_has_the_labels_above_and_the_bounds_below(read, bounds):
    drawn = private.figure(private.best(read, 32), bounds)
    top, _, bottom, _ = drawn.axes
    lines = {line.get_label(): line for line in top.lines}
    assert list(lines["DP-SGD (one sample)"].get_ydata()) == [0.75]
    filled, hollow = bottom.lines[:2]
    assert sorted(filled.get_ydata()) == pytest.approx([2.4, 3.0, 3.6])
    assert sorted(hollow.get_ydata()) == pytest.approx([0.8, 1.0, 1.2])
    text = private.svg(drawn)
    assert "ε that a canary shows at least" in text
    assert "best guess" in text
