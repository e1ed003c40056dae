import json
import shutil
import sys
from pathlib import Path

import pytest

from fedleak_book import counts, paths
from fedleak_book.experiments import records, scoreboard

ROOT = Path(__file__).parents[2]
PAPER = "gdbr"


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Return the root of a checkout with one chapter, its counts cached, and records of its printed tables alone."""
    root = tmp_path_factory.mktemp("counted")
    for folder in ("published", "results"):
        shutil.copytree(ROOT / "data" / folder / PAPER, root / "data" / folder / PAPER)
    (root / "data" / "results" / PAPER / "claims.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "root", lambda: root)
        patch.delenv("FEDLEAK_CACHE", raising=False)
        counts.overview()
    return root


@pytest.fixture
def checkout(counted, tmp_path, monkeypatch):
    """Return the root of a copy that the test may change."""
    shutil.copytree(counted, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.delenv("FEDLEAK_CACHE", raising=False)
    return tmp_path


def cache_of(checkout):
    return checkout / "_build" / "cache" / "counts" / f"{PAPER}.json"


def cached(checkout):
    return json.loads(cache_of(checkout).read_text())["counts"]


def test_counts_are_read_from_the_cache(checkout, monkeypatch):
    computed = scoreboard.count(scoreboard.rows(PAPER))
    monkeypatch.setattr(scoreboard, "rows", None)  # nothing is judged again
    assert counts.overview() == {PAPER: computed, "all": computed}
    assert cached(checkout) == computed


def test_one_measurement_of_two_values_is_counted_once():
    repeated = {row["id"]: row["repeats"] for row in scoreboard.rows(PAPER) if row["repeats"]}
    assert repeated == {f"tab2-{data}-insacc-aux": f"tab1-{data}-random" for data in ("mnist", "svhn", "cifar10")}
    row = {"beyond": False, "repeats": "", "grade": "A", "verdict": "agrees"}
    counted = scoreboard.count([row, row | {"repeats": "another"}, row | {"beyond": True}])
    assert (counted["total"], counted["A"]["agrees"], counted["beyond"]) == (1, 1, 1)


def test_a_changed_record_changes_the_counts(checkout):
    before = counts.chapter_counts(PAPER)
    for path in paths.recorded(PAPER).glob("*.csv"):
        table, facts = records.recorded(PAPER, path.stem)
        if facts["declared"]["tables"]:
            zeros = dict.fromkeys(facts["declared"]["kinds"], 0.0)
            records.record(PAPER, path.stem, table.assign(**zeros), facts)
    after = counts.chapter_counts(PAPER)
    assert after == cached(checkout) != before


def test_a_changed_published_value_changes_the_counts(checkout):
    before = counts.chapter_counts(PAPER)
    for table in paths.published(PAPER).glob("*.csv"):
        lines = table.read_text().splitlines()
        table.write_text("\n".join(lines[:-1]) + "\n")  # the paper prints a row less
    assert counts.chapter_counts(PAPER)["total"] < before["total"]


def test_changed_choices_change_the_counts(checkout):
    before = counts.chapter_counts(PAPER)
    (paths.published(PAPER) / "choices.toml").unlink()
    after = counts.chapter_counts(PAPER)
    assert sum(before["B"].values()) > 0
    assert sum(after["B"].values()) == 0  # without choices there is no evidence of grade B


def test_changed_code_is_counted_anew(checkout, monkeypatch):
    before = counts.chapter_counts(PAPER)
    monkeypatch.setattr(counts, "_CODE", "edited")
    monkeypatch.setattr(scoreboard, "rows", lambda paper: [])
    assert counts.chapter_counts(PAPER)["total"] == 0 < before["total"]


@pytest.mark.parametrize("text", ["", "[]", "null", '{"digest": 1}', "{"])
def test_a_damaged_cache_is_replaced(checkout, text, monkeypatch):
    monkeypatch.setattr(scoreboard, "rows", lambda paper: [{"beyond": False, "grade": "A", "verdict": "agrees"}])
    cache_of(checkout).write_text(text)
    assert counts.chapter_counts(PAPER)["A"]["agrees"] == 1
    assert cached(checkout)["total"] == 1


def test_counts_of_files_that_change_meanwhile_are_not_cached(checkout, monkeypatch):
    def rows(paper):
        (paths.published(paper) / "choices.toml").write_text("written = 'later'\n")
        return []

    monkeypatch.setattr(scoreboard, "rows", rows)
    cache_of(checkout).unlink()
    counts.chapter_counts(PAPER)
    assert not cache_of(checkout).exists()


def test_every_file_that_the_values_depend_on_is_in_the_digest(checkout, monkeypatch):
    """A change of any file that judging the values opens changes the digest."""
    opened = set()

    def note(event, arguments):
        if event == "open" and isinstance(arguments[0], str | Path) and str(checkout) in str(arguments[0]):
            opened.add(Path(arguments[0]))

    sys.addaudithook(note)
    scoreboard.rows(PAPER)
    data = {path for path in opened if path.is_file()}
    assert len(data) > 5
    for path in sorted(data):
        before, content = counts.digest(PAPER), path.read_bytes()
        path.write_bytes(content + b"\n")
        assert counts.digest(PAPER) != before, path
        path.write_bytes(content)
