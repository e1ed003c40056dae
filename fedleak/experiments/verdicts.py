"""The rules: which verdict a published value gets, and how good the evidence is.

A **verdict** says how an interval lies to the band of what was published. A **grade** says at which settings it was
measured: **A** the paper's own; **B** every plausible choice of what the paper does not print; **C** fewer images, and
what these are worth was measured elsewhere; **D** other settings. The scoreboard's page states these rules.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedleak.experiments import choices
from fedleak.experiments.choices import Choices
from fedleak.experiments.published import LOST, Published
from fedleak.experiments.status import Difference, Measured, finite
from fedleak.intervals import LEAST

AGREES, BETTER, DIFFERS, DEPENDS, OPEN = "agrees", "better", "differs", "depends", "open"
NOT_ATTEMPTED = "not attempted"
DECIDED = (AGREES, BETTER, DIFFERS)
SIGNS = {AGREES: "✓", BETTER: "▲", DIFFERS: "✗", DEPENDS: "⇄", OPEN: "≈", NOT_ATTEMPTED: "—"}
GRADES = "ABCD"
BLOCKS = ("not printed", "data", "GPU", "computing", "trials")
"""What keeps a value from a verdict of grade A."""
OF_DATA = ("images", "aux", "most_aux", "data")


@dataclass(frozen=True)
class Judgement:
    """A value's verdict and grade, the measurement to show, and what else to say."""

    verdict: str
    grade: str
    shown: Measured
    note: str = ""
    points: tuple[Measured, ...] = field(default=(), repr=False)
    """The measurements that the verdict hangs on."""

    @property
    def status(self) -> str:
        """How tables show it, such as ``✓ agrees (B)``."""
        return f"{SIGNS[self.verdict]} {self.verdict}" + f" ({self.grade})" * bool(self.grade)


def of_interval(item: Published, low: float, high: float) -> str:
    """Return how an interval lies to a value's band; NaN leaves it open."""
    bottom, top = item.band
    if bottom <= low and high <= top:
        return AGREES
    if high < bottom or low > top:
        better = item.attack and item.kind in ("value", "between") and item.direction != "neither"
        return BETTER if better and (low > top) == (item.direction == "higher") else DIFFERS
    return OPEN


def of_point(item: Published, point: Measured) -> str:
    """Return the verdict on one measurement: open without an interval, or with fewer than three trials."""
    assert point.ours is not None
    if point.exact:
        return of_interval(item, point.ours, point.ours)
    return OPEN if point.n < LEAST else of_interval(item, point.low, point.high)


def free(point: Measured) -> dict[str, Any]:
    """Return the settings of a measurement that the paper does not print."""
    return {d.setting: d.ours for d in point.differences if not d.why and d.paper == LOST}


def _far(point: Measured) -> set[str]:
    """Return the settings in which a measurement differs from what the paper prints."""
    return {d.setting for d in point.differences if d.counts}


def moved(paper: str, point: Measured) -> Measured | None:
    """Return a measurement with its interval widened by trusted effects of all its settings; None where some have none.

    The ends of what is possible cut it again.
    """
    low, high, left = point.low, point.high, _far(point)
    for effect in point.effects:
        if left & set(effect.settings) and choices.trusted(paper, effect.record):
            down, up = effect.hull
            low, high, left = low + down, high + up, left - set(effect.settings)
    bottom, top = point.ends
    return None if left else replace(point, low=max(bottom, low), high=min(top, high))


def _scanned(item: Published, points: Sequence[Measured], rules: Choices) -> tuple[str, list[Measured], str] | None:
    """Return the verdict over every joint choice of the settings that are not printed; None where one is not there."""
    settings = list(dict.fromkeys(name for point in points for name in free(point)))
    ranges = [rules.of(item.table, name, item.cell) for name in settings]
    if not points or not all(ranges):
        return None
    chosen = []
    for joint in itertools.product(*ranges):
        want = dict(zip(settings, joint, strict=True))
        here = [p for p in points if all(want[name] == value for name, value in free(p).items())]
        if not here:
            return None
        chosen.append(here[0])
    words = [of_point(item, point) for point in chosen]
    flips = len(set(words) & set(DECIDED)) > 1
    verdict = words[0] if len(set(words)) == 1 else DEPENDS if flips else OPEN
    values = sorted(point.ours for point in chosen if point.ours is not None)
    note = ""
    if len(chosen) > 1:
        counted = ", ".join(f"{words.count(word)} {word}" for word in SIGNS if word in words)
        note = f"{values[0]:.3g} to {values[-1]:.3g} over {len(chosen)} choices of {', '.join(settings)}: {counted}"
    return verdict, chosen, note


