"""An audit as a guard for a CI, which fails closed: what no attack could read is never an all-clear."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pandas as pd

from fedleak.audit.findings import ASSUMPTIONS, Verdict
from fedleak.audit.report import Report
from fedleak.files import write_bytes

KEPT, LEAK, ERROR, NOT_MEASURABLE = range(4)
"""Exit codes of the command."""


@dataclass(frozen=True)
class Limits:
    """Limits on the share of labels that an attack recovers; None for no limit.

    Raises `ValueError` for a limit outside [0, 1], such as one in percent.
    """

    mean: float | None = None
    """On average over the updates of a round."""
    over_guess: float | None = None
    """The same, more than the best guess on the same updates."""
    each: float | None = None
    """Share of the labels of any single update."""

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.given() if not 0 <= limit <= 1]:
            raise ValueError(f"a limit is a share of the labels, in [0, 1], got {wrong[0]}")

    def given(self) -> list[float]:
        """Return the limits that there are."""
        return [limit for limit in (self.mean, self.over_guess, self.each) if limit is not None]


def verdicts(report: Report, limits: Limits, accepted: Sequence[str] = ()) -> list[Verdict]:
    """Judge every round (and every update, if there is a limit for each): a leak before all, else not measurable.

    A limit that is kept only if an assumption holds that nobody measured is not measurable, unless the assumption is
    among those `accepted` (keys of `ASSUMPTIONS`, or ``"all"``). The words of texts are a case of their own, of which
    the smallest limit holds, and so is a wrong claim of privacy. Raises `ValueError` for an unknown assumption.
    """
    if unknown := set(accepted) - {*ASSUMPTIONS, "all"}:
        raise ValueError(f"unknown assumption {min(unknown)!r}; there are: {', '.join([*ASSUMPTIONS, 'all'])}")
    accepted = list(ASSUMPTIONS) if "all" in accepted else accepted
    judged = [_verdict(row, limits.mean, limits.over_guess, accepted) for _, row in report.cases().iterrows()]
    if limits.each is not None:
        judged += [_verdict(row, limits.each, None, accepted) for _, row in report.cases(each=True).iterrows()]
    if (words := report.words) is not None and (words.updates or words.unread):
        leaks = words.updates and words.share > min([*limits.given(), 1.0])
        is_unknown = words.unread and "informed" not in accepted
        if leaks or not is_unknown:
            judged.append(Verdict("words", "leak" if leaks else "kept", words.text()))
        else:
            judged.append(Verdict("words", "not measurable", f"{words.text()} (accept that with --assume informed)"))
    if report.wrong:
        judged.append(Verdict("differential privacy", "leak", "; ".join(report.wrong)))
    return judged


def _verdict(row: pd.Series, limit: float | None, margin: float | None, accepted: Sequence[str]) -> Verdict:
    text = f"{row['attack']} recovers {row['iacc']:.3f} of the labels (n = {row['n']} of {row['of']})"
    status: Literal["kept", "leak", "not measurable"] = "kept"
    if limit is not None and row["iacc"] > limit:
        status, text = "leak", f"{text}, above {limit:g}"
    elif margin is not None and row["lead"] > margin:
        text = f"{row['ahead']} recovers {row['lead']:.3f} more of the labels than the best guess, above {margin:g}"
        status = "leak"
    elif row["open"] or not row["attack"]:
        status = "not measurable"
        text = f"no attack that can be relied on read {row['open']} of {row['of']} updates, or their labels are missing"
    elif open_assumptions := [name for name in ASSUMPTIONS if name in row["assumed"] and name not in accepted]:
        status = "not measurable"
        believed = " and ".join(ASSUMPTIONS[name] for name in open_assumptions)
        options = " ".join(f"--assume {name}" for name in open_assumptions)
        text = f"{text}: within the limit if {believed}, which nobody measured (accept that with {options})"
    return Verdict(row["case"], status, text, float(row["seconds"]))


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
