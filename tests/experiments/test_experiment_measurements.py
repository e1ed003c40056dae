"""What a value was measured at: no difference of settings is forgotten."""

import pytest
from values import item

from fedleak_book.evidence import measurements
from fedleak_book.evidence.published import Table

HEAD = {
    "keys": ["data", "rule"],
    "values": {"iacc": "iAcc"},
    "fixed": {"clients": 10, "width": 1, "lr": "?", "stage": 0, "images": 50000.0, "side": 32, "iacc": 0.9},
    "immaterial": [{"setting": "lr", "when": {"steps": 1}, "evidence": "eq-x"}],
    "axes": {"data": ["cifar10"], "rule": ["RLU"], "net": ["vgg16"]},
    "tolerance": [{"is": 0.05, "why": "w"}],
    **{key: key for key in ("anchor", "item", "claim", "where", "id")},
    "direction": "higher",
    "attack": {"rule": "RLU"},
}
TABLE = Table("rlu", "no-such-file", HEAD, {})
OURS = {
    "data": "cifar10", "rule": "RLU", "net": "vgg16", "clients": 10, "steps": 1, "batch_size": 64, "stage": 0.0,
    "images": 8380, "held": 300, "lr": 0.01, "side": 32, "iacc": 0.9, "iacc low": 0.88, "iacc high": 0.92, "n": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"side": 16}, {"side"}),
        ({"clients": 5, "side": 16}, {"clients", "side"}),
        ({"net": "vgg16-quarter"}, {"width"}),
        ({"net": "lenet"}, {"net"}),
        ({"steps": 10, "held": 640}, {"lr"}),  # lost, and immaterial for one step only
        ({"stage": 0.4}, {"stage", "images"}),  # a network trained on a sample is another network
        ({"held": 63}, {"images"}),  # a round that repeats an image
        ({"images": 50000}, set()),
        ({"side": float("nan")}, set()),  # does not apply to this row
        ({"trials": 3, "device": "cuda"}, set()),
    ],
)
def test_differences_are_listed_by_machine(changes, expected):
    differences = measurements.differences(TABLE, OURS | changes, TABLE.rows[0])
    assert {d.setting for d in differences if not d.why} == expected


def test_a_setting_that_was_not_recorded_is_a_difference():
    ours = {k: v for k, v in OURS.items() if k != "side"}
    assert "side not recorded, paper 32" in map(str, measurements.differences(TABLE, ours, TABLE.rows[0]))


def test_an_earlier_record_has_the_settings_it_leaves_out():
    rules = [{"setting": "side", "when": {"net": "vgg16"}, "is": 32}, {"setting": "side", "is": 16}, {"setting": "lr"}]
    table = Table("rlu", "no-such-file", HEAD, {}, {"unnamed": rules})
    ours = {k: v for k, v in OURS.items() if k != "side"}
    assert measurements.differences(table, ours, table.rows[0]) == measurements.differences(table, OURS, table.rows[0])
    smaller = measurements.differences(table, ours | {"net": "lenet"}, table.rows[0] | {"net": "lenet"})
    assert {d.ours for d in smaller if d.setting == "side"} == {16}
    assert "lr" not in {d.setting for d in measurements.differences(table, OURS | {"lr": None}, table.rows[0])}
    assert {
        d.ours for d in measurements.differences(table, OURS | {"side": 8}, table.rows[0]) if d.setting == "side"
    } == {8}


def test_candidates_are_ordered_by_closeness_then_number_of_trials():
    rows = [OURS | {"side": 16, "n": 90}, OURS | {"n": 5}, OURS | {"n": 9, "iacc": 0.91}, OURS | {"n": 2, "net": "x"}]
    rows += [OURS | {"n": measurements.MIN_VALUES}, OURS | {"n": measurements.MIN_VALUES - 1}]
    candidates = measurements.candidates(TABLE, rows, TABLE.rows[0])
    assert [row["n"] for row, _ in candidates] == [9, 5, 3, 90, 2, 2]
    ((closest, *others),) = measurements.from_table(TABLE, rows).values()
    assert (closest.ours, closest.low, closest.high, closest.n) == (0.91, 0.88, 0.92, 9)
    assert [other.n for other in others] == [5, 3, 90, 2, 2]
    assert measurements.from_table(TABLE, [])["id"][0].ours is None


def test_a_claim_inherits_and_counts_its_cells_differences():
    wide = Table("rlu", "no-such-file", HEAD | {"axes": {**HEAD["axes"], "data": ["cifar10", "svhn"]}}, {})
    differences = {str(d) for d in measurements.of_cells(wide, [OURS | {"rule": "mine", "side": 16}], {})}
    assert "side 16, paper 32" in differences
    assert "cells 1 of 2, paper 2" in differences
    assert not [d for d in measurements.of_cells(wide, [OURS], {"data": "cifar10"}) if not d.why]


@pytest.mark.parametrize(("changes", "setting"), [({"held": 63}, "images"), ({"side": 16}, "side")])
def test_all_rows_of_a_claim_count(changes, setting):
    for rows in ([OURS | changes, OURS | {"held": 640}], [OURS, OURS | changes]):
        assert {d.setting for d in measurements.of_cells(TABLE, rows, {}) if not d.why} == {setting}


def test_an_unprinted_setting_stays_open_without_a_measurement():
    cell = {"data": "cifar10", "lr": "?", "steps": 2.0}
    head = {"keys": ["data"], "fixed": cell, "axes": {"batch_size": [1, 2]}}
    value = item(column="asr", cell=cell)
    assert [str(d) for d in measurements.unprinted(Table("p", "t", head, {}), value)] == ["lr, paper not known"]
    claim = item(cell={"batch_size": 2})
    assert [d.setting for d in measurements.unprinted(Table("p", "t", head, {}), claim)] == ["lr"]
    rules = [{"setting": "lr", "when": {"steps": 2.0}, "evidence": "table9"}]
    assert not measurements.unprinted(Table("p", "t", {**head, "immaterial": rules}, {}), value)
