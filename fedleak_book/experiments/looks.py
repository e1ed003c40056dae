"""How often the trials of a record were looked at: ``data/looks.csv`` says where more were added once rows were known.

`records.record` adds a line when it replaces a record by one with more trials of a cell. `verdicts` lets the interval
pay for every look: at the k-th it is one at 100 - 5 / k per cent.
"""

import csv
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist

import pandas as pd

from fedleak.files import write_text
from fedleak.intervals import MIN_VALUES
from fedleak_book import paths

HEAD = "paper,record,first,then,commit\n"


def path() -> Path:
    """Return the file."""
    return paths.root() / "data" / "looks.csv"


def at(paper: str, record: str, n: int) -> int:
    """Return at which look a cell of a record has n trials: 1 where no trial was added."""
    first, looks = _read(path(), path().stat().st_mtime_ns if path().is_file() else 0), 1
    while (paper, record, n) in first:
        n, looks = first[paper, record, n], looks + 1
    return looks


@lru_cache(maxsize=4)
def _read(file: Path, changed: int) -> dict[tuple[str, str, int], int]:
    if not changed:
        return {}
    with file.open(encoding="utf-8", newline="") as lines:
        return {(row["paper"], row["record"], int(row["then"])): int(row["first"]) for row in csv.DictReader(lines)}


def note(paper: str, record: str, cells: Sequence[str], before: pd.DataFrame, after: pd.DataFrame) -> None:
    """Write down the numbers of trials that a new table of a record raises."""
    if "trial" not in before or not set(cells) <= {*before}:
        return
    then, now = (table.groupby(list(cells), dropna=False)["trial"].nunique() for table in (before, after))
    both = pd.concat([then, now], axis=1, keys=["then", "now"]).dropna()
    raised = both[(both["then"] >= MIN_VALUES) & (both["now"] > both["then"])].drop_duplicates()
    lines = [f"{paper},{record},{int(a)},{int(b)},\n" for a, b in raised.itertuples(index=False)]
    text = path().read_text(encoding="utf-8") if path().is_file() else HEAD
    if new := [line for line in lines if line.strip(",\n") not in text]:
        write_text(path(), text + "".join(new))


def stretch(looks: int) -> float:
    """Return the factor by which an interval grows that pays for this number of looks."""
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / looks) / normal.inv_cdf(0.975)
