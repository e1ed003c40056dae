"""How verdict and grade follow: every one can be reached, and every rule can fail."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from values import item

from fedleak_book.evidence import effects, judged, verdicts
from fedleak_book.evidence.claims import Claim
from fedleak_book.evidence.effects import Backtest, Effect
from fedleak_book.evidence.measurements import Difference, Measured
from fedleak_book.evidence.published import LOST, Paper, Table
from fedleak_book.evidence.verdicts import AGREES, BETTER, DEPENDS, DIFFERS, NOT_ATTEMPTED, OPEN, WITHIN
from fedleak_book.experiments.kinds import MEAN
from fedleak_book.experiments.records import Record

RATES = {"setting": "lr", "is": [0.01, 0.03]}
SCALES = {"setting": "scale", "is": ["raw", "half"], "when": {"net": "lenet"}}
IN_TABLE = {"table": "t", "cell": {"net": "lenet"}}


def measured(low, high, n=10, **changes):
    return Measured("a", (low + high) / 2, low, high, n, ends=(0.0, 1.0), **changes)


GOOD, BAD, HIGH, VAGUE = (0.88, 0.92), (0.5, 0.6), (0.96, 0.99), (0.8, 0.92)
VERDICTS = {GOOD: AGREES, HIGH: BETTER, BAD: DIFFERS, VAGUE: OPEN}


def at(interval, **free):
    """A measurement at some choices of what is not printed."""
    return measured(*interval, differences=tuple(Difference(k, v, LOST) for k, v in free.items()))


EVERY = [at(GOOD, lr=lr, scale=scale) for lr in RATES["is"] for scale in SCALES["is"]]


def paper_of(head, *items, **rules):
    """A paper with one table and some values of it."""
    return Paper("p", "P", "k", {"t": Table("p", "t", head, {}, rules)}, {each.id: each for each in items}, rules)


PAPER = paper_of({}, choice=[RATES, SCALES])


def verdict_and_grade(points, **changes):
    judgement = verdicts.judge(item(**IN_TABLE | changes), PAPER, points)
    return judgement.verdict, judgement.grade


@pytest.mark.parametrize(
    ("changes", "low", "high", "n", "expected"),
    [
        ({}, 0.85, 0.94, 10, AGREES),  # the band has its ends
        ({}, 0.86, 0.89, 10, WITHIN),  # beside the print
        ({"kind": "at least"}, 0.86, 0.89, 10, WITHIN),
        ({"attack": False}, 0.96, 0.99, 10, DIFFERS),
        ({"direction": "lower"}, 0.70, 0.80, 10, BETTER),
        ({"direction": "neither"}, 0.96, 0.99, 10, DIFFERS),
        ({}, 0.88, 0.92, 2, OPEN),
        ({}, math.nan, math.nan, 10, OPEN),
        ({"kind": "at least"}, 0.86, 1.0, 10, AGREES),
        ({"kind": "at least"}, 0.80, 0.99, 10, OPEN),
        ({"kind": "at most"}, 0.0, 0.94, 10, AGREES),
        ({"kind": "at most"}, 0.96, 0.99, 10, DIFFERS),  # a bound that is broken, whatever is better
        ({"kind": "between", "published": (0.4, 0.6)}, 0.38, 0.64, 10, AGREES),
        ({"kind": "between", "published": (0.4, 0.6)}, 0.7, 0.8, 10, BETTER),
    ],
)
def test_the_interval_decides_the_verdict(changes, low, high, n, expected):
    point = Measured("a", 0.9 if math.isnan(low) else (low + high) / 2, low, high, n)
    assert verdict_and_grade([point], **changes) == (expected, "A")


def test_the_record_with_the_most_networks_decides():
    few, many = Measured("a", 0.75, 0.70, 0.80, 10), Measured("a", 0.9, 0.88, 0.92, 1600)
    assert verdict_and_grade([few]) == (DIFFERS, "A")
    assert verdict_and_grade([few, many]) == verdict_and_grade([many, few]) == (AGREES, "A")


FAR, SAMPLE = Difference("side", 16, 32.0), Difference("images", 500, 5000.0, "sample of 500 images")


def test_at_other_settings_the_record_with_the_most_networks_is_shown():
    few, many = (measured(*ends, n=n, differences=(FAR,)) for ends, n in ((BAD, 10), (GOOD, 20)))
    assert verdicts.judge(item(**IN_TABLE), PAPER, [few, many]).point is many


def read(interval, **changes):
    """A measurement for one reading of the paper."""
    return measured(*interval, reading=str(interval), **changes)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        # what is computed needs no interval, and what was not tried has no grade
        ([Measured("a", 0.9, exact=True)], (AGREES, "A")),
        ([Measured("a", 0.5, exact=True)], (DIFFERS, "A")),
        ([Measured("a", None)], (NOT_ATTEMPTED, "")),
        # a setting that differs is grade D, unless it is excused
        *(([measured(*i, differences=(FAR,))], (verdict, "D")) for i, verdict in VERDICTS.items()),
        *(([measured(*i, differences=(SAMPLE,))], (verdict, "A")) for i, verdict in VERDICTS.items()),
        # every choice has to say the same
        *(([at(i, lr=0.01), at(i, lr=0.03)], (verdict, "B")) for i, verdict in VERDICTS.items()),
        ([at(GOOD, lr=0.01), at(BAD, lr=0.03)], (DEPENDS, "B")),
        ([at(GOOD, lr=0.01), at(VAGUE, lr=0.03)], (OPEN, "B")),
        # a choice that is missing or not declared is grade D
        ([at(GOOD, lr=0.01)], (AGREES, "D")),
        ([at(GOOD, lr=0.01), at(GOOD, lr=0.1)], (AGREES, "D")),
        ([at(GOOD, momentum=0.9)], (AGREES, "D")),
        # several settings are scanned jointly, after the paper's own
        (EVERY, (AGREES, "B")),
        (EVERY[:3], (AGREES, "D")),
        # verdicts that differ stay different, whatever a choice that was not measured says
        ([at(GOOD, lr=0.01, scale="raw"), at(BAD, lr=0.03, scale="half")], (DEPENDS, "B")),
        ([at(GOOD, lr=0.01, scale="raw"), at(VAGUE, lr=0.03, scale="half")], (AGREES, "D")),
        ([*EVERY[:3], at(BAD, lr=0.03, scale="half")], (DEPENDS, "B")),
        ([at(BAD, lr=0.01), at(BAD, lr=0.03), measured(*GOOD)], (AGREES, "A")),
        # all readings of the paper have to agree
        ([read(GOOD), read(GOOD)], (AGREES, "A")),
        ([read(GOOD), read(BAD)], (DEPENDS, "A")),
        ([read(GOOD), read(VAGUE)], (OPEN, "A")),
        ([read(GOOD, differences=(FAR,)), read(BAD, differences=(FAR,))], (OPEN, "D")),
    ],
)
def test_verdict_and_grade(points, expected):
    assert verdict_and_grade(points) == expected


def test_a_choice_is_of_some_cells_and_readings_are_counted():
    assert verdict_and_grade([at(GOOD, scale="raw"), at(GOOD, scale="half")], cell={"net": "vgg"}) == (AGREES, "D")
    judgement = verdicts.judge(item(**IN_TABLE), PAPER, [read(GOOD), read(BAD)])
    assert judgement.note.startswith("1 of 2 readings agree")


def fewer(interval, ends, record="reduced", **free):
    """A measurement with fewer images, and the effect of these on other data."""
    point, few = at(interval, **free), Difference("images", 500, 5000.0)
    effect = Effect(record, ("images", "aux"), ends)
    return replace(point, differences=(*point.differences, few), effects=(effect,))


SMALL, LARGE = {"mnist": (-0.01, 0.01), "cifar10": (0.0, 0.02)}, {"mnist": (-0.01, 0.3)}


def test_an_effect_counts_once_its_record_passed_the_test():
    value, point = item(**IN_TABLE), fewer(GOOD, SMALL)
    for covered, grade in ((20, "C"), (10, "D")):
        (row,) = judged.rows(paper_of({}, value), {"a": [point]}, {"reduced": Backtest(20, covered, 0.05)})
        assert (row["verdict"], row["grade"]) == (AGREES, grade)


def test_fewer_images_widen_the_interval_by_what_they_are_worth():
    assert verdict_and_grade([fewer(GOOD, SMALL)]) == (AGREES, "C")
    assert verdict_and_grade([fewer(GOOD, LARGE)]) == (OPEN, "C")
    assert verdict_and_grade([fewer(BAD, SMALL)]) == (DIFFERS, "C")
    point = verdicts.transported(fewer((0.9, 0.99), LARGE))
    assert (round(point.low, 3), point.high) == (0.89, 1.0)  # no share is above 1
    assert verdicts.transported(replace(point, differences=(Difference("side", 16, 32.0),))) is None
    # with a setting that is not printed, scans are needed as well
    points = [fewer(GOOD, SMALL, lr=0.01), fewer(GOOD, SMALL, lr=0.03)]
    assert verdict_and_grade(points) == (AGREES, "C")
    assert verdict_and_grade(points[:1]) == (AGREES, "D")
    assert verdict_and_grade([points[0], fewer(BAD, SMALL, lr=0.03)]) == (DEPENDS, "C")
    assert Effect("r", (), {"a": (0.01, 0.02), "b": (math.nan, math.nan)}).hull == (0.0, 0.02)
    assert Effect("r", (), {"a": (-0.03, -0.02)}).hull == (-0.03, 0.0)


# --- transports ----------------------------------------------------------------------------------------------------


def trials(shift, noise=0.02, cells=12, count=20):
    """Rows of two data sets at two levels, of which the part is lower by a shift of its own."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "data": data, "level": level, "trial": trial, "cell": cell,
            "acc": 0.5 + rng.normal(0, noise) - (shift[data] if level == "few" else 0.0),
        }
        for data in shift for level in ("whole", "few") for trial in range(count) for cell in range(cells)
    )  # fmt: skip


