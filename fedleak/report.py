"""Paper against reproduction: intervals, recorded runs with their provenance, and the comparison with its status."""

import hashlib
import json
import math
import os
import platform
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from fedleak import paths

MATCH, BETTER, DIFFERS = "✓ match", "▲ better", "✗ differs"
SCALED_AGREES, SCALED_DIFFERS = "◌ scaled down, agrees", "◌ scaled down, differs"
NOT_ATTEMPTED = "— not attempted"


def interval(values: Sequence[float] | np.ndarray, *, rate: bool = True) -> tuple[float, float]:
    """Return a 95 % interval of the mean.

    A percentile bootstrap over the trials. Where all values are equal the bootstrap would claim certainty: then, for
    a `rate` in [0, 1], the Wilson interval with n trials, which is wider than a bounded quantity can need.
    Two values or fewer give no interval (NaN), unless they are rates.
    """
    v = np.asarray(values, dtype=float)
    if v.size == 0:
        raise ValueError("no values to make an interval of")
    if not np.isfinite(v).all():
        bad = int((~np.isfinite(v)).sum())
        raise ValueError(f"{bad} of {v.size} values are NaN or infinite: drop them, and say so")
    if rate and (v.min() < 0 or v.max() > 1):
        raise ValueError(f"a rate lies in [0, 1], got {v.min():.4g} to {v.max():.4g}")
    if np.ptp(v) == 0 or v.size < 3:
        if not rate:
            return (float(v[0]), float(v[0])) if v.size > 2 else (math.nan, math.nan)
        z, n, p = stats.norm.ppf(0.975), v.size, v.mean()
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        return max(0.0, centre - half), min(1.0, centre + half)
    found = stats.bootstrap((v,), np.mean, n_resamples=2000, method="percentile", rng=0).confidence_interval
    return float(found.low), float(found.high)


def summarise(table: pd.DataFrame, by: list[str], value: str, *, rate: bool = True) -> pd.DataFrame:
    """Reduce a tidy table to one row a group: ``mean, low, high`` (95 % interval of the mean) and ``n``."""
    rows = []
    for keys, group in table.groupby(by, sort=False, dropna=False):
        low, high = interval(group[value].to_numpy(), rate=rate)
        rows.append({**dict(zip(by, keys, strict=True)), "mean": group[value].mean(), "low": low, "high": high})
        rows[-1]["n"] = len(group)
    return pd.DataFrame(rows)


