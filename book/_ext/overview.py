"""The scoreboard by table and figure, and what does not reproduce: one Markdown fragment each, from the same values.

`data/artefacts.toml` lists every table and figure of the papers, `data/errata.toml` the errors that were found in them.
"""

import json
import math
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from generated import comparisons, keep, logger, number, plain, symbol, table
from sphinx.application import Sphinx

from fedleak import notebooks, paths

Row = dict[str, Any]


def read(name: str) -> dict[str, list[Row]]:
    """Read one of the lists under ``data/``: by paper, in its order."""
    return tomllib.loads((paths.root() / "data" / f"{name}.toml").read_text(encoding="utf-8"))


def link(text: str, anchor: str | None) -> str:
    """Return a reference to a place in a chapter: an equation, a theorem, or anything else with a name."""
    if not anchor:
        return text
    role = {"eq": "eq", "prop": "prf:ref", "lem": "prf:ref", "thm": "prf:ref"}.get(anchor.split("-")[0])
    if not role:
        return f"[{text}](#{anchor})"
    return "Eq. " * (role == "eq") + f"{{{role}}}`{anchor}`"


def belongs(row: Row, artefact: Row) -> bool:
    """Return whether a value is one of a table or figure: its item begins with the name (Table I is not Table II)."""
    starts = artefact.get("items", [artefact["name"]])
    return any(re.match(re.escape(start) + r"(?![0-9IVX])", row["item"]) for start in starts)


def agrees(row: Row) -> bool:
    """Return whether a value that was tried is within its tolerance, or better than the paper's."""
    return symbol(row) in "✓▲" or row["status"].endswith(", agrees")


def tried(rows: list[Row]) -> list[Row]:
    """Return the values that were measured."""
    return [row for row in rows if symbol(row) != "—"]


def verdict(rows: list[Row]) -> str:
    """Sum up the statuses of a table's or figure's values."""
    measured = tried(rows)
    if not measured:
        return "— not attempted"
    marks, off = {symbol(row) for row in measured}, sum(not agrees(row) for row in measured)
    if "✗" in marks:
        text = "✗ differs"
    elif "◌" in marks:
        text = "◌ scaled down, " + ("differs" if off else "agrees")
    else:
        text = "▲ better" if "▲" in marks else "✓ match"
    if off:
        text += f" in {off} of {len(measured)}"
    return text


def widest(rows: list[Row]) -> str:
    """Return the difference that is largest beside its tolerance, with its metric."""

    def size(row: Row) -> tuple[float, float]:
        off = abs(row["difference"])
        if row["tolerance"]:
            return off / row["tolerance"], off
        return (math.inf if off else 0.0), off

    measured = [row for row in tried(rows) if row["difference"] is not None]
    if not measured:
        return "–"
    row = max(measured, key=size)
    return f"{number(row['difference'])}<br>*{plain(row['metric'])}*" if row["difference"] else "0"


