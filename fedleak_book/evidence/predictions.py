"""Outcomes of predictions: claims that no paper makes, committed before a run, each a bound on a number or several."""

from collections.abc import Iterator

from fedleak_book.evidence import verdicts
from fedleak_book.evidence.published import Published
from fedleak_book.evidence.results import Results

MARKS = {True: "✓", False: "✗", None: "–"}


def bounds(run: Results, id: str) -> list[Published]:
    """Return the bounds of a prediction; a second one has its own id, ``ID-2``."""
    items = run.published.items
    return [items[key] for key in (id, f"{id}-2") if key in items]


def holds(run: Results, id: str) -> bool | None:
    """Return whether a prediction holds in all of its bounds, tolerances included; None where nothing was measured."""
    outcomes = {verdicts.foretold(item, run.measured[item.id][0]) for item in bounds(run, id)}
    return None if verdicts.NOT_ATTEMPTED in outcomes else outcomes == {verdicts.HELD}


def ids(run: Results, letters: str = "") -> list[str]:
    """Return the predictions of a chapter, or those whose names begin with one of some letters."""
    starts = tuple(f"{run.paper}-{letter}" for letter in letters) or run.paper
    return [id for id in run.published.items if id.startswith(starts) and not id.endswith("-2")]


def name_of(id: str) -> str:
    """Return the name that a chapter's own pages give a prediction: its letter and number."""
    return id.rpartition("-")[2]


def table(run: Results, *of: str, anchors: bool = False) -> Iterator[dict[str, str]]:
    """Yield predictions as rows: name (an anchor, on one page), text, bounds, measurement, and whether it holds."""
    for id in of:
        items = bounds(run, id)
        notes = [note] if (note := run.measured[id][0].note) else [f"{run[item.id]:.3g ci}" for item in items]
        yield {
            "": f'<a id="{id}"></a>' * anchors + name_of(id),
            "expected": items[0].claim,
            "bound": "; ".join(_bound(item) for item in items),
            "measured": "; ".join(notes),
            "held": MARKS[holds(run, id)],
        }


def _bound(item: Published) -> str:
    tolerance = f" ± {item.tolerance:g}" if item.tolerance else ""
    return item.text().replace("-", "−") + tolerance
