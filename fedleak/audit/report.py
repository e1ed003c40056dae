"""An audit in words: the three sentences at the top, the tables, Markdown and HTML."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from markdown_it import MarkdownIt

from fedleak.audit import verdicts
from fedleak.audit.findings import Findings
from fedleak.audit.page import PAGE
from fedleak.audit.writing import as_table, check_ending, percent, plain, rates, remarks, times, with_interval
from fedleak.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHO = {
    "shared gradients": "whoever reads the updates",
    "white-box model": "whoever also has the model, as the server and all clients do",
    "auxiliary knowledge": "whoever also has {auxiliary} labelled samples like the clients'",
    "malicious server, secure aggregation": "a server that cheats with the models that it sends",
    "white-box model, last layer withheld": "whoever has the model and some data",
}
ENOUGH = 3
"""Updates below which there is no interval of a difference."""
NOBODY = "To nobody, as far as these attacks go."
OPEN = "Not measurable: that no attack here applies as it is says nothing of those that would."
UNSURE = "Not shown: the best attack is ahead of the guess on average, and the interval of its lead does not exclude 0."
TOO_FEW = "Too few updates to tell"
WORDS = ("What leaks", "To whom", "What would reduce it")


class Report(Findings):
    """What an audit found, in words; its tables are those of `fedleak.audit.findings.Findings`."""

    spread = "over the updates, as if each were of another client"
    """What the intervals are over."""
    unseen = ""
    """What else was not tried, as a list in Markdown."""

    def headline(self) -> tuple[str, str, str]:
        """Return three sentences: what leaks, to whom, and what would reduce it, the most effective first."""
        (guess, floor), known = self._floor(), self.facts
        leaking, few, alone = self.table.query("leaks"), self.table["n"].max() < ENOUGH, known["clients"] == 1
        whom = f"{TOO_FEW}." if few else NOBODY
        helps = "Nothing that was measured needs reducing. Stronger attacks may exist: see below what was not tried."
        without = f"Without an update, the {guess} names {percent(floor)}."
        if not self.ranking():
            what, whom, few = f"No label attack applies; the reasons are below. {without}", OPEN, False
            helps = "Not measurable either."
        elif leaking.empty:
            best = self.table[~self.table["attack"].isin(self.guesses)].iloc[0]
            begin = TOO_FEW if few else "No label attack that was tried does reliably better than a guess"
            what = (
                f"{begin}: the best, {best['attack']}, names {with_interval(best)} of the labels right "
                f"(n = {best['n']}), the {guess} {percent(floor)}."
            )
            if not few and best["iacc"] > best["guess"]:
                whom, helps = UNSURE, "Not measured, as no attack is surely ahead. See below what was not tried."
        else:
            best = leaking.iloc[0]
            units, whose = ("updates", "a client's") if alone else ("sums", f"each of {known['clients']} clients'")
            what = (
                f"The labels: {best['attack']} names {with_interval(best)} of {whose} {known['samples']} labels right, "
                f"and all of them in {percent(best['exact'])} of {best['n']} {units}. {without}"
            )
            steps = (
                f"{WHO.get(name, name).format(**known)}: {with_interval(row)} ({row['attack']})"
                for name, row in self.by_adversary()
            )
            whom = "; ".join(steps) + "."
            whom = whom[0].upper() + whom[1:]
            left = "; ".join(
                f"{row['remedy']}: {percent(row['iacc'])} ({row['attack']})"
                if row["n"]
                else f"{row['remedy']}: no attack here applies"
                for _, row in self.remedies.iloc[1:].sort_values("iacc", na_position="first").iterrows()
            )
            helps = (
                f"Best attack left, on the same updates: {left}; the {guess}: {percent(floor)}. What it costs in "
                "accuracy is not measured here."
            )
            if alone:
                helps += (
                    " Secure aggregation takes away the single update that these attacks need; what is left to a "
                    "server that cheats with its models is told by an audit of a Setup with clients=10."
                )
        if self._warning() and leaking.empty:
            whom, helps, few = OPEN, "Not measurable either.", False
        return (
            " ".join(filter(None, (self._warning(), self._words(), what, self._images()))),
            whom,
            (f"{TOO_FEW}." if few else helps),
        )

    def figure(self) -> "Figure":
        """Draw every attack's instance accuracy beside the guesses, and what each remedy leaves."""
        from fedleak.audit import drawing

        return drawing.figure(self)

    def svg(self) -> str:
        """Return the figure as SVG with real text; "" of a report that has none."""
        from fedleak.audit import drawing

        return drawing.svg(self.figure())

    def to_markdown(self, figure: str = "", level: int = 1) -> str:
        """Return the report as Markdown.

        Parameters
        ----------
        figure
            Address of the figure, if there is to be one.
        level
            Of the title: 2 where the report is part of a page.
        """
        mark = "#" * level
        tried, left = self.table.query("applies"), self.remedies
        names = tried["attack"].map(plain)
        attacks = pd.DataFrame(
            {
                "Attack": names.mask(tried["leaks"], "**" + names + "**"),
                "Adversary needed": tried["adversary"],
                "Labels right (iAcc)": rates(tried, "iacc"),
                "Classes right (cAcc)": rates(tried, "cacc"),
                "All exact": tried["exact"].map("{:.2f}".format),
                "n": tried["n"],
                "Seconds: first, then": tried.apply(times, axis=1),
            }
        )
        clients = "the set-up's defences" if self.facts.get("told") else "no defence"
        sure = "".join(
            f"- {plain(str(name))}: its 90 % intervals hold {percent(row['held'])} of these counts, and are "
            f"{row['width']:.1f} samples wide on average. It was trained on clients with {clients}.\n"
            for name, row in self.sure().iterrows()
        )
        remedies = pd.DataFrame(
            {
                "On top of the set-up": left["remedy"],
                "Best attack left": left["attack"].map(plain),
                "Labels right (iAcc)": rates(left, "iacc"),
                "Best guess": left["guess"].map("{:.2f}".format),
                "n": left["n"],
            }
        )
        remedies.loc[left["n"] == 0, ["Labels right (iAcc)", "Best guess"]] = "–"
        return f"""\
{self._top(mark)}
{mark}# What each attack recovers

{f"![{plain(self._alt())}]({figure})" if figure else ""}

{as_table(attacks)}

Means over n updates, with 95 % intervals {self.spread}. Bold: better than every guess on the same updates.
The prior guess knows how often each label occurs, and nothing of the update. The probes and auxiliary data are the same
for all updates; what they give is computed once, in the first recovery.

{sure}{remarks(self.partly.items(), "{}: {}")}
{self._sections(mark)}\
{mark}# What a remedy leaves

{as_table(remedies)}

Each remedy was put on the first n of these updates. The best of many attacks is shown, so it leans a little upwards.

{remarks(self.left_out, "{}: not measured ({})")}
{mark}# What was not tried

{remarks(self.untried, "**{}**: {}")}\
- **several rounds**: an update is attacked by itself: what many rounds of one client give away together is not
  measured.
- **statistics of batch norm**: the updates hold parameters only: running means and variances would give away more.
- **other losses**: clients minimise the cross-entropy; label smoothing, distillation or a regression are not covered.
- **membership and properties**: who took part in the training, and what is true of the data as a whole, is not asked.
{self.unseen}
*{plain(self.facts["versions"])}; seed {self.facts["seed"]}; {self.facts["took"]:.0f} s in all.*
"""

    def to_html(self) -> str:
        """Return the report as one HTML page that needs nothing else: the Markdown's text, the figure inline."""
        body = MarkdownIt("commonmark", {"html": False}).enable("table").render(self.to_markdown())
        body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="table"><table>')
        body = body.replace("</table>", "</table></div>")
        if drawn := self.svg():
            named = f'<svg role="img" aria-label="{escape(self._alt())}" '
            drawn = drawn[drawn.index("<svg") :].replace("<svg ", named, 1)
            place = "<h2>What each attack recovers</h2>\n"
            body = body.replace(place, f'{place}<figure tabindex="0">{drawn}</figure>\n', 1)
        return PAGE.replace("{title}", escape(self._title())).replace("{body}", body)

    def save(self, path: Path | str) -> list[Path]:
        """Write the report: ``.html``, ``.json``, or ``.md`` with the figure as ``.svg`` beside it. Returns the files.

        Raises
        ------
        ValueError
            For another ending.
        PermissionError
            If the folder cannot be written to.
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

    def _top(self, mark: str) -> str:
        """Write the title, the three sentences, and what was audited."""
        headline = "\n".join(f"- **{word}.** {plain(text)}" for word, text in zip(WORDS, self.headline(), strict=True))
        return f"""\
{mark} {plain(self._title())}

