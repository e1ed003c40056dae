"""Enter an attack in the arena's open contest: its answers to frozen updates, scored, in one row.

The contest, its cells and seeds, is the arena's (`notebooks/arena/experiments_entered.py`). The attack runs in this
process and is given the update and what its adversary knows. That keeps the labels from it by convention only: who
wants to can compute them from the seeds.
"""

import hashlib
import inspect
import json
import runpy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import Attempt
from fedleak.attacks.registry import Attack
from fedleak.errors import own_code
from fedleak.federated import Update
from fedleak_book import paths
from fedleak_book.experiments import running
from fedleak_book.experiments.cells import held_out
from fedleak_book.experiments.context import Context
from fedleak_book.experiments.kinds import Kind, interval, rate

TOLERANCE = 1e-3
"""Largest relative difference from the frozen networks and updates: other kernels of one processor made 3e-5."""
SIGNS = 8
"""Sums with random signs that tell about a vector: their relative difference estimates that of the vectors."""
PACKAGE, ENTERED = "package", "entered"
"""Whose attack it is: recorded with the contest, or entered from a file."""
Scores = dict[str, np.ndarray]
"""iAcc by cell, ``[networks, updates]``."""
ABOUT = ("attack", "by", "summary", "paper", "file", "digest", "version", "needs", "takes")
MADE = ("contest", "off", "date", "commit", "fedleak", "torch", "numpy", "python", "processor", "threads")


def fingerprint(sent: Iterable[tuple[nn.Module, Update]]) -> dict[str, Any]:
    """Return of models and their updates a SHA-256, and a sketch of each, `SIGNS` numbers, that bears rounding."""
    sha, sketches = hashlib.sha256(), []
    for model, update in sent:
        for tensors in (model.state_dict(), update.tensors):
            vector = torch.cat([t.detach().flatten().float() for t in tensors.values()]).numpy()
            sha.update(vector.tobytes())
            signs = np.random.default_rng(0).choice([-1.0, 1.0], (SIGNS, len(vector)))
            sketches.append(" ".join(f"{value:.7g}" for value in signs @ vector))
    return {"sha256": sha.hexdigest()[:16], "sketch": sketches}


def compared(fingerprint: Mapping[str, Any], cell: str, seed: int) -> float:
    """Return how far a fingerprint is from the frozen one: 0 if the bytes are the same, else by the sketches.

    Raises `ValueError` above `TOLERANCE`.
    """
    frozen = json.loads(paths.contest().read_text(encoding="utf-8"))
    frozen_one = frozen["cells"][cell][str(seed)]
    if fingerprint["sha256"] == frozen_one["sha256"]:
        return 0.0
    ours, theirs = (np.array([v.split() for v in side["sketch"]], float) for side in (fingerprint, frozen_one))
    off = float((np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)).max())
    if not off <= TOLERANCE:
        raise ValueError(
            f"the networks or updates that are made here are not the frozen ones: {cell!r}, seed {seed}, is {off:.1g} "
            f"off, and {TOLERANCE:g} is allowed. They were frozen with torch {frozen['torch']}; this is torch "
            f"{torch.__version__}"
        )
    return off


def load(source: str) -> tuple[Attack, Path, str]:
    """Return the label attack that a file registers, or the package's of this name; its file, and `__version__`.

    Raises `ValueError` if the file fails, or registers none or several, or the contest cannot run the attack.
    """
    registered = {attack.name: attack for attack in registry.all_attacks()}
    path = Path(source)
    if source in registered:
        attack, version = registered[source], ""
        path = Path(inspect.getfile(attack.function))
    elif not path.is_file():
        raise FileNotFoundError(f"{source} is no file, and no attack of the package: {', '.join(registered)}")
    else:
        with own_code(path):
            version = str(runpy.run_path(str(path), run_name="fedleak_enter").get("__version__", ""))
        new = [attack for attack in registry.all_attacks() if attack.name not in registered]
        if len(new) != 1:
            names = ", ".join(repr(attack.name) for attack in new) or "none"
            raise ValueError(f"{path.name} has to register one attack, with @attack; it registers {names}")
        attack = new[0]
    lacks = [attack.standalone_reason] if attack.standalone_reason else attack.lacking(registry.WITH_AUXILIARY)
    if attack.goal != "labels" or attack.sends or lacks:
        why = "; ".join(lacks) or (f"its goal is {attack.goal}" if attack.goal != "labels" else "it sends models")
        raise ValueError(f"{attack.name!r} cannot be entered: updates are read for their labels, and {why}")
    return attack, path, version


def answer(attempt: Attempt) -> dict[str, str]:
    """Return an attempt's counts as text, "" if there are none, and why there are none."""
    counts: Tensor | None = attempt.counts
    if counts is not None and (counts.dim() != 1 or bool((counts < 0).any())):
        return {"counts": "", "reason": f"not counts: {counts.tolist()}"}
    return {"counts": "" if counts is None else " ".join(map(str, counts.tolist())), "reason": attempt.reason}


