"""The artefact appendix: the claim of each table and figure, the command that checks it, and its hours."""

from typing import Any

import pandas as pd
from generated import comparisons
from overview import belongs, duration, read, records_of
from render import link, table

from fedleak_book.scoreboard import is_counted

Row = dict[str, Any]


def line(chapter: str, artefact: Row, rows: list[Row], records: dict[str, Row]) -> Row:
    """Return the appendix's row of one table or figure."""
    names = [name for name in artefact.get("records", ()) if name in records]
    anchor = next((row["anchor"] for row in rows if row.get("anchor")), None)
    return {
        "Claim": f"{link(artefact['name'], anchor)}<br>{artefact['shows']}",
        "Values": len(rows),
        "How to check": f"`fedleak record {chapter} {' '.join(names)}`" if names else f"`fedleak run {chapter}`",
        "Time": duration([records[name] for name in names]),
    }


def appendix(papers: list[Row]) -> str:
    """Return one table per paper, and a line that sums up all of them."""
    listed, parts, facts, total = read("artefacts"), [], [], 0
    for paper in papers:
        chapter, records = paper["chapter"], records_of(paper["chapter"])
        mine = [row for row in paper["rows"] if not row["beyond"]]
        rows = [line(chapter, a, [row for row in mine if belongs(row, a)], records) for a in listed.get(chapter, ())]
        total += sum(map(is_counted, mine))
        parts += [f"#### {paper['title']}\n", table(pd.DataFrame(row for row in rows if row["Values"]))]
        parts.append(f"All recorded runs of the chapter: {duration(list(records.values()))}.\n")
        facts += records.values()
    return f"**{total} values. All recorded runs took {duration(facts)} of wall time.**\n\n" + "\n".join(parts)


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    return {"artefact": appendix(comparisons())}
