"""Means that no network gives, tolerances that came late, and trials that were added after a look."""

import pandas as pd
import pytest
from values import item

from fedleak_book import paths
from fedleak_book.evidence import verdicts
from fedleak_book.evidence.measurements import Measured
from fedleak_book.evidence.spread import two_kinds
from fedleak_book.evidence.verdicts import AGREES, DIFFERS, OPEN, WITHIN
from fedleak_book.experiments import looks

TWO = [0.1] * 14 + [0.9] * 26


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (TWO, (0.1, 0.1, 0.9, 0.9, 14, 26)),
        ([k / 40 for k in range(40)], ()),  # every value between
        ([0.5] * 40, ()),
        ([0.1] + [0.9] * 39, ()),  # one alone
        ([0.0] * 20 + [1.0] * 20, ()),  # successes
        (TWO[::8], ()),  # few
    ],
)
def test_two_kinds_of_networks_are_seen(values, expected):
    assert two_kinds(values) == expected


def judged(point, **changes):
    return verdicts.of_point(item(**changes), point)


@pytest.mark.parametrize(("printed", "expected"), [(0.88, OPEN), (0.95, DIFFERS)])
def test_a_mean_of_two_kinds_may_miss_the_print(printed, expected):
    point = Measured("a", 0.62, 0.5, 0.74, 40, groups=two_kinds(TWO))
    assert judged(point, published=printed, attack=False) == expected


@pytest.mark.parametrize(("rows", "expected"), [("none", WITHIN), ("earlier", WITHIN), ("used", OPEN)])
def test_a_tolerance_written_with_the_rows_known_decides_nothing(rows, expected):
    assert judged(Measured("a", 0.87, 0.86, 0.88, 10), rows=rows) == expected
    assert judged(Measured("a", 0.9, 0.88, 0.92, 10), rows=rows) == AGREES


def test_every_look_at_the_trials_is_paid_for():
    once = Measured("a", 0.9, 0.853, 0.947, 10, ends=(0.0, 1.0))
    assert [judged(Measured(**vars(once) | {"looks": k})) for k in (1, 2)] == [AGREES, OPEN]
    assert looks.stretch(1) == pytest.approx(1)
    assert looks.stretch(2) == pytest.approx(2.2414 / 1.96, abs=1e-3)


def test_trials_that_are_added_to_a_record_are_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    before = pd.DataFrame({"net": "cnn", "trial": range(10)})
    for n in (10, 40, 80):
        after = pd.DataFrame({"net": "cnn", "trial": range(n)})
        looks.note("llg", "fig4", ["net"], before, after)
        before = after
    assert [looks.at("llg", "fig4", n) for n in (10, 40, 80)] == [1, 2, 3]
    assert looks.at("llg", "fig5", 40) == 1
