"""Numbers, text from outside, tables and lists in Markdown."""

import math
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

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


def between(low: float, high: float, digits: int) -> str:
    """Write an interval behind its mean; nothing where there were too few values for one."""
    return "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"


def with_interval(row: pd.Series) -> str:
    """Write an attack's instance accuracy in percent."""
    return percent(row["iacc"]) + between(100 * row["iacc_low"], 100 * row["iacc_high"], 0)


def plain(text: str) -> str:
    """Make text from outside plain in Markdown: names of parameters, messages of errors, LLG*."""
    return re.sub(r"([\\`*_<>#]|(?<=\])\()", r"\\\1", text)


def as_table(rows: pd.DataFrame) -> str:
    """Write a table in Markdown."""
    cells = rows.astype(str).replace({r"\s+": " ", r"\|": r"\\|"}, regex=True)
    lines = [list(rows), ["---"] * len(rows.columns), *cells.to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rates(table: pd.DataFrame, metric: str) -> list[str]:
    """Write a metric of every attack with its interval."""
    columns = (table[f"{metric}{end}"] for end in ("", "_low", "_high"))
    return [f"{mean:.2f}{between(low, high, 2)}" for mean, low, high in zip(*columns, strict=True)]


def times(row: pd.Series) -> str:
    """Write the seconds of an attack's first recovery, and of the others."""
    both = (row["first_seconds"], row["seconds"])
    return ", ".join(f"{s:.0f}" if s >= 10 else f"{s:.2g}" for s in both) if row["seconds"] else "–"


def remarks(reasons: Iterable[tuple[str, str]], form: str) -> str:
    """Write a list of what has a reason, those with the same one together."""
    names: dict[str, list[str]] = {}
    for name, why in reasons:
        names.setdefault(why, []).append(name)
    return "".join(f"- {form}.\n".format(plain(", ".join(of)), plain(why)) for why, of in names.items())
