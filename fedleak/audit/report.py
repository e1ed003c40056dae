"""The report of an audit, as Markdown, an HTML page, and JSON; how its templates write numbers, tables and text."""

import io
import itertools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedleak.attacks.registry import ADVERSARIES
from fedleak.audit.guard import list_cases
from fedleak.audit.tables import Tables
from fedleak.files import write_text
from fedleak.intervals import MIN_VALUES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORDS = ("What leaks", "To whom", "What would reduce it")


class Report(Tables):
    """The report on a set-up or a recorded run: its findings (`fedleak.audit.tables.Tables`), and views of them."""

    def _written(self, figure: str = "", level: int = 1) -> Any:
        about = {"mark": "#" * level, "figure": figure, "titles": WORDS, "least": MIN_VALUES}
        return TEMPLATES.get_template("report.md.j2").make_module({"report": self, **about})

    def headline(self) -> tuple[str, str, str]:
        """Return three sentences: what leaks, to whom, and what would reduce it, the most effective first."""
        written = self._written()
        return written.what, written.whom, written.helps

    def cases(self, each: bool = False) -> pd.DataFrame:
        """Return one row a round of a recorded run, one of a set-up, or one an update; see `guard.list_cases`."""
        return list_cases(self, each)

    def to_markdown(self, figure: str = "", level: int = 1) -> str:
        """Return the report as Markdown, with a figure at this address, if any, and a title of this level."""
        return str(self._written(figure, level))

    def figure(self) -> "Figure":
        """Draw every attack's instance accuracy beside the guesses, and what each remedy leaves."""
        means = self.table.set_index("attack")["iacc"]
        attacks = self.table[self.table["attack"].isin(self.ranking())]
        return _draw(attacks, self.remedies.iloc[1:], means[list(self.guesses)])

    def svg(self) -> str:
        """Return the figure as SVG with real text; "" if nothing is scored."""
        return "" if self.rows.empty else write_svg(self.figure())

    def to_html(self) -> str:
        """Return the report as one HTML page that needs nothing else: the Markdown's text, the figure inline."""
        written = self._written()
        from markdown_it import MarkdownIt

        body = MarkdownIt("commonmark", {"html": False}).enable("table").render(str(written))
        body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="table"><table>')
        body = body.replace("</table>", "</table></div>")
        if drawn := self.svg():
            named = f'<svg role="img" aria-label="{escape(written.alt)}" '
            drawn = drawn[drawn.index("<svg") :].replace("<svg ", named, 1)
            place = "<h2>Results per attack</h2>\n"
            body = body.replace(place, f'{place}<figure tabindex="0">{drawn}</figure>\n', 1)
        return TEMPLATES.get_template("page.html.j2").render(title=written.title, body=body)

    def to_json(self) -> str:
        """Return the report for a machine: the headline, the verdicts, a record an attack, a remedy and a round."""
        scored = {} if self.rows.empty else {"attacks": self.table, "remedies": self.remedies}
        tables = {"attacks": pd.DataFrame(), "remedies": pd.DataFrame(), **scored, "cases": self.cases()}
        content = {
            "name": self.facts["name"],
            "headline": dict(zip(WORDS, self.headline(), strict=True)),
            "verdicts": [verdict._asdict() for verdict in self.verdicts],
            **{name: json.loads(table.to_json(orient="records")) for name, table in tables.items()},
            "words": self.words and {**self.words._asdict(), "share": self.words.share},
            "privacy": [{"claim": result.text(), "wrong": result.wrong()} for result in self.privacy],
            "spent": [{"node": client.node, "rounds": client.rounds, "claim": client.text()} for client in self.spent],
            "versions": self.facts["versions"],
            "seed": self.facts["seed"],
        }
        return json.dumps(content, indent=1)

    def save(self, path: Path | str) -> list[Path]:
        """Write the report: ``.html``, ``.json``, or ``.md`` with the figure as ``.svg`` beside it. Returns the files.

        Raises `ValueError` for another ending; `PermissionError` if the folder cannot be written to.
        """
        path = Path(path)
        check_ending(path)
        if path.suffix != ".md":
            write_text(path, self.to_html() if path.suffix == ".html" else self.to_json())
            return [path]
        picture, drawn = path.with_suffix(".svg"), self.svg()
        if drawn:
            write_text(picture, drawn)
        write_text(path, self.to_markdown(figure=picture.name))
        return [path, picture] if drawn else [path]


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


