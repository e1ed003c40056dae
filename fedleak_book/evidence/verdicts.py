"""The rules: which verdict a published value gets, and how good the evidence is.

A **verdict** says how an interval lies to the band of what was published. A **grade** says at which settings it was
measured: **A** the paper's own; **B** every plausible choice of what the paper does not print; **C** fewer images, and
their effect was measured elsewhere; **D** other settings. The scoreboard's page states these rules.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedleak.intervals import MIN_VALUES
from fedleak_book.evidence.measurements import Measured, finite
from fedleak_book.evidence.published import LOST, Paper, Published
from fedleak_book.evidence.scoreboard import (
    AGREES,
    BETTER,
    DECIDED,
    DEPENDS,
    DIFFERS,
    FAILED,
    HELD,
    NOT_ATTEMPTED,
    OPEN,
    SIGNS,
    WITHIN,
)
from fedleak_book.evidence.spread import text
from fedleak_book.experiments import looks

BLOCKS = ("not printed", "data", "GPU", "computing", "trials")
"""What keeps a value from a verdict of grade A."""
OF_DATA = ("images", "aux", "most_aux", "data")


@dataclass(frozen=True)
class Judgement:
    """A value's verdict and grade, the measurement to show, and what else to say."""

    verdict: str
    grade: str
    point: Measured
    note: str = ""
    points: tuple[Measured, ...] = field(default=(), repr=False)
    """The measurements that the verdict depends on."""


def of_interval(item: Published, low: float, high: float) -> str:
    """Return how an interval lies to a value's band; NaN leaves it open.

    A tolerance that was written when the rows existed makes nothing agree that lies beside the print.
    """
    bottom, top = item.band
    if bottom <= low and high <= top:
        if item.prints(low, high):
            return AGREES
        return OPEN if item.rows == "used" else WITHIN  # a tolerance that was written with the rows known
    if item.misses(low, high):
        better = item.attack and item.kind in ("value", "between") and item.direction != "neither"
        return BETTER if better and (low > top) == (item.direction == "higher") else DIFFERS
    return OPEN


def of_point(item: Published, point: Measured) -> str:
    """Return the verdict on one measurement: open without an interval, or with fewer than three trials.

    A mean of two kinds of networks misses nothing that lies within what single networks give.
    """
    assert point.ours is not None
    if point.exact:
        return of_interval(item, point.ours, point.ours)
    verdict = OPEN if point.n < MIN_VALUES else of_interval(item, *_paid(point, point.ours))
    if verdict in (BETTER, DIFFERS) and point.groups and item.prints(point.groups[0], point.groups[3]):
        return OPEN  # a print of few networks, which may be of one kind
    return verdict


def _paid(point: Measured, ours: float) -> tuple[float, float]:
    """Return an interval that pays for every look; at an end of what is possible it grows with z², as Wilson's does."""
    if point.looks == 1 or not finite(point.low):
        return point.low, point.high
    factor = looks.stretch(point.looks) ** (2 if ours in point.ends else 1)
    bottom, top = point.ends
    return max(bottom, ours - factor * (ours - point.low)), min(top, ours + factor * (point.high - ours))


def unprinted_settings(point: Measured) -> dict[str, Any]:
    """Return the settings of a measurement that the paper does not print, but those that an effect covers."""
    open_ones = (d for d in point.differences if not d.why and d.paper == LOST)
    return {d.setting: d.ours for d in open_ones if d.setting not in point.covered}


def differing_settings(point: Measured) -> set[str]:
    """Return the settings in which a measurement differs from what the paper prints."""
    return {d.setting for d in point.differences if d.counts}


def transported(point: Measured) -> Measured | None:
    """Return a measurement with its interval widened by the effects of all its settings; None where some have none.

    The ends of what is possible cut it again.
    """
    low, high, remaining, covered = point.low, point.high, differing_settings(point), set[str]()
    for effect in point.effects:
        if remaining & set(effect.settings):
            down, up = effect.hull
            low, high, remaining = low + down, high + up, remaining - set(effect.settings)
            covered |= set(effect.settings)
    bottom, top = point.ends
    if remaining:
        return None
    return replace(point, covered=tuple(sorted(covered)), low=max(bottom, low), high=min(top, high))


def tally(words: Sequence[str]) -> str:
    """Say how often each verdict is there."""
    return ", ".join(f"{words.count(word)} {word}" for word in SIGNS if word in words)


def _together(words: Sequence[str], decides: bool = True) -> str:
    """Return the verdict of several: theirs if it is one, else open, or that it depends where decided ones differ.

    Of those that agree the weaker counts.
    """
    plain = {AGREES if word == WITHIN else word for word in words}
    if len(plain) == 1:
        return WITHIN if WITHIN in words else words[0]
    return DEPENDS if decides and (DEPENDS in words or len(plain & set(DECIDED)) > 1) else OPEN


