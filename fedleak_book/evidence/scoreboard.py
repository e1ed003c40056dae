"""The verdicts on the papers' values as data: ``data/verdicts.csv``, which pages and `fedleak scoreboard` read.

`fedleak claims` writes the lines of a chapter. What is counted here imports no experiment, which would take seconds.
"""

import csv
import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedleak.files import write_text
from fedleak_book import paths

if TYPE_CHECKING:
    from fedleak_book.evidence.published import Published

AGREES, WITHIN = "agrees", "agrees within the tolerance"
"""With the print: the interval holds a value that the paper prints or allows; or by the tolerance alone."""
BETTER, DIFFERS, DEPENDS, OPEN = "better", "differs", "depends", "open"
NOT_ATTEMPTED = "not attempted"
DECIDED = (AGREES, WITHIN, BETTER, DIFFERS)
HELD, FAILED = "held", "did not hold"
"""What became of a prediction."""
SIGNS = {AGREES: "✓", WITHIN: "✓", BETTER: "▲", DIFFERS: "✗", DEPENDS: "⇄", OPEN: "≈", NOT_ATTEMPTED: "—"}
SIGNS |= {HELD: "✓", FAILED: "✗"}
GRADES = "ABCD"
PRINTED, BEYOND = "printed", "beyond"
"""What values are that are counted; see `Published.of`."""
NUMBERS, LISTS = ("ours", "low", "high"), ("blocks", "differences", "remarks")
COLUMNS = ("paper", "id", "of", "verdict", "grade", *NUMBERS, "n", *LISTS, "note")
UNTRIED: Mapping[str, Any] = {
    **{"verdict": NOT_ATTEMPTED, "grade": "", "n": 0, "note": ""},
    **dict.fromkeys(NUMBERS),
    **{name: [] for name in LISTS},
}
ROUNDING = ".8g"
"""Digits that do not depend on the processor."""


def is_counted(row: Mapping[str, Any]) -> bool:
    """Return whether a value is printed by its paper, and does not repeat another value's measurement."""
    return bool(row["of"] == PRINTED)


def read() -> list[dict[str, str]]:
    """Read the lines of all chapters; none where nothing was judged yet."""
    path = paths.verdicts()
    if not path.is_file():
        return []
    lines = csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8", "replace"), newline=""))
    if tuple(lines.fieldnames or ()) != COLUMNS:
        raise ValueError(f"{path.name} does not have the columns {', '.join(COLUMNS)}")
    return list(lines)


def text_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return lines as the file has them."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def digests(paper: str, lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the digests of what the verdicts on a chapter were made with, and of its lines, by name.

    They were made with the chapter's records and with the files of what is published, its effects among them.
    """
    recorded = {name: facts["sha256"][:16] for name, facts in paths.provenance(paper).items() if "sha256" in facts}
    printed = {path.name: sha256(path.read_bytes()) for path in sorted(paths.published(paper).iterdir())}
    return recorded | printed | {paths.verdicts().name: sha256(text_of(lines).encode())}


def written(paper: str) -> dict[str, str]:
    """Return the `digests` that were written with the verdicts on a chapter; none where nothing was judged yet."""
    return _all_written().get(paper, {})


def _all_written() -> dict[str, dict[str, str]]:
    path = paths.digests()
    every: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return every


def sha256(content: bytes) -> str:
    """Return the part of a digest that names a file's content."""
    return hashlib.sha256(content).hexdigest()[:16]


