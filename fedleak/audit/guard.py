"""An audit as a guard for a CI, which fails closed: what no attack could read is never an all-clear."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pandas as pd

from fedleak.audit.tables import Tables, Verdict
from fedleak.files import write_bytes

KEPT, LEAK, ERROR, NOT_MEASURABLE = range(4)
"""Exit codes of the command."""


@dataclass(frozen=True)
class Limits:
    """Limits on what an attack recovers, or on a claimed ε; None for no limit.

    Raises `ValueError` for a share outside [0, 1], such as one in percent, or an ε that is not positive.
    """

    mean: float | None = None
    """On the share of the labels, as the mean over the updates of a round."""
    over_guess: float | None = None
    """The same, more than the best guess on the same updates."""
    each: float | None = None
    """On the share of the labels of any single update."""
    epsilon: float | None = None
    """On the ε of each client over all recorded rounds, or on a set-up's over one round."""

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.shares() if not 0 <= limit <= 1]:
            raise ValueError(f"a limit is a share of the labels, in [0, 1], got {wrong[0]}")
        if self.epsilon is not None and not self.epsilon > 0:
            raise ValueError(f"a limit on ε is positive, got {self.epsilon}")

    def shares(self) -> list[float]:
        """Return the limits on shares of the labels that there are."""
        return [limit for limit in (self.mean, self.over_guess, self.each) if limit is not None]


def verdicts(report: Tables, limits: Limits, assume_training: bool = False) -> list[Verdict]:
    """Judge every round (and every update, if there is a limit for each): a leak before all, else not measurable.

    A limit is kept only if nothing is in doubt: the training was measured, the attacker has the model, labels are
    recorded, and no attack failed by an error of its own. With `assume_training`, rounds that nobody measured count as
    SGD on the mean cross-entropy; measurements that speak against it stand. The words of texts are a case of their own,
    of which the smallest limit holds, and so is each client's ε, and a wrong claim of privacy.
    """
    judged: list[Verdict] = []
    for limit, margin, each in ((limits.mean, limits.over_guess, False), (limits.each, None, True)):
        if limit is not None or (limits.shares() and not each):
            judged += [
                _judge(row, limit, margin, report, assume_training, limits.epsilon is not None)
                for _, row in list_cases(report, each).iterrows()
            ]
    if (words := report.words) is not None and (words.updates or words.unread) and limits.shares():
        leaks = words.updates and words.share > min(limits.shares())
        status: Status = "leak" if leaks else "not measurable" if words.unread else "kept"
        judged.append(Verdict("words", status, words.text()))
    if limits.epsilon is not None:
        judged += _judge_epsilon(report, limits.epsilon)
    if report.wrong:
        judged.append(Verdict("differential privacy", "leak", "; ".join(report.wrong)))
    return judged


Status = Literal["kept", "leak", "not measurable"]


def _judge(
    row: pd.Series, limit: float | None, margin: float | None, report: Tables, assume_training: bool, by_epsilon: bool
) -> Verdict:
    name = row["attack"] or "no attack"
    by = f"{name} ({report.adversaries.get(name, report.facts.get('adversary', '–'))})"
    text = f"{by} recovers {row['iacc']:.3f} of the labels (n = {row['n']} of {row['of']})"
    status: Status = "kept"
    if limit is not None and row["iacc"] > limit:
        status, text = "leak", f"{text}, above {limit:g}"
    elif margin is not None and row["lead"] > margin:
        text = f"{row['ahead']} recovers {row['lead']:.3f} more of the labels than the best guess, above {margin:g}"
        status = "leak"
    elif by_epsilon and row["private"]:
        text = f"{text}; a round with differential privacy is judged by its ε"
    elif not row["attack"] or (row["doubt"] and not (row["open"] and assume_training)):
        option = " (accept that with --assume training)" if row["open"] else ""
        reason = row["doubt"] or "no attack read half of the updates"
        status, text = "not measurable", f"{reason}{option}; {text}" if row["attack"] else reason
    return Verdict(row["case"], status, text, float(row["seconds"]))


def _judge_epsilon(report: Tables, limit: float) -> list[Verdict]:
    """Judge the claimed ε of each client, or of a set-up, and the ε that a canary measures."""
    judged = []
    for client in report.spent:
        status: Status = "leak" if client.epsilon > limit else "kept"
        judged.append(Verdict(f"ε of {client.node}", status, f"{client.text()}; the limit is {limit:g}"))
    for result in report.privacy if not report.spent else ():
        bounds = [value for value in (result.privacy.epsilon, result.epsilon, result.gaussian) if value is not None]
        status = "leak" if max([result.privacy.claimed, *bounds]) > limit else "kept"
        judged.append(Verdict("ε", status, f"{result.text()}; the limit is {limit:g}"))
    nodes = set(report.rows["node"]) if "node" in report.rows else set()
    for node in sorted(nodes - {client.node for client in report.spent}):
        judged.append(Verdict(f"ε of {node}", "not measurable", "its rounds claim no differential privacy"))
    return judged or [Verdict("ε", "not measurable", "no differential privacy is claimed")]