def _scanned(item: Published, points: Sequence[Measured], paper: Paper, grade: str) -> Judgement | None:
    """Return the verdict over every joint choice of the settings that are not printed, each by its largest record.

    None where one was not measured, unless the others have decided verdicts that differ: then it depends all the same.
    """
    settings = list(dict.fromkeys(name for point in points for name in unprinted_settings(point)))
    ranges = [paper.tables[item.table].choices(name, item.cell) for name in settings]
    if not points or not all(ranges):
        return None
    chosen, missing = list[Measured](), 0
    for joint in itertools.product(*ranges):
        want = dict(zip(settings, joint, strict=True))
        matching = [p for p in points if all(want[name] == value for name, value in unprinted_settings(p).items())]
        if matching:
            largest, sizes = max(matching, key=lambda point: point.n), {p.n for p in matching if p.n >= MIN_VALUES}
            chosen.append(replace(largest, looks=largest.looks + max(0, len(sizes) - 1)))
        missing += not matching
    words, notes = [of_point(item, point) for point in chosen], []
    if missing and _together(words) != DEPENDS:
        return None
    if len(chosen) > 1:
        values = sorted(point.ours for point in chosen if point.ours is not None)
        over = f"{len(chosen)} choices of {', '.join(settings)}" + f" ({missing} not measured)" * bool(missing)
        notes = [f"{values[0]:.3g} to {values[-1]:.3g} over {over}: {tally(words)}"]
    if (most := max(point.looks for point in chosen)) > 1:
        notes.append(f"looked at {most} times: decided at {100 - 5 / most:.3g} %")
    if grade == "C":
        by = ", ".join(sorted({effect.record for c in chosen for effect in c.effects}))
        notes.append(f"interval widened by what {by} measured")
    return Judgement(_together(words), grade, chosen[0], "; ".join(notes), tuple(chosen))


def _reading(item: Published, paper: Paper, points: Sequence[Measured]) -> Judgement:
    """Judge one reading of the paper by the best evidence there is."""
    exact = [point for point in points if not differing_settings(point)]
    wide = [new for point in points if (new := transported(point)) is not None]
    graded = {"A": [point for point in exact if not unprinted_settings(point)], "B": exact, "C": wide}
    judgements = (_scanned(item, graded_points, paper, grade) for grade, graded_points in graded.items())
    same = [
        point
        for point in points
        if unprinted_settings(point) == unprinted_settings(points[0])
        and differing_settings(point) == differing_settings(points[0])
    ]
    most = max(same, key=lambda point: point.n)  # one quantity, one number: that with the most networks
    last = Judgement(of_point(item, most), "D", most, points=(most,))
    return next(filter(None, judgements), last)


def judge(item: Published, paper: Paper, points: Sequence[Measured]) -> Judgement:
    """Return a value's verdict and grade from all that was measured for it; several readings have to agree."""
    tried = [point for point in points if finite(point.ours)]
    if not tried:
        note = points[0].note or "no number comes out of these rows"
        return Judgement(NOT_ATTEMPTED, "", points[0], note)
    names = list(dict.fromkeys(point.reading for point in tried))
    judged = [_reading(item, paper, [p for p in tried if p.reading == name]) for name in names]
    grade, notes = max(j.grade for j in judged), [j.note for j in judged]
    verdict = _together([j.verdict for j in judged], grade != "D")
    if len(judged) > 1:
        summary = "; ".join(f"{name} {j.point.ours:.3g}" for name, j in zip(names, judged, strict=True))
        agreeing = sum(j.verdict in (AGREES, WITHIN) for j in judged)
        notes.insert(0, f"{agreeing} of {len(judged)} readings agree: {summary}")
    points = tuple(point for j in judged for point in j.points)
    notes += [text(point.groups) for j in judged if (point := j.point).groups]
    notes.append(judged[0].point.note)
    return Judgement(verdict, grade, judged[0].point, "; ".join(filter(None, dict.fromkeys(notes))), points)


def blocks(judgement: Judgement) -> list[str]:
    """Name all that stands between a value and a verdict of grade A."""
    ways = {"GPU"} if "GPU" in judgement.note else set[str]()
    for d in (d for point in judgement.points or (judgement.point,) for d in point.differences if not d.why):
        reason = "data" if d.setting in OF_DATA and d.ours is not None else "computing"
        ways.add("not printed" if d.paper == LOST else {"hardware": "GPU"}.get(d.setting, reason))
    if judgement.verdict == OPEN and len({point.reading for point in judgement.points}) > 1:
        ways.add("not printed")
    if judgement.verdict == NOT_ATTEMPTED and "GPU" not in ways:
        ways.add("computing")
    if judgement.verdict == OPEN and not ways:
        ways.add("trials")
    return [name for name in BLOCKS if name in ways]


def row(item: Published, paper: Paper, points: Sequence[Measured]) -> dict[str, Any]:
    """Return the row of a value in ``data/verdicts.csv``: verdict and grade, and what was measured.

    A prediction has held or not, by its number alone.
    """
    if item.since:
        judgement = Judgement(foretold(item, points[0]), "", points[0], points[0].note)
    else:
        judgement = judge(item, paper, points)
    point = judgement.point
    ours, low, high = (value if finite(value) else None for value in (point.ours, point.low, point.high))
    return {
        "id": item.id,
        "of": item.of,
        "verdict": judgement.verdict,
        "grade": judgement.grade,
        "ours": ours,
        "low": low,
        "high": high,
        "n": point.n,
        "blocks": [] if item.since else blocks(judgement),
        "differences": [str(d) for d in point.differences if not d.why],
        "remarks": [str(d) for d in point.differences if d.why],
        "note": judgement.note + f"; one measurement with {item.repeats}, counted once" * bool(item.repeats),
    }


def foretold(item: Published, point: Measured) -> str:
    """Return whether a bound of a prediction holds, its tolerance included."""
    if point.ours is None:
        return NOT_ATTEMPTED
    low, high = item.band
    return HELD if low <= point.ours <= high else FAILED
