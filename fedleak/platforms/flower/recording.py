"""Record what a Flower server sends and receives, by a wrapped strategy; see `fedleak.recording`."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from flwr.common import parameters_to_ndarrays
from torch import Tensor

from fedleak.platforms.flower.claims import (
    COUNTS,
    check_claim,
    count_examples,
    find_metric,
    read_strategy_claim,
    weighting_key,
)
from fedleak.platforms.server import never_stopping, write_received
from fedleak.recording.gaps import SUM

log = logging.getLogger("fedleak.platforms.flower")
S = TypeVar("S")
State = dict[str, Tensor]


def recorded(strategy: S, folder: Path | str, *, names: Sequence[str] | None = None, **facts: Any) -> S:
    """Make a strategy record the models that it sends and receives; return the same strategy.

    It accepts any strategy of ``flwr.serverapp.strategy``, also wrapped and user-defined ones, and legacy strategies of
    ``flwr.server.strategy``. Clients record their training themselves, by `fedleak.recording.record` with the node
    ``str(context.node_id)``; in one folder, both records of a round are read as one. Under SecAgg+ the server receives
    the mean over the clients, which is recorded as one contribution of the node ``"sum"``; it has labels if each client
    records its training in the same folder. If the server sends different models under SecAgg+, the mean is no update
    of one model, and is not recorded. The claims of Flower's strategies for differential privacy are recorded.

    A contribution that cannot be recorded is a warning in the log and a gap in the folder.

    Parameters
    ----------
    strategy
        The strategy, which is modified.
    folder
        The run's folder.
    names
        Names of the parameters in order, ``list(model.state_dict())``, for Flower's legacy interface without names.
    facts
        Fields of `fedleak.recording.Contribution` that the server prescribes: ``lr``, ``batch_size``, ``epochs``,
        ``optimiser``. ``examples`` names the metric with the number of samples, by default ``"num-examples"``, or the
        one by which the strategy weights (``weighted_by_key``).
    """
    sent: dict[str, State | Exception] = {}
    s: Any = strategy
    key, samples_key = weighting_key(strategy), facts.pop("examples", None)
    if key not in COUNTS and samples_key is None:
        log.warning("samples are the metric %r, by which the strategy weights: if they are not, pass examples=...", key)
    legacy = hasattr(strategy, "configure_fit")
    configure, aggregate = (s.configure_fit, s.aggregate_fit) if legacy else (s.configure_train, s.aggregate_train)

    def state(arrays: Any) -> State:
        return _to_state(parameters_to_ndarrays(arrays), names) if legacy else state_of(arrays, names)

    def configured(server_round: int, *args: Any, **kwargs: Any) -> list:
        instructions = list(configure(server_round, *args, **kwargs))
        sent.clear()
        states: dict[int, State | Exception] = {}  # most strategies send the same object to all clients
        for item in instructions:
            node, arrays = (
                (item[0].node_id, item[1].parameters) if legacy else (item.metadata.dst_node_id, item.content)
            )
            if id(arrays) not in states:
                states[id(arrays)] = _read_or_error(state, arrays)
            sent[str(node)] = states[id(arrays)]
        return instructions

    def aggregated(server_round: int, replies: Iterable[Any], *args: Any) -> Any:
        replies = list(replies)
        with never_stopping(folder, log, round=server_round, node="all"):
            record_round(server_round, replies)
        return aggregate(server_round, replies, *args)

    def record_round(server_round: int, replies: list[Any]) -> None:
        received: list[tuple[str, Any, Any]]  # node, number of samples or content of the message, arrays
        if legacy:
            received = [(str(proxy.node_id), result.num_examples, result.parameters) for proxy, result in replies]
            weights = [examples for _, examples, _ in received]
            if len(received) > 1 and len({id(parameters) for *_, parameters in received}) == 1:
                models = [sent.pop(node, {}) for node, *_ in received]
                sent[SUM] = models[0] if len({id(model) for model in models}) == 1 else {}
                received = [(SUM, weights, received[0][2])]
        else:
            received = [(str(r.metadata.src_node_id), r.content, r.content) for r in replies if r.has_content()]
            weights = [find_metric(content, key) or 0 for _, _, content in received]
        claim = read_strategy_claim(strategy, weights)
        for node, examples, arrays in received:
            origin: dict[str, Any] = {"round": server_round, "node": node}
            with never_stopping(folder, log, **origin):
                before, after = _raise_error(sent.get(node, {})), state(arrays)
                privacy = check_claim(claim, strategy, before, after) if claim is not None and before else claim
                number = examples if legacy else count_examples(examples, samples_key, key)
                write_received(folder, {"privacy": privacy, **facts}, before, after, examples=number, **origin)

    if legacy:
        s.configure_fit, s.aggregate_fit = configured, aggregated
    else:
        s.configure_train, s.aggregate_train = configured, aggregated
    return strategy


def state_of(content: RecordDict, names: Sequence[str] | None) -> State:
    """Return the array record of a message as a state dict, empty if there is none.

    Raises `ValueError` for several records, and `TypeError` for arrays with another serialisation.
    """
    records: list[ArrayRecord] = list(content.array_records.values())
    if not records:
        return {}
    if len(records) > 1:
        raise ValueError(f"the message holds {len(records)} array records, which is not one model")
    arrays = [array.numpy() for array in records[0].values() if array.data]
    has_number_names = list(records[0]) == [str(k) for k in range(len(records[0]))]
    return _to_state(arrays, names) if has_number_names else _to_state(arrays, list(records[0]))


def _to_state(arrays: Sequence[np.ndarray], names: Sequence[str] | None) -> State:
    if not arrays:
        return {}
    names = names or [str(k) for k in range(len(arrays))]
    if len(names) != len(arrays):
        raise ValueError(f"there are {len(arrays)} arrays, and {len(names)} names")
    return {name: torch.from_numpy(np.array(array)) for name, array in zip(names, arrays, strict=True)}


def _read_or_error(read: Callable[..., State], *args: Any) -> State | Exception:
    """Return a state, or the error for `_raise_error` to raise where it does not end a round."""
    try:
        return read(*args)
    except Exception as error:  # any content of a message
        return error


def _raise_error(state: State | Exception) -> State:
    if isinstance(state, Exception):
        raise state
    return state
