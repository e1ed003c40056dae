"""What servers' recorders of federated platforms share: records of what came back, which never end a round.

The client records its own training, by `fedleak.recording.record`; a server's record of the same round and node in the
same folder gives the states that were really sent and received.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import Logger
from pathlib import Path
from typing import Any

from torch import Tensor

from fedleak.federated.update import is_statistic, plain_name
from fedleak.recording import Contribution, write
from fedleak.recording.gaps import note_gap


@contextmanager
def never_stopping(folder: Path | str, log: Logger, *, round: int, node: str) -> Iterator[None]:
    """Turn errors in the block into a warning in the log, and a gap that the folder's readers report."""
    try:
        yield
    except Exception as error:  # any error: a missing record does not end the round
        log.warning("nothing recorded of round %s, node %s: %s", round, node, error)
        try:
            note_gap(folder, round, "server", node, error)
        except Exception as gap_error:  # for example a full disk
            log.warning("that is not noted in %s either: %s", folder, gap_error)


def write_received(
    folder: Path | str,
    facts: Mapping[str, Any],
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    *,
    examples: int,
    round: int,
    node: str,
) -> None:
    """Write what a server sent and received in a round; call it in `never_stopping`.

    `facts` are fields of `Contribution` that the server prescribes: ``lr``, ``batch_size``, ``epochs`` (default 1).
    `examples` is the number of samples that the client states. Samples and steps follow from it.
    """
    if before.keys() != after.keys():  # one state has the prefixes of DataParallel or torch.compile
        before, after = ({plain_name(name): tensor for name, tensor in state.items()} for state in (before, after))
    if after.keys() < before.keys():  # a client of FedBN, or one that shares a part of its model
        before = {name: before[name] for name in after}
    if all(is_statistic(name) for name in before.keys() ^ after.keys()):
        before, after = ({n: t for n, t in s.items() if n in before and n in after} for s in (before, after))
    if not after or before.keys() != after.keys():
        raise ValueError("what came back is no state of the model that was sent (masked by SecAgg+?)")
    if "lr" not in facts:
        raise ValueError("the learning rate is not known: pass lr=...")
    epochs, size = facts.get("epochs", 1), facts.get("batch_size") or max(examples, 1)
    counted = {"samples": examples * epochs, "steps": epochs * max(math.ceil(examples / size), 1), **facts}
    if counted["steps"] > counted["samples"]:
        raise ValueError(f"{counted['steps']} steps of {counted['samples']} samples: every step takes one at least")
    part = Contribution(round=round, node=node, seen_by="server", **counted)
    write(folder, part, before, after)
