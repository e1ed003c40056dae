"""The templates of the report, and how they write numbers, tables and text from outside."""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

ENDINGS = (".html", ".md", ".json")


def check_ending(path: Path) -> None:
    """Refuse a file that no report can be written to."""
    if path.suffix not in ENDINGS:
        raise ValueError(f"a report is written to a file that ends in {', '.join(ENDINGS)}, not to {path.name!r}")


def percent(value: float) -> str:
    """Write a share as a whole percentage; nearly all is not all, and nearly none is not none."""
    value = round(value, 6)
    if 0.995 <= value < 1:
        return "over 99 %"
    return "under 1 %" if 0 < value < 0.005 else f"{round(100 * value)} %"


def two(value: float | None, sign: str = "") -> str:
    """Write a number with two decimals, or that there is none."""
    return "–" if value is None else f"{value:{sign}.2f}"


def between(row: Mapping[str, Any], metric: str, digits: int, scale: int = 1) -> str:
    """Write the interval behind a mean; nothing where there were too few values for one."""
    low, high = (scale * row[f"{metric}_{end}"] for end in ("low", "high"))
    return "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"


def rate(row: Mapping[str, Any], metric: str) -> str:
    """Write a metric of an attack with its interval."""
    return two(row[metric]) + between(row, metric, 2)


def share(row: Mapping[str, Any]) -> str:
    """Write an attack and its instance accuracy."""
    return f"{row['attack']} {row['iacc']:.2f}"


def accuracy(row: Mapping[str, Any]) -> str:
    """Write an attack's instance accuracy in percent, with its interval."""
    return percent(row["iacc"]) + between(row, "iacc", 0, 100)


def plain(text: Any) -> str:
    """Make text from outside plain in Markdown: names of parameters, messages of errors, LLG*."""
    return re.sub(r"([\\`*_<>#]|(?<=\])\()", r"\\\1", str(text))


def cells(row: Iterable[Any]) -> str:
    """Write a row of a table."""
    cleaned = (re.sub(r"\s+", " ", str(cell)).replace("|", r"\|") for cell in row)
    return f"| {' | '.join(cleaned)} |"


def times(row: Mapping[str, Any]) -> str:
    """Write the seconds of an attack's first recovery, and of the others."""
    durations = (row["first_seconds"], row["seconds"])
    return ", ".join(f"{s:.0f}" if s >= 10 else f"{s:.2g}" for s in durations) if row["seconds"] else "–"


def together(reasons: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put the names with the same reason together."""
    names: dict[str, list[str]] = {}
    for name, why in reasons:
        names.setdefault(why, []).append(name)
    return [(", ".join(of), why) for why, of in names.items()]


def named(counts: list[int]) -> str:
    """Write how many samples of which class there are."""
    return ", ".join(f"{label}: {count}" for label, count in enumerate(counts) if count) or "none"


def counted(number: Any, noun: str) -> str:
    """Write a number, or a span of numbers, with its noun in the singular or plural."""
    return f"{number} {noun}" + "s" * (str(number) != "1")


def sentence(text: str) -> str:
    """Put what a template wrote over several lines into one, which begins with a capital."""
    text = " ".join(text.split())
    return text[:1].upper() + text[1:]


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_TEMPLATES.filters |= {
    function.__name__: function
    for function in (percent, two, rate, share, accuracy, plain, cells, times, together, named, counted, sentence)
}
REPORT, PAGE = (_TEMPLATES.get_template(name) for name in ("report.md.j2", "page.html.j2"))
