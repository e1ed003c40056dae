"""Write the tables that follow from the code and from the chapters' results, before Sphinx reads the pages.

Each function below returns one Markdown fragment, which a page brings in with `{include}`. What a fragment needs
and does not find is a warning, and the book is built with warnings as errors.
"""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import evidence
import pandas as pd
from fragments import GENERATED
from render import table
from sphinx.util import logging

from fedleak import data
from fedleak.data.sources import DOWNLOADS
from fedleak_book import paths
from fedleak_book.evidence import published, scoreboard
from fedleak_book.pages import notebooks

logger = logging.getLogger(__name__)


@cache
def comparisons() -> list[dict[str, Any]]:
    """Compare every paper's values with the records, in the book's order; notebooks without a paper are left out."""
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
    fragments = {"data_sets": data_sets()}
    sources = [path for path in (paths.root() / "fedleak").rglob("*") if path.suffix in (".py", ".j2")]
    for name, report in (("audit", audit), ("flower", flower)):
        example = paths.root() / "book" / f"{name}_example.py"
        if not up_to_date(GENERATED / f"{name}.md", example, *sources):
            fragments[name] = report(example, GENERATED / f"{name}.svg")
    rows = {paper["chapter"]: paper["rows"] for paper in papers}
    for chapter in notebooks.chapters():
        fragments[f"evidence-{chapter}"] = evidence.page(chapter, rows.get(chapter, ()))
    return fragments
