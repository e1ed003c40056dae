"""An audit in words: the three sentences at the top, the tables, Markdown and HTML."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt

from fedleak.audit.findings import Findings
from fedleak.audit.page import PAGE

if TYPE_CHECKING:
    import pandas as pd


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
TIMES = "Seconds: first, then"
WORDS = ("What leaks", "To whom", "What would reduce it")


def check_ending(path: Path) -> None:
    """Refuse a file that no report can be written to.

    Raises
    ------
    ValueError
        If it does not end in .html or .md.
    """
    if path.suffix not in ENDINGS:
        raise ValueError(f"a report is written to a file that ends in {' or '.join(ENDINGS)}, not to {path.name!r}")


def percent(value: float) -> str:
    """Write a share as a whole percentage; nearly all is not all, and nearly none is not none."""
    value = round(value, 6)
    shown = round(100 * value)
    if 0.995 <= value < 1:
        return "over 99 %"
    return "under 1 %" if 0 < value < 0.005 else f"{shown} %"


def _with_interval(row: "pd.Series") -> str:
    return f"{percent(row['iacc'])} [{100 * row['iacc_low']:.0f}, {100 * row['iacc_high']:.0f}]"


def _floor(report: Findings) -> tuple[str, float]:
    """Return the best guess and what it gets right."""
    guesses = report.table[report.table["attack"].isin(report.guesses)]
    best = guesses.loc[guesses["iacc"].astype(float).idxmax()]
    return best["attack"], best["iacc"]


def what(report: Findings) -> str:
    """Say what leaks."""
    (guess, floor), known, names = _floor(report), report.facts, report.ranking()
    leaking = report.table[report.table["leaks"]]
    few = report.table["n"].max() < ENOUGH
    if not names:
        text = f"No label attack applies; the reasons are below. Without an update, the {guess} names {percent(floor)}."
    elif leaking.empty:
        best = report.table.set_index("attack").loc[names[0]]
        begin = "Too few updates to tell" if few else "No label attack that was tried does reliably better than a guess"
        text = (
            f"{begin}: the best, {names[0]}, names {_with_interval(best)} of the labels right (n = {best['n']}), the "
            f"{guess} {percent(floor)}."
        )
    else:
        best = leaking.iloc[0]
        unit = "updates" if known["clients"] == 1 else "sums"
        whose = "a client's" if known["clients"] == 1 else f"each of {known['clients']} clients'"
        text = (
            f"The labels: {best['attack']} names {_with_interval(best)} of {whose} {known['samples']} labels right, "
            f"and all of them in {percent(best['exact'])} of {best['n']} {unit}. Without an update, the {guess} "
            f"names {percent(floor)}."
        )
    return text + " " + _images(report)


def _images(report: Findings) -> str:
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


def whom(report: Findings) -> str:
    """Say to whom it leaks, from the weakest adversary up."""
    steps = [
        f"{WHO.get(name, name).format(**report.facts)}: {_with_interval(row)} ({row['attack']})"
        for name, row in report.by_adversary()
    ]
    if not steps:
        few = report.table["n"].max() < ENOUGH
        return "Too few updates to tell." if few else "To nobody, as far as these attacks go."
    text = "; ".join(steps) + "."
    return text[0].upper() + text[1:]


def remedy(report: Findings) -> str:
    """Say what was measured to reduce it, the most effective first."""
    guess, floor = _floor(report)
    if report.table["n"].max() < ENOUGH:
        return "Too few updates to tell."
    if not report.table["leaks"].any():
        return "Nothing that was measured needs reducing. Stronger attacks may exist: see below what was not tried."
    after = report.remedies.iloc[1:].sort_values("iacc", na_position="first")
    parts = [
        f"{row['remedy']}: " + (f"{percent(row['iacc'])} ({row['attack']})" if row["n"] else "no attack here applies")
        for _, row in after.iterrows()
    ]
    parts.append(f"the {guess}: {percent(floor)}")
    text = f"Best attack left, on the same updates: {'; '.join(parts)}. What it costs in accuracy is not measured here."
    if report.facts["clients"] == 1:
        text += (
            " Secure aggregation takes away the single update that these attacks need; what is left to a server that "
            "cheats with its models is told by an audit with clients=10."
        )
    return text


def headline(report: Findings) -> tuple[str, str, str]:
    """Return three sentences: what leaks, to whom, and what would reduce it."""
    return what(report), whom(report), remedy(report)


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    def line(cells: Iterable[Any]) -> str:
        return "| " + " | ".join(" ".join(str(cell).split()).replace("|", r"\|") for cell in cells) + " |"

    head = list(head)
    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])


def _escaped(text: str) -> str:
    """Make text from outside plain in Markdown: names of parameters, messages of errors, LLG*."""
    return re.sub(r"([\\`*_<>#]|(?<=\])\()", r"\\\1", text)


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _rate(row: "pd.Series", metric: str) -> str:
    return f"{row[metric]:.2f} [{row[f'{metric}_low']:.2f}, {row[f'{metric}_high']:.2f}]"


def markdown(report: Findings, figure: str, level: int) -> str:
    """Return the report as Markdown; see `Report.to_markdown`."""
    facts, mark = report.facts, "#" * (level + 1)
    lines = [f"{'#' * level} What the updates of {_escaped(facts['name'])} give away", ""]
    lines += [f"- **{word}.** {_escaped(text)}" for word, text in zip(WORDS, headline(report), strict=True)]
    lines += ["", f"{mark} What was audited", "", *_facts(report), ""]
    lines += [f"{mark} What each attack recovers", ""]
    if figure:
        lines += [f"![{_escaped(alt(report))}]({figure})", ""]
    tried = report.table[report.table["applies"]]
    lines += [
        _table(
            [
                "Attack",
                "Adversary needed",
                "Labels right (iAcc)",
                "Classes right (cAcc)",
                "All exact",
                "n",
                TIMES,
            ],
            (
                [
                    ("**" if row["leaks"] else "") + _escaped(row["attack"]) + ("**" if row["leaks"] else ""),
                    row["adversary"],
                    _rate(row, "iacc"),
                    _rate(row, "cacc"),
                    f"{row['exact']:.2f}",
                    row["n"],
                    f"{_seconds(row['first_seconds'])}, {_seconds(row['seconds'])}" if row["seconds"] else "–",
                ]
                for _, row in tried.iterrows()
            ),
        ),
        "",
        "Means with 95 % intervals over n updates. Bold: better than every guess on the same updates. The prior "
        "guess knows how often each label occurs, and nothing of the update. The probes and auxiliary data are "
        "the same for all updates; what they give is computed once, in the first recovery.",
        "",
        *(f"- {_escaped(row['attack'])}: {_escaped(row['why'])}." for _, row in tried.iterrows() if row["why"]),
        "",
        *(facts["sections"](mark) if "sections" in facts else []),
        f"{mark} What a remedy leaves",
        "",
    ]
    lines += [
        _table(
            ["On top of the set-up", "Best attack left", "Labels right (iAcc)", "Best guess", "n"],
            (
                [
                    row["remedy"],
                    _escaped(row["attack"]),
                    *((_rate(row, "iacc"), f"{row['guess']:.2f}") if row["n"] else "––"),
                    row["n"],
                ]
                for _, row in report.remedies.iterrows()
            ),
        ),
        "",
        "Each remedy was put on the same updates. The best of many attacks is shown, so it leans a little upwards.",
        "",
        *(f"- {_escaped(name)}: not measured ({_escaped(why)})." for name, why in report.left_out),
        "",
        f"{mark} What was not tried",
        "",
        *(f"- **{_escaped(names)}**: {_escaped(why)}." for names, why in _grouped((*report.untried, *report.beyond))),
        "",
        f"*{_escaped(facts['versions'])}; seed {facts['seed']}; {facts['seconds']:.0f} s in all.*",
        "",
    ]
    return "\n".join(lines)


def _grouped(reasons: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put together what was left out for the same reason."""
    found: dict[str, list[str]] = {}
    for name, why in reasons:
        found.setdefault(why, []).append(name)
    return [(", ".join(names), why) for why, names in found.items()]


