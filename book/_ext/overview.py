"""The obstacles to a decision, errata, tests of the transports and dates of the tolerances: one fragment each."""

import tomllib
from collections import Counter
from typing import Any

import pandas as pd
from generated import comparisons
from render import link, table

from fedleak_book import paths
from fedleak_book.evidence import effects, published
from fedleak_book.evidence.scoreboard import is_counted
from fedleak_book.evidence.verdicts import BLOCKS
from fedleak_book.pages import notebooks

Row = dict[str, Any]
WHEN = {
    "none": "no row of the experiment existed",
    "earlier": "rows of it existed, which were recorded anew since",
    "used": "the rows that measure it existed",
}


def read(name: str) -> dict[str, Any]:
    """Read one of the lists under ``data/``: by paper, in its order."""
    return tomllib.loads((paths.root() / "data" / f"{name}.toml").read_text(encoding="utf-8"))


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
    """Return the errors found in the papers of these chapters, and in their released code: a titled paragraph each."""
    lists = read("errata")
    parts = []
    for paper in chapters:
        if paper in lists:
            title = published.load(paper).title
            parts += [f"### {title}\n", lists["about"][paper], *map(erratum, lists[paper])]
    return "\n".join(parts)


def erratum(entry: Row) -> str:
    """Return one entry: its title, the place in the paper, what is wrong, how it shows, and links to the chapter."""
    place = entry["where"] + ", released code" * entry.get("code", False)
    links = ", ".join(link(*target) for target in entry["see"])
    return f"{entry['title']}\n: *{place}.* {entry['wrong']}\n\n  {entry['shown']} In the chapter: {links}.\n"


def backtests(papers: list[Row]) -> str:
    """Return how often each transport covered what is known, and whether it counts."""
    rows = []
    for paper in papers:
        for name, test in effects.load_backtests(paper["chapter"]).items():
            share = f"{test.covered:,} of {test.values:,} ({test.covered / test.values:.0%})" if test.values else "none"
            row = {"Paper": paper["title"], "Record": f"`{name}`", "Covered": share}
            rows.append(row | {"Mean half-width": f"{test.half_width:.3f}", "Counts": "yes" if test.trusted else "no"})
    return table(pd.DataFrame(rows))


def written(papers: list[Row]) -> str:
    """Count the values whose tolerance was written before rows of ours existed, and the others."""
    every = {paper["title"]: Counter(row["rows"] for row in paper["rows"]) for paper in papers}
    lines = [{"Paper": name, **{text: entry[key] for key, text in WHEN.items()}} for name, entry in every.items()]
    total = sum(every.values(), Counter[str]())
    return (
        f"{sum(total.values())} values and claims have a tolerance. {total['none']} were written down before any row "
        f"of their experiment existed. The other {sum(total.values()) - total['none']} are claims of the papers' texts "
        "that were entered later; their entries in `data/published/` say which rows existed then.\n\n"
        + table(pd.DataFrame(lines))
    )


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    papers = comparisons()
    return {
        "in_the_way": in_the_way(papers),
        "errata": errata(notebooks.chapters()),
        "backtests": backtests(papers),
        "written": written(papers),
    }