def enter(source: str) -> dict[str, Any]:
    """Run an attack on every frozen update and return its row; see `load` and `compared` for the errors.

    An attack that is entered has its lead over the package's, which are what others are compared with and have none.
    What is finished is kept, and a run that was stopped goes on. An update that the attack refuses, or on which it
    fails, is one without counts, and the row says why; a `ValueError` if there is no other.
    """
    attack, path, version = load(source)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    contest = running.module("arena", "experiments_entered")
    experiment = contest.experiment(attack, digest)
    rows = running.run("arena", experiment, Context("cpu"), experiment.settings("paper"))
    by = PACKAGE if path.resolve().is_relative_to(Path(registry.__file__).resolve().parent) else ENTERED
    needs, takes = sorted(need.value for need in attack.uses), sorted(attack.options)
    about = (attack.name, by, attack.summary, attack.paper, path.name, digest, version, needs, takes)
    if not rows["counts"].any():
        why = rows["reason"].value_counts().index[0]
        raise ValueError(f"{attack.name!r} answered none of the {len(rows)} updates; most often: {why}")
    facts = rows.attrs | {"contest": contest.CONTEST, "off": float(rows["off"].max())}
    cells = {
        cell: {
            "seconds": float(f"{answers['seconds'].mean():.3g}"),
            "refused": {why: int(n) for why, n in answers["reason"].value_counts().items() if why},
            "answers": {f"{row.trial}.{row.update}": row.counts for row in answers.itertuples()},
        }
        for cell, answers in rows.groupby("cell", sort=False)
    }
    row = {**dict(zip(ABOUT, about, strict=True)), **{name: facts[name] for name in MADE}, "cells": cells}
    rivals = {entry["attack"]: scores(entry) for entry in entries() if (entry["by"], by) == (PACKAGE, ENTERED)}
    for cell, score in scored(scores(row), rivals).items():
        cells[cell] = {**score, **cells[cell]}
    return row


def entries() -> list[dict[str, Any]]:
    """Return the rows that are committed: the package's attacks, then those that were entered."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(paths.entries().glob("*.json"))]
    return sorted(rows, key=lambda row: row["by"] == ENTERED)


def ranked(rows: Iterable[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Return the mean iAcc over the cells and the name of each attack that answered all updates, the best first."""
    whole = [row for row in rows if not any(cell["refused"] for cell in row["cells"].values())]
    means = [(float(np.mean([cell["iacc"] for cell in row["cells"].values()])), row["attack"]) for row in whole]
    return sorted(means, reverse=True)


def scores(row: Mapping[str, Any]) -> Scores:
    """Score a row's answers anew: iAcc by cell, ``[networks, updates]``, NaN where there is none.

    Raises `ValueError` if they are not of this contest, its cells and its updates, or are no counts of its classes.
    """
    contest, context = running.module("arena", "experiments_entered"), Context("cpu")
    if row["contest"] != contest.CONTEST or row["cells"].keys() != contest.CELLS.keys():
        raise ValueError(f"the row of {row['attack']!r} is of another contest: enter the attack again")
    scores_by_cell = {}
    for cell, entry in row["cells"].items():
        truth = contest.truth(context, cell)
        if entry["answers"].keys() != truth.keys():
            raise ValueError(f"the row of {row['attack']!r} does not have the updates of {cell!r}")
        counts = {name: torch.tensor([int(k) for k in answer.split()]) for name, answer in entry["answers"].items()}
        accuracies = [
            float(metrics.braun_blanquet(counts[u], t)) if len(counts[u]) else np.nan for u, t in truth.items()
        ]
        scores_by_cell[cell] = np.array(accuracies).reshape(-1, contest.UPDATES)
    return scores_by_cell


def scored(scores_by_cell: Scores, rivals: Mapping[str, Scores]) -> dict[str, dict[str, Any]]:
    """Return by cell the iAcc and its lead over the best of the rivals, with 95 % intervals over the networks.

    Updates without an answer have no part in the iAcc, and a cell that has some has no lead. The best rival, of those
    that answered all of a cell, is picked on other updates than it is scored on (`held_out`).
    """
    contest = running.module("arena", "experiments_entered")
    numbers: dict[str, dict[str, Any]] = {}
    for cell, mine in scores_by_cell.items():
        labels = contest.CELLS[cell]["batch_size"] * contest.UPDATES
        network_means = [float(np.nanmean(updates)) for updates in mine if not np.isnan(updates).all()]
        numbers[cell] = _numbers("iacc", network_means, rate(labels)) | {"networks": len(network_means)}
        complete = {name: other[cell] for name, other in rivals.items() if not np.isnan(other[cell]).any()}
        if complete and not np.isnan(mine).any():
            wide = np.stack([updates.ravel() for updates in complete.values()], axis=1)
            lead = (mine.ravel() - held_out(wide)[0]).reshape(mine.shape).mean(1)
            numbers[cell]["best"] = [*complete][int(wide.mean(0).round(9).argmax())]
            numbers[cell] |= _numbers("lead", lead.tolist(), Kind("difference", [labels]))
    return numbers


def _numbers(name: str, values: list[float], kind: Kind) -> dict[str, float | None]:
    """Return a mean and its interval's ends, to four digits; None where there is no number."""
    number = [float(np.mean(values)), *interval(values, kind)] if values else [float("nan")] * 3
    named = zip((name, f"{name} low", f"{name} high"), number, strict=True)
    return {key: None if np.isnan(value) else round(value, 4) for key, value in named}
