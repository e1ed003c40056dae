"""A chapter's evidence page, from its modules and records; its notes are in ``notebooks/<name>/notes.md``."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from fedleak import __version__
from fedleak.files import write_text
from fedleak_book import paths
from fedleak_book.evidence.results import Results, figure_of
from fedleak_book.experiments import Experiment, records, running
from fedleak_book.experiments.records import Record
from notebooks import notes
from notebooks.show import markdown, prose

Row = Mapping[str, Any]
LONGEST = 100
"""Characters of a cell that is shown; columns of pictures are longer."""
FEW = 12
"""Settings that a page shows as a table; more are a file to download, because a browser waits for large tables."""
FILES = paths.root() / "book" / "_generated" / "settings"
CITE = """Every value has a name, such as `{key}`, that links to its row. To cite one value, cite \
[the book](/book/index.md#how-to-cite) and add `evidence/{chapter}.html#{key}`, fedleak {version}, and the commit of \
its record, which the table below the values has: between two versions a value may be measured again.
"""
ARROWS = {"higher": " ↑", "lower": " ↓"}
PROVENANCE = ("date", "commit", "code", "device", "processor", "threads", "seconds", "torch", "python")


def page(chapter: str, rows: Sequence[Row]) -> str:
    """Return the page as Markdown: values and notes by figure, then each recorded run with its cells and its trial.

    The rows are the chapter's of `generated.comparisons`.
    """
    results = Results(chapter, device="cpu")
    retired = records.retired(chapter)
    experiments: dict[str, Experiment | None] = {**running.declared(chapter), **dict.fromkeys(retired)}
    recorded = {name: records.parts(chapter, name) for name in experiments}
    every = [record for of_experiment in recorded.values() for record in of_experiment.values()]
    parts, noted = list[str](), notes.load(chapter)
    anchors = list(dict.fromkeys(row["anchor"] for row in rows))
    if rows:
        ordered = sorted(rows, key=lambda row: anchors.index(row["anchor"]))
        parts += [
            "## The paper's values beside ours\n",
            CITE.format(chapter=chapter, key=ordered[0]["id"], version=__version__),
            *_compared(results, ordered, noted),
        ]
    if rest := {anchor: note for anchor, note in noted.items() if anchor not in anchors}:
        parts += ["## Notes\n", *_noted(results, rest)]
    parts += ["## Where the recorded runs come from\n", markdown(_provenance(every)), "## The experiments\n"]
    shown = dict[Any, str]()
    for name, experiment in experiments.items():
        parts += [f"({_record(chapter, name)})=\n### `{name}`\n", _about(chapter, name, experiment, retired)]
        parts += _recorded(chapter, recorded[name])
        parts += _trial(chapter, experiment, shown) if experiment else _again(chapter, name, retired[name])
    return "\n".join(parts)


def _noted(results: Results, noted: Mapping[str, notes.Note]) -> Iterator[str]:
    """Yield the notes on results for which the paper prints no value, each under its title."""
    for anchor, note in noted.items():
        yield f"### {note.title}\n"
        yield f"[In the chapter](#{anchor}).\n\n{prose(note.render(results))}\n"


def _compared(results: Results, rows: Sequence[Row], noted: Mapping[str, notes.Note]) -> Iterator[str]:
    for anchor, group_rows in groupby(rows, key=lambda row: row["anchor"]):
        group = list(group_rows)
        yield f"### {figure_of(group[0])}\n"
        yield f"[In the chapter](#{anchor}).\n"
        if anchor in noted:
            yield prose(noted[anchor].render(results)) + "\n"
        yield markdown(
            {
                "What the paper says": f"{_named(row['id'])}**{row['item']}** {_plain(row['claim'])} ({row['where']}; "
                f"*{_plain(row['metric'])}*{ARROWS.get(row['direction'], '')})",
                "Paper": f"{row['published']}<br>± {row['tolerance']:g}: {_plain(row['why'])}",
                "Ours [95 % interval], n": _ours(row),
                "Verdict (grade)": row["status"],
                "Difference from the paper's setting": ", ".join(row["blocks"]) or "–",
                "Remarks": _plain("; ".join(filter(None, [*row["differences"], *row["remarks"], row["note"]]))) or "–",
            }
            for row in group
        )


def _named(key: str) -> str:
    """Return a value's anchor; raw HTML keeps the dots and capitals of its name."""
    return f'<a id="{key}" href="#{key}">`{key}`</a><br>'


def _ours(row: Row) -> str:
    if row["ours"] is None:
        return "–"
    has_interval = row["low"] is not None and row["high"] is not None
    spread = f" [{row['low']:.3g}, {row['high']:.3g}]" if has_interval else ""
    return f"{row['ours']:.3g}{spread}" + f", {row['n']:,}" * bool(row["n"])


def _provenance(recorded: Sequence[Record]) -> Iterator[dict[str, Any]]:
    for record in recorded:
        listed = {k: record.facts.get(k, "–") for k in PROVENANCE}
        plain = {k: _plain(", ".join(map(str, v)) if isinstance(v, list) else v) for k, v in listed.items()}
        yield {"record": f"`{record.name}`", **plain}


def _record(chapter: str, name: str) -> str:
    """Return the anchor of an experiment."""
    return f"record-{chapter}-{name.replace('_', '-')}"


def _about(chapter: str, name: str, experiment: Experiment | None, retired: Mapping[str, Mapping[str, str]]) -> str:
    """Return what a trial does, in words, and the command that records it, if the present code does."""
    if experiment is None:
        return _plain(retired[name]["says"]) + "\n"
    return f"{_plain(inspect.getdoc(experiment.trial) or '')} Again: `fedleak record {chapter} {name}`.\n"


def _recorded(chapter: str, recorded: Mapping[str, Record]) -> Iterator[str]:
    """Yield the records of an experiment."""
    for name, record in recorded.items():
        cells = record.cells()
        cells = cells[[c for c in cells if cells[c].astype(str).str.len().max() <= LONGEST]]
        used = record.facts["datasets"]
        sets = ", ".join(f"{d['name']} ({d['images']:,} images, {_plain(d['source'])})" for d in used)
        data = f"; data: {sets}" * bool(sets)
        yield f"{len(record.rows):,} rows of trials, `data/results/{chapter}/{name}.csv`{data}. "
        what = "means, 95 % intervals and numbers of trials"
        if len(cells) > FEW:
            file = FILES / f"{chapter}-{name}.csv"
            write_text(file, cells.to_csv(index=False, float_format="%.4g"))
            link = f"/{file.relative_to(paths.root()).as_posix()}"
            yield f"{{download}}`The {len(cells):,} settings as CSV <{link}>`: {what}.\n"
            continue
        yield f"\n:::{{dropdown}} The {len(cells):,} settings: {what}\n```{{raw}} html"
        yield cells.to_html(index=False, border=0, classes="dataframe", float_format="%.4g", na_rep="–")
        yield "```\n:::\n"


def _trial(chapter: str, experiment: Experiment, shown: dict[Any, str]) -> Iterator[str]:
    """Yield the code of a trial, once a page; `shown` has where, by trial."""
    if experiment.trial in shown:
        yield f"The trial is that of [`{shown[experiment.trial]}`](#{_record(chapter, shown[experiment.trial])}).\n"
        return
    shown[experiment.trial] = experiment.name
    file = experiment.trial.__module__.replace(".", "/")
    yield f":::{{dropdown}} The trial\n```{{literalinclude}} /{file}.py\n:language: python"
    yield f":pyobject: {experiment.trial.__name__}\n```\n:::\n"


def _again(chapter: str, name: str, code: Mapping[str, str]) -> Iterator[str]:
    """Yield where the code is of a trial that was retired, and the commands that run it."""
    yield f"Its code was retired; `{code['trial']}` in commit `{code['commit'][:12]}` has it. Again:\n"
    yield f"```sh\n{paths.again(chapter, name, code)}\n```\n"


def _plain(text: Any) -> str:
    return str(text).replace("*", r"\*").replace("_", r"\_").replace("`", "'").replace("$", r"\$")
