"""``data/verdicts.csv``: a line for each published value, of today's records and code."""

import math

import pytest

from fedleak_book import paths
from fedleak_book.evidence import completeness, effects, judged, published, scoreboard
from fedleak_book.evidence.results import Results
from fedleak_book.evidence.scoreboard import NUMBERS

CHAPTERS = paths.chapters_with_claims()


def test_every_published_value_has_one_line():
    lines = [(line["paper"], line["id"]) for line in scoreboard.read()]
    assert lines == [(name, id) for name in CHAPTERS for id in published.load(name).items]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_verdicts_are_those_of_the_present_files(chapter):
    """A record, a published file or a verdict that has changed since the chapter was judged: `fedleak claims`."""
    lines = [line for line in scoreboard.read() if line["paper"] == chapter]
    assert scoreboard.written(chapter) == scoreboard.digests(chapter, lines)


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_verdicts_are_what_the_code_computes(chapter):
    paper = published.load(chapter)
    measured = judged.points(paper, Results(chapter, device="cpu").measure())
    then = (line for line in scoreboard.read() if line["paper"] == chapter)
    for ours, line in zip(judged.rows(paper, measured, effects.backtests(paper)), then, strict=True):
        kept = scoreboard.read_line(line)
        now, before = ([math.nan if row[name] is None else row[name] for name in NUMBERS] for row in (ours, kept))
        assert now == pytest.approx(before, rel=1e-6, nan_ok=True), ours["id"]
        texts = kept.keys() - {*NUMBERS, "paper"}
        assert {name: ours[name] for name in texts} == {name: kept[name] for name in texts}


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_unprinted_setting_has_choices_or_a_reason(chapter):
    assert completeness.unlisted(published.load(chapter)) == []


def test_one_measurement_of_two_values_is_counted_once():
    row = {"of": scoreboard.PRINTED, "grade": "A", "verdict": "agrees"}
    counts = scoreboard.count([row, row | {"of": "repeated"}, row | {"of": scoreboard.BEYOND}])
    assert (counts["total"], counts["A"]["agrees"], counts["beyond"]) == (1, 1, 1)


def test_a_chapter_replaces_its_own_lines_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "verdicts", lambda: tmp_path / "verdicts.csv")
    measured = {"of": "printed", "verdict": "open", "grade": "D", "ours": 1 / 3, "low": None, "high": 0.5, "n": 4}
    row = {"id": "a", **measured, "blocks": ["data", "trials"], "differences": [], "remarks": [], "note": 'a "b", c'}
    for name in ("rlu", "llg", "rlu"):
        scoreboard.write(name, [row, row | {"id": "b"}])
    lines = scoreboard.read()
    assert [(line["paper"], line["id"]) for line in lines] == [("llg", "a"), ("llg", "b"), ("rlu", "a"), ("rlu", "b")]
    assert scoreboard.read_line(lines[0]) == {**row, "paper": "llg", "ours": pytest.approx(1 / 3)}


def test_lost_lines_are_no_count_of_zero(tmp_path, monkeypatch):
    lines, digests = paths.verdicts().read_text(encoding="utf-8").splitlines(keepends=True), paths.digests()
    monkeypatch.setattr(paths, "verdicts", lambda: tmp_path / "verdicts.csv")
    monkeypatch.setattr(paths, "digests", lambda: digests)
    for damaged in ([], lines[:1], lines[:-200], ["a,b\n"]):
        (tmp_path / "verdicts.csv").write_text("".join(damaged), encoding="utf-8")
        with pytest.raises(ValueError, match=r"verdicts\.csv"):
            scoreboard.overview()
