"""Record a Flower run by a client mod or a wrapped strategy; see `fedleak.federated.recording`."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common import parameters_to_ndarrays
from torch import Tensor

from fedleak.federated.platforms import as_json, keep, never_stopping
from fedleak.federated.privacy import Privacy, find_tensors_without_noise
from fedleak.federated.recording import SUM
from fedleak.flower.claims import (
    COUNTS,
    LOCAL,
    check_claim,
    count_examples,
    find_metric,
    iterate_scalars,
    read_mod_claim,
    read_strategy_claim,
    weighting_key,
)

NOTE = "fedleak.note"
log = logging.getLogger("fedleak.flower")
S = TypeVar("S")
State = dict[str, Tensor]
_BEHIND: ContextVar[State] = ContextVar("behind")  # the reply's state at a recording mod behind this one


def note(context: Context, **facts: Any) -> None:
    """Pass facts that only the client knows to the recording mod; call it in the training function. Nothing is sent.

    The facts are ``labels`` of the training samples (integers ``[N]``, as for `torch.nn.CrossEntropyLoss`), or their
    number, ``examples``; ``batch_size`` and ``epochs``; ``optimiser``, one of `torch.optim`, or its name (``"sgd"``,
    ``"nag"``, ``"adam"``, …) with ``lr`` and ``momentum``; or ``steps``, if they do not follow from samples, batch size
    and epochs. Facts that cannot be noted are a warning in the log, not an error.
    """
    context.state.config_records[NOTE] = ConfigRecord({"facts": as_json(facts, log)})


class RecordingMod:
    """A mod of a Flower client app that records the received and the sent model when the client trains.

    It records the reply of the mods behind it in ``mods=[...]``: before `localdp_mod` the model that leaves the client,
    behind `secaggplus_mod` the model without masks. With a second recording mod behind the one that adds noise, the
    record names tensors without noise. It never stops a run: a contribution that cannot be recorded is a warning in the
    log and a gap in the folder.

    Parameters
    ----------
    folder
        The run's folder, which all clients may share.
    names
        Names of the parameters in order, ``list(model.state_dict())``, for Flower's legacy interface without names.
    privacy
        Flower's `LocalDpMod` if it is behind this mod, or another `Privacy`.
    facts
        Facts for all rounds, as for `note`, which overrides them; ``examples`` may also be the name of the metric with
        the number of samples (default: ``"num-examples"``).
    """

    def __init__(self, folder: Path | str, *, names: Sequence[str] | None = None, privacy: Any = None, **facts: Any):
        self.folder, self.names, self.facts = Path(folder), names, facts
        self.privacy = read_mod_claim(privacy) if type(privacy).__name__ == LOCAL else privacy

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Pass on a message, and record it if the client trained."""
        if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        origin: dict[str, Any] = {
            "round": _read_round(message),
            "node": str(message.metadata.dst_node_id),
            "seen_by": "client",
        }
        before = _read_or_error(
            state_of, message.content, self.names
        )  # now: clients take the parameters out of the message
        context.state.config_records.pop(NOTE, None)
        behind: State = {}
        token = _BEHIND.set(behind)
        try:
            reply = call_next(message, context)
        finally:
            _BEHIND.reset(token)
        noted_facts: Mapping[str, Any] = context.state.config_records.pop(NOTE, {})
        if before and reply.has_content():
            with never_stopping(self.folder, log, **origin):
                facts = {**self.facts, **json.loads(str(noted_facts.get("facts", "{}")))}
                after = state_of(reply.content, self.names)
                _BEHIND.get({}).update(after)
                facts["privacy"] = self._claim(_raise_error(before), behind, after)
                examples = count_examples(reply.content, facts.pop("examples", None))
                keep(self.folder, facts, _raise_error(before), after, examples=examples, log=log, **origin)
        return reply

    def _claim(self, before: State, behind: State, after: State) -> Any:
        """Return the claim with the tensors without noise, from a mod behind this one or `LocalDpMod`'s rule."""
        if not isinstance(self.privacy, Privacy):
            return self.privacy
        bare = {*self.privacy.unprotected, *find_tensors_without_noise(before, behind, after)}
        bare |= set(iterate_scalars(after)) if self.privacy.by == LOCAL else set()
        return replace(self.privacy, unprotected=tuple(sorted(bare)))


def recorded(strategy: S, folder: Path | str, *, names: Sequence[str] | None = None, **facts: Any) -> S:
    """Make a strategy record the models that it sends and receives; return the same strategy.

    It accepts any strategy of ``flwr.serverapp.strategy``, also wrapped and user-defined ones, and legacy strategies of
    ``flwr.server.strategy``. Under SecAgg+ the server receives the mean over the clients, which is recorded as one
    contribution of the node ``"sum"``. It has labels if each client records its labels in the same folder, by a
    `RecordingMod` behind ``secaggplus_mod``. If the server sends different models under SecAgg+, the mean is no update
    of one model, and is not recorded. The claims of Flower's strategies for differential privacy are recorded.

    A contribution that cannot be recorded is a warning in the log and a gap in the folder. `folder`, `names` and
    `facts` are as for `RecordingMod`; pass ``lr``, ``batch_size``, ``epochs`` and ``optimiser``, which the server
    prescribes. The number of samples is the metric ``"num-examples"``, or the one by which the strategy weights
    (``weighted_by_key``), unless ``examples`` names another.
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
        with never_stopping(folder, log, round=server_round, node="all", seen_by="server"):
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
            origin: dict[str, Any] = {"round": server_round, "node": node, "seen_by": "server"}
            with never_stopping(folder, log, **origin):
                before, after = _raise_error(sent.get(node, {})), state(arrays)
                privacy = check_claim(claim, strategy, before, after) if claim is not None and before else claim
                number = examples if legacy else count_examples(examples, samples_key, key)
                keep(folder, {"privacy": privacy, **facts}, before, after, examples=number, log=log, **origin)

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


def _read_round(message: Message) -> int:
    numbers = [record.get("server-round") for record in message.content.config_records.values()]
    group = message.metadata.group_id
    return next((number for number in numbers if isinstance(number, int)), int(group) if group.isdecimal() else 0)
