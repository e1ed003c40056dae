"""Write the tables that follow from the code and from the chapters' results, before Sphinx reads the pages.

Each function below returns one Markdown fragment, which a page brings in with `{include}`. What a fragment needs
and does not find is a warning, and the book is built with warnings as errors.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from fedleak import notebooks, paths

logger = logging.getLogger(__name__)

STATUSES = {
    "✓": "match",
    "▲": "better than the paper",
    "✗": "differs",
    "◌": "scaled down",
    "—": "not attempted",
}
ARROWS = {"higher": "↑", "lower": "↓"}


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table that scrolls when it is wide; bars and line breaks in a cell are made harmless."""

    def line(cells: Iterable[Any]) -> str:
        return "| " + " | ".join(" ".join(str(cell).split()).replace("|", r"\|") for cell in cells) + " |"

    head = list(head)
    lines = [line(head), line("---" for _ in head), *(line(row) for row in rows)]
    return "\n".join(["::::{div} wide-table full-width", *lines, "::::", ""])


def number(value: Any) -> str:
    """Return a number as the tables show it: three significant digits, a dash for none, words as they are."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (1000 <= abs(value) < 1e15 and value == round(value)):
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("-", "−")


def plain(text: Any) -> str:
    """Return words as Markdown that shows them as they are: LLG* is a name and no emphasis."""
    return re.sub(r"([*_$`\\])", r"\\\1", " ".join(str(text).split()))


def comparisons(folder: Path) -> list[dict[str, Any]]:
    """Read the chapters' comparisons with their papers, in the book's order; a notebook without a paper has none."""
    found = []
    for chapter in notebooks.chapters():
        if not paths.published(chapter).is_file():
            continue
        path = folder / f"{chapter}.json"
        if path.is_file():
            found.append({"chapter": chapter} | json.loads(path.read_text(encoding="utf-8")))
        else:
            logger.warning("%s has left no comparison with its paper; run `fedleak book`", chapter, type="fedleak")
    return found


def symbol(row: dict[str, Any]) -> str:
    """Return the symbol that a row's status begins with."""
    mark = str(row["status"])[:1]
    if mark not in STATUSES:
        logger.warning("unknown status %r of %s in the scoreboard", row["status"], row["id"], type="fedleak")
    return mark


def scoreboard_in_short(papers: list[dict[str, Any]]) -> str:
    """Return one row a paper: how many of its values have which status."""
    rows = []
    for paper in papers:
        count = Counter(symbol(row) for row in paper["rows"])
        chapter = f"[{paper['title']}](/notebooks/{paper['chapter']}.ipynb)"
        rows.append([chapter, *(count[mark] or "·" for mark in STATUSES), len(paper["rows"])])
    return table(["Chapter", *(f"{mark} {word}" for mark, word in STATUSES.items()), "values"], rows)


def scoreboard(papers: list[dict[str, Any]]) -> str:
    """Return, for each paper, every value beside ours, and below it what is to be said about the values."""
    parts = []
    for paper in papers:
        rows, notes = [], []
        for row in paper["rows"]:
            symbol(row)
            item = f"[{row['item']}](#{row['anchor']})" if row.get("anchor") else row["item"]
            ours = number(row["ours"])
            if row.get("low") is not None and row.get("high") is not None:
                ours += f" [{number(row['low'])}, {number(row['high'])}]"
            if row.get("n"):
                ours += f", n = {number(row['n'])}"
            claim = f"{plain(row['claim'])} ({row['where']}).<br>" if row.get("claim") else ""
            arrow = ARROWS.get(row.get("direction"), "")
            rows.append(
                [
                    item,
                    f"{claim}*{plain(row['metric'])}* {arrow}",
                    number(row.get("published")),
                    ours,
                    number(row.get("difference")),
                    number(row.get("tolerance")),
                    row["status"],
                    row.get("source") or "–",
                ]
            )
            if row.get("note"):
                notes.append(f"- **{row['item']}** ({row['status']}): {plain(row['note'])}")
        head = ["Item", "What the paper says; *metric*", "Published", "Ours [95 % interval]", "Difference"]
        parts += [f"### {paper['title']}\n", table([*head, "Tolerance", "Status", "Source"], rows)]
        if notes:
            parts += [":::{dropdown} Remarks on single values", *notes, ":::\n"]
    return "\n".join(parts) or "No chapter has been run.\n"


