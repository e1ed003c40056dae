"""The queue: what is declared and not recorded, in the order of its worth, until the time is over."""

import itertools
import time
from types import SimpleNamespace

import pytest
from fresh_modules import forget
from typer.testing import CliRunner

from fedleak.cli import app
from fedleak_book.experiments import Results, records, running, scoreboard

MORE = """
LARGE = Experiment(
    "large", drawn, quick=TABLE1.quick, paper=grid(net="a", size=[1, 2], trials=6), values={"iacc": MEAN}, by="rule",
    facts="images", fixed=TABLE1.fixed, tables="table1",
)
SMALL = Experiment(
    "small", drawn, quick=TABLE1.quick, paper=grid(net="a", size=2, trials=3), values={"iacc": MEAN}, by="rule",
    facts="images", fixed=TABLE1.fixed, tables="table1",
)
"""
OPEN = dict(beyond=False, table="table1", verdict="open", grade="D")


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by ten seconds at every look, and is looked at before each unit."""
    now = SimpleNamespace(monotonic=itertools.count(0, 10).__next__, perf_counter=time.perf_counter)
    monkeypatch.setattr(running, "time", now)


@pytest.fixture
def waiting(tiny, monkeypatch):
    """Two experiments that are not recorded, beside one that is; a value for each of its cells is open."""
    path = tiny / "notebooks/tiny/experiments.py"
    path.write_text(path.read_text() + MORE)
    forget()
    Results("tiny", "paper", "cpu", record=True).rows(running.declared("tiny")["table1"])
    rows = [OPEN | {"cell": {"net": "a", "size": size}} for size in (1, 2)]
    rows += [OPEN | {"cell": {"net": "a", "size": 2}, "verdict": "agrees", "grade": "A"}]
    monkeypatch.setattr(scoreboard, "rows", lambda chapter: rows)
    return tiny


def queue():
    from fedleak_book.experiments import queue

    return queue


def test_a_run_ends_with_its_time_and_keeps_what_is_finished(tiny, clock):
    experiment, results = running.declared("tiny")["table1"], Results("tiny", device="cpu", deadline=15)
    with pytest.raises(TimeoutError, match="tiny/table1: 2 of 4 units are not done"):
        results.rows(experiment)
    log = running.module("tiny", "experiments").LOG
    assert len(log) == 2
    assert len(Results("tiny", device="cpu").rows(experiment)) == 8
    assert len(log) == 4


def test_the_order_is_by_open_values_per_minute(waiting):
    entries = queue().waiting(["tiny"])
    assert [(e.experiment.name, e.values, e.units) for e in entries] == [("small", 1, 3), ("large", 2, 12)]
    assert entries[0].rate > entries[1].rate > 0
    (table1, facts) = records.recorded("tiny", "table1")
    each = facts["seconds"] / len(table1[["net", "size", "trial"]].drop_duplicates())
    assert entries[1].seconds == pytest.approx(12 * each)


def test_a_pretended_minute_is_used_and_the_next_one_goes_on(waiting, monkeypatch, clock):
    log, now = running.module("tiny", "experiments").LOG, SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(queue(), "time", now)
    log.clear()
    lines = []
    assert queue().run(queue().waiting(["tiny"]), 60, "cpu", lines.append) == ["tiny"]
    assert lines == [
        "recorded tiny/small",
        "tiny/large: 9 of 12 units are not done; finished ones are kept",
    ]
    assert len(log) == 6
    (large,) = queue().waiting(["tiny"])
    assert (large.experiment.name, large.units) == ("large", 9)
    now.monotonic = lambda: 60.0
    assert queue().run([large], 1000, "cpu", lines.append) == ["tiny"]
    assert len(log) == 15


def test_no_time_prints_the_order_alone(waiting):
    done = CliRunner().invoke(app, ["record", "tiny", "--queue", "0"])
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()] == ["tiny/small", "tiny/large"]
    assert records.recorded("tiny", "small") is None