# --- what the paper says --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """One number or claim of a paper, and what would count as reproducing it, written down before the run.

    ``kind`` says how `published` is read: ``"value"`` (a number), ``"at least"``, ``"at most"`` or ``"between"``
    (two numbers). The status allows `tolerance` on every side.
    """

    id: str
    item: str
    anchor: str
    claim: str
    where: str
    metric: str
    direction: Literal["higher", "lower", "neither"]
    kind: Literal["value", "at least", "at most", "between"]
    published: float | tuple[float, float]
    tolerance: float
    why: str

    def __post_init__(self) -> None:
        pair = isinstance(self.published, tuple)
        if self.kind not in ("value", "at least", "at most", "between") or pair != (self.kind == "between"):
            raise ValueError(f"{self.id}: kind {self.kind!r} does not go with published = {self.published!r}")
        if self.direction not in ("higher", "lower", "neither"):
            raise ValueError(f"{self.id}: direction is 'higher', 'lower' or 'neither', not {self.direction!r}")
        if not self.tolerance >= 0:
            raise ValueError(f"{self.id}: the tolerance is not negative, got {self.tolerance}")

    def text(self) -> str:
        """Return the published value as the tables print it."""
        if isinstance(self.published, tuple):
            return f"{self.published[0]:g} to {self.published[1]:g}"
        return {"value": "", "at least": "≥ ", "at most": "≤ "}[self.kind] + f"{self.published:g}"

    def difference(self, ours: float) -> float:
        """Return by how much `ours` misses what was published: signed, 0 where a bound or range is met."""
        low, high = self.published if isinstance(self.published, tuple) else (self.published, self.published)
        if self.kind == "at least":
            high = math.inf
        elif self.kind == "at most":
            low = -math.inf
        return min(ours - low, 0.0) or max(ours - high, 0.0)

    def status(self, ours: float, scaled: bool) -> str:
        """Say how a measured value stands to the published one."""
        difference = self.difference(ours)
        agrees = abs(difference) <= self.tolerance + 1e-9  # 0.98 - 0.97 is more than 0.01 in binary
        if scaled:
            return SCALED_AGREES if agrees else SCALED_DIFFERS
        if agrees:
            return MATCH
        better = {"higher": difference > 0, "lower": difference < 0, "neither": False}[self.direction]
        return BETTER if better else DIFFERS


def load_published(paper: str) -> tuple[dict[str, str], dict[str, Published]]:
    """Read a paper's published numbers: its head (``title``, ``key``) and the items by id.

    Raises
    ------
    ValueError
        For two items of one id, or a field that is missing, unknown or of a wrong value.
    """
    text = tomllib.loads(paths.published(paper).read_text())
    items: dict[str, Published] = {}
    for fields in text.pop("item"):
        if isinstance(fields.get("published"), list):
            fields["published"] = tuple(fields["published"])
        try:
            found = Published(**fields)
        except TypeError as error:
            raise ValueError(f"{paper}.toml, item {fields.get('id')!r}: {error}") from None
        if found.id in items:
            raise ValueError(f"{paper}.toml has two items {found.id!r}")
        items[found.id] = found
    return text, items


@dataclass(frozen=True)
class Measured:
    """What we measured for one item: the mean with its 95 % interval over n trials, and where it comes from.

    ``scaled`` says what was made smaller than in the paper ("" for nothing); a measurement without ``ours``
    was not attempted, and ``note`` says why.
    """

    id: str
    ours: float | None
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    source: str = "this run"
    scaled: str = ""
    note: str = ""


def compare(published: dict[str, Published], measured: Iterable[Measured]) -> list[dict[str, Any]]:
    """Put every published item beside what was measured for it; an item without measurement is not attempted.

    Raises
    ------
    ValueError
        If something was measured for an item that the paper's file does not have.
    """
    by_id: dict[str, list[Measured]] = {key: [] for key in published}
    for found in measured:
        if found.id not in by_id:
            raise ValueError(f"measured {found.id!r}, which is not among the published items")
        by_id[found.id].append(found)
    rows = []
    for key, item in published.items():
        for m in by_id[key] or [Measured(key, None, source="—", note="nothing was measured for it")]:
            tried = m.ours is not None and math.isfinite(m.ours)
            ours = float(m.ours) if tried and m.ours is not None else math.nan
            rows.append(
                {
                    "id": key,
                    "item": item.item,
                    "anchor": item.anchor,
                    "claim": item.claim,
                    "where": item.where,
                    "metric": item.metric,
                    "direction": item.direction,
                    "published": item.text(),
                    "ours": ours if tried else None,
                    "low": m.low if tried and math.isfinite(m.low) else None,
                    "high": m.high if tried and math.isfinite(m.high) else None,
                    "n": m.n,
                    "difference": item.difference(ours) if tried else None,
                    "tolerance": item.tolerance,
                    "why": item.why,
                    "status": item.status(ours, bool(m.scaled)) if tried else NOT_ATTEMPTED,
                    "source": m.source,
                    "note": "; ".join(filter(None, [m.scaled, m.note])),
                }
            )
    return rows


# --- recorded runs --------------------------------------------------------------------------------------------


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    except OSError as error:
        raise PermissionError(f"cannot write {path.name} to {path.parent}: {error.strerror or error}") from error
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def provenance(**facts: Any) -> dict[str, Any]:
    """Say where a result comes from: commit, versions, machine and date, with the caller's own facts."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "fedleak": version("fedleak"),
        "torch": version("torch"),
        "python": platform.python_version(),
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        **facts,
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=paths.root(), capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changes = git("status", "--porcelain", "--", ".", ":!data/results")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def record(paper: str, artefact: str, table: pd.DataFrame, facts: dict[str, Any]) -> None:
    """Write a table and its provenance under ``data/results/<paper>/``."""
    body = table.to_csv(index=False)
    folder = paths.recorded(paper)
    write_text(folder / f"{artefact}.csv", body)
    facts = {**facts, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    write_text(folder / f"{artefact}.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def recorded(paper: str, artefact: str) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    """Read a recorded table and its provenance; None if there is none.

    Raises
    ------
    ValueError
        If the table is not the one that its provenance was written for, or has none.
    """
    path = paths.recorded(paper) / f"{artefact}.csv"
    if not path.exists():
        return None
    if not path.with_suffix(".json").exists():
        raise ValueError(f"{path.name} has no provenance beside it")
    facts = json.loads(path.with_suffix(".json").read_text())
    if hashlib.sha256(path.read_bytes()).hexdigest() != facts["sha256"]:
        raise ValueError(f"{path.name} is not the table that its provenance was written for: record it again")
    return pd.read_csv(path, engine="python", keep_default_na=False, na_values=["NaN", ""]), facts