def threat_models() -> str:
    """Return what each registered attack is after, and a table of what each adversary must have."""
    try:
        from fedleak.attacks import registry

        attacks = registry.all_attacks()
    except ImportError as error:
        logger.warning("no threat-model table: %s", error, type="fedleak")
        return "No attack is registered.\n"
    needs = [need for need in registry.Need if any(need in attack.needs for attack in attacks)]
    overview = table(
        ["Attack", "Recovers", "Server", "Sees", "Paper", "Rule", "In short"],
        (
            [
                f"**{attack.name}**",
                attack.goal,
                attack.server,
                attack.sees,
                f"{{cite:t}}`{attack.paper}`",
                attack.equation,
                attack.summary,
            ]
            for attack in attacks
        ),
    )
    required = table(
        ["Attack", *(need.value for need in needs)],
        ([f"**{a.name}**", *("needs" if need in a.needs else "·" for need in needs)] for a in attacks),
    )
    possible = table(
        ["Attack", *(adversary.name for adversary in registry.ADVERSARIES)],
        (
            [f"**{a.name}**", *("can" if not a.lacking(adversary) else "·" for adversary in registry.ADVERSARIES)]
            for a in attacks
        ),
    )
    return (
        f"## The attacks\n\n{overview}\n"
        f"## What each attack needs\n\n{required}\n"
        f"## Which adversary can run it\n\n{possible}"
    )


def data_sets() -> str:
    """Return the table of data sets with their licences."""
    try:
        from fedleak import data

        entries = data.catalogue()
    except (ImportError, AttributeError) as error:
        logger.warning("no data table: %s", error, type="fedleak")
        return "No data set is known.\n"
    return table(
        ["Name", "Data set", "Classes", "Shape", "Stand-in in quick", "Licence", "Remark"],
        (
            [
                f"`{entry.name}`",
                entry.title + (f" {{cite:p}}`{entry.bibkey}`" if entry.bibkey else ""),
                entry.n_classes or "any",
                "×".join(map(str, entry.shape)),
                "none needed: embedded" if entry.embedded else f"`{entry.stand_in}`",
                entry.licence,
                entry.note,
            ]
            for entry in entries
        ),
    )


def audit(example: Path, figure: Path) -> str:
    """Return the report on the page's example set-up, and draw its figure."""
    from fedleak.audit import audit, drawing
    from fedleak.audit.cli import load

    report = audit(load(example))
    figure.write_text(drawing.svg(report.figure()), encoding="utf-8")
    return report.to_markdown(figure=f"/book/_generated/{figure.name}", level=3)


def up_to_date(path: Path, *sources: Path) -> bool:
    """Say whether a file is newer than all files that it is made from."""
    return path.is_file() and path.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def keep(app: Sphinx, fragments: dict[str, str]) -> None:
    """Write fragments; one that says what it said before keeps its date, so that its page is not read again."""
    folder = Path(app.srcdir) / "book" / "_generated"
    folder.mkdir(exist_ok=True)
    for name, text in fragments.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def write(app: Sphinx) -> None:
    """Write the fragments; the example of an audit, which takes seconds, only when its sources have changed."""
    papers = comparisons(Path(app.srcdir) / "_build" / "executed" / "results")
    fragments = {
        "scoreboard_in_short": scoreboard_in_short(papers),
        "scoreboard": scoreboard(papers),
        "threat_models": threat_models(),
        "data_sets": data_sets(),
    }
    folder, example = Path(app.srcdir) / "book" / "_generated", Path(app.srcdir) / "book" / "audit_example.py"
    folder.mkdir(exist_ok=True)
    if not up_to_date(folder / "audit.md", example, *Path(notebooks.__file__).parent.rglob("*.py")):
        fragments["audit"] = audit(example, folder / "audit.svg")
    keep(app, fragments)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