def write(paper: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of a chapter, as `verdicts.row` returns them, in place of its earlier lines."""
    lines, others = [_line(paper, row) for row in rows], [line for line in read() if line["paper"] != paper]
    write_text(paths.verdicts(), text_of(sorted(others + lines, key=lambda line: line["paper"])))
    every = {**_all_written(), paper: digests(paper, lines)}
    write_text(paths.digests(), json.dumps(every, indent=1, sort_keys=True) + "\n")


def _line(paper: str, row: Mapping[str, Any]) -> dict[str, str]:
    numbers = {name: "" if row[name] is None else format(row[name], ROUNDING) for name in NUMBERS}
    return {**row, "paper": paper, **numbers, **{name: "; ".join(row[name]) for name in LISTS}}


def rows(paper: str) -> list[dict[str, Any]]:
    """Return one row per published value of a chapter: what its paper says, verdict, grade and measurement.

    Nothing is attempted in a chapter that was never judged; `ValueError` as `overview`.
    """
    from fedleak_book.evidence import published  # takes a second or two

    lines = {line["id"]: read_line(line) for line in _present(paper, read())}
    return [row(item, lines.get(key, UNTRIED)) for key, item in published.load(paper).items.items()]


def _present(paper: str, every: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the lines of a chapter: they, its records and what is published are as they were when it was judged."""
    lines, then = [line for line in every if line["paper"] == paper], written(paper)
    if (lines or then) and (changed := sorted({name for name, _ in then.items() ^ digests(paper, lines).items()})):
        raise ValueError(f"{paper} was judged before {', '.join(changed)} changed: `fedleak claims {paper}` judges it")
    return lines


def read_line(line: Mapping[str, str]) -> dict[str, Any]:
    """Return a line of the file as it was written, with numbers and lists."""
    numbers = {name: float(line[name]) if line[name] else None for name in NUMBERS}
    lists = {name: line[name].split("; ") if line[name] else [] for name in LISTS}
    return {**line, **numbers, **lists, "n": int(line["n"])}


def row(item: "Published", measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value's row: what its paper says, and what was measured, which has the `COLUMNS` from ``verdict`` on."""
    status = f"{SIGNS[measured['verdict']]} {measured['verdict']}" + f" ({measured['grade']})" * bool(measured["grade"])
    return {**vars(item), **measured, "of": item.of, "published": item.text(), "status": status}


def rank(row: Mapping[str, Any]) -> float:
    """Return where a value stands among others, the best evidence first."""
    return GRADES.index(row["grade"]) * len(SIGNS) + list(SIGNS).index(row["verdict"]) if row["grade"] else math.inf


def count(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count values by grade and verdict, and those without a grade.

    ``depends`` and ``not_attempted`` are in none of the counts by grade; ``total`` is the sum of all; ``beyond`` counts
    values that no paper prints, which are in none of the other counts. A value that repeats another is in no count.
    """
    printed = [row for row in values if is_counted(row)]
    tally = Counter((row["grade"], row["verdict"]) for row in printed)
    words = (*DECIDED, OPEN)
    grades: dict[str, Any] = {grade: {word: tally[grade, word] for word in words} for grade in GRADES}
    depends = sum(n for (_, word), n in tally.items() if word == DEPENDS)
    rest = {"depends": depends, "not_attempted": tally["", NOT_ATTEMPTED]}
    return {**grades, **rest, "total": len(printed), "beyond": sum(row["of"] == BEYOND for row in values)}


def overview() -> dict[str, dict[str, Any]]:
    """Count the values of every chapter that has a paper, and of ``all``; see `count`.

    Raises `ValueError` where the lines, the records or what is published of a chapter have changed since it was judged.
    """
    every, papers = read(), paths.papers()
    counts = {paper: count(_present(paper, every)) for paper in papers}
    return {**counts, "all": count([line for line in every if line["paper"] in papers])}


def table(counts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the counts of `overview` as text: a line for each chapter and grade, and one for what has no grade."""
    words = list(dict.fromkeys(word for of in counts.values() for grade in GRADES for word in of[grade]))
    rest = ["depends", "not_attempted", "total", "beyond"]
    lines = [["", "", *words, *(word.replace("_", " ") for word in rest)]]
    for name, of in counts.items():
        lines += [[name, grade, *(str(of[grade][word]) for word in words), *"····"] for grade in GRADES]
        lines.append([name, "–", *"·" * len(words), *(str(of[word]) for word in rest)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)
