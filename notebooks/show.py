"""Tables and sentences as the pages show them."""

import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from fedleak.federated.schemes import SCHEMES
from fedleak_book.evidence.results import Number

LABELS = {
    "alpha": "α",
    "asr": "iAcc",
    "batch_size": "B",
    "cacc": "cAcc",
    "clients": "clients",
    "held_out": "held-out accuracy",
    "iacc": "iAcc",
    "insacc": "iAcc",
    "lnacc": "LnAcc",
    "lpips": "LPIPS",
    "lr": "learning rate",
    "n_classes": "classes",
    "psnr": "PSNR [dB]",
    "regularisation": "proximal weight",
    "sigma": "σ",
    "rate": "share",
    "ssim": "SSIM",
    "stage": "accuracy mark",
    "steps": "T",
    "train": "training accuracy",
}
"""How tables call a column whose name alone would not say it; other names lose their underscores."""
ATTACKS = {
    "after Decaf": "Decaf (reimplemented)",
    "after SPEAR": "SPEAR (reimplemented)",
    "even guess": "even-split baseline",
    "prior guess": "class-prior baseline",
    "RLU, told": "RLU (informed)",
    "RLU, whole head": "RLU-WH",
    "RLU, whole head, told": "RLU-WH (informed)",
    "learned, training loss": "learned (knows the loss)",
    "learned, adaptive": "learned (informed)",
}
"""How pages call an attack whose name in the records is another."""
_IN_FIGURES = ATTACKS | {"after Decaf": "Decaf", "after SPEAR": "SPEAR"}
_IN_FIGURES |= {"GDBR, whitened": "GDBR-W", "learned, training loss": "learned (loss)"}
_SCHEMES = ("FedAvg", "SGDm", "NAG", "Scaffold", "FedProx", "FedDyn", "FedDC")
TITLES = dict(zip(SCHEMES, _SCHEMES, strict=True))
"""What tables and figures call a scheme."""


def drawn(attack: str) -> str:
    """Return what figures call an attack, where a table would be longer."""
    return _IN_FIGURES.get(attack, attack)


def prose(text: str) -> str:
    """Return Markdown without the indentation of its code, with percentages in one form: ``85 %``, which never breaks."""
    return re.sub(r"(?<=\d) ?%", "\u00a0%", inspect.cleandoc(text))


def say(text: str) -> None:
    """Show Markdown whose numbers come from rows: ``say(f"LLG+ recovers {share:.0%} of the labels.")``.

    In the book, in JupyterLab and on GitHub the cell shows the sentences; its code is hidden.
    """
    from IPython.display import Markdown, display

    display(Markdown(prose(text)))


def source(trial: Callable[..., Any]) -> None:
    """Show the code of a trial."""
    from IPython.display import Markdown, display

    display(Markdown(f"```python\n{inspect.getsource(trial)}```"))


def markdown(
    lines: Iterable[Mapping[str, Any]] | pd.DataFrame, wide: bool = True
) -> str:
    """Return rows as a Markdown table of a page, which may be wider than its text; bars and line breaks in a cell are made harmless."""
    frame = pd.DataFrame(lines)
    rows = [
        frame.columns,
        ["---"] * frame.shape[1],
        *frame.astype(object).itertuples(index=False),
    ]
    cells = (
        [
            " ".join(str(ATTACKS.get(cell, cell)).split()).replace("|", r"\|")
            for cell in row
        ]
        for row in rows
    )
    table = [f"| {' | '.join(row)} |" for row in cells]
    if wide:
        table = ["::::{div} wide-table full-width", *table, "::::"]
    return "\n".join([*table, ""])


def table(frame: pd.DataFrame) -> str:
    """Return a Markdown table that scrolls when it is wide, its numbers as the book writes them."""
    return markdown(frame.astype(object).map(number))


def number(value: Any) -> str:
    """Return a number as the tables show it: three significant digits, a dash for none, words as they are."""
    if isinstance(value, bool | str):
        return str(value)
    if pd.isna(value):
        return "–"
    if 1000 <= abs(value) < 1e15 and value == round(value):
        return f"{value:,.0f}"
    return (str(value) if isinstance(value, int) else f"{value:.3g}").replace("-", "−")


def ends(values: Iterable[float], form: str = ".2f") -> str:
    """Return the smallest and the largest of some numbers: "0.10 to 0.20"."""
    numbers = [float(value) for value in values]
    return f"{Number(min(numbers)):{form}} to {Number(max(numbers)):{form}}"


