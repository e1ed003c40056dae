"""Judge the papers' values on what is recorded, and keep the measurements of the claims and the verdicts."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from fedleak.files import write_text
from fedleak_book import paths
from fedleak_book.evidence import effects, measurements, published, scoreboard, verdicts
from fedleak_book.evidence.measurements import Measured
from fedleak_book.evidence.spread import two_kinds
from fedleak_book.experiments import looks, records
from fedleak_book.experiments.kinds import Kind

Claimed = Mapping[str, Sequence[Measured]]


def rows(paper: str, claims: Claimed | None = None) -> list[dict[str, Any]]:
    """Return one row per published value, in the order of the paper's files: verdict and measurement.

    That is what is recorded, and the `claims`, by default those that are kept.
    """
    printed = published.load(paper)
    measured = points(printed, load_claims(paper) if claims is None else claims)
    return [verdicts.row(printed.items[key], paper, readings) for key, readings in measured.items()]


def points(paper: published.Paper, claims: Claimed) -> dict[str, Sequence[Measured]]:
    """Return all that was measured for each published value, in the order of the paper's files."""
    cells = _recorded_cells(paper)
    measured = dict(claims)
    for name, table in paper.tables.items():
        if table.values:
            measured |= measurements.from_table(table, cells[name])
    every = {}
    for key, item in paper.items.items():
        readings = measured.get(key) or [Measured(key, None, source="—", note="nothing was measured for it")]
        if item.table and all(reading.ours is None for reading in readings):
            readings = [replace(readings[0], differences=measurements.unprinted(paper.tables[item.table], item))]
        every[key] = readings
    return every


def _recorded_cells(paper: published.Paper) -> Mapping[str, list[dict[str, Any]]]:
    """Return the cells of a chapter's records, by the printed table that they belong to; the table's own come first.

    ``ends`` has, by column, the least and the largest value that is possible.
    """
    cells = defaultdict[str, list[dict[str, Any]]](list)
    printed = {name for name, table in paper.tables.items() if table.values}
    for path in sorted(paths.recorded(paper.name).glob("*.csv")):
        record = records.recorded(paper.name, path.stem)
        if record and (wanted := printed & {*record[1]["declared"]["tables"]}):
            ends = {name: Kind(**kind).range for name, kind in record[1]["declared"]["kinds"].items()}
            settled = [row | {"ends": ends} for row in records.settled(*record).to_dict("records")]
            for row, groups in zip(settled, _groups(*record), strict=False):
                row |= {"groups": groups, "looks": looks.at(paper.name, path.stem, row["n"])}
            for name in wanted:
                cells[name] = settled + cells[name] if name == path.stem else cells[name] + settled
    return cells


def _groups(table: pd.DataFrame, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield, for each cell of a recorded table, the columns whose trials are of two kinds."""
    declared = facts["declared"]
    if "trial" not in table:
        return
    by = [name for name in [*declared["axes"], *declared["by"]] if name in table]
    values = [name for name in declared["kinds"] if name in table]
    for _, cell in records.units(table, by, values).groupby(by, sort=False, dropna=False):
        yield {name: groups for name in values if (groups := two_kinds(cell[name].dropna().to_numpy()))}


def keep(paper: str, claims: Claimed) -> None:
    """Write what a chapter's claims and transports measured, and its verdicts, with the digests of what they need."""
    every = points(published.load(paper), claims)
    effects.write(paper, (effect for readings in every.values() for point in readings for effect in point.effects))
    document = {"records": digests(paper), "claims": [_entry(claim) for of in claims.values() for claim in of]}
    path = paths.claims(paper)
    write_text(path, _json(document))
    scoreboard.write(paper, rows(paper))  # judged as read: with the effects and backtests that were just written
    write_text(path, _json({"verdicts": of_verdicts(paper), **document}))


def _entry(claim: Measured) -> dict[str, Any]:
    """Return a measurement as the file has it: effects by their keys, intervals without the processor's rounding."""
    numbers = {name: _rounded(getattr(claim, name)) for name in ("low", "high")}  # `ours` may be a tie of its sentence
    fields = asdict(replace(claim, effects=())) | numbers | {"groups": [_rounded(end) for end in claim.groups]}
    return fields | {"effects": [effect.key for effect in claim.effects]}


def _rounded(value: float) -> float:
    return float(format(value, effects.DIGITS)) if isinstance(value, float) else value


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def digests(paper: str) -> dict[str, str]:
    """Return the digests of a chapter's records, by name, and of the files of what is published, by file name."""
    tables = sorted(path.with_suffix(".json") for path in paths.recorded(paper).glob("*.csv"))
    named = {path.stem: records.provenance(path)["sha256"][:16] for path in tables}
    printed = (path for path in sorted(paths.published(paper).iterdir()) if path.name not in effects.FILES)
    return named | {path.name: _sha256(path.read_bytes()) for path in printed}


def of_verdicts(paper: str) -> str:
    """Return the digest of a chapter's lines of ``data/verdicts.csv``."""
    return _sha256(scoreboard.text_of(line for line in scoreboard.read() if line["paper"] == paper).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def load_claims(paper: str) -> dict[str, list[Measured]]:
    """Read the measurements of a chapter's claims; raise `ValueError` if a record or published file has changed."""
    path = paths.claims(paper)
    if not path.exists():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    if changed := sorted({name for name, _ in document["records"].items() ^ digests(paper).items()}):
        raise ValueError(
            f"the claims of {paper} were measured before {', '.join(changed)} changed: "
            f"measure them again, `fedleak claims {paper}`"
        )
    claims: dict[str, list[Measured]] = {}
    measured = effects.load(paper)
    for fields in document["claims"]:
        fields["differences"] = tuple(measurements.Difference(**d) for d in fields["differences"])
        fields["effects"] = tuple(measured[tuple(key)] for key in fields["effects"])
        claims.setdefault(fields["id"], []).append(Measured(**fields))
    return claims
