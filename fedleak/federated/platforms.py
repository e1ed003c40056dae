"""Functions that the recorders of federated platforms share: clients' notes, and records that never end a round.

See `fedleak.federated.recording` for the folder, `fedleak.flower` and `fedleak.nvflare` for the recorders.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import Logger
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.federated.gaps import note_gap
from fedleak.federated.loop import class_labels, training_facts
from fedleak.federated.recording import Contribution, write
from fedleak.federated.update import is_statistic, plain_name

MAX_CLASSES = 1_000_000
Facts = dict[str, Any]


def as_json(facts: Mapping[str, Any], log: Logger) -> str:
    """Return a client's notes on its training as JSON; log a warning for facts that cannot be noted.

    An optimiser becomes what `fedleak.federated.loop.training_facts` returns. Labels that name no
    class per sample are replaced by their number, ``examples``.
    """
    noted: Facts = {}
    for name in sorted(facts, key=lambda name: (name != "labels", name == "optimiser")):  # later ones replace
        value = facts[name]
        try:
            if name == "optimiser" and not isinstance(value, str):
                plain = training_facts(value)
            elif name == "labels":
                plain = _describe_labels(value, log)
            else:
                plain = {name: value}
            noted |= json.loads(json.dumps(plain, default=_to_json_value))
        except Exception as error:  # any error: the client's training continues
            log.warning("%s is not noted: %s", name, error)
    return json.dumps(noted)


def _to_json_value(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _describe_labels(value: Any, log: Logger) -> Facts:
    labels = torch.as_tensor(value)
    try:
        return {"labels": sample_labels(labels).tolist()}
    except ValueError as error:
        log.warning("labels are not noted: %s", error)
        return {"examples": len(labels)} if labels.dim() else {}


def sample_labels(labels: Tensor) -> Tensor:
    """Return labels as int64 ``[N]``: each sample's class, or -100 if the loss ignores the sample.

    Raises `ValueError` for labels of another kind: floats, one-hot rows, several labels per sample, masks.
    """
    classes = class_labels(labels)
    if labels.dim() < 1 or labels.numel() != len(labels):
        raise ValueError(f"labels are of shape [N], a class per sample, not {list(labels.shape)} (masks?)")
    if (classes >= MAX_CLASSES).any():
        raise ValueError(f"labels are below {MAX_CLASSES}, got {int(classes.max())}")
    return labels.detach().cpu().flatten().long()


@contextmanager
def never_stopping(folder: Path | str, log: Logger, *, round: int, node: str, seen_by: str) -> Iterator[None]:
    """Turn errors in the block into a warning in the log, and a gap that the folder's readers report."""
    try:
        yield
    except Exception as error:  # any error: a missing record does not end the round
        log.warning("nothing recorded of round %s, node %s: %s", round, node, error)
        try:
            note_gap(folder, round, seen_by, node, error)
        except Exception as gap_error:  # for example a full disk
            log.warning("that is not noted in %s either: %s", folder, gap_error)


def keep(
    folder: Path | str,
    facts: Mapping[str, Any],
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    *,
    examples: int | list[int],
    log: Logger,
    round: int,
    node: str,
    seen_by: Literal["client", "server"],
) -> None:
    """Write a contribution as far as a federation's platform shows it; call it in `never_stopping`.

    `facts` are the client's notes: fields of `Contribution`, and ``labels`` of one epoch's samples, integers ``[N]``.
    `examples` is the number of samples that the client states, 0 if it does not, or a list for the mean of several
    clients. Samples and steps follow from it or the labels, and from ``batch_size`` and ``epochs`` (default 1).
    """
    if before.keys() != after.keys():  # one state has the prefixes of DataParallel or torch.compile
        before, after = ({plain_name(name): tensor for name, tensor in state.items()} for state in (before, after))
    if all(is_statistic(name) for name in before.keys() ^ after.keys()):  # as clients of FedBN send
        before, after = ({n: t for n, t in s.items() if n in before and n in after} for s in (before, after))
    if not after or before.keys() != after.keys():
        raise ValueError("what came back is no state of the model that was sent (masked by SecAgg+?)")
    if "lr" not in facts:
        raise ValueError("nobody told the learning rate: pass lr=... or note(..., lr=...)")
    if "optimiser" not in facts:
        advice = "pass optimiser='sgd' or note(..., optimiser=...); without, no audit relies on what attacks say"
        log.warning("nobody told the optimiser of round %s, node %s: %s", round, node, advice)
    plain = {name: _to_json_value(value) if hasattr(value, "tolist") else value for name, value in facts.items()}
    counted = _add_sample_counts(plain, examples)
    if counted["steps"] > counted["samples"]:
        raise ValueError(f"{counted['steps']} steps of {counted['samples']} samples: every step takes one at least")
    contribution = Contribution(round=round, node=node, seen_by=seen_by, **counted)
    write(folder, contribution, before, after)


def _add_sample_counts(facts: Facts, examples: int | list[int]) -> Facts:
    """Return the facts, completed by samples, steps, clients and counts that follow from them."""
    epochs, size = facts.setdefault("epochs", 1), facts.get("batch_size")
    counted = 1.0
    if "labels" in facts:
        labels = sample_labels(torch.as_tensor(facts.pop("labels")))
        counted_labels = class_labels(labels)
        facts["counts"] = (counted_labels.bincount() * epochs).tolist()
        examples = examples or len(labels)
        counted = len(counted_labels) / max(len(labels), 1)  # the loss is their mean
    sizes = examples if isinstance(examples, list) else [examples]
    weighted = sum(n * math.ceil(n / (size or max(n, 1))) for n in sizes) / max(sum(sizes), 1)
    if len(sizes) > 1 and size:
        facts["batch_size"] = size * len(sizes)
    samples = round(sum(sizes) * counted) * epochs
    return {"samples": samples, "steps": max(round(epochs * weighted), 1), "clients": len(sizes), **facts}
