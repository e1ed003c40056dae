"""What a guard said of a report, an earlier report beside it, and all of it for a machine."""

import json

import pandas as pd

from fedleak.audit.findings import Findings
from fedleak.audit.guard import cases
from fedleak.audit.writing import as_table, plain


def judged(report: Findings, mark: str) -> str:
    """Write the guard's verdicts, and what an earlier report said."""
    text = ""
    if report.verdicts:
        rows = pd.DataFrame([(v.case, f"**{v.status}**", plain(v.why)) for v in report.verdicts])
        text += f"\n{mark}# Within the limits?\n\n{as_table(rows.set_axis(['Case', 'Verdict', 'Why'], axis=1))}\n"
    if report.baseline:
        then = {row["attack"]: row["iacc"] for row in report.baseline["attacks"] if row["applies"]}
        now = report.table.query("applies").set_index("attack")["iacc"]
        names = [*now.index, *(name for name in then if name not in now.index)]
        rows = pd.DataFrame({"Before": pd.Series(then), "Now": now}, dtype=float).loc[names]
        rows["Difference"] = rows["Now"] - rows["Before"]
        shown = rows.map("{:+.2f}".format).replace("+nan", "–").replace(r"^\+", "", regex=True)
        shown["Difference"] = rows["Difference"].map("{:+.2f}".format).replace("+nan", "–")
        shown.insert(0, "Labels right (iAcc)", [plain(name) for name in names])
        text += f"\n{mark}# Against the report on {plain(report.baseline['name'])}\n\n{as_table(shown)}\n"
    return text


def as_json(report: Findings, headline: dict[str, str]) -> str:
    """Return the report for a machine: the headline, the verdicts, a record an attack, a remedy and a round."""

    def records(table: pd.DataFrame) -> list[dict]:
        return json.loads(table.to_json(orient="records"))

    found = {
        "name": report.facts["name"],
        "headline": headline,
        "verdicts": [verdict._asdict() for verdict in report.verdicts],
        "attacks": records(report.table) if len(report.rows) else [],
        "remedies": records(report.remedies) if len(report.rows) else [],
        "cases": records(cases(report)),
        "words": report.words and {**report.words._asdict(), "share": report.words.share},
        "versions": report.facts["versions"],
        "seed": report.facts["seed"],
    }
    return json.dumps(found, indent=1)
