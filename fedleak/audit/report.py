"""The report of an audit: tables of what was found, and three views of it: Markdown, an HTML page, and JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from markdown_it import MarkdownIt

from fedleak.attacks.registry import ADVERSARIES
from fedleak.audit.findings import AS_IT_IS, ImageResult, PrivacyResult, Verdict, WordsResult
from fedleak.audit.writing import PAGE, REPORT, check_ending
from fedleak.federated.spending import Spent
from fedleak.files import write_text
from fedleak.intervals import MIN_VALUES, UNBOUNDED, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = ("What leaks", "To whom", "What would reduce it")


@dataclass
class Report:
    """The report on a set-up or a recorded run; its fields are the data, its methods the tables and views.

    Parameters
    ----------
    facts
        The set-up, as `fedleak.audit.facts.facts` has it, or the run, as `fedleak.audit.recorded.facts` has it.
    rows
        One row a recovery, tidy: ``scenario`` (as it is, or with a remedy), ``attack``, ``trial``, ``iacc``, ``cacc``,
        ``exact``, ``seconds``; for attacks with intervals also ``held``, the share of the counts in them,
        and ``width``, their mean width in samples; for those that prove labels the number ``proven``.
    scenarios
        The set-up as it is, and every remedy.
    left_out
        Remedies that cannot be put on this set-up, and why.
    adversaries
        Attack to the weakest of the registry's adversaries that can run it as it was run here.
    untried
        Attacks that were not run, and why.
    remarks
        Remarks on attacks that worked: failures in some of the trials, and violated assumptions.
    images
        One image inversion, if it was asked for.
    words
        Words that the embedding of a model with token inputs reveals.
    privacy
        The claims of differential privacy, and what a canary shows of them.
    spent
        ε of each client over its rounds in a recorded run, the largest first.
    unscored
        Of a recorded run, one row a contribution without recorded labels: ``round``, ``node``, ``samples``, ``attack``
        (the one that the others agree with most), ``counts`` that it names, ``agreement`` in [0, 1]; see
        `fedleak.audit.recorded.agreement`.
    verdicts
        Verdicts of `fedleak.audit.guard`, if there are limits.
    baseline
        An earlier report's JSON, read, to compare with.
    broken
        Attacks that failed on more than half of the updates by an error of their own, and the error.
    """

    facts: dict[str, Any]
    rows: pd.DataFrame
    scenarios: Sequence[str]
    left_out: Sequence[tuple[str, str]]
    adversaries: dict[str, str]
    untried: Sequence[tuple[str, str]]
    remarks: dict[str, str]
    images: ImageResult | None = None
    words: WordsResult | None = None
    privacy: Sequence[PrivacyResult] = ()
    spent: Sequence[Spent] = ()
    unscored: pd.DataFrame = field(default_factory=pd.DataFrame)
    verdicts: Sequence[Verdict] = ()
    baseline: dict[str, Any] | None = None
    broken: dict[str, str] = field(default_factory=dict)

    @cached_property
    def guesses(self) -> list[str]:
        """The attacks that see nothing of an update: the floor for all others."""
        return [name for name in dict.fromkeys(self.rows["attack"]) if name not in self.adversaries]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row an attack, best first by the mean (those with few of the trials last), then the untried.

        Columns: ``attack``, ``adversary`` (the weakest that can run it), ``applies``, ``why`` (not, or remarks), means
        ``iacc``, ``cacc``, ``exact`` with 95 % intervals (``iacc_low`` …; over the means of three recorded clients or
        more, else over updates), ``n`` updates, ``seconds`` a recovery
        (median) and ``first_seconds`` (with what is computed once for a model), ``guess`` (instance accuracy of the
        best guess on the same updates), and ``leaks``: better than it, by the interval of the paired difference.
        """
        scored = self._ranked.query("scenario == @AS_IT_IS").drop(columns="scenario")
        missing = [{"attack": name, "applies": False, "why": why, "n": 0, "leaks": False} for name, why in self.untried]
        return pd.DataFrame([*scored.to_dict("records"), *missing])

    @cached_property
    def remedies(self) -> pd.DataFrame:
        """One row a remedy (and one for the set-up as it is): the best attack that is left, as in `table`, or none."""
        attacks = self._ranked[~self._ranked["attack"].isin(self.guesses)]
        best = {row["scenario"]: row for row in attacks.drop_duplicates("scenario").to_dict("records")}
        none = {"attack": "none applies", "applies": False, "n": 0}
        rows = [{"remedy": scenario, **best.get(scenario, none)} for scenario in self.scenarios]
        return pd.DataFrame(rows).reindex(columns=["remedy", *self.table.columns])

    @cached_property
    def _ranked(self) -> pd.DataFrame:
        """One row per scenario and attack, as in `table`, the best of a scenario first."""
        floors = self._as_it_is.pivot(index="trial", columns="attack", values="iacc")[self.guesses]
        parts = self.rows.groupby(["scenario", "attack"], sort=False)
        means = pd.DataFrame(
            [self._row(scenario, attack, part.set_index("trial"), floors) for (scenario, attack), part in parts]
        )
        few = 2 * means["n"] < means.groupby("scenario")["n"].transform("max")
        order = means.assign(few=few, iacc=means["iacc"].round(6)).sort_values(
            ["few", "iacc", "exact", "cacc"], ascending=[True, False, False, False]
        )
        return means.loc[order.index]

    def _row(self, scenario: str, attack: str, part: pd.DataFrame, floors: pd.DataFrame) -> dict[str, Any]:
        about = {"adversary": self.adversaries.get(attack, "–"), "why": self.remarks.get(attack, "")}
        row: dict[str, Any] = {"scenario": scenario, "attack": attack, "applies": True, **about, "n": len(part)}
        several = "node" in part and part["node"].nunique() >= MIN_VALUES
        unit = part["node"] if several else part.index  # one client's updates are not independent
        for metric in ("iacc", "cacc", "exact"):
            low, high = interval(part.groupby(unit, sort=False)[metric].mean().to_numpy())
            row |= {metric: part[metric].mean(), f"{metric}_low": low, f"{metric}_high": high}
        row |= {"seconds": part["seconds"].median(), "first_seconds": part["seconds"].iloc[0]}
        floors = floors.reindex(part.index)
        floor = floors[floors.mean().idxmax()]
        lead = part["iacc"] - floor
        by = [lead.groupby(u, sort=False).mean().to_numpy() for u in (unit, part.index)]
        # NaN: too few, or all equal, for which the bounds of a difference give an interval
        gains = [interval(values, bounds)[0] for bounds in (UNBOUNDED, (-1.0, 1.0)) for values in by]
        gain = next((low for low in gains if not math.isnan(low)), math.nan)
        return {**row, "guess": floor.mean(), "leaks": bool(gain > 0) and attack not in self.guesses}

    @property
    def wrong(self) -> list[str]:
        """Errors of the claims of differential privacy."""
        return [why for claim in self.privacy for why in claim.wrong()]

    def sure(self) -> pd.DataFrame:
        """Return the means of ``held`` and ``width``, a row an attack that gives intervals."""
        return self.rows.reindex(columns=["attack", "held", "width"]).groupby("attack").mean().dropna()

    def proven(self) -> pd.Series:
        """Return how many labels of an update are proven, the mean over its updates as they are, by attack."""
        means = self._as_it_is.reindex(columns=["attack", "proven"]).groupby("attack")["proven"].mean()
        return means[means > 0]

    @property
    def _as_it_is(self) -> pd.DataFrame:
        return self.rows[self.rows["scenario"] == AS_IT_IS]

    @property
    def measured(self) -> bool:
        """Whether any attack that sees something of an update could be scored."""
        return not self.rows.empty and bool(self.ranking())

    def ranking(self) -> list[str]:
        """Name the attacks that were run, best first; guesses are none."""
        return [name for name in self.table.query("applies")["attack"] if name not in self.guesses]

    def by_adversary(self) -> list[tuple[str, pd.Series]]:
        """Return, from the weakest adversary up, who gets further than all before, and by which attack."""
        place = {adversary.name: k for k, adversary in enumerate(ADVERSARIES)}
        best = self.table.query("leaks").drop_duplicates("adversary")
        best = best.sort_values("adversary", key=lambda names: names.map(place).fillna(len(place)))
        best = best[best["iacc"] > best["iacc"].cummax().shift(fill_value=-1.0)]
        return [(row["adversary"], row) for _, row in best.iterrows()]

    def compared(self) -> list[tuple[str, float | None, float | None]]:
        """Return every attack's instance accuracy in the `baseline`, and now; None where it was not run."""
        earlier = self.baseline["attacks"] if self.baseline else []
        then = {row["attack"]: row["iacc"] for row in earlier if row["applies"]}
        now = dict(self.table.query("applies")[["attack", "iacc"]].to_numpy())
        return [(name, then.get(name), now.get(name)) for name in now | then]

    def _written(self, figure: str = "", level: int = 1) -> Any:
        about = {"mark": "#" * level, "figure": figure, "titles": WORDS, "least": MIN_VALUES}
        return REPORT.make_module({"report": self, **about})

    def headline(self) -> tuple[str, str, str]:
        """Return three sentences: what leaks, to whom, and what would reduce it, the most effective first."""
        written = self._written()
        return written.what, written.whom, written.helps

    def cases(self, each: bool = False) -> pd.DataFrame:
        """Return one row a round of a recorded run, one of a set-up, or one an update: with the attack that is best.

        An attack decides a case if it read at least half of its updates, whether or not it beats the guesses.

        Columns: ``case``, ``attack``, ``iacc`` and ``exact`` (means over the updates that it read), ``n`` (these),
        ``of`` (all of the case), ``lead`` (the largest of any attack over the best guess on the same updates),
        ``ahead`` (that attack), ``guess`` (the best on all), ``seconds``, and ``doubt``: the first reason why low
        numbers are no all-clear, "" if there is none; ``open``: whether it is only that nobody measured the training;
        ``private``: whether each update's differential privacy is claimed. Without any attack, ``attack`` is "".
        """
        given = {
            name: self.rows.get(name, value) for name, value in (("doubt", ""), ("open", False), ("private", False))
        }
        rows = self._as_it_is.assign(case=_names(self._as_it_is, each), **given)
        unscored = [] if self.unscored.empty else _names(self.unscored, each)
        cases = []
        for case in dict.fromkeys([*rows["case"], *unscored]):
            of_case = rows[rows["case"] == case]
            blind = of_case["attack"].isin(self.guesses)
            guesses = of_case[blind].pivot(index="trial", columns="attack", values="iacc")
            of = len(guesses) + unscored.count(case)
            deciding = [part for _, part in of_case[~blind].groupby("attack", sort=False) if 2 * len(part) >= of]
            means = [
                {"attack": part["attack"].iloc[0], "iacc": part["iacc"].mean(), "exact": part["exact"].mean()}
                | {"n": len(part), "of": of, "lead": part["iacc"].mean() - guesses.loc[part["trial"]].mean().max()}
                for part in deciding
            ]
            none = {"attack": "", "iacc": math.nan, "exact": math.nan, "n": 0, "of": of, "lead": math.nan}
            best = max(means, key=lambda mean: (mean["iacc"], mean["exact"]), default=none)
            ahead = max(means, key=lambda mean: mean["lead"], default=none)
            about = {**best, "lead": ahead["lead"], "ahead": ahead["attack"], "guess": guesses.mean().max()}
            about["seconds"] = of_case["seconds"].sum()
            doubts = self._list_doubts(of_case[~blind], deciding, of, unscored.count(case))
            about["open"] = bool(of_case["open"].any()) and len(doubts) == 1
            about["private"] = bool(len(of_case)) and bool(of_case["private"].all())
            cases.append({"case": case, **about, "doubt": doubts[0] if doubts else ""})
        return pd.DataFrame(cases)

    def _list_doubts(self, rows: pd.DataFrame, deciding: list[pd.DataFrame], of: int, unscored: int) -> list[str]:
        """Return why low numbers of a case are no all-clear: what was not measured, recorded, or read."""
        missing = self.facts.get("dropped", [])
        why = f" ({missing[0]})" if missing else ""
        doubts = [f"{unscored} of {of} updates have no recorded labels{why}"] * bool(unscored)
        read = {trial for part in deciding for trial in part["trial"][part["fits"] if "fits" in part else slice(None)]}
        if left := of - unscored - len(read):
            doubts.append(f"no attack whose assumptions hold read {left} of {of} updates")
        doubts += [f"{name} failed: {error}" for name, error in self.broken.items()]
        return [*doubts, *dict.fromkeys(doubt for doubt in rows["doubt"] if doubt)]

    def to_markdown(self, figure: str = "", level: int = 1) -> str:
        """Return the report as Markdown, with a figure at this address, if any, and a title of this level."""
        return str(self._written(figure, level))

    def figure(self) -> "Figure":
        """Draw every attack's instance accuracy beside the guesses, and what each remedy leaves."""
        from fedleak.audit import drawing

        means = self.table.set_index("attack")["iacc"]
        attacks = self.table[self.table["attack"].isin(self.ranking())]
        return drawing.figure(attacks, self.remedies.iloc[1:], means[list(self.guesses)])

    def svg(self) -> str:
        """Return the figure as SVG with real text; "" if nothing is scored."""
        from fedleak.audit import drawing

        return "" if self.rows.empty else drawing.svg(self.figure())

    def to_html(self) -> str:
        """Return the report as one HTML page that needs nothing else: the Markdown's text, the figure inline."""
        written = self._written()
        body = MarkdownIt("commonmark", {"html": False}).enable("table").render(str(written))
        body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="table"><table>')
        body = body.replace("</table>", "</table></div>")
        if drawn := self.svg():
            named = f'<svg role="img" aria-label="{escape(written.alt)}" '
            drawn = drawn[drawn.index("<svg") :].replace("<svg ", named, 1)
            place = "<h2>Results per attack</h2>\n"
            body = body.replace(place, f'{place}<figure tabindex="0">{drawn}</figure>\n', 1)
        return PAGE.render(title=written.title, body=body)

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


def _names(table: pd.DataFrame, each: bool) -> list[str]:
    if "round" not in table:
        return [f"update {t + 1}" for t in table["trial"]] if each else ["all updates"] * len(table)
    who = zip(table["round"], table["node"], strict=True)
    return [f"round {number}" + (f", node {node}" if each else "") for number, node in who]