{headline}

{mark}# What was audited

{self._facts()}{verdicts.judged(self, mark)}"""

    def to_json(self) -> str:
        """Return the report for a machine."""
        return verdicts.as_json(self, dict(zip(WORDS, self.headline(), strict=True)))

    def _sections(self, mark: str) -> str:
        return ""

    def _title(self) -> str:
        return f"What the updates of {self.facts['name']} give away"

    def _alt(self) -> str:
        """Say in words what the figure shows."""
        guess, floor = self._floor()
        names = self.table.set_index("attack")
        values = [f"{name} {names.loc[name, 'iacc']:.2f}" for name in self.ranking()]
        return f"Share of the labels named right: {', '.join(values) or 'none'}; {guess} {floor:.2f}."

    def _floor(self) -> tuple[str, float]:
        """Return the best guess and what it gets right."""
        best = self.table[self.table["attack"].isin(self.guesses)].iloc[0]
        return best["attack"], best["iacc"]

    def _warning(self) -> str:
        return ""

    def _words(self) -> str:
        return "" if self.words is None else f"The words: {self.words.text()}."

    def _images(self) -> str:
        found = self.images
        if found is None and self.facts["tokens"]:
            return ""
        if found is None:
            lacks = self.facts["inversions_lack"]
            if lacks:
                return f"Images: no inversion applies, as the adversary lacks: {'; '.join(lacks)}."
            return "Images: inversions apply, as all gradients are shared, but none was tried."
        if found.why:
            return f"Images: {found.attack} was not run ({found.why})."
        return (
            f"Images: {found.attack} came to {found.psnr:.1f} dB PSNR in {found.iterations} iterations (one update); "
            f"other samples of the same data are at {found.guess:.1f} dB."
        )

    def _facts(self) -> str:
        f = self.facts
        local, sees = "the gradient of one batch", "every update"
        if f["algorithm"] != "fedsgd":
            local = f"the change of the weights after {f['steps']} steps, rate {f['lr']:g}"
        if f["clients"] > 1:
            sees = f"the sum over {f['clients']} clients (secure aggregation)"
        trained = "Whether it is trained is not known: no data were given to measure it on."
        if f["accuracy"] is not None:
            word = (
                "it is trained, at least in part" if f["trained"] else "not better than that, so as good as untrained"
            )
            trained = f"Accuracy on the given data {f['accuracy']:.2f} (commonest class {f['chance']:.2f}): {word}."
        lines = [
            f"Model: {f['parameters']:,} parameters, inputs {' × '.join(map(str, f['shape']))}, {f['classes']} "
            f"classes, {f['mode']} mode, last layer `{f['head']}`"
            + (f", whose weight is that of `{f['tied']}` too, and its gradient that of both" if f["tied"] else "")
            + f". {trained}",
            f"A client shares {local} ({plain(f['algorithm'])}), {f['batch_size']} samples a step.",
            f"Defences: {plain('; '.join(f['defences'])) or 'none'}."
            + (f" Not shared: {plain(', '.join(f['withheld']))}." if f["withheld"] else ""),
            f"The server sees {sees} and is {f['server']}. Adversary: {f['adversary']}.",
            f"Data: {f['data']}, {f['auxiliary']} others for the adversary, batches composed as '{f['composition']}'."
            + (
                " **No data were given, so synthetic ones stand in: real ones may leak more or less.**" * f["synthetic"]
            ),
        ]
        return "".join(f"- {line}\n" for line in lines)
