"""How everything stands: the papers' values beside what is recorded, without running a notebook."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedleak import paths
from fedleak.experiments import published, records, status
from fedleak.experiments.status import COUNTED, Measured
from fedleak.files import write_text

Claimed = Mapping[str, Sequence[Measured]]
Cells = Mapping[str, Sequence[dict[str, Any]]]


def joined(paper: published.Paper, claims: Claimed, cells: Cells) -> list[dict[str, Any]]:
    """Return one row a published value, in the order of the paper's files: its status and what was measured.

    Our `cells` are rows by the paper's table that they belong to.
    """
    found = dict(claims)
    for name, table in paper.tables.items():
        if table.values:
            found |= {m.id: [m] for m in status.from_table(table, cells.get(name, ()))}
    rows = []
    for key, item in paper.items.items():
        readings = found.get(key) or [Measured(key, None, source="—", note="nothing was measured for it")]
        if item.table and all(one.ours is None for one in readings):
            readings = [replace(readings[0], differences=status.unprinted(paper.tables[item.table], item))]
        rows.append(status.together(item, readings))
    return rows


def recorded_cells(paper: str) -> dict[str, list[dict[str, Any]]]:
    """Return the cells of all records of a chapter, by the paper's table that they belong to."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(paths.recorded(paper).glob("*.csv")):
        if found := records.recorded(paper, path.stem):
            rows = records.settled(*found).to_dict("records")
            for name in found[1]["declared"]["tables"]:
                cells.setdefault(name, []).extend(rows)
    return cells


def keep(paper: str, claims: Claimed) -> None:
    """Write what was measured for a chapter's claims, with the records that it was measured on."""
    every = [one for readings in claims.values() for one in readings]
    found = [{**vars(one), "differences": [vars(d) for d in one.differences]} for one in every]
    document = {"records": _digests(paper), "claims": found}
    write_text(paths.recorded(paper) / "claims.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _digests(paper: str) -> dict[str, str]:
    files = sorted(path for path in paths.recorded(paper).glob("*.json") if path.stem != "claims")
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))["sha256"][:16] for path in files}


def kept(paper: str) -> dict[str, list[Measured]]:
    """Read what was measured for a chapter's claims.

    Raises
    ------
    ValueError
        If a table has been recorded since: the claims are to be measured again.
    """
    path = paths.recorded(paper) / "claims.json"
    if not path.exists():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    changed = sorted({name for name, _ in document["records"].items() ^ _digests(paper).items()})
    if changed:
        raise ValueError(
            f"the claims of {paper} were measured before {', '.join(changed)} changed: "
            f"measure them again, `fedleak claims {paper}`"
        )
    found: dict[str, list[Measured]] = {}
    for fields in document["claims"]:
        fields["differences"] = tuple(status.Difference(**d) for d in fields["differences"])
        found.setdefault(fields["id"], []).append(Measured(**fields))
    return found


def rows(paper: str) -> list[dict[str, Any]]:
    """Return one row a published value of a chapter, from what is recorded."""
    return joined(published.load(paper), kept(paper), recorded_cells(paper))


def papers() -> list[str]:
    """Return the chapters that have a paper, by the folders of ``data/published/``."""
    return sorted(path.parent.name for path in (paths.root() / "data" / "published").glob("*/tables.toml"))


def overview() -> dict[str, dict[str, int]]:
    """Return the number of values by status, of every chapter and of ``all``.

    ``total`` is their sum; ``beyond`` counts what no paper prints, which is in none of the others.
    """
    found = {}
    for paper in papers():
        every = rows(paper)
        printed = Counter(COUNTED[row["status"]] for row in every if not row["beyond"])
        counts = {name: printed[name] for name in COUNTED.values()}
        found[paper] = {**counts, "total": printed.total(), "beyond": len(every) - printed.total()}
    names = [*COUNTED.values(), "total", "beyond"]
    return {**found, "all": {name: sum(one[name] for one in found.values()) for name in names}}
