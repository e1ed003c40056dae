"""An audit in words: the three sentences at the top, the tables, Markdown and HTML."""

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from markdown_it import MarkdownIt

from fedleak.audit.page import PAGE

if TYPE_CHECKING:
    from fedleak.audit.report import Report

WHO = {
    "shared gradients": "whoever reads the updates",
    "white-box model": "whoever also has the model, as the server and all clients do",
    "auxiliary knowledge": "whoever also has {auxiliary} labelled samples like the clients'",
    "malicious server, secure aggregation": "a server that cheats with the models that it sends",
    "white-box model, last layer withheld": "whoever has the model and some data",
}
ENOUGH = 3
"""Updates below which there is no interval of a difference."""
ENDINGS = (".html", ".md")
WORDS = ("What leaks", "To whom", "What would reduce it")


def check_ending(path: Path) -> None:
    """Refuse a file that no report can be written to."""
    if path.suffix not in ENDINGS:
        raise ValueError(f"a report is written to a file that ends in {' or '.join(ENDINGS)}, not to {path.name!r}")


def percent(value: float) -> str:
    """Write a share as a whole percentage; nearly all is not all, and nearly none is not none."""
    value = round(value, 6)
    if 0.995 <= value < 1:
        return "over 99 %"
    return "under 1 %" if 0 < value < 0.005 else f"{round(100 * value)} %"


def _with_interval(row: pd.Series) -> str:
    return f"{percent(row['iacc'])} [{100 * row['iacc_low']:.0f}, {100 * row['iacc_high']:.0f}]"


def _floor(report: "Report") -> tuple[str, float]:
    """Return the best guess and what it gets right."""
    best = report.table[report.table["attack"].isin(report.guesses)].iloc[0]
    return best["attack"], best["iacc"]


def headline(report: "Report") -> tuple[str, str, str]:
    """Say what leaks, to whom, and what was measured to reduce it, the most effective first."""
    (guess, floor), known = _floor(report), report.facts
    leaking, few, alone = report.table.query("leaks"), report.table["n"].max() < ENOUGH, known["clients"] == 1
    whom = "Too few updates to tell." if few else "To nobody, as far as these attacks go."
    helps = "Nothing that was measured needs reducing. Stronger attacks may exist: see below what was not tried."
    if not report.ranking():
        what = f"No label attack applies; the reasons are below. Without an update, the {guess} names {percent(floor)}."
    elif leaking.empty:
        best = report.table[~report.table["attack"].isin(report.guesses)].iloc[0]
        begin = "Too few updates to tell" if few else "No label attack that was tried does reliably better than a guess"
        what = (
            f"{begin}: the best, {best['attack']}, names {_with_interval(best)} of the labels right (n = {best['n']}), "
            f"the {guess} {percent(floor)}."
        )
    else:
        best = leaking.iloc[0]
        units, whose = ("updates", "a client's") if alone else ("sums", f"each of {known['clients']} clients'")
        what = (
            f"The labels: {best['attack']} names {_with_interval(best)} of {whose} {known['samples']} labels right, "
            f"and all of them in {percent(best['exact'])} of {best['n']} {units}. Without an update, the {guess} "
            f"names {percent(floor)}."
        )
        steps = (
            f"{WHO.get(name, name).format(**known)}: {_with_interval(row)} ({row['attack']})"
            for name, row in report.by_adversary()
        )
        whom = "; ".join(steps) + "."
        whom = whom[0].upper() + whom[1:]
        left = "; ".join(
            f"{row['remedy']}: {percent(row['iacc'])} ({row['attack']})"
            if row["n"]
            else f"{row['remedy']}: no attack here applies"
            for _, row in report.remedies.iloc[1:].sort_values("iacc", na_position="first").iterrows()
        )
        helps = (
            f"Best attack left, on the same updates: {left}; the {guess}: {percent(floor)}. What it costs in "
            "accuracy is not measured here."
        )
        if alone:
            helps += (
                " Secure aggregation takes away the single update that these attacks need; what is left to a server "
                "that cheats with its models is told by an audit with clients=10."
            )
    return f"{what} {_images(report)}", whom, "Too few updates to tell." if few else helps


def _images(report: "Report") -> str:
    found = report.images
    if found is None:
        lacks = report.facts["inversions_lack"]
        if lacks:
            return f"Images: no inversion applies, as the adversary lacks: {'; '.join(lacks)}."
        return "Images: inversions apply, as all gradients are shared, but none was tried."
    if found.why:
        return f"Images: {found.attack} was not run ({found.why})."
    return (
        f"Images: {found.attack} came to {found.psnr:.1f} dB PSNR in {found.seconds:.0f} s ({found.iterations} "
        f"iterations, one update); other samples of the same data are at {found.guess:.1f} dB."
    )


def _escaped(text: str) -> str:
    """Make text from outside plain in Markdown: names of parameters, messages of errors, LLG*."""
    return re.sub(r"([\\`*_<>#]|(?<=\])\()", r"\\\1", text)


