"""Notes of the evidence pages: templates in ``notebooks/<chapter>/notes.md``, filled with the numbers of the records.

A note begins with a line ``# ANCHOR: TITLE``, the anchor being that of its figure or section in the chapter. Its text
is Markdown with Jinja: ``{{ cell("fig2", "spread", init="positive") | f(".2f ci") }}`` is a number of a record with its
interval. What takes more is a variable of the function in ``notes*.py`` that has the anchor's name (``fig_llg_4`` for
``fig-llg-4``) and returns its variables.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined, TemplateError

from fedleak import models
from fedleak_book import paths
from fedleak_book.evidence.results import Number, Results
from fedleak_book.evidence.verdicts import tally
from fedleak_book.experiments import running
from notebooks.show import ends, enumerated, markdown

HEADING = re.compile(r"^# ([\w-]+): (.*)$", re.M)


@dataclass(frozen=True)
class Note:
    """A note of an evidence page: its title, its template, and the function that returns its variables, if it has any."""

    place: str
    """Its file and anchor, for errors."""
    title: str
    template: str
    variables: Callable[[Results], Mapping[str, Any]] | None

    def render(self, run: Results) -> str:
        """Return the note as Markdown, its numbers from the records; a number that was not measured, or any other mistake in it, is a `ValueError`."""
        known = dict(run=run, cell=run.cell, by_trial=run.by_trial, mean=run.mean)
        known |= self.variables(run) if self.variables else {}
        try:
            return ENVIRONMENT.from_string(self.template).render(known)
        except (
            TemplateError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            raise ValueError(f"{self.place}: {error}") from error


def load(chapter: str) -> dict[str, Note]:
    """Read the notes of a chapter by anchor, in their order; none if it has no file of them."""
    path = paths.root() / "notebooks" / chapter / "notes.md"
    if not path.is_file():
        return {}
    functions = dict[str, Any]()
    for module in sorted(path.parent.glob("notes*.py")):
        functions |= vars(running.module(chapter, module.stem))
    head, *parts = HEADING.split(path.read_text(encoding="utf-8"))
    if wrong := re.search(r"^#[^#\n]*$", "\n".join([head, *parts[2::3]]), re.M):
        raise ValueError(
            f"{path.name} of {chapter}: {wrong[0]!r} is not '# ANCHOR: TITLE'"
        )
    notes = {}
    for anchor, title, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        variables = functions.get(anchor.replace("-", "_"))
        place = f"notebooks/{chapter}/notes.md, {anchor}"
        notes[anchor] = Note(place, title, text.strip(), variables)
    return notes


def formatted(value: Any, form: str) -> str:
    """Return a number in a format such as ``.2f``, with its interval where it ends in ``ci``, and with a true minus."""
    is_plain = type(value) is float or isinstance(value, np.floating)
    return format(Number(value) if is_plain else value, form)


def values_of(rows: Any) -> Iterator[dict[str, Any]]:
    """Yield each row's values: numbers with their intervals, and as ``network`` the title of ``net``."""
    for row in rows.to_dict("records") if isinstance(rows, pd.DataFrame) else rows:
        named = {"network": models.title(row["net"])} if "net" in row else {}
        numbers = {k: Number(v) for k, v in row.items() if type(v) is float and v == v}
        ends = {k: Number.of(row, k) for k in numbers if f"{k} low" in row}
        yield named | row | numbers | ends


def lines(rows: Any, columns: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the lines of a table; a column is a format of a row's values, such as ``{lead:+.2f ci}``."""
    for values in values_of(rows):
        yield {name: form.format_map(values) for name, form in columns.items()}


def per_row(rows: Any, form: str, separator: str = ", ") -> str:
    """Return one piece of text per row, a format of its values."""
    return separator.join(form.format_map(values) for values in values_of(rows))


def rounded(frame: pd.DataFrame, form: str = ".2f") -> pd.DataFrame:
    """Return a table with its fractions as text; a dash where one is missing."""
    return frame.map(
        lambda v: (
            v if not isinstance(v, float) else formatted(v, form) if v == v else "–"
        )
    )


ENVIRONMENT = Environment(undefined=StrictUndefined, trim_blocks=True)
ENVIRONMENT.filters |= {
    "ends": ends,
    "enumerated": enumerated,
    "f": formatted,
    "lines": lines,
    "per_row": per_row,
    "rounded": rounded,
    "table": markdown,
    "tally": tally,
}
