"""Record what a Flower server sends and receives, by a wrapped strategy; see `fedleak.recording`."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from flwr.app import ArrayRecord, Message, RecordDict
from torch import Tensor

from fedleak.platforms.server import never_stopping, write_received

log = logging.getLogger("fedleak.platforms.flower")
S = TypeVar("S")
State = dict[str, Tensor]


def recorded(
    strategy: S,
    folder: Path | str,
    *,
    names: Sequence[str] | None = None,
    examples: str | int = "num-examples",
    **facts: Any,
) -> S:
    """Make a strategy record the models that it sends and receives; return the same strategy.

    It accepts any strategy of ``flwr.serverapp.strategy``, also wrapped and user-defined ones. Clients record their
    training themselves, by `fedleak.recording.record` with the node ``str(context.node_id)``; in one folder, both
    records of a round are read as one.

    A contribution that cannot be recorded is a warning in the log and a gap in the folder.

    Parameters
    ----------
    strategy
        The strategy, which is modified.
    folder
        The run's folder.
    names
        Names of the parameters in order, ``list(model.state_dict())``, for arrays that are sent without names.
    examples
        The metric of a reply with the client's number of samples, or that number.
    facts
        Fields of `fedleak.recording.Contribution` that the server prescribes: ``lr``, ``batch_size``, ``epochs``,
        ``optimiser``, ``privacy``.

    Raises
    ------
    TypeError
        For a strategy of Flower's legacy interface.
    """
    if not hasattr(strategy, "configure_train"):
        raise TypeError(
            f"a {type(strategy).__module__}.{type(strategy).__name__} is no strategy of flwr.serverapp.strategy; of "
            "Flower's legacy interface the clients are recorded alone, by fedleak.recording.record"
        )
    sent: dict[str, State | Exception] = {}
    s: Any = strategy
    configure, aggregate = s.configure_train, s.aggregate_train

    def configured(server_round: int, *args: Any, **kwargs: Any) -> list[Message]:
        messages = list(configure(server_round, *args, **kwargs))
        sent.clear()
        states: dict[int, State | Exception] = {}  # most strategies send the same object to all clients
        for message in messages:
            key = id(message.content)
            if key not in states:
                try:
                    states[key] = _read_state(message.content, names)
                except Exception as error:  # any content of a message; it becomes a gap
                    states[key] = error
            sent[str(message.metadata.dst_node_id)] = states[key]
        return messages

    def aggregated(server_round: int, replies: Iterable[Message], *args: Any) -> Any:
        replies = list(replies)
        for reply in replies:
            node = str(reply.metadata.src_node_id)
            with never_stopping(folder, log, round=server_round, node=node):
                if not reply.has_content():
                    continue
                if isinstance(before := sent.get(node, {}), Exception):
                    raise before
                number, after = _count_examples(reply.content, examples), _read_state(reply.content, names)
                write_received(folder, facts, before, after, examples=number, round=server_round, node=node)
        return aggregate(server_round, replies, *args)

    s.configure_train, s.aggregate_train = configured, aggregated
    return strategy


def _read_state(content: RecordDict, names: Sequence[str] | None) -> State:
    """Return the array record of a message as a state dict, empty if there is none.

    Raises `ValueError` for several records, and `TypeError` for arrays with another serialisation.
    """
    records: list[ArrayRecord] = list(content.array_records.values())
    if not records:
        return {}
    if len(records) > 1:
        raise ValueError(f"the message holds {len(records)} array records, which is not one model")
    state = {name: torch.from_numpy(array.numpy().copy()) for name, array in records[0].items() if array.data}
    if not names or list(records[0]) != [str(k) for k in range(len(records[0]))]:
        return state
    if len(names) != len(state):
        raise ValueError(f"there are {len(state)} arrays, and {len(names)} names")
    return dict(zip(names, state.values(), strict=True))


def _count_examples(content: RecordDict, examples: str | int) -> int:
    if isinstance(examples, int):
        return examples
    value: Any = next((record[examples] for record in content.metric_records.values() if examples in record), 0)
    if not isinstance(value, int | float) or not (value >= 0 and float(value).is_integer()):
        raise ValueError(f"the metric {examples!r}, {value}, is no number of samples: pass examples=..., its name")
    return int(value)
