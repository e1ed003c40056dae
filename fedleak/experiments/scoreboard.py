"""How everything stands: the papers' values beside what is recorded, without running a notebook."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedleak import paths
from fedleak.experiments import choices, published, records, status, verdicts
from fedleak.experiments.choices import Effect
from fedleak.experiments.status import Measured
from fedleak.files import write_text
from fedleak.intervals import Kind

Claimed = Mapping[str, Sequence[Measured]]
Cells = Mapping[str, Sequence[dict[str, Any]]]


def joined(paper: published.Paper, claims: Claimed, cells: Cells) -> list[dict[str, Any]]:
    """Return one row a published value, in the order of the paper's files: its verdict and what was measured."""
    return [verdicts.row(paper.items[key], paper.name, one) for key, one in points(paper, claims, cells).items()]


def points(paper: published.Paper, claims: Claimed, cells: Cells) -> dict[str, Sequence[Measured]]:
    """Return all that was measured for each published value, in the order of the paper's files.

    Our `cells` are rows by the paper's table that they belong to.
    """
    found = dict(claims)
    for name, table in paper.tables.items():
        if table.values:
            found |= status.from_table(table, cells.get(name, ()))
    every = {}
    for key, item in paper.items.items():
        readings = found.get(key) or [Measured(key, None, source="—", note="nothing was measured for it")]
        if item.table and all(one.ours is None for one in readings):
            readings = [replace(readings[0], differences=status.unprinted(paper.tables[item.table], item))]
        every[key] = readings
    return every


def recorded_cells(paper: str) -> dict[str, list[dict[str, Any]]]:
    """Return the cells of a chapter's records, by the printed table that they belong to; the table's own come first.

    ``ends`` has, by column, the least and the largest value that is possible.
    """
    cells: dict[str, list[dict[str, Any]]] = {}
    printed = {name for name, table in published.load(paper).tables.items() if table.values}
    for path in sorted(paths.recorded(paper).glob("*.csv")):
        if found := records.recorded(paper, path.stem):
            said = found[1]["declared"]
            ends = {name: Kind(**kind).range for name, kind in said["kinds"].items()}
            if wanted := printed & {*said["tables"]}:
                rows = [{**row, "ends": ends} for row in records.settled(*found).to_dict("records")]
                for name in wanted:
                    own = cells.setdefault(name, [])
                    cells[name] = rows + own if name == path.stem else own + rows
    return cells


def keep(paper: str, claims: Claimed) -> None:
    """Write what was measured for a chapter's claims, with the records that it was measured on."""
    every = [one for readings in claims.values() for one in readings]
    nested = ("differences", "effects")
    found = [{**vars(one), **{k: [vars(d) for d in getattr(one, k)] for k in nested}} for one in every]
    tested = {name: vars(one) for name, one in choices.backtests(paper).items()}
    document = {"records": _digests(paper), "backtests": tested, "claims": found}
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
        fields["effects"] = tuple(_effect(one) for one in fields["effects"])
        fields["ends"] = tuple(fields["ends"])
        found.setdefault(fields["id"], []).append(Measured(**fields))
    return found


def _effect(fields: dict[str, Any]) -> Effect:
    ends = {name: (low, high) for name, (low, high) in fields["ends"].items()}
    return Effect(fields["record"], tuple(fields["settings"]), ends)


def rows(paper: str) -> list[dict[str, Any]]:
    """Return one row a published value of a chapter, from what is recorded."""
    return joined(published.load(paper), kept(paper), recorded_cells(paper))


def papers() -> list[str]:
    """Return the chapters that have a paper, by the folders of ``data/published/``."""
    return sorted(path.parent.name for path in (paths.root() / "data" / "published").glob("*/tables.toml"))


def overview() -> dict[str, dict[str, Any]]:
    """Count the values of every chapter, and of ``all``: by grade and verdict, and what has no grade.

    ``depends`` is of grades A to C and in none of their counts; ``total`` is the sum of all; ``beyond`` counts what no
    paper prints, which is in none of the others.
    """
    found = {paper: counted(rows(paper)) for paper in papers()}
    return {**found, "all": _summed(list(found.values()))}


def counted(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count values by grade and verdict, as `overview` does."""
    printed = [row for row in values if not row["beyond"]]
    own = Counter((row["grade"], row["verdict"]) for row in printed)
    words = (*verdicts.DECIDED, verdicts.OPEN)
    grades: dict[str, Any] = {grade: {word: own[grade, word] for word in words} for grade in verdicts.GRADES}
    depends = sum(n for (_, word), n in own.items() if word == verdicts.DEPENDS)
    rest = {"depends": depends, "not_attempted": own["", verdicts.NOT_ATTEMPTED]}
    return {**grades, **rest, "total": len(printed), "beyond": len(values) - len(printed)}


def _summed(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up counts, and counts of counts."""
    nested = {k for k, v in each[0].items() if isinstance(v, dict)}
    return {k: (_summed if k in nested else sum)([one[k] for one in each]) for k in each[0]}
