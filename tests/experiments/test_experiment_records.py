"""Intervals, summaries and recorded tables."""

import math

import numpy as np
import pandas as pd
import pytest

from fedleak_book import paths
from fedleak_book.evidence import estimates
from fedleak_book.experiments import records
from fedleak_book.experiments.kinds import DIFFERENCE, MEAN, NUMBER, Kind, difference, interval, rate


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return tmp_path


def test_equal_values_are_no_point():
    low, high = interval([1.0] * 9, MEAN)
    assert low == pytest.approx(9 / (9 + 1.959964**2))  # Wilson's, by hand
    assert high == 1
    assert interval([0.999] * 9, MEAN) == pytest.approx((0.999 * low, 0.999 + 0.001 * (1 - low)))
    assert interval([0.0] * 20, DIFFERENCE) == pytest.approx((-0.1611, 0.1611), abs=1e-4)
    assert all(map(math.isnan, interval([3.0] * 9, NUMBER)))
    assert interval([3.0] * 10, NUMBER) == (3, 3)
    assert all(map(math.isnan, interval([0.2, 0.4])))


@pytest.mark.parametrize("n", [10, 40])
def test_networks_count_and_their_labels_do_not(n):
    unseen = 1.959964**2 / (n + 1.959964**2)
    assert interval([1.0] * n, rate(1000)) == pytest.approx((1 - unseen, 1))
    assert interval([1.0] * (n - 1) + [0.999], rate(1000))[0] == pytest.approx(1 - unseen, abs=1e-3), "one is away"
    assert interval([0.0] * n, difference(1000)) == pytest.approx((-unseen, unseen))
    assert interval([0.99, 0.98] * (n // 2), rate(1000))[0] > 0.98, "all differ from the end, and show how much"


def test_what_a_column_is_comes_from_its_cell():
    kind = rate("batch_size", {"algorithm": {"FedSGD": 1, "FedAvg": 10}})
    assert Kind(**kind.written) == kind
    assert not kind.is_reference({"batch_size": 8, "algorithm": "FedAvg"})
    assert difference(form="old").is_reference({"form": "old"})
    assert not difference(8, form="old").is_reference({"form": "new"})
    assert interval([-0.1, 0.1, 0.3], NUMBER)[0] < -0.3 < interval([-0.1, 0.1, 0.3], DIFFERENCE)[0] + 1


def drawn(n, mean, labels, correlation, generator):
    """Trials of a number of labels each, which are right with a probability that varies by trial."""
    a = mean * (1 / correlation - 1) if correlation else None
    p = generator.beta(a, a / mean * (1 - mean), (200, n)) if correlation else mean
    return generator.binomial(labels, p, (200, n)) / labels


@pytest.mark.parametrize("mean", [0.5, 0.955, 0.99])
@pytest.mark.parametrize(
    ("kind", "labels", "correlation"),
    [(MEAN, 1, 0), (MEAN, 64, 0.3), (MEAN, 320, 0.1), (rate(1000), 1000, 0), (rate(64), 64, 0.02)],
)
def test_a_bounded_means_interval_holds_it_also_at_the_boundary(kind, mean, labels, correlation):
    generator = np.random.default_rng(int(1000 * mean) + labels)
    for n in (3, 5, 10, 20):
        low, high = np.array([interval(v, kind) for v in drawn(n, mean, labels, correlation, generator)]).T
        assert np.mean((low <= mean + 1e-9) & (high >= mean - 1e-9)) > 0.85


@pytest.mark.parametrize("n", [3, 4, 8, 20])
def test_intervals_of_few_values_cover_as_they_say(n):
    draws = np.random.default_rng(n).normal(size=(2000, n))
    low, high = np.array([interval(values, NUMBER) for values in draws]).T
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.95, abs=0.015)
    assert interval([0.9, 1.0, 1.0])[1] == 1, "no rate is above one"


def test_a_claims_interval_holds_it_as_often_as_it_says():
    draws = np.random.default_rng(3).normal(size=(60, 3))
    all_cells = [estimates.Cells(rows_of({"ours": values}), ["data", "rule"], "iacc", None) for values in draws]
    ends = [estimates.estimate(lambda t: t.iloc[0], [cells])[1:3] for cells in all_cells]
    coverage = np.mean([low <= 0 <= high for low, high in ends])
    assert coverage >= 0.86  # of the percentiles alone about 0.75


def test_the_unit_is_the_trial_and_not_its_clients():
    rows = pd.DataFrame(
        {"net": "a", "trial": np.repeat(range(4), 10), "iacc": np.repeat([0.2, 0.4, 0.6, 0.8], 10), "s": 1.0}
    )
    (row,) = records.summarise(rows, ["net"], {"iacc": MEAN, "s": NUMBER}).to_dict("records")
    assert row["n"] == 4
    assert row["iacc"] == pytest.approx(0.5)
    assert row["iacc high"] - row["iacc low"] > 0.3
    assert list(row) == ["net", "iacc", "iacc low", "iacc high", "s", "s low", "s high", "n"]


DECLARED = {
    "axes": ["net"], "by": ["rule"], "values": ["iacc"], "kinds": {"iacc": {"name": "mean"}},
    "facts": ["held"], "fixed": {"lr": 0.1}, "times": [],
    "rounding": [], "exact": False, "tables": ["t"],
}  # fmt: skip


def test_a_recorded_table_comes_back_and_is_settled(checkout):
    rows = pd.DataFrame(
        {"net": "a", "rule": ["x", "y"] * 3, "trial": [0, 0, 1, 1, 2, 2], "iacc": 0.5, "held": range(6)}
    )
    records.record("p", "t", rows, {"profile": "paper", "declared": DECLARED})
    record = records.recorded("p", "t")
    pd.testing.assert_frame_equal(record.rows, rows)
    cells = record.cells()
    assert cells[["rule", "held", "lr", "n"]].to_numpy().tolist() == [["x", 0, 0.1, 3], ["y", 1, 0.1, 3]]
    assert records.recorded("p", "t", "quick") is None


def test_a_table_that_was_changed_by_hand_is_refused(checkout):
    records.record("p", "t", pd.DataFrame({"a": [1]}), {"profile": "paper"})
    path = paths.recorded("p") / "t.csv"
    path.write_text(path.read_text().replace("1", "2"))
    with pytest.raises(ValueError, match="record it again"):
        records.recorded("p", "t")
    path.with_suffix(".json").unlink()
    with pytest.raises(ValueError, match="no provenance"):
        records.recorded("p", "t")


# --- claims --------------------------------------------------------------------------------------------------------


def rows_of(values):
    """Trial rows of two rules in two cells: ``values[rule]`` are the trials' values."""
    rows = [
        (data, rule, *trial_and_value)
        for data in "mc"
        for rule, column in values.items()
        for trial_and_value in enumerate(column)
    ]
    return pd.DataFrame(rows, columns=["data", "rule", "trial", "iacc"])


def test_only_the_cells_that_a_statistic_hangs_on_count():
    rows = rows_of({"ours": [0.1, 0.2, 0.3], "theirs": [0.2, 0.3, 0.3]})
    cells = estimates.Cells(rows, ["data", "rule"], "iacc", "rule")
    (needed,) = estimates.needed(lambda t: t["ours"].max(), [cells])
    assert {*zip(needed["data"], needed["rule"], strict=True)} == {("m", "ours"), ("c", "ours")}
    (above,) = estimates.needed(lambda t: (t["ours"] > 0.5).mean() - t.loc["m", "theirs"], [cells])
    assert {*zip(above["data"], above["rule"], strict=True)} == {("m", "ours"), ("c", "ours"), ("m", "theirs")}


def test_a_claims_interval_is_paired_by_trial():
    noise = np.linspace(0, 0.5, 20)
    rows = rows_of({"ours": noise + 0.1, "theirs": noise})
    cells = estimates.Cells(rows, ["data", "rule"], "iacc", "rule")
    value, low, high, n = estimates.estimate(lambda t: (t["ours"] - t["theirs"]).min(), [cells])
    assert (value, n) == (pytest.approx(0.1), 20)
    assert low == pytest.approx(0.1) == high  # pairs stay pairs, however much the trials differ
    cells = estimates.Cells(rows[rows["rule"] == "ours"], ["data", "rule"], "iacc", None)
    value, low, high, n = estimates.estimate(lambda t: t.min(), [cells])
    assert low < value < high


def test_claims_without_varied_trials_have_an_interval_only_for_shares():
    few = estimates.Cells(rows_of({"ours": [1.0] * 6}), ["data", "rule"], "iacc", None)
    assert all(map(math.isnan, estimates.estimate(lambda t: t.min(), [few])[1:3]))
    assert estimates.estimate(lambda t: t.min(), [few], MEAN)[1:3] == interval([1.0] * 6, MEAN)
    summary = pd.DataFrame({"data": ["m", "c"], "iacc": [0.4, 0.6], "n": [10, 20]})
    value, low, _, n = estimates.estimate(lambda t: t.min(), [estimates.Cells(summary, ["data"], "iacc", None)])
    assert (value, n) == (0.4, 10)
    assert math.isnan(low)
