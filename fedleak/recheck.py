"""Recompute randomly chosen cells of the recorded results, and compare them with what is recorded.

A recorded table follows from a notebook's trial function, a grid and a seed. Here, the cells of the notebook that one
table needs are executed, with one setting drawn from each of its grids and with all trials of it, and every row that
comes out is looked for in the record.
"""

import contextlib
import dis
import io
import linecache
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import nbformat
import numpy as np
import pandas as pd

from fedleak import paths, report
from fedleak.chapter import RECORDED, Chapter
from fedleak.errors import DataNotFound
from fedleak.sweep import Grid, Trial, settings_of

SAME, CLOSE, DIFFERS = "same", "within the interval", "differs"
TIMED = {("llg", "runtime"), ("rlu", "cost"), ("gdbr", "speed"), ("lia_sa", "fig5")}
"""Recorded tables of seconds: no two runs agree on them, as on columns of that name."""
ROUNDING = {"b_err", "condition", "log10", "apart", "double", "single", "error"}
"""Columns that hold rounding errors, or what multiplies them: the same on the same processor, elsewhere of the same
order of magnitude."""
RELATIVE = 1e-3
"""Numbers agree to this: sums in another order, on another processor or with other threads, differ by less than that,
unless they turn the decision of a trial; then the mean of the trials stays within its interval."""


@dataclass(frozen=True)
class Record:
    """A recorded table, and where it comes from."""

    paper: str
    artefact: str
    profile: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.paper}/{self.artefact} ({self.profile})"

    @property
    def table(self) -> pd.DataFrame:
        """The recorded rows."""
        found = report.recorded(self.paper, self.artefact, self.profile)
        if found is None:
            raise FileNotFoundError(f"{self} is not recorded")
        return found[0]


@dataclass(frozen=True)
class Outcome:
    """What came of one table: its rows, each with ``same``, ``within the interval`` or ``differs``."""

    record: Record
    rows: pd.DataFrame
    verdicts: Sequence[str]


def records(paper: str | None = None) -> list[Record]:
    """Return the recorded tables (of one paper) that can be computed again on a CPU."""
    found = []
    for folder in sorted((paths.root() / "data" / "results").iterdir()):
        for profile in ("quick", "paper") if paper in (None, folder.name) else ():
            for path in sorted(paths.recorded(folder.name, profile).glob("*.csv")):
                one = report.recorded(folder.name, path.stem, profile)
                if one is not None and one[1]["device"] == "cpu" and (folder.name, path.stem) not in TIMED:
                    found.append(Record(folder.name, path.stem, profile, one[1]))
    return found


def spot_check(chosen: Iterable[Record], seed: int, budget: float, say: Callable[[str], None] = print) -> list[Outcome]:
    """Recompute cells of some of these tables, in random order, for as long as the budget lasts.

    Parameters
    ----------
    chosen
        The tables to draw from; those of a data set that is not here are passed over.
    seed
        Decides on the tables and on the settings in them.
    budget
        Seconds, by what the tables have cost when they were recorded; one that costs more by itself is left out.
    say
        Where to say what is checked.

    Returns
    -------
    list of Outcome
    """
    draw = random.Random(seed)
    queue = sorted((r for r in chosen if r.facts["seconds"] <= budget), key=str)
    draw.shuffle(queue)
    outcomes, spent = [], 0.0
    for record in queue:
        if spent + record.facts["seconds"] > budget:
            continue
        try:
            rows = recompute(record, random.Random(draw.random()))
        except DataNotFound as error:
            say(f"{record}: passed over, {str(error).splitlines()[0]}")
            continue
        spent += record.facts["seconds"]
        verdicts = compare(record.table, rows)
        outcomes.append(Outcome(record, rows, verdicts))
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in (SAME, CLOSE, DIFFERS) if v in verdicts)
        say(f"{record}: {len(rows)} of {len(record.table)} rows: {counts}")
    return outcomes