def _reading(item: Published, paper: str, points: Sequence[Measured], rules: Choices) -> Judgement:
    """Judge one reading of the paper by the best evidence there is."""
    plain = [point for point in points if not free(point) and not _far(point)]
    if plain:
        return Judgement(of_point(item, plain[0]), "A", plain[0], points=(plain[0],))
    exact = [point for point in points if not _far(point)]
    if found := _scanned(item, exact, rules):
        return Judgement(found[0], "B", found[1][0], found[2], tuple(found[1]))
    wide = [new for point in points if (new := moved(paper, point)) is not None]
    if found := _scanned(item, wide, rules):
        by = ", ".join(sorted({effect.record for one in found[1] for effect in one.effects}))
        note = "; ".join(filter(None, [found[2], f"interval widened by what {by} measured"]))
        return Judgement(found[0], "C", found[1][0], note, tuple(found[1]))
    return Judgement(of_point(item, points[0]), "D", points[0], points=(points[0],))


def judge(item: Published, paper: str, points: Sequence[Measured], rules: Choices | None = None) -> Judgement:
    """Return a value's verdict and grade from all that was measured for it; several readings have to agree."""
    rules = choices.load(paper) if rules is None else rules
    tried = [point for point in points if finite(point.ours)]
    if not tried:
        note = points[0].note or "no number comes out of these rows"
        return Judgement(NOT_ATTEMPTED, "", points[0], note)
    names = list(dict.fromkeys(point.reading for point in tried))
    each = [_reading(item, paper, [p for p in tried if p.reading == name], rules) for name in names]
    grade, words = max(one.grade for one in each), {one.verdict for one in each}
    if len(words) == 1:
        verdict = each[0].verdict
    else:
        flips = grade != "D" and (DEPENDS in words or len(words & set(DECIDED)) > 1)
        verdict = DEPENDS if flips else OPEN
    notes = [one.note for one in each]
    if len(each) > 1:
        told = "; ".join(f"{name} {one.shown.ours:.3g}" for name, one in zip(names, each, strict=True))
        notes.insert(0, f"{sum(one.verdict == AGREES for one in each)} of {len(each)} readings agree: {told}")
    points = tuple(point for one in each for point in one.points)
    notes.append(each[0].shown.note)
    return Judgement(verdict, grade, each[0].shown, "; ".join(filter(None, dict.fromkeys(notes))), points)


def blocks(found: Judgement) -> list[str]:
    """Name all that stands between a value and a verdict of grade A."""
    ways, many = {"GPU"} if "GPU" in found.note else set[str](), len({point.reading for point in found.points}) > 1
    for point in found.points or (found.shown,):
        for d in (d for d in point.differences if not d.why):
            ways.add(_block(d))
    if found.verdict == OPEN and many:
        ways.add("not printed")
    if found.verdict == NOT_ATTEMPTED and "GPU" not in ways:
        ways.add("computing")
    if found.verdict == OPEN and not ways:
        ways.add("trials")
    return [name for name in BLOCKS if name in ways]


def _block(difference: Difference) -> str:
    """Name what one setting that differs asks for."""
    if difference.paper == LOST:
        return "not printed"
    if difference.setting in OF_DATA and difference.ours is not None:
        return "data"
    return "GPU" if difference.setting == "hardware" else "computing"


def row(item: Published, paper: str, points: Sequence[Measured]) -> dict[str, Any]:
    """Return the row of a value: what the paper says, verdict and grade, and what was measured."""
    found = judge(item, paper, points)
    shown = found.shown
    ours, low, high = (value if finite(value) else None for value in (shown.ours, shown.low, shown.high))
    return {
        **vars(item),
        "published": item.text(),
        "ours": ours,
        "low": low,
        "high": high,
        "n": shown.n,
        "difference": None if ours is None else item.difference(ours),
        "verdict": found.verdict,
        "grade": found.grade,
        "status": found.status,
        "blocks": blocks(found),
        "source": "—" if ours is None else shown.source,
        "differences": [str(d) for d in shown.differences if not d.why],
        "remarks": [str(d) for d in shown.differences if d.why],
        "note": found.note,
    }


def rank(row: dict[str, Any]) -> float:
    """Return where a value stands among others, the best evidence first."""
    order = list(SIGNS).index(row["verdict"])
    return math.inf if not row["grade"] else GRADES.index(row["grade"]) * len(SIGNS) + order
