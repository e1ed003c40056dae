"""Tables as the pages show them."""

import hashlib
from collections.abc import Mapping, Sequence
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


def comparison(rows: Sequence[Mapping[str, Any]]) -> None:
    """Show published values beside ours: interval, n, status, and every setting in which ours is another."""

    def ours(row: Mapping[str, Any]) -> str:
        if row["ours"] is None:
            return f"{row['status']}<br><small>{row['note']}</small>"
        known = row["low"] is not None and row["high"] is not None
        bounds = f" [{row['low']:.3g}, {row['high']:.3g}]" if known else ""
        count = f", n = {row['n']:,}" if row["n"] else ""
        said = [*row["differences"], *row["remarks"], row["note"]]
        return f"{row['ours']:.3g}{bounds}{count}<br>{row['status']}<br><small>{'; '.join(filter(None, said))}</small>"

    lines = []
    for row in rows:
        arrow = {"higher": " ↑", "lower": " ↓"}.get(row["direction"], "")
        lines.append(
            {
                "what the paper says": f"<b>{row['item']}</b> {row['claim']} "
                f"<br><small>{row['where']}; {row['metric']}{arrow}</small>",
                "published": f"{row['published']}<br><small>± {row['tolerance']:g}: {row['why']}</small>",
                "ours": ours(row),
                "this run": "–" if row.get("now") is None or pd.isna(row["now"]) else f"{row['now']:.3g}",
            }
        )
    table = pd.DataFrame(lines)
    if len(table) and (table["this run"] == "–").all():
        table = table.drop(columns="this run")
    show(table, "The paper's claims and values beside ours.", {c: c for c in table})


def provenance(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Show where recorded tables come from, and the data sets behind them."""
    if not facts:
        return
    keys = (
        "date",
        "commit",
        "joined",
        "device",
        "processor",
        "memory",
        "threads",
        "seconds",
        "seed",
        "torch",
        "python",
    )
    table = pd.DataFrame([{"artefact": a, **{k: _listed(f.get(k)) for k in keys}} for a, f in facts.items()])
    table = table.dropna(axis=1, how="all")
    caption = (
        "Where the recorded results come from; seconds: of all trials; joined: the commit that holds this one's code."
    )
    show(table, caption, formats={"seconds": "{:,.3g}"})
    sets: dict[tuple, dict[str, Any]] = {}
    for artefact, one in facts.items():
        for d in one["datasets"]:
            entry = sets.setdefault((d["name"], d["digest"]), {**d, "artefacts": []})
            entry["artefacts"].append(artefact)
    lines = [{**d, "artefacts": ", ".join(d["artefacts"])} for d in sets.values()]
    if lines:
        formats = {"images": "{:,}", "subset": lambda is_one: "yes" if is_one else "no"}
        show(pd.DataFrame(lines), "The data sets behind them.", "name images subset source artefacts", formats=formats)


def _listed(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
