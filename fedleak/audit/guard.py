"""An audit as a guard: what leaks more than it may, for a CI, as JUnit's XML and as JSON."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from fedleak.audit.findings import AS_IT_IS
from fedleak.audit.report import Report
from fedleak.files import write_bytes, write_text


def cases(report: Report) -> pd.DataFrame:
    """Return one row a round of a recorded run, or one of a set-up: the attack that is best in it.

    Columns: ``case``, ``attack``, ``iacc`` (mean over the updates), ``n`` (updates), ``seconds``. An attack counts
    whether or not it beats a guess.
    """
    rows = report.rows
    if not rows.empty:
        rows = rows[(rows["scenario"] == AS_IT_IS) & ~rows["attack"].isin(report.guesses)]
    if rows.empty:
        return pd.DataFrame(columns=["case", "attack", "iacc", "n", "seconds"])
    rows = rows.assign(case=[f"round {r}" for r in rows["round"]] if "round" in rows else "all updates")
    means = rows.groupby(["case", "attack"], sort=False, as_index=False).agg(
        iacc=("iacc", "mean"), n=("iacc", "size"), seconds=("seconds", "sum")
    )
    return means.loc[means.groupby("case", sort=False)["iacc"].idxmax()].reset_index(drop=True)


def above(report: Report, limit: float) -> pd.DataFrame:
    """Return the `cases` in which the best attack names more than a share `limit` of the labels right.

    Raises
    ------
    ValueError
        If `limit` is no share, or nothing was scored, so that nothing can be said.
    """
    if not 0 <= limit <= 1:
        raise ValueError(f"--fail-above is a share of the labels, 0 to 1; got {limit:g}")
    if report.rows.empty:
        raise ValueError("--fail-above needs recorded labels: nothing of this run could be scored")
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


def write_json(report: Report, path: Path) -> None:
    """Write the headline, the `cases`, and a row an attack and a remedy, as JSON."""
    tables = {"cases": cases(report)}
    if not report.rows.empty:
        tables |= {"attacks": report.table, "remedies": report.remedies}
    content = {name: json.loads(frame.to_json(orient="records")) for name, frame in tables.items()}
    unscored = getattr(report, "unscored", pd.DataFrame())
    content["unscored"] = json.loads(unscored.to_json(orient="records"))
    write_text(path, json.dumps({"name": report.facts["name"], "headline": report.headline(), **content}, indent=1))
