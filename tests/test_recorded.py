"""Recorded results: some of them, drawn anew every day, come out again; and claims are those of today's records."""

import os
from datetime import date

import pytest

from fedleak_book.experiments import recheck
from fedleak_book.experiments.recheck import DIFFERS, SAME

SEED = int(os.environ.get("FEDLEAK_RECHECK_SEED", date.today().toordinal()))
BUDGET = float(os.environ.get("FEDLEAK_RECHECK_BUDGET", "60"))


@pytest.mark.slow
def test_recorded_cells_come_out_again(capsys):
    """Set FEDLEAK_RECHECK_SEED to draw the same again, and FEDLEAK_RECHECK_BUDGET to draw more."""
    messages = []
    outcomes = recheck.spot_check(None, SEED, BUDGET, messages.append)
    with capsys.disabled():
        print(f"\nFEDLEAK_RECHECK_SEED={SEED}", *messages, sep="\n")
    assert outcomes
    wrong = [rows[rows["verdict"] == DIFFERS].assign(record=name) for name, rows in outcomes.items()]
    wrong = [rows for rows in wrong if len(rows)]
    assert wrong == [], "record these anew if their trials were meant to change: fedleak record NAME EXPERIMENT"
    verdicts = [v for rows in outcomes.values() for v in rows["verdict"]]
    assert verdicts.count(SAME) >= len(verdicts) / 2, "too many trials turn out differently for rounding to be why"
