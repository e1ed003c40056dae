"""The artefact appendix: for each table and figure what is claimed, how to check it, the hours, and what differs."""

from collections import Counter
from typing import Any

import pandas as pd
from generated import comparisons
from overview import belongs, duration, read, records_of
from render import keep, link, table
from sphinx.application import Sphinx

from fedleak.experiments.status import BETTER, DIFFERS, MATCH, SCALED_AGREES, SCALED_DIFFERS

Row = dict[str, Any]


def line(chapter: str, artefact: Row, rows: list[Row], records: dict[str, Row]) -> Row:
    """Return the appendix's row of one table or figure; every value is in one of the counts."""
    found = Counter(row["status"] for row in rows)
    counts = [found[MATCH] + found[BETTER], found[DIFFERS], found[SCALED_AGREES], found[SCALED_DIFFERS]]
    names = [name for name in artefact.get("records", ()) if name in records]
    anchor = next((row["anchor"] for row in rows if row.get("anchor")), None)
    return {
        "Claim": f"{link(artefact['name'], anchor)}<br>{artefact['shows']}",
        "Values": len(rows),
        **{name: count or "·" for name, count in zip(COUNTS, [*counts, len(rows) - sum(counts)], strict=True)},
        "How to check": f"`fedleak record {chapter} {' '.join(names)}`" if names else f"`fedleak run {chapter}`",
        "Time": duration([records[name] for name in names]),
    }


def appendix(papers: list[Row]) -> str:
    """Return a table for each paper, and a line that sums up all of them."""
    listed, parts, facts, total = read("artefacts"), [], [], Counter[str]()
    for paper in papers:
        chapter, records = paper["chapter"], records_of(paper["chapter"])
        mine = [row for row in paper["rows"] if not row["beyond"]]
        rows = [line(chapter, a, [row for row in mine if belongs(row, a)], records) for a in listed.get(chapter, ())]
        for row in rows:
            total.update({name: count for name, count in row.items() if isinstance(count, int)})
        parts += [f"### {paper['title']}\n", table(pd.DataFrame(row for row in rows if row["Values"]))]
        parts.append(f"All recorded runs of the chapter: {duration(list(records.values()))}.\n")
        facts += records.values()
    counts = ", ".join(f"{total[name]} {name.lower()}" for name in COUNTS)
    summed = f"**{total['Values']} values: {counts}. All recorded runs took {duration(facts)} of wall time.**"
    return f"{summed}\n\n" + "\n".join(parts)


COUNTS = ("Reproduced", "Do not reproduce", "Agree at other settings", "Differ at other settings", "Open")


def write(app: Sphinx) -> None:
    """Write the fragment."""
    keep(app, {"artefact": appendix(comparisons())})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
