"""Numbers, text from outside, tables and lists in Markdown."""

import re
from collections.abc import Iterable

import pandas as pd


def percent(value: float) -> str:
    """Write a share as a whole percentage; nearly all is not all, and nearly none is not none."""
    value = round(value, 6)
    if 0.995 <= value < 1:
        return "over 99 %"
    return "under 1 %" if 0 < value < 0.005 else f"{round(100 * value)} %"


def with_interval(row: pd.Series) -> str:
    """Write an attack's instance accuracy in percent."""
    return f"{percent(row['iacc'])} [{100 * row['iacc_low']:.0f}, {100 * row['iacc_high']:.0f}]"


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
    return [f"{mean:.2f} [{low:.2f}, {high:.2f}]" for mean, low, high in zip(*columns, strict=True)]


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