def _facts(report: Findings) -> list[str]:
    f = report.facts
    if "lines" in f:  # of a recorded run
        return f["lines"]
    shape = " × ".join(map(str, f["shape"]))
    local = "the gradient of one batch"
    if f["lr"] is not None:
        local = f"the change of the weights after {f['steps']} steps, rate {f['lr']:g}"
    sees = "every update" if f["clients"] == 1 else f"the sum over {f['clients']} clients (secure aggregation)"
    trained = "Whether it is trained is not known: no data were given to measure it on."
    if f["accuracy"] is not None:
        word = "it is trained, at least in part" if f["trained"] else "not better than that, so as good as untrained"
        trained = f"Accuracy on the given data {f['accuracy']:.2f} (commonest class {f['chance']:.2f}): {word}."
    data = f"{f['data']}, {f['auxiliary']} others for the adversary, batches composed as '{f['composition']}'."
    if f["synthetic"]:
        data += " **No data were given, so synthetic ones stand in: real ones may leak more or less.**"
    short = report.table[report.table["applies"] & (report.table["n"] < f["trials"])]
    lines = [
        f"- Model: {f['parameters']:,} parameters, inputs {shape}, {f['classes']} classes, {f['mode']} mode, last "
        f"layer `{f['head']}`. {trained}",
        f"- A client shares {local} ({_escaped(f['algorithm'])}), {f['batch_size']} samples a step.",
        f"- Defences: {_escaped('; '.join(f['defences'])) or 'none'}."
        + (f" Not shared: {_escaped(', '.join(f['withheld']))}." if f["withheld"] else ""),
        f"- The server sees {sees} and is {f['server']}. Adversary: {f['adversary']}.",
        f"- Data: {data}",
    ]
    if len(short):
        lines.append(
            f"- Some of the {f['trials']} trials were not run: the limit is {f['limit']:g} s. Each row says its n."
        )
    return lines


def alt(report: Findings) -> str:
    """Say in words what the figure shows."""
    guess, floor = _floor(report)
    names = report.table.set_index("attack")
    values = [f"{name} {names.loc[name, 'iacc']:.2f}" for name in report.ranking()]
    return f"Share of the labels named right: {', '.join(values) or 'none'}; {guess} {floor:.2f}."


def html(text: str, drawn: str) -> str:
    """Return a report's Markdown as one page; its figure, as SVG, inline."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    if image := re.search(r'<p><img src="FIGURE" alt="([^"]*)" ?/?></p>', body):
        drawn = drawn[drawn.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{image[1]}" ', 1)
        body = body.replace(image[0], f'<figure tabindex="0">{drawn}</figure>')
    body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="table"><table>')
    body = body.replace("</table>", "</table></div>")
    title = re.sub(r"<[^>]*>", "", body[body.index("<h1>") : body.index("</h1>")])
    return PAGE.replace("{title}", title).replace("{body}", body)
