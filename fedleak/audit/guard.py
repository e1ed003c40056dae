"""An audit as a guard: what leaks more than it may, for a CI, as JUnit's XML."""

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from fedleak.audit.findings import AS_IT_IS
from fedleak.audit.report import Report
from fedleak.files import write_bytes


def cases(report: Report) -> pd.DataFrame:
    """Return one row a round of a recorded run, or one of a set-up: the attack that is best in it.

    Columns: ``case``, ``attack``, ``iacc`` and ``exact`` (means over the updates), ``n`` (updates), ``seconds``, and
    ``guess``: the best guess in it. An attack counts whether or not it beats that.
    """
    rows = report.rows[report.rows["scenario"] == AS_IT_IS]
    rows = rows.assign(case=[f"round {r}" for r in rows["round"]] if "round" in rows else "all updates")
    means = rows.groupby(["case", "attack"], sort=False, as_index=False).agg(
        iacc=("iacc", "mean"), exact=("exact", "mean"), n=("iacc", "size"), seconds=("seconds", "sum")
    )
    blind = means["attack"].isin(report.guesses)
    best = means[~blind].sort_values("iacc", ascending=False, kind="stable").drop_duplicates("case").sort_index()
    return best.merge(means[blind].groupby("case")["iacc"].max().rename("guess"), on="case")


def above(report: Report, limit: float) -> pd.DataFrame:
    """Return the `cases` in which the best attack names more than a share `limit` of the labels right.

    Raises
    ------
    ValueError
        If labels are missing, so that nothing can be said of some updates.
    """
    if unscored := len(getattr(report, "unscored", ())):
        raise ValueError(f"--fail-above needs recorded labels, and {unscored} updates have none")
    found = cases(report)
    return found[found["iacc"] > limit]


def write_junit(report: Report, path: Path, limit: float) -> None:
    """Write the `cases` as JUnit's XML, those above `limit` as failures."""
    found = cases(report)
    failed = set(above(report, limit)["case"])
    suite = ElementTree.Element(
        "testsuite", name=f"fedleak audit: {report.facts['name']}", tests=str(len(found)), failures=str(len(failed))
    )
    for _, row in found.iterrows():
        case = ElementTree.SubElement(
            suite, "testcase", classname="fedleak.audit", name=row["case"], time=f"{row['seconds']:.3f}"
        )
        if row["case"] in failed:
            text = f"{row['attack']} names {row['iacc']:.3f} of the labels right, above {limit:g} (n = {row['n']})"
            ElementTree.SubElement(case, "failure", message=text)
    write_bytes(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