def list_cases(tables: Tables, each: bool = False) -> pd.DataFrame:
    """Return one row a round of a recorded run, one of a set-up, or one an update: with the attack that is best.

    An attack decides a case if it read at least half of its updates, whether or not it beats the guesses.

    Columns: ``case``, ``attack``, ``iacc`` and ``exact`` (means over the updates that it read), ``n`` (these),
    ``of`` (all of the case), ``lead`` (the largest of any attack over the best guess on the same updates),
    ``ahead`` (that attack), ``guess`` (the best on all), ``seconds``, and ``doubt``: the first reason why low
    numbers are no all-clear, "" if there is none; ``open``: whether it is only that nobody measured the training;
    ``private``: whether each update's differential privacy is claimed. Without any attack, ``attack`` is "".
    """
    given = {name: tables.rows.get(name, value) for name, value in (("doubt", ""), ("open", False), ("private", False))}
    rows = tables.as_it_is.assign(case=_names(tables.as_it_is, each), **given)
    unscored = list(zip(_names(pd.DataFrame(tables.unscored), each), (u["why"] for u in tables.unscored), strict=True))
    cases = []
    for case in dict.fromkeys([*rows["case"], *(name for name, _ in unscored)]):
        of_case = rows[rows["case"] == case]
        blind = of_case["attack"].isin(tables.guesses)
        guesses = of_case[blind].pivot(index="trial", columns="attack", values="iacc")
        missing = [why for name, why in unscored if name == case]
        of = len(guesses) + len(missing)
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
        doubts = _list_doubts(tables, of_case[~blind], deciding, of, missing)
        about["open"] = bool(of_case["open"].any()) and len(doubts) == 1
        about["private"] = bool(len(of_case)) and bool(of_case["private"].all())
        cases.append({"case": case, **about, "doubt": doubts[0] if doubts else ""})
    return pd.DataFrame(cases)


def _list_doubts(
    tables: Tables, rows: pd.DataFrame, deciding: list[pd.DataFrame], of: int, missing: list[str]
) -> list[str]:
    """Return why low numbers of a case are no all-clear: what was not measured, recorded, or read.

    `missing` says why each of its updates without a score has none.
    """
    dropped = "".join(f" ({why})" for why in tables.facts.get("dropped", [])[:1])
    doubts = [f"{number} of {of} updates {why}{dropped}" for why, number in Counter(missing).items()]
    read = {trial for part in deciding for trial in part["trial"][part["fits"]]}
    if left := of - len(missing) - len(read):
        doubts.append(f"no attack whose assumptions hold read {left} of {of} updates")
    doubts += [f"{name} failed: {error}" for name, error in tables.broken.items()]
    return [*doubts, *dict.fromkeys(doubt for doubt in rows["doubt"] if doubt)]


def _names(table: pd.DataFrame, each: bool) -> list[str]:
    if "round" not in table:
        return [f"update {t + 1}" for t in table.get("trial", ())] if each else ["all updates"] * len(table)
    who = zip(table["round"], table["node"], strict=True)
    return [f"round {number}" + (f", node {node}" if each else "") for number, node in who]


def exit_code(judged: Sequence[Verdict]) -> int:
    """Return what the command ends with: a leak goes before what is not measurable, and nothing at all is that too."""
    kinds = {verdict.status for verdict in judged}
    return LEAK if "leak" in kinds else KEPT if kinds == {"kept"} else NOT_MEASURABLE


def write_junit(path: Path, name: str, judged: Sequence[Verdict], error: str = "") -> None:
    """Write verdicts as JUnit's XML, a case each: a leak is a failure, what is not measurable an error of that type.

    With `error`, the audit itself ended with it.
    """
    if error:
        judged = [*judged, Verdict("audit", "not measurable", error)]
    count = [verdict.status for verdict in judged].count
    about = {"tests": len(judged), "failures": count("leak"), "errors": count("not measurable")}
    suite = ElementTree.Element(
        "testsuite", {"name": f"fedleak audit: {name}"} | {key: str(value) for key, value in about.items()}
    )
    for case, status, why, seconds in judged:
        named = {"classname": "fedleak.audit", "name": case, "time": f"{seconds:.3f}"}
        element = ElementTree.SubElement(suite, "testcase", named)
        if status != "kept":
            kind = "failure" if status == "leak" else "error"
            ElementTree.SubElement(element, kind, type="error" if case == "audit" else status, message=why)
    write_bytes(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