def counted(number: Any, noun: str) -> str:
    """Write a number, or a span of numbers, with its noun in the singular or plural."""
    return f"{number} {noun}" + "s" * (str(number) != "1")


def sentence(text: str) -> str:
    """Put what a template wrote over several lines into one, which begins with a capital."""
    text = " ".join(text.split())
    return text[:1].upper() + text[1:]


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters |= {
    function.__name__: function
    for function in (percent, two, rate, share, accuracy, plain, cells, times, together, counted, sentence)
}

LOOK: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedleak",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
}
COLOURS = ["#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161"]  # seaborn's palette "colorblind"
STYLE: dict[str, Any] = {
    adversary.name: {"color": colour, "marker": marker}
    for adversary, colour, marker in zip(ADVERSARIES, COLOURS, "vosDP^", strict=False)
}
"""Colour and marker of the weakest adversary that can run an attack."""
OTHER: Any = {"color": "#949494", "marker": "v"}


def _draw(attacks: pd.DataFrame, remedies: pd.DataFrame, guesses: pd.Series) -> "Figure":
    """Draw two panels of dots with 95 % intervals over the instance accuracy; the guesses' means are lines."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = [max(len(attacks), 1), max(len(remedies), 1)]
    with mpl.rc_context(LOOK):
        drawn = Figure(figsize=(5.4, 2.6 + 0.32 * rows[0] + 0.66 * rows[1]), layout="constrained")
        top, bottom = drawn.subplots(2, 1, height_ratios=[rows[0] + 0.6, 2 * rows[1] + 0.6], sharex=True)
        _dots(top, attacks, list(attacks["attack"]), guesses)
        top.set_title("Attacks, on the updates as they are shared", loc="left", fontsize="medium")
        names = [f"{textwrap.fill(row['remedy'], 22)}\n({row['attack']})" for _, row in remedies.iterrows()]
        _dots(bottom, remedies, names, guesses)
        bottom.set_title("With one remedy on top: the best attack left", loc="left", fontsize="medium")
        count = attacks["n"].max() if len(attacks) else 0
        bottom.set_xlabel(f"labels named right (instance accuracy)\nn = {count} updates; bars: 95 % intervals")
        handles = {label: h for axes in (top, bottom) for h, label in zip(*axes.get_legend_handles_labels())}  # noqa: B905
        drawn.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize="small"
        )
    return drawn


def _dots(axes: "Axes", table: pd.DataFrame, names: list[str], guesses: pd.Series) -> None:
    for place, (_, row) in enumerate(table.iterrows()):
        if row["n"]:
            style = STYLE.get(row["adversary"], OTHER)
            axes.plot([row["iacc_low"], row["iacc_high"]], [place, place], color=style["color"], linewidth=2.2)
            axes.plot(row["iacc"], place, **style, markersize=7, linestyle="", label=row["adversary"])
    for (name, mean), line in zip(guesses.items(), itertools.cycle((":", "--", "-.")), strict=False):
        axes.axvline(mean, color="#444444", linestyle=line, linewidth=1.4, label=f"{name} ({mean:.2f})")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    if not names:
        axes.text(0.5, 0.0, "none", ha="center", va="center")


def write_svg(drawn: "Figure") -> str:
    """Return a figure as SVG with real text, the same for the same figure."""
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context(LOOK):
        drawn.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