def test_a_backtest_tells_a_transport_that_holds_from_another():
    backtest = effects.backtest(trials({"a": 0.1, "b": 0.1}), ["cell"], {"acc": MEAN})
    assert (backtest.values, backtest.trusted) == (24, True)
    backtest = effects.backtest(trials({"a": 0.3, "b": 0.0}), ["cell"], {"acc": MEAN})
    assert backtest.covered < 0.6 * backtest.values
    assert not backtest.trusted
    assert not effects.backtest(trials({"a": 0.1, "b": 0.1}, cells=4), ["cell"], {"acc": MEAN}).trusted, "few"


def test_a_backtest_that_cannot_fail_counts_for_nothing():
    found = effects.backtest(trials({"a": 0.1, "b": 0.1}, noise=0.1, count=6), ["cell"], {"acc": MEAN})
    assert found.covered == found.values >= effects.LEAST_VALUES
    assert found.half_width > effects.WIDEST
    assert not found.trusted
    assert 0 < effects.backtest(trials({"a": 0.1, "b": 0.1}), ["cell"], {"acc": MEAN}).half_width < 0.1


@pytest.fixture
def given(monkeypatch):
    """Let these rows be what every record holds."""

    def given_rows(rows, **fixed):
        declared = {"axes": [], "by": [], "kinds": {"acc": {"name": "mean"}}, "fixed": fixed}
        record = Record("reduced", rows, {"declared": declared, "sha256": "1"})
        monkeypatch.setattr(effects.records, "recorded", lambda paper, record_name: record)

    return given_rows


