"""The scoreboard by table and figure, the obstacles to a decision, and errata: one Markdown fragment each.

`data/artefacts.toml` lists every table and figure of the papers, `data/errata.toml` the errors that were found in them.
"""

import json
import math
import re
import tomllib
from collections import Counter
from typing import Any

import pandas as pd
from generated import comparisons, logger
from render import link, number, plain, table

from fedleak_book import paths
from fedleak_book.experiments import notebooks, published
from fedleak_book.experiments.verdicts import BLOCKS
from fedleak_book.scoreboard import GRADES, NOT_ATTEMPTED, SIGNS, is_counted

Row = dict[str, Any]


def read(name: str) -> dict[str, list[Row]]:
    """Read one of the lists under ``data/``: by paper, in its order."""
    return tomllib.loads((paths.root() / "data" / f"{name}.toml").read_text(encoding="utf-8"))


def belongs(row: Row, artefact: Row) -> bool:
    """Return whether a value belongs to a table or figure: its item begins with the name (Table I is not Table II)."""
    starts = artefact.get("items", [artefact["name"]])
    return any(re.match(re.escape(start) + r"(?![0-9IVX])", row["item"]) for start in starts)


def tried(rows: list[Row]) -> list[Row]:
    """Return the values that were measured."""
    return [row for row in rows if row["verdict"] != NOT_ATTEMPTED]


def verdict(rows: list[Row]) -> str:
    """Count the values of a table or figure by verdict, the best evidence first."""
    counts = Counter((row["grade"], row["verdict"]) for row in rows)
    lines = []
    for grade in GRADES:
        words = [f"{SIGNS[word]} {counts[grade, word]} {word}" for word in SIGNS if counts[grade, word]]
        lines += [f"{grade}: {', '.join(words)}"] * bool(words)
    rest = counts["", NOT_ATTEMPTED]
    return "<br>".join([*lines, *[f"{SIGNS[NOT_ATTEMPTED]} {rest} {NOT_ATTEMPTED}"] * bool(rest)])


def widest(rows: list[Row]) -> str:
    """Return the difference that is largest beside its tolerance, with its metric."""

    def size(row: Row) -> tuple[float, float]:
        off, wide = abs(row["difference"]), row["tolerance"]
        return (off / wide if wide else math.inf if off else 0.0), off

    measured = [row for row in tried(rows) if row["difference"] is not None]
    if not measured:
        return "–"
    row = max(measured, key=size)
    return f"{number(row['difference'])}<br>*{plain(row['metric'])}*" if row["difference"] else "0"


def records_of(paper: str) -> dict[str, Row]:
    """Read where a paper's recorded tables come from, by name."""
    files = sorted(path for path in paths.recorded(paper).glob("*.json") if path.with_suffix(".csv").exists())
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def hardware(facts: list[Row]) -> str:
    """Return the hardware on which the recorded tables were computed."""
    machines = {f"{str(f['device']).upper()}, {f['threads']} thread{'s' * (f['threads'] != 1)}" for f in facts}
    return "; ".join(sorted(machines)) or "–"


def duration(facts: list[Row]) -> str:
    """Return the wall time of the recorded sweeps; a dash where nothing was timed."""
    seconds = sum(fact["seconds"] for fact in facts)
    if not seconds:
        return "–"
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def line(artefact: Row, rows: list[Row], records: dict[str, Row]) -> Row:
    """Return the overview's row of one table or figure."""
    measured = tried(rows)
    facts = [records[name] for name in artefact.get("records", ()) if name in records] if measured else []
    blocks = Counter(block for row in rows for block in row["blocks"])
    anchor = next((row["anchor"] for row in rows if row.get("anchor")), None)
    return {
        "Table or figure": f"{link(artefact['name'], anchor)}<br>{artefact['shows']}",
        "Verdicts": verdict(rows) or f"{SIGNS[NOT_ATTEMPTED]} {NOT_ATTEMPTED}",
        "Measured": f"{len(measured)} of {len(rows)}",
        "In the way of grade A": ", ".join(f"{k} ({n})" for k in BLOCKS if (n := blocks[k])) or "–",
        "Largest difference": widest(rows),
        "Hardware": hardware(facts),
        "Cost": duration(facts) + (f"<br>at the paper's size {artefact['hours']:g} h" if "hours" in artefact else ""),
    }


def unlisted(paper: Row, artefacts: list[Row]) -> list[str]:
    """Name the values of a paper that belong to no table or figure, or to several."""
    return [row["item"] for row in paper["rows"] if sum(belongs(row, artefact) for artefact in artefacts) != 1]


def overview(papers: list[Row]) -> str:
    """Return one table per paper, with one row per table and figure."""
    by_chapter = {paper["chapter"]: paper for paper in papers}
    listed = read("artefacts")
    parts = list[str]()
    for chapter, artefacts in listed.items():
        paper = by_chapter.get(chapter, {"title": f"{chapter.upper()} (its chapter is not in this book)", "rows": []})
        for item in unlisted(paper, artefacts):
            logger.warning("data/artefacts.toml: %r of %s is under none or several", item, chapter, type="fedleak")
        records, rows = records_of(chapter), []
        for artefact in artefacts:
            mine = [row for row in paper["rows"] if belongs(row, artefact)]
            rows.append(line(artefact, mine, records))
        parts += [f"### {paper['title']}\n", table(pd.DataFrame(rows))]
        if records:
            parts.append(f"All recorded runs of the chapter: {duration(list(records.values()))}.\n")
    return "\n".join(parts)


def in_the_way(papers: list[Row]) -> str:
    """Count, by paper, the obstacles between values and a verdict of grade A; a value may have several."""
    lines = []
    for paper in papers:
        rows = [row for row in paper["rows"] if is_counted(row)]
        blocks = Counter(block for row in rows for block in row["blocks"])
        nothing = sum(not row["blocks"] for row in rows)
        lines.append({"Paper": paper["title"], "nothing": nothing, **{k: blocks[k] or "·" for k in BLOCKS}})
    return table(pd.DataFrame(lines))


def errata(chapters: list[str]) -> str:
    """Return the errors found in the papers of these chapters, and in their released code."""
    parts = []
    for paper, listed in read("errata").items():
        if paper not in chapters:
            continue
        title = published.load(paper).title
        rows = (
            {
                "Place": "**Released code.** " * e.get("code", False) + e["where"],
                "What is wrong": e["wrong"],
                "How it shows": e["shown"],
                "Measured again in": ", ".join(link(*place) for place in e["see"]),
            }
            for e in listed
        )
        parts += [f"### {title}\n", table(pd.DataFrame(rows))]
    return "\n".join(parts)


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    papers = comparisons()
    return {"overview": overview(papers), "in_the_way": in_the_way(papers), "errata": errata(notebooks.chapters())}
