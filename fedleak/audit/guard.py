"""An audit as a guard: what leaks more than it may, for a CI, as JUnit's XML."""

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from fedleak.audit.findings import AS_IT_IS, Findings
from fedleak.files import write_bytes


def cases(report: Findings) -> pd.DataFrame:
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


def above(report: Findings, limit: float) -> pd.DataFrame:
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


def check(report: Findings, limit: float, junit: Path | None = None) -> None:
    """Refuse a report with a case `above` the limit, after all `cases` are written as JUnit's XML, if that is wanted.

    Raises
    ------
    ValueError
        If there is such a case, or as for `above`.
    """
    failed = above(report, limit)
    if junit is not None:
        found = cases(report)
        suite = ElementTree.Element(
            "testsuite", name=f"fedleak audit: {report.facts['name']}", tests=str(len(found)), failures=str(len(failed))
        )
        for number, row in found.iterrows():
            about = {"classname": "fedleak.audit", "name": row["case"], "time": f"{row['seconds']:.3f}"}
            case = ElementTree.SubElement(suite, "testcase", about)
            if number in failed.index:
                text = f"{row['attack']} names {row['iacc']:.3f} of the labels right, above {limit:g} (n = {row['n']})"
                ElementTree.SubElement(case, "failure", message=text)
        write_bytes(junit, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
    if not failed.empty:
        worst = failed.loc[failed["iacc"].idxmax()]
        raise ValueError(
            f"{worst['attack']} names {worst['iacc']:.2f} of the labels right in {worst['case']}: above {limit:g}"
        )
