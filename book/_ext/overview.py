"""The scoreboard by table and figure, what is in the way of a decision, and errata: one Markdown fragment each.

`data/artefacts.toml` lists every table and figure of the papers, `data/errata.toml` the errors that were found in them.
"""

import json
import math
import re
import tomllib
from collections import Counter
from typing import Any

import pandas as pd
from evidence import OBSTACLES, obstacle
from generated import comparisons, logger
from render import keep, link, number, plain, table
from sphinx.application import Sphinx

from fedleak import notebooks, paths
from fedleak.experiments import published
from fedleak.experiments.status import (
    BETTER,
    COUNTED,
    DIFFERS,
    MATCH,
    NOT_ATTEMPTED,
    SCALED_AGREES,
    SCALED_DIFFERS,
    SCALED_UNDECIDED,
    UNDECIDED,
)

Row = dict[str, Any]


def read(name: str) -> dict[str, list[Row]]:
    """Read one of the lists under ``data/``: by paper, in its order."""
    return tomllib.loads((paths.root() / "data" / f"{name}.toml").read_text(encoding="utf-8"))


def belongs(row: Row, artefact: Row) -> bool:
    """Return whether a value is one of a table or figure: its item begins with the name (Table I is not Table II)."""
    starts = artefact.get("items", [artefact["name"]])
    return any(re.match(re.escape(start) + r"(?![0-9IVX])", row["item"]) for start in starts)


def tried(rows: list[Row]) -> list[Row]:
    """Return the values that were measured."""
    return [row for row in rows if row["status"] != NOT_ATTEMPTED]


def differ(rows: list[Row]) -> list[Row]:
    """Return the values that were decided and are not within their tolerance, nor better than the paper's."""
    return [row for row in rows if row["status"] in (DIFFERS, SCALED_DIFFERS)]


def verdict(rows: list[Row]) -> str:
    """Sum up a table or figure: as its worst decided value, and how many are undecided."""
    found, measured = Counter(row["status"] for row in rows), tried(rows)
    worst = next((s for s in (DIFFERS, SCALED_DIFFERS, SCALED_AGREES, BETTER, MATCH) if found[s]), None)
    undecided = found[UNDECIDED] + found[SCALED_UNDECIDED]
    if worst is None:
        return (UNDECIDED if found[UNDECIDED] else SCALED_UNDECIDED) if undecided else NOT_ATTEMPTED
    text = worst + (f" in {len(differ(rows))} of {len(measured)}" if differ(rows) else "")
    return text + (f", {undecided} undecided" if undecided else "")


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
    """Return what the recorded tables were computed on."""
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
    found = Counter(map(obstacle, rows))
    anchor = next((row["anchor"] for row in rows if row.get("anchor")), None)
    return {
        "Table or figure": f"{link(artefact['name'], anchor)}<br>{artefact['shows']}",
        "Status": verdict(rows),
        "Measured": f"{len(measured)} of {len(rows)}",
        "In the way of a decision": ", ".join(f"{k} ({n})" for k in OBSTACLES if (n := found[k])) or "–",
        "Largest difference": widest(rows),
        "Hardware": hardware(facts),
        "Cost": duration(facts) + (f"<br>at the paper's size {artefact['hours']:g} h" if "hours" in artefact else ""),
    }


def unlisted(paper: Row, artefacts: list[Row]) -> list[str]:
    """Name the values of a paper that belong to no table or figure, or to several."""
    return [row["item"] for row in paper["rows"] if sum(belongs(row, artefact) for artefact in artefacts) != 1]


def overview(papers: list[Row]) -> str:
    """Return one table a paper with a row for each of its tables and figures, and a line that sums up all of them."""
    by_chapter = {paper["chapter"]: paper for paper in papers}
    listed = read("artefacts")
    parts, total = [], Counter[str]()
    for chapter, artefacts in listed.items():
        paper = by_chapter.get(chapter, {"title": f"{chapter.upper()} (its chapter is not in this book)", "rows": []})
        for item in unlisted(paper, artefacts):
            logger.warning("data/artefacts.toml: %r of %s is under none or several", item, chapter, type="fedleak")
        records, rows = records_of(chapter), []
        for artefact in artefacts:
            mine = [row for row in paper["rows"] if belongs(row, artefact)]
            rows.append(line(artefact, mine, records))
            if not artefact.get("text"):
                total[next(status for status in COUNTED if verdict(mine).startswith(status))] += 1
        parts += [f"### {paper['title']}\n", table(pd.DataFrame(rows))]
        if records:
            parts.append(f"All recorded runs of the chapter: {duration(list(records.values()))}.\n")
    summed = ", ".join(f"{n} {status}" for status, n in total.most_common())
    return f"**{sum(total.values())} tables and figures: {summed}.**\n\n" + "\n".join(parts)


def in_the_way(papers: list[Row]) -> str:
    """Return how many values are decided at the papers' own settings, and by paper what stands in the way of others."""
    found = {p["title"]: Counter(obstacle(row) for row in p["rows"] if not row["beyond"]) for p in papers}
    total = sum(found.values(), Counter[str | None]())
    lines = [
        {"Paper": name, "decided": one[None], **{k: one[k] or "·" for k in OBSTACLES}} for name, one in found.items()
    ]
    return (
        f"**{total[None]} of {total.total()} values are decided at the paper's own settings.** Of the others, by the "
        "hardest thing in the way:\n\n" + table(pd.DataFrame(lines))
    )


def errata(chapters: list[str]) -> str:
    """Return the errors found in the papers of these chapters, and in their released code."""
    parts = []
    for paper, found in read("errata").items():
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
            for e in found
        )
        parts += [f"### {title}\n", table(pd.DataFrame(rows))]
    return "\n".join(parts)


def write(app: Sphinx) -> None:
    """Write the fragments."""
    papers = comparisons()
    found = {"overview": overview(papers), "in_the_way": in_the_way(papers), "errata": errata(notebooks.chapters())}
    keep(app, found)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
