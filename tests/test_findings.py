"""The front page's and the README's findings: their pictures and their numbers are those of the records."""

import re
import sys
from html import unescape

import pytest

from fedleak import paths

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import findings

FOUND = dict(findings.pictures())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_the_committed_picture_is_of_todays_records(path):
    drawn = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(encoding="utf-8"), re.S)
    assert unescape(drawn[1]) == FOUND[path].says()


def test_the_committed_readme_is_of_todays_records():
    assert (
        findings.BETWEEN.search((paths.root() / "README.md").read_text(encoding="utf-8"))[0] == findings.in_the_readme()
    )


@pytest.mark.parametrize(
    "make", [one for one in findings.FINDINGS if one is not findings.guess], ids=lambda f: f.__name__
)
def test_sentences_move_with_the_records(make, monkeypatch):
    recorded = findings.rows

    def others(chapter, table):
        rows = recorded(chapter, table)
        for column in {"target", "asr", "iacc"} & {*rows}:
            rows[column] = 0.9 * rows[column]
        return rows

    before = make()
    monkeypatch.setattr(findings, "rows", others)
    if make is findings.clients:
        with pytest.raises(AssertionError, match="opened"):
            make()
        return
    numbers = [re.findall(r"(\d+)\s%", one.text.replace("smallest 80 %", "")) for one in (before, make())]
    assert len(numbers[0]) == len(numbers[1]) >= 2
    assert all(a != b for a, b in zip(*numbers, strict=True))