def enumerated(values: Iterable[float], form: str = ".2f") -> str:
    """Return numbers in words: "0.10, 0.20 and −0.30"."""
    numbers = (v if isinstance(v, Number) else Number(v) for v in values)
    *most, last = (f"{number:{form}}" for number in numbers)
    return f"{', '.join(most)} and {last}" if most else last


def beside(run: Any, table: str, form: str = ".2f") -> pd.DataFrame:
    """Return one of the paper's tables as text: for each value ours with its interval, and the paper's; and n.

    They are those of the scoreboard; what was not measured, or has no interval, shows as such.
    """
    paper, lines = run.published.tables[table], dict[tuple, dict[str, Any]]()
    for row in run.values:
        if row["table"] != table or not row["column"]:
            continue
        cell = {
            k: v for k, v in row["cell"].items() if k in paper.keys and k != "final"
        }
        line = lines.setdefault(tuple(cell.items()), paper.named_cells(cell))
        name = LABELS.get(row["column"], row["column"].upper())
        line[f"{name}, ours"] = "–" if row["ours"] is None else bounded_text(row, form)
        printed = run.published.items[row["id"]].published
        line[f"{name}, paper"] = format(printed, form)
        line["n"] = row["n"]
    return pd.DataFrame(lines.values()).rename(columns=LABELS)


def bounded_text(row: Mapping[str, Any], form: str) -> str:
    """Return the number of a row of the scoreboard with its interval, if it has one."""
    ends = (math.nan if row[end] is None else row[end] for end in ("low", "high"))
    return f"{Number(row['ours'], *ends, row['n']):{form} ci}"


def show(
    table: pd.DataFrame,
    caption: str,
    columns: str | Mapping[str, str] = "",
    *,
    value: str = "",
    wide: str = "",
    formats: Mapping[str, Any] | None = None,
) -> None:
    """Show a table with its caption, without the index, the same way everywhere.

    Parameters
    ----------
    table
        One row a line.
    caption
        Says what the table is, in a sentence.
    columns
        Names of the columns to show, in their order, with spaces between; or a mapping to the names that are shown.
        `LABELS` are the names of the common ones.
    value
        Column of a number that is shown with its interval, where the table has ``low`` and ``high`` of it.
    wide
        A column whose values become columns, numbers in their order, filled with `value`; the other columns shown
        make a line.
    formats
        How to format columns (by their names in the table): format strings or functions; numbers have three decimals.
    """
    from IPython.display import HTML, display

    if "attack" in table:
        table = table.assign(attack=table["attack"].replace(ATTACKS))
    names = (
        dict(columns)
        if isinstance(columns, Mapping)
        else {c: labelled(c) for c in columns.split()}
    )
    if value:
        table = table.assign(
            **{value: [bounded(row, value) for _, row in table.iterrows()]}
        )
    if wide:
        keys, order = [c for c in names if c in table], list(dict.fromkeys(table[wide]))
        order = sorted(order) if pd.api.types.is_numeric_dtype(table[wide]) else order
        table = table.pivot_table(
            index=keys,
            columns=wide,
            values=value,
            aggfunc="first",
            sort=False,
            dropna=False,
            observed=True,
        )
        table = (
            table.dropna(how="all")
            .reindex(columns=order)
            .reset_index()
            .rename_axis(columns=None)
        )
        names |= {
            c: c if isinstance(c, str) else f"{labelled(wide)} = {c:g}" for c in order
        }
    names = names or {c: labelled(c) for c in table}
    table = table[[c for c in names if c in table]].rename(columns=names)
    shown = {names.get(c, c): how for c, how in (formats or {}).items()}
    style = (
        table.style.hide(axis="index")
        .format(shown, precision=3, na_rep="–")
        .set_caption(caption)
    )
    style = style.set_uuid(hashlib.sha256(caption.encode()).hexdigest()[:8])
    display(HTML(style.to_html(table_attributes='class="dataframe table"')))


def labelled(column: str) -> str:
    """Return what tables call a column."""
    return LABELS.get(column, column.replace("_", " "))


def bounded(row: Mapping[str, Any], value: str) -> str:
    """Return a number of a row with its interval, where it has one."""
    if pd.isna(row[value]):
        return "–"
    low, high = row.get(f"{value} low"), row.get(f"{value} high")
    return f"{row[value]:.3f}" + (
        "" if low is None or pd.isna(low) else f" [{low:.3f}, {high:.3f}]"
    )