def compare(recorded: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Say of every row whether a recorded one is the same, or else within its interval."""
    verdicts = []
    rows = pd.read_csv(io.StringIO(rows.to_csv(index=False)))  # as the recorded ones have been: an empty text is a NaN
    texts = [c for c in recorded if not pd.api.types.is_float_dtype(recorded[c])]
    for _, row in rows.iterrows():
        alike = recorded[[all(str(old[c]) == str(row[c]) for c in texts) for _, old in recorded.iterrows()]]
        if any(_agrees(old, row) for _, old in alike.iterrows()):
            verdicts.append(SAME)
        elif "low" in recorded and any(old["low"] <= row["mean"] <= old["high"] for _, old in alike.iterrows()):
            verdicts.append(CLOSE)
        else:
            verdicts.append(DIFFERS)
    return verdicts


def _agrees(old: pd.Series, new: pd.Series) -> bool:
    for column, value in old.items():
        if isinstance(value, float) and column != "seconds":
            a, b = float(value), float(new[column])
            if column in ROUNDING:
                close = max(abs(a), abs(b)) <= 10 * min(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-9
            else:
                close = bool(np.isclose(a, b, rtol=RELATIVE, atol=1e-9, equal_nan=True))
            if not close:
                return False
    return True


# --- one table of a notebook -------------------------------------------------------------------------------------


class _Found(Exception):
    """The table that was asked for: it ends the notebook there, and is no error."""

    def __init__(self, table: pd.DataFrame):
        self.table = table


class Excerpt(Chapter):
    """A chapter of which one table is computed: the other tables are the recorded ones."""

    target: str
    folder: Path
    draw: random.Random | None = None

    @property
    def cache(self) -> Path:
        """An empty folder: what is checked is computed, not read."""
        return self.folder

    def sweep(self, trial: Trial, grid: Grid, trials: int, chunk: int = 25) -> pd.DataFrame:
        """Run one of the settings."""
        settings = list(settings_of(grid))
        return super().sweep(trial, [self.draw.choice(settings)] if self.draw else settings, trials, chunk)

    def table(self, artefact: str, compute: Callable[[], pd.DataFrame], **facts: Any) -> pd.DataFrame:
        """Compute the table that was asked for, and end there."""
        if artefact == self.target:
            raise _Found(compute())
        old = report.recorded(self.paper, artefact, self.profile)
        return compute() if old is None else old[0].assign(source=RECORDED)


def recompute(record: Record, draw: random.Random | None = None) -> pd.DataFrame:
    """Compute a recorded table again: all of it, or the rows of one setting drawn from each of its grids."""
    parameters = {key: record.facts[key] for key in ("profile", "seed", "trials")} | {"device": "cpu"}
    return excerpt(record.paper, record.artefact, parameters, draw)


def excerpt(name: str, artefact: str, parameters: Mapping[str, Any], draw: random.Random | None = None) -> pd.DataFrame:
    """Execute the cells of a notebook that one table needs, in this process, and return the table.

    Parameters
    ----------
    name, artefact
        Notebook, and table in it.
    parameters
        For the notebook's `parameters` cell.
    draw
        Draws one setting from each grid; by default all are run.

    Raises
    ------
    ValueError
        If the notebook computes no such table.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for cell in needed(name, artefact):
            file = f"<{name}.ipynb, cell {cell.id}>"
            # so that the trial's source can be read, as a kernel sees to it
            linecache.cache[file] = (len(cell.source), None, cell.source.splitlines(keepends=True), file)
            try:
                exec(compile(cell.source, file, "exec"), namespace)
            except _Found as found:
                return found.table
            if "parameters" in cell.metadata.get("tags", ()):
                namespace.update(parameters)
            chapter = namespace.get("chapter")
            if isinstance(chapter, Chapter) and not isinstance(chapter, Excerpt):
                chapter.__class__ = Excerpt
                vars(chapter).update(target=artefact, folder=Path(folder), draw=draw)
    raise ValueError(f"{name} has no table {artefact!r}")


def needed(name: str, artefact: str) -> list[Any]:
    """Return the code cells that one table of a notebook needs, in order: a backward slice, by the names they bind."""
    cells = [c for c in nbformat.read(paths.source_notebook(name), as_version=4).cells if c.cell_type == "code"]
    call = re.compile(rf"""chapter\.table\(\s*["']{re.escape(artefact)}["']""")
    calls = [i for i, cell in enumerate(cells) if call.search(cell.source)]
    if not calls:
        raise ValueError(f"{name} has no table {artefact!r}")
    target = calls[0]
    codes = [compile(cell.source, cell.id, "exec") for cell in cells]
    binds = [{i.argval for i in dis.get_instructions(code) if i.opname == "STORE_NAME"} for code in codes]
    wanted, queue = {target}, [target]
    wanted |= {i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", ())}
    while queue:
        here = queue.pop()
        for used, later in _uses(codes[here]):
            # what a function reads is looked up when it is called, by the table's cell at the latest
            for before in (here, target + 1) if later else (here,):
                binding = next((i for i in reversed(range(before)) if used in binds[i]), None)
                if binding is not None and binding not in wanted:
                    wanted.add(binding)
                    queue.append(binding)
    return [cells[i] for i in sorted(wanted)]


def _uses(code: CodeType) -> Iterator[tuple[str, bool]]:
    """Yield the names that a cell takes from others; True for those that its functions read when they are called."""
    bound: set[str] = set()
    for i in dis.get_instructions(code):
        if i.opname == "STORE_NAME":
            bound.add(i.argval)
        elif i.opname == "LOAD_NAME" and i.argval not in bound:
            yield i.argval, False
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    while inner:
        one = inner.pop()
        inner += [c for c in one.co_consts if isinstance(c, CodeType)]
        yield from ((i.argval, True) for i in dis.get_instructions(one) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
