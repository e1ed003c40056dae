"""The scoreboard by table and figure, and what does not reproduce: one Markdown fragment each, from the same values.

`data/artefacts.toml` lists every table and figure of the papers, `data/errata.toml` the errors that were found in them.
"""

import json
import math
import re
import tomllib
from collections import Counter
from typing import Any

import pandas as pd
from generated import comparisons, logger, remarks, said
from render import keep, link, number, plain, table
from sphinx.application import Sphinx

from fedleak import notebooks, paths
from fedleak.experiments import published
from fedleak.experiments.status import (
    BETTER,
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


def smaller(rows: list[Row]) -> str:
    """Return the settings in which ours are others than the paper's, and in how many values each."""
    found = Counter(text.split(" ")[0] for row in rows for text in row["differences"])
    return ", ".join(f"{name} ({n})" for name, n in found.most_common()) or "–"


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
    anchor = next((row["anchor"] for row in rows if row.get("anchor")), None)
    return {
        "Table or figure": f"{link(artefact['name'], anchor)}<br>{artefact['shows']}",
        "Status": verdict(rows),
        "Measured": f"{len(measured)} of {len(rows)}",
        "Settings that differ": smaller(rows),
        "Largest difference": widest(rows),
        "Hardware": hardware(facts),
        "Cost": duration(facts),
    }


def box(paper: Row, artefacts: list[Row]) -> str:
    """Return the box that opens a chapter: what is done, at what size, the command and its cost."""
    records = records_of(paper["chapter"])
    names = ("Table or figure", "Status", "Settings that differ", "Cost")
    rows = (line(a, [row for row in paper["rows"] if belongs(row, a)], records) for a in artefacts)
    frame = pd.DataFrame({name: row[name] for name in names} for row in rows)
    cost = duration(list(records.values()))
    return (
        ":::::{admonition} What is run here, and at what size\n:class: note, dropdown\n\n"
        f"{table(frame)}\nTo record it again: `fedleak record {paper['chapter']}` ({cost} here), with "
        "`FEDLEAK_DATA` naming the data. {doc}`/book/scoreboard` explains the statuses.\n:::::\n"
    )


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
                total[" ".join(verdict(mine).replace(",", "").split(" ")[:2])] += 1
        parts += [f"### {paper['title']}\n", table(pd.DataFrame(rows))]
        if records:
            parts.append(f"All recorded runs of the chapter: {duration(list(records.values()))}.\n")
    summed = ", ".join(f"{n} {status}" for status, n in total.most_common())
    return f"**{sum(total.values())} tables and figures: {summed}.**\n\n" + "\n".join(parts)


OBSTACLES = ("not printed", "data", "GPU", "computing", "trials")
"""What keeps a value from being decided at the paper's settings, the hardest to lift first."""
OF_DATA = ("images ", "aux ", "most aux ", "data ")


def obstacle(row: Row) -> str | None:
    """Return the hardest thing that stands between a value and a decision at the paper's settings; None if none does.

    What the paper leaves open: a setting that it does not print, or words whose readings give different answers. Images
    that are not here, a GPU, settings that take more computing, or no more than trials.
    """
    differences = row["differences"]
    if row.get("split") or any(text.endswith("not printed") for text in differences):
        return "not printed"
    if any(text.startswith(OF_DATA) and " not recorded" not in text for text in differences):
        return "data"
    if "GPU" in row["note"] or any(text.startswith("hardware ") for text in differences):
        return "GPU"
    if differences or row["status"] == NOT_ATTEMPTED:
        return "computing"
    return "trials" if row["status"] in (UNDECIDED, SCALED_UNDECIDED) else None


def about(row: Row) -> Row:
    """Return the columns that say which value a row is about."""
    return {"Item": link(row["item"], row.get("anchor")), "What the paper says; *metric*": said(row)}


def undecided(papers: list[Row]) -> str:
    """Return, by table and figure, how many values are not decided at the papers' settings, and what it takes."""
    listed, parts = read("artefacts"), []
    found = Counter(obstacle(row) for paper in papers for row in paper["rows"] if not row["beyond"])
    decided, left = found[None], found.total() - sum(found[name] for name in OBSTACLES[:3])
    parts.append(
        f"**{decided} of {found.total()} values are decided at the paper's own settings. {found.total() - left} others "
        f"need something that was not at hand: {decided / left:.0%} of the rest are decided.** With those that hang on "
        f"something not printed counted in, it is {decided / (left + found[OBSTACLES[0]]):.0%}.\n"
    )
    for paper in papers:
        records, rows = records_of(paper["chapter"]), []
        values = [row for row in paper["rows"] if not row["beyond"] and obstacle(row)]
        for artefact in listed[paper["chapter"]]:
            names = [name for name in artefact.get("records", ()) if name in records]
            if mine := [row for row in values if belongs(row, artefact)]:
                found = Counter(map(obstacle, mine))
                rows.append(
                    {
                        "Table or figure": link(artefact["name"], mine[0].get("anchor")),
                        **{name: found[name] or "·" for name in OBSTACLES},
                        "Settings that differ": smaller(mine),
                        "Command": f"`fedleak record {paper['chapter']} {' '.join(names)}`" if names else "–",
                        "As recorded": duration([records[name] for name in names]),
                        "At the paper's size": f"{artefact['hours']:g} h" if "hours" in artefact else "–",
                    }
                )
        each = [
            about(r) | {"In the way": obstacle(r), "Settings that differ, remarks": remarks(r) or "–"} for r in values
        ]
        if values:
            parts += [f"### {paper['title']}\n", table(pd.DataFrame(rows))]
            parts += [f":::::{{dropdown}} Each of the {len(values)} values\n", table(pd.DataFrame(each)), ":::::\n"]
    return "\n".join(parts)


def is_better(row: Row) -> bool | None:
    """Return whether a value is off the way that its metric has for better; None where it has none."""
    sign = {"higher": 1, "lower": -1}.get(row["direction"])
    return None if sign is None else row["difference"] * sign > 0


def deviations(papers: list[Row]) -> str:
    """Return every value that was measured and is not within its tolerance, with the remark on it."""
    parts = []
    for paper in papers:
        off = differ(paper["rows"])
        full, scaled = ([row for row in off if row["status"] == s] for s in (DIFFERS, SCALED_DIFFERS))
        parts.append(f"### {paper['title']}\n")
        if not off:
            parts.append("Every value that is decided agrees.\n")
        for rows, before, after in (
            (full, f"{DIFFERS}, {len(full)} of {len(paper['rows'])} values:\n", ""),
            (
                scaled,
                f":::::{{dropdown}} {SCALED_DIFFERS}: {len(scaled)} values, "
                f"{sum(is_better(row) is True for row in scaled)} of them better than printed\n",
                ":::::\n",
            ),
        ):
            if not rows:
                continue
            cells = (
                {
                    **about(row),
                    "Published": row["published"],
                    "Ours": row["ours"],
                    "Better than printed": {None: "–", True: "yes", False: "no"}[is_better(row)],
                    "Settings that differ, remarks": remarks(row) or "–",
                }
                for row in rows
            )
            parts += [before, table(pd.DataFrame(cells)), after]
    return "\n".join(parts)


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
    papers, listed = comparisons(), read("artefacts")
    found = {"overview": overview(papers), "deviations": deviations(papers), "errata": errata(notebooks.chapters())}
    found["undecided"] = undecided(papers)
    boxes = {f"box_{paper['chapter']}": box(paper, listed[paper["chapter"]]) for paper in papers}
    keep(app, found | boxes)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
