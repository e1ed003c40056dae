"""Shared parts of the recorders of federated platforms: notes of a client, and records that never end a round.

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
from fedleak.federated.update import plain_name

MOST_CLASSES = 1_000_000
Facts = dict[str, Any]


def as_json(facts: Mapping[str, Any], log: Logger) -> str:
    """Return what a client notes of its training as JSON; a warning in the log names facts that cannot be noted.

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
                plain = _labels(value, log)
            else:
                plain = {name: value}
            noted |= json.loads(json.dumps(plain, default=_plain))
        except Exception as error:  # whatever a client passes: its training goes on
            log.warning("%s is not noted: %s", name, error)
    return json.dumps(noted)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _labels(value: Any, log: Logger) -> Facts:
    labels = torch.as_tensor(value)
    try:
        return {"labels": sample_labels(labels).tolist()}
    except ValueError as error:
        log.warning("labels are not noted: %s", error)
        return {"examples": len(labels)} if labels.dim() else {}


def sample_labels(labels: Tensor) -> Tensor:
    """Return labels as int64 ``[N]``, the class of each sample, or -100 where the loss ignores it.

    Raises `ValueError` for labels of another kind: floats, one-hot rows, several labels per sample, masks.
    """
    classes = class_labels(labels)
    if labels.dim() < 1 or labels.numel() != len(labels):
        raise ValueError(f"labels are of shape [N], a class per sample, not {list(labels.shape)} (masks?)")
    if (classes >= MOST_CLASSES).any():
        raise ValueError(f"labels are below {MOST_CLASSES}, got {int(classes.max())}")
    return labels.detach().cpu().flatten().long()


@contextmanager
def never_stopping(folder: Path | str, log: Logger, *, round: int, node: str, seen_by: str) -> Iterator[None]:
    """Turn whatever a block raises into a warning in the log, and a gap that the folder's readers report."""
    try:
        yield
    except Exception as error:  # whatever it is: no round ends for lack of a record
        log.warning("nothing recorded of round %s, node %s: %s", round, node, error)
        try:
            note_gap(folder, round, seen_by, node, error)
        except Exception as second:  # a full disk has no room for the gap either
            log.warning("that is not noted in %s either: %s", folder, second)


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
    """Write what a federation's platform shows of a contribution; errors are for `never_stopping`.

    `facts` were noted: fields of `Contribution`, and ``labels`` of the samples of one epoch, integers ``[N]``. Samples
    and steps follow from `examples`, as many as the client says it has (0 if it does not say; a list of many clients',
    whose mean it is), or from the labels, and from ``batch_size`` and ``epochs`` (one, if not noted).
    """
    if before.keys() != after.keys():  # one of them has the prefixes of DataParallel or torch.compile
        before, after = ({plain_name(name): tensor for name, tensor in state.items()} for state in (before, after))
    if not after or before.keys() != after.keys():
        raise ValueError("what came back is no state of the model that was sent (masked by SecAgg+?)")
    if "lr" not in facts:
        raise ValueError("nobody told the learning rate: pass lr=... or note(..., lr=...)")
    if "optimiser" not in facts:
        what = "pass optimiser='sgd' or note(..., optimiser=...); without, no audit relies on what attacks say"
        log.warning("nobody told the optimiser of round %s, node %s: %s", round, node, what)
    plain = {name: _plain(value) if hasattr(value, "tolist") else value for name, value in facts.items()}
    counted = _counted(plain, examples)
    if counted["steps"] > counted["samples"]:
        raise ValueError(f"{counted['steps']} steps of {counted['samples']} samples: every step takes one at least")
    contribution = Contribution(round=round, node=node, seen_by=seen_by, **counted)
    write(folder, contribution, before, after)


def _counted(facts: Facts, examples: int | list[int]) -> Facts:
    """Return the facts with samples, steps, clients and counts as they follow, unless the facts have them."""
    epochs, size = facts.setdefault("epochs", 1), facts.get("batch_size")
    counted = 1.0
    if "labels" in facts:
        labels = sample_labels(torch.as_tensor(facts.pop("labels")))
        real = class_labels(labels)
        facts["counts"] = (real.bincount() * epochs).tolist()
        examples = examples or len(labels)
        counted = len(real) / max(len(labels), 1)  # the loss is the mean over these
    sizes = examples if isinstance(examples, list) else [examples]
    weighted = sum(n * math.ceil(n / (size or max(n, 1))) for n in sizes) / max(sum(sizes), 1)
    if len(sizes) > 1 and size:
        facts["batch_size"] = size * len(sizes)
    samples = round(sum(sizes) * counted) * epochs
    return {"samples": samples, "steps": max(round(epochs * weighted), 1), "clients": len(sizes), **facts}