FEWER = {"settings": ["images"], "record": "reduced", "part": "few"}


def test_an_effect_is_paired_by_trial():
    rows, apart = trials({"a": 0.1}, cells=1), 0.1 + np.random.default_rng(1).normal(0, 1e-4, 20)
    whole = rows["level"] == "whole"
    rows["acc"] = rows["trial"] * 0.02 - np.where(whole, 0, apart[rows["trial"]])
    low, high = effects.contrast(rows, "few", "acc")
    assert 0.0999 < low < high < 0.1001
    assert effects.contrast(rows, "fewer", "acc") is None


def test_an_effect_is_of_the_rows_with_the_same_settings(given):
    given(pd.concat([trials({"a": s}, cells=1).assign(lr=lr) for lr, s in ((0.01, 0.0), (0.03, 0.2))]))
    table = paper_of({"keys": ["data"]}, transport=[FEWER | {"same": ["lr"]}]).tables["t"]
    ((low,), (high,)) = (effects.of_cell(table, {"lr": rate}, {}, "acc") for rate in (0.01, 0.03))
    assert low.hull[1] < 0.1 < high.hull[1]
    assert effects.of_cell(table, {"lr": 0.1}, {}, "acc") == ()
    assert effects.of_cell(table, {"lr": 0.01}, {}, "psnr") == ()