def _table(rows: pd.DataFrame) -> str:
    """Write a table in Markdown."""
    cells = rows.astype(str).replace({r"\s+": " ", r"\|": r"\\|"}, regex=True)
    lines = [list(rows), ["---"] * len(rows.columns), *cells.to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rates(table: pd.DataFrame, metric: str) -> list[str]:
    columns = (table[f"{metric}{end}"] for end in ("", "_low", "_high"))
    return [f"{mean:.2f} [{low:.2f}, {high:.2f}]" for mean, low, high in zip(*columns, strict=True)]


def _times(row: pd.Series) -> str:
    both = (row["first_seconds"], row["seconds"])
    return ", ".join(f"{s:.0f}" if s >= 10 else f"{s:.2g}" for s in both) if row["seconds"] else "–"


def _remarks(reasons: Iterable[tuple[str, str]], form: str) -> str:
    """Write a list of what has a reason, those with the same one together."""
    names: dict[str, list[str]] = {}
    for name, why in reasons:
        names.setdefault(why, []).append(name)
    return "".join(f"- {form}.\n".format(_escaped(", ".join(of)), _escaped(why)) for why, of in names.items())


def markdown(report: "Report", figure: str, level: int) -> str:
    """Return the report as Markdown; see `Report.to_markdown`."""
    facts, mark = report.facts, "#" * level
    tried, left = report.table.query("applies"), report.remedies
    names = tried["attack"].map(_escaped)
    attacks = pd.DataFrame(
        {
            "Attack": names.mask(tried["leaks"], "**" + names + "**"),
            "Adversary needed": tried["adversary"],
            "Labels right (iAcc)": _rates(tried, "iacc"),
            "Classes right (cAcc)": _rates(tried, "cacc"),
            "All exact": tried["exact"].map("{:.2f}".format),
            "n": tried["n"],
            "Seconds: first, then": tried.apply(_times, axis=1),
        }
    )
    remedies = pd.DataFrame(
        {
            "On top of the set-up": left["remedy"],
            "Best attack left": left["attack"].map(_escaped),
            "Labels right (iAcc)": _rates(left, "iacc"),
            "Best guess": left["guess"].map("{:.2f}".format),
            "n": left["n"],
        }
    )
    remedies.loc[left["n"] == 0, ["Labels right (iAcc)", "Best guess"]] = "–"
    headline = "\n".join(f"- **{word}.** {_escaped(text)}" for word, text in zip(WORDS, report.headline(), strict=True))
    return f"""\
{mark} {_escaped(_title(report))}

{headline}

{mark}# What was audited

{_facts(report)}
{mark}# What each attack recovers

{f"![{_escaped(alt(report))}]({figure})" if figure else ""}

{_table(attacks)}

Means with 95 % intervals over n updates. Bold: better than every guess on the same updates. The prior guess knows how
often each label occurs, and nothing of the update. The probes and auxiliary data are the same for all updates; what
they give is computed once, in the first recovery.

{_remarks(report.partly.items(), "{}: {}")}
{mark}# What a remedy leaves

{_table(remedies)}

Each remedy was put on the same updates. The best of many attacks is shown, so it leans a little upwards.

{_remarks(report.left_out, "{}: not measured ({})")}
{mark}# What was not tried

{_remarks(report.untried, "**{}**: {}")}\
- **several rounds**: an update is attacked by itself: what many rounds of one client give away together is not
  measured.
- **statistics of batch norm**: the updates hold parameters only: running means and variances would give away more.
- **other losses**: clients minimise the cross-entropy; label smoothing, distillation or a regression are not covered.
- **membership and properties**: who took part in the training, and what is true of the data as a whole, is not asked.

*{_escaped(facts["versions"])}; seed {facts["seed"]}; {facts["took"]:.0f} s in all.*
"""


def _facts(report: "Report") -> str:
    f = report.facts
    local, sees = "the gradient of one batch", "every update"
    if f["algorithm"] != "fedsgd":
        local = f"the change of the weights after {f['steps']} steps, rate {f['lr']:g}"
    if f["clients"] > 1:
        sees = f"the sum over {f['clients']} clients (secure aggregation)"
    trained = "Whether it is trained is not known: no data were given to measure it on."
    if f["accuracy"] is not None:
        word = "it is trained, at least in part" if f["trained"] else "not better than that, so as good as untrained"
        trained = f"Accuracy on the given data {f['accuracy']:.2f} (commonest class {f['chance']:.2f}): {word}."
    lines = [
        f"Model: {f['parameters']:,} parameters, inputs {' × '.join(map(str, f['shape']))}, {f['classes']} classes, "
        f"{f['mode']} mode, last layer `{f['head']}`. {trained}",
        f"A client shares {local} ({_escaped(f['algorithm'])}), {f['batch_size']} samples a step.",
        f"Defences: {_escaped('; '.join(f['defences'])) or 'none'}."
        + (f" Not shared: {_escaped(', '.join(f['withheld']))}." if f["withheld"] else ""),
        f"The server sees {sees} and is {f['server']}. Adversary: {f['adversary']}.",
        f"Data: {f['data']}, {f['auxiliary']} others for the adversary, batches composed as '{f['composition']}'."
        + (" **No data were given, so synthetic ones stand in: real ones may leak more or less.**" * f["synthetic"]),
    ]
    if (report.table.query("applies")["n"] < f["trials"]).any():
        limit = f"the limit is {f['seconds']:g} s"
        lines.append(f"Some of the {f['trials']} trials were not run: {limit}. Each row says its n.")
    return "".join(f"- {line}\n" for line in lines)


def alt(report: "Report") -> str:
    """Say in words what the figure shows."""
    guess, floor = _floor(report)
    names = report.table.set_index("attack")
    values = [f"{name} {names.loc[name, 'iacc']:.2f}" for name in report.ranking()]
    return f"Share of the labels named right: {', '.join(values) or 'none'}; {guess} {floor:.2f}."


def html(report: "Report", drawn: str) -> str:
    """Return the report as one page; its text is the Markdown's, its figure, as SVG, inline."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown(report, "", 1))
    drawn = drawn[drawn.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(alt(report))}" ', 1)
    body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="table"><table>')
    body = body.replace("</table>", "</table></div>")
    body = body.replace('<div class="wide"', f'<figure tabindex="0">{drawn}</figure>\n<div class="wide"', 1)
    return PAGE.replace("{title}", escape(_title(report))).replace("{body}", body)


def _title(report: "Report") -> str:
    return f"What the updates of {report.facts['name']} give away"