def records_of(paper: str) -> dict[str, Row]:
    """Read where a paper's recorded tables come from, by name."""
    files = sorted(paths.recorded(paper).glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def hardware(facts: list[Row]) -> str:
    """Return what the recorded tables were computed on."""

    def machine(fact: Row) -> str:
        if fact["device"] != "cpu":
            return fact["device"]
        return f"CPU, {fact['threads']} thread{'s' * (fact['threads'] > 1)}"

    return "; ".join(sorted({machine(fact) for fact in facts})) or "–"


def duration(facts: list[Row]) -> str:
    """Return the wall time of the recorded sweeps; a dash where nothing was timed."""
    seconds = sum(fact["seconds"] for fact in facts)
    if not seconds:
        return "–"
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def line(artefact: Row, rows: list[Row], records: dict[str, Row]) -> list[Any]:
    """Return the overview's row of one table or figure."""
    measured = tried(rows)
    counts = Counter("agree" if agrees(row) else "differ" for row in measured)
    counts["not attempted"] = len(rows) - len(measured)
    sources = Counter(row["source"] for row in measured)
    facts = [records[name] for name in artefact.get("records", ()) if name in records]
    anchor = next((row["anchor"] for row in rows if row.get("anchor")), None)
    return [
        f"{link(artefact['name'], anchor)}<br>{artefact['shows']}",
        verdict(rows),
        ", ".join(f"{n} {word}" for word, n in counts.items() if n) or "–",
        widest(rows),
        ", ".join(sources) or "–",
        hardware(facts) if "recorded" in sources else "–",
        duration(facts) if "recorded" in sources else "–",
    ]


def unlisted(paper: Row, artefacts: list[Row]) -> list[str]:
    """Name the values of a paper that belong to no table or figure, or to several."""
    return [row["item"] for row in paper["rows"] if sum(belongs(row, artefact) for artefact in artefacts) != 1]


def overview(papers: list[Row]) -> str:
    """Return one table a paper with a row for each of its tables and figures, and a line that sums up all of them."""
    by_chapter = {paper["chapter"]: paper for paper in papers}
    listed = read("artefacts")
    parts, total = [], Counter[str]()
    head = ["Table or figure", "Status", "Values", "Largest difference", "Source", "Hardware", "Cost"]
    for chapter, artefacts in listed.items():
        paper = by_chapter.get(chapter, {"title": f"{chapter.upper()} (its chapter is not in this book)", "rows": []})
        for item in unlisted(paper, artefacts):
            logger.warning("data/artefacts.toml: %r of %s is under none or several", item, chapter, type="fedleak")
        records, rows = records_of(chapter), []
        for artefact in artefacts:
            mine = [row for row in paper["rows"] if belongs(row, artefact)]
            rows.append(line(artefact, mine, records))
            if not artefact.get("text"):
                total[verdict(mine)[:1]] += 1
        parts += [f"### {paper['title']}\n", table(head, rows)]
        if records:
            parts.append(f"All recorded runs of the chapter: {duration(list(records.values()))}.\n")
    words = {"✓": "match", "▲": "better", "✗": "differ somewhere", "◌": "scaled down", "—": "not attempted"}
    summed = ", ".join(f"{mark} {total[mark]} {word}" for mark, word in words.items() if total[mark])
    return f"**{sum(total.values())} tables and figures: {summed}.**\n\n" + "\n".join(parts)


def is_better(row: Row) -> bool | None:
    """Return whether a value is off the way that its metric has for better; None where it has none."""
    sign = {"higher": 1, "lower": -1}.get(row["direction"])
    return None if sign is None else row["difference"] * sign > 0


def deviations(papers: list[Row]) -> str:
    """Return every value that was measured and is not within its tolerance, with the remark on it."""
    head = ["Item", "What the paper says; *metric*", "Published", "Ours", "Better than printed", "Remark"]
    parts = []
    for paper in papers:
        off = [row for row in tried(paper["rows"]) if not agrees(row)]
        full = [row for row in off if symbol(row) == "✗"]
        scaled = [row for row in off if symbol(row) != "✗"]
        parts.append(f"### {paper['title']}\n")
        if not off:
            parts.append("Every value that was measured agrees.\n")
        for rows, before, after in (
            (full, f"✗ differs, {len(full)} of {len(paper['rows'])} values:\n", ""),
            (
                scaled,
                f":::::{{dropdown}} ◌ scaled down, differs: {len(scaled)} values, "
                f"{sum(is_better(row) is True for row in scaled)} of them better than printed\n",
                ":::::\n",
            ),
        ):
            if not rows:
                continue
            cells = (
                [
                    link(row["item"], row.get("anchor")),
                    f"{plain(row['claim'])} ({row['where']}).<br>*{plain(row['metric'])}*",
                    number(row["published"]),
                    number(row["ours"]),
                    {None: "–", True: "yes", False: "no"}[is_better(row)],
                    plain(row["note"]) or "–",
                ]
                for row in rows
            )
            parts += [before, table(head, cells), after]
    return "\n".join(parts)


def errata(chapters: list[str]) -> str:
    """Return the errors found in the papers of these chapters, and in their released code."""
    head = ["Place", "What is wrong", "How it shows", "Measured again in"]
    parts = []
    for paper, found in read("errata").items():
        if paper not in chapters:
            continue
        title = tomllib.loads(paths.published(paper).read_text(encoding="utf-8"))["title"]
        rows = (
            [("**Released code.** " if e.get("code") else "") + e["where"], e["wrong"], e["shown"], ", ".join(e["see"])]
            for e in (e | {"see": [link(*place) for place in e["see"]]} for e in found)
        )
        parts += [f"### {title}\n", table(head, rows)]
    return "\n".join(parts)


def write(app: Sphinx) -> None:
    """Write the fragments."""
    papers = comparisons(Path(app.srcdir) / "_build" / "executed" / "results")
    found = {"overview": overview(papers), "deviations": deviations(papers), "errata": errata(notebooks.chapters())}
    keep(app, found)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
