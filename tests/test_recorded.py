"""Recorded results: some of them, drawn anew every day, come out again; and claims are those of today's records."""

import os
from datetime import date

import pytest

from fedleak_book.experiments import claims, recheck, records
from fedleak_book.experiments.recheck import DIFFERS, SAME

SEED = int(os.environ.get("FEDLEAK_RECHECK_SEED", date.today().toordinal()))
KEYS = {"iteration", "batch_size", "attack"}
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


def test_records_that_add_trials_begin_with_the_same_ones():
    def rows(name, **cell):
        table = claims.matching_rows(records.recorded("llg", name)[0], cell)
        return table.set_index(["trial", *sorted(KEYS & {*table})]).sort_index()["asr"]

    early = rows("fig6", algorithm="FedAvg", data="mnist").pipe(
        lambda t: t[t.index.get_level_values("iteration") <= 300]
    )
    for first, more in (
        (early, rows("fig6_early")),
        (rows("fig4", algorithm="FedAvg", data="celeba-hair"), rows("fig4_faces")),
    ):
        shared = first.index.intersection(more.index)
        assert len(shared) > 50
        apart = (first[shared] - more[shared]).abs()
        assert (apart < 1e-9).mean() > 0.9, "other processors round differently"
        assert apart.max() < 0.05
