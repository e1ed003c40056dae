"""Write the tables that follow from the code and from the chapters' results, before Sphinx reads the pages.

Each function below returns one Markdown fragment, which a page brings in with `{include}`. What a fragment needs
and does not find is a warning, and the book is built with warnings as errors.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import evidence
import pandas as pd
from render import table
from sphinx.util import logging

from fedleak import data
from fedleak.data.sources import DOWNLOADS
from fedleak_book import paths
from fedleak_book.evidence import published, scoreboard
from fedleak_book.evidence.scoreboard import DECIDED, DEPENDS, DIFFERS, GRADES, NOT_ATTEMPTED, OPEN
from fedleak_book.pages import notebooks

logger = logging.getLogger(__name__)

GENERATED = paths.root() / "book" / "_generated"


@cache
def comparisons() -> list[dict[str, Any]]:
    """Compare every paper's values with the records, in the book's order; notebooks without a paper are left out.

    They are compared once a build, for all fragments: `write` forgets those of an earlier build.
    """
    chapters = []
    for chapter in notebooks.chapters():
        if chapter in paths.papers():
            try:
                title, rows = published.load(chapter).title, scoreboard.rows(chapter)
            except ValueError as error:
                logger.warning("no scoreboard of %s: %s", chapter, error, type="fedleak")
                continue
            chapters.append({"chapter": chapter, "title": title, "rows": rows})
    return chapters


def scoreboard_in_short(papers: list[dict[str, Any]]) -> str:
    """Count the values by verdict, one row per paper and grade; our own extensions have rows of their own."""
    rows = []
    for paper in papers:
        for beyond in (False, True):
            mine = [row for row in paper["rows"] if (row["beyond"] if beyond else scoreboard.is_counted(row))]
            name = f"[{paper['title']}](/notebooks/{paper['chapter']}.ipynb)" + beyond * ", our own extensions"
            for grade in (*GRADES, ""):
                count = Counter(row["verdict"] for row in mine if row["grade"] == grade)
                words = (*DECIDED, OPEN, DEPENDS, NOT_ATTEMPTED)
                if count:
                    rows.append({"Chapter": name, "Grade": grade or "–"} | {w: count[w] or "·" for w in words})
    return table(pd.DataFrame(rows))


ADAPTED = {"rlu": ("LLG+", "ZLG+")}
"""By paper, attacks that it compares with in a form for several steps that it does not print."""


def in_one_sentence(papers: list[dict[str, Any]]) -> str:
    """Count the papers' values that have a verdict, by grade."""
    rows = [row for paper in papers for row in paper["rows"] if scoreboard.is_counted(row)]
    by = Counter((row["grade"], row["verdict"]) for row in rows)
    parts = []
    for grade, place in (
        ("A", "at the paper's own settings"),
        ("B", "at every plausible choice of what the paper does not print"),
        ("C", "with fewer images, by effects that were measured elsewhere"),
    ):
        by_verdict = {word: by[grade, word] for word in DECIDED}
        parts.append(
            f"{sum(by_verdict.values())} {place} (" + ", ".join(f"{n} {w}" for w, n in by_verdict.items() if n) + ")"
        )
    differ = [
        row["metric"].endswith(ADAPTED.get(paper["chapter"], ("no attack",)))
        for paper in papers
        for row in paper["rows"]
        if scoreboard.is_counted(row) and row["verdict"] == DIFFERS and row["grade"] in ("A", "B", "C")
    ]
    remark = (
        f"Of the {len(differ)} that differ, {sum(differ)} are of LLG+ and ZLG+ in RLU's tables, "
        "which do not print how these attacks are adapted to several steps. "
    )
    return (
        f"The papers print {len(rows)} different values. With a verdict: {'; '.join(t for t in parts if t[0] != '0')}. "
        f"{remark * any(differ)}{sum(row['verdict'] == DEPENDS for row in rows)} depend on choices that the papers do "
        "not print. The others were measured at other settings, are open, or were not attempted; the reasons follow "
        "below."
    )


def data_sets() -> str:
    """Return the table of data sets with where they come from and their licences."""
    source = dict.fromkeys(DOWNLOADS, "`fedleak data download`") | {"imagenet": "image-net.org, by hand"}
    rows = (
        {
            "Name": f"`{entry.name}`",
            "Data set": entry.title
            + (f" {{cite:p}}`{entry.bibkey}`" if entry.bibkey else "")
            + (f": {entry.note}" if entry.note else ""),
            "Classes": entry.n_classes or "any",
            "Shape": "×".join(map(str, entry.shape)),
            "Where from": "the requirements" if entry.embedded else source.get(entry.name, "an archive of your own"),
            "Stand-in in quick": "–" if entry.embedded else f"`{entry.stand_in}`",
            "Licence": entry.licence,
        }
        for entry in data.catalogue()
    )
    return table(pd.DataFrame(rows))


def audit(example: Path, figure: Path) -> str:
    """Return the report on the page's example set-up, and draw its figure."""
    from fedleak.audit import audit
    from fedleak.audit.setup import load

    return fragment(audit(load(example)), figure)


def flower(example: Path, figure: Path) -> str:
    """Return the report on the run that the Flower page's example makes, and draw its figure."""
    from fedleak.audit import audit_run
    from fedleak.audit.setup import load

    with tempfile.TemporaryDirectory() as home:
        run = Path(home) / "run"
        quiet = {"FLWR_HOME": home, "FLWR_TELEMETRY_ENABLED": "0", "PYTHONPATH": str(example.parent.parent)}
        subprocess.run([sys.executable, example, run], check=True, capture_output=True, env={**os.environ, **quiet})
        return fragment(audit_run(run, load(example)), figure)


def fragment(report: Any, figure: Path) -> str:
    """Return an audit's report as part of a page, and draw its figure."""
    figure.write_text(report.svg(), encoding="utf-8")
    return described(report.to_markdown(figure=f"/book/_generated/{figure.name}", level=3))


def described(markdown: str) -> str:
    """Turn pictures into directives: MyST drops an escaped star, as in LLG*, from the text of a picture."""

    def directive(match: re.Match[str]) -> str:
        text = re.sub(r"\\(.)", r"\1", match[1])
        return f"```{{image}} {match[2]}\n:alt: {text}\n```"

    return re.sub(r"^!\[(.*)\]\(([^)\s]+)\)$", directive, markdown, flags=re.M)


def up_to_date(path: Path, *sources: Path) -> bool:
    """Return whether a file is newer than all of its sources."""
    return path.is_file() and path.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def fragments() -> dict[str, str]:
    """Return the fragments; the examples of an audit, which take a while, only when their sources have changed."""
    papers = comparisons()
    fragments = {
        "scoreboard_in_short": scoreboard_in_short(papers),
        "in_one_sentence": in_one_sentence(papers),
        "data_sets": data_sets(),
    }
    sources = [path for path in (paths.root() / "fedleak").rglob("*") if path.suffix in (".py", ".j2")]
    for name, report in (("audit", audit), ("flower", flower)):
        example = paths.root() / "book" / f"{name}_example.py"
        if not up_to_date(GENERATED / f"{name}.md", example, *sources):
            fragments[name] = report(example, GENERATED / f"{name}.svg")
    rows = {paper["chapter"]: paper["rows"] for paper in papers}
    for chapter in notebooks.chapters():
        fragments[f"evidence-{chapter}"] = evidence.page(chapter, rows.get(chapter, ()))
    return fragments
