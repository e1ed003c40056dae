"""Tables as the pages show them."""

import hashlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

LABELS = {
    "alpha": "α",
    "batch_size": "B",
    "cacc": "cAcc",
    "clients": "clients",
    "held_out": "held-out accuracy",
    "iacc": "iAcc",
    "lnacc": "LnAcc",
    "lpips": "LPIPS",
    "lr": "learning rate",
    "momentum": "γ",
    "n_classes": "classes",
    "psnr": "PSNR [dB]",
    "regularisation": "λ",
    "sigma": "σ",
    "stage": "accuracy mark",
    "steps": "m",
    "train": "training accuracy",
}
"""How tables call a column whose name alone would not say it; other names lose their underscores."""


def show(
    table: pd.DataFrame,
    caption: str,
    columns: str | Mapping[str, str] | None = None,
    *,
    value: str | None = None,
    wide: str | None = None,
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
    names = dict(columns) if isinstance(columns, Mapping) else {c: labelled(c) for c in (columns or "").split()}
    if value is not None:
        cells = [bounded(row, value) for _, row in table.iterrows()]
        table = table.assign(**{value: cells})
    if wide is not None:
        keys, order = [c for c in names if c in table], list(dict.fromkeys(table[wide]))
        order = sorted(order) if pd.api.types.is_numeric_dtype(table[wide]) else order
        table = table.pivot_table(
            index=keys, columns=wide, values=value, aggfunc="first", sort=False, dropna=False, observed=True
        )
        table = table.dropna(how="all").reindex(columns=order).reset_index().rename_axis(columns=None)
        names |= {c: c if isinstance(c, str) else f"{labelled(wide)} = {c:g}" for c in order}
    if names:
        table = table[[c for c in names if c in table]]
    else:
        names = {c: labelled(c) for c in table}
    shown = {names.get(c, c): how for c, how in (formats or {}).items()}
    style = table.rename(columns=names).style.hide(axis="index").format(shown, precision=3, na_rep="–")
    style = style.set_caption(caption).set_uuid(hashlib.sha256(caption.encode()).hexdigest()[:8])
    from IPython.display import HTML, display

    display(HTML(style.to_html(table_attributes='class="dataframe table"')))


def labelled(column: str) -> str:
    """Return what tables call a column."""
    return LABELS.get(column, column.replace("_", " "))


def bounded(row: Mapping[str, Any], value: str, digits: str = ".3f") -> str:
    """Return a number of a row with its interval, where it has one."""
    if pd.isna(row[value]):
        return "–"
    low, high = row.get(f"{value} low"), row.get(f"{value} high")
    known = low is not None and not pd.isna(low)
    return f"{row[value]:{digits}}" + (f" [{low:{digits}}, {high:{digits}}]" if known else "")