def test_an_effect_counts_only_at_its_records_settings(given):
    given(trials({"a": 0.1}, cells=1))
    unnamed = [{"setting": "mode", "is": "frozen"}]
    rules = {"transport": [FEWER | {"only": {"mode": "frozen"}}], "unnamed": unnamed}
    table = paper_of({"keys": ["data"]}, **rules).tables["t"]
    assert effects.of_cell(table, {}, {}, "acc")  # an earlier record, which does not name the mode
    assert effects.of_cell(table, {"mode": "frozen"}, {}, "acc")
    assert effects.of_cell(table, {"mode": "batch"}, {}, "acc") == ()


def test_effects_and_backtests_are_written_once_each(given, monkeypatch, tmp_path):
    given(trials({"a": 0.1}))
    monkeypatch.setattr(effects.paths, "published", lambda paper: tmp_path)
    paper = paper_of({"keys": ["data"]}, transport=[FEWER | {"same": ["cell"]}])
    (effect,) = effects.of_cell(paper.tables["t"], {"cell": 3}, {}, "acc")
    blank, tests = replace(effect, column="f1", ends={"a": (math.nan, math.nan)}), effects.backtests(paper)
    effects.write("x", [effect, effect, blank], tests)
    acc, f1 = pd.read_csv(tmp_path / "effects.csv").to_dict("records")
    assert (acc["low"], acc["high"]) == pytest.approx(effect.ends["a"], rel=1e-9)
    assert (f1["column"], math.isnan(f1["low"])) == ("f1", True)
    assert effects.load_backtests("x") == tests
    assert tests.keys() == {"reduced"}


def record(rows, by=()):
    declared = {
        "axes": ["data"],
        "by": by,
        "values": ["acc"],
        "kinds": {"acc": {"name": "mean"}},
        "facts": [*({"aux"} & {*rows})],
    }
    return Record("t", rows, {"declared": {**declared, "fixed": {}, "exact": False}})


def test_an_effect_counts_if_all_differing_cells_have_it(given):
    given(trials({"m": 0.1, "n": 0.1}, cells=1), net="lenet")
    transport = FEWER | {"settings": ["aux"], "when": {"data": "x"}}
    head = {"keys": ["data"], "axes": {"data": ["x", "y"]}, "fixed": {"aux": 1000}}
    paper = paper_of(head, item(table="t", cell={}), transport=[transport])
    rows = pd.DataFrame(
        {"data": data, "aux": aux, "trial": trial, "acc": 0.5}
        for data, aux in (("x", 433), ("y", 1000))
        for trial in range(10)
    )
    ahead = Claim("a", lambda t: t["x"] - t.get("y", 0.0), ("t",), wide="data", filters=lambda t: t["acc"] < 9)
    (effect,) = ahead.measure([record(rows)], paper).effects
    assert effect.ends["m"][0] < 0.1 < effect.ends["m"][1]
    apart = replace(ahead, statistic=lambda t: abs(t["x"] - t["y"]))
    assert apart.measure([record(rows)], paper).effects == (), "the record has no cell y"
    (effect,) = replace(apart, parts=[lambda t: t["x"], lambda t: 0.0]).measure([record(rows)], paper).effects
    low, high = effect.ends["m"]
    assert low == -high < -0.1, "in which direction a distance changes is not known"
    fewer = rows.assign(aux=433)
    assert replace(apart, parts=[lambda t: t["x"]]).measure([record(fewer)], paper).effects == (), (
        "nothing is known of y"
    )
    assert ahead.measure([record(rows.assign(aux=433))], paper).effects == ()
    assert ahead.measure([record(rows.assign(aux=1000))], paper).effects == ()
