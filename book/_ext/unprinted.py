"""For the page on verdicts: what the papers do not print, and how well the transports hold."""

from typing import Any

import pandas as pd
from generated import comparisons
from render import keep, plain, table
from sphinx.application import Sphinx

from fedleak.experiments import choices

Row = dict[str, Any]


def listed(papers: list[Row]) -> str:
    """Return every choice with its source, a table a paper."""
    parts = []
    for paper in papers:
        rows = [
            {
                "Setting": one.setting + f" ({', '.join(f'{k} {v}' for k, v in one.when.items())})" * bool(one.when),
                "Where": ", ".join(one.tables) or "all tables",
                "One choice for": f"the {one.tied}",
                "Choices": "<br>".join(
                    f"{value}: {plain(source)}" for value, source in zip(one.values, one.sources, strict=True)
                ),
            }
            for one in choices.load(paper["chapter"]).choices
        ]
        if rows:
            parts += [f"### {paper['title']}: what is not printed\n", table(pd.DataFrame(rows))]
    return "\n".join(parts)


def backtests(papers: list[Row]) -> str:
    """Return how often each transport covered what is known, and whether it counts."""
    rows = []
    for paper in papers:
        for name, one in choices.known(paper["chapter"]).items():
            share = f"{one.covered:,} of {one.values:,} ({one.covered / one.values:.0%})" if one.values else "none"
            counts = "yes" if one.trusted else "no"
            rows.append({"Paper": paper["title"], "Record": f"`{name}`", "Covered": share, "Counts": counts})
    return table(pd.DataFrame(rows))


def write(app: Sphinx) -> None:
    """Write the fragments."""
    papers = comparisons()
    keep(app, {"choices": listed(papers), "backtests": backtests(papers)})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
