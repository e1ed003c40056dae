"""Record a Flower run: a client mod, and any strategy made to record; see `fedleak.federated.recording`."""

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
    checked,
    examples_of,
    metric,
    of_mod,
    of_strategy,
    scalars,
    weighting_key,
)

NOTE = "fedleak.note"
log = logging.getLogger("fedleak.flower")
S = TypeVar("S")
State = dict[str, Tensor]
_BEHIND: ContextVar[State] = ContextVar("behind")  # what a recording mod behind this one sees of the same reply


def note(context: Context, **facts: Any) -> None:
    """Tell the recording mod what only the client knows; call it in the function that trains. Nothing is sent.

    The facts are ``labels`` of the training samples (integers ``[N]``, those of `torch.nn.CrossEntropyLoss`), or their
    number, ``examples``; ``batch_size`` and ``epochs``; ``optimiser``, one of `torch.optim`, or its name (``"sgd"``,
    ``"nag"``, ``"adam"``, …) with ``lr`` and ``momentum``; or ``steps``, where they do not follow from samples, batch
    size and epochs. It raises nothing: what cannot be noted is a warning in the log.
    """
    context.state.config_records[NOTE] = ConfigRecord({"facts": as_json(facts, log)})


class RecordingMod:
    """A mod of a Flower client app that records what comes in and what goes out when the client trains.

    It sees the reply of whatever stands behind it in ``mods=[...]``: in front of `localdp_mod` it sees what really
    leaves the client; behind `secaggplus_mod`, what would leave it without the masks. With one more behind the mod that
    adds noise, it also names the tensors that got none. It never stops a run: what cannot be recorded is a warning in
    the log and a gap in the run's `folder`, which all clients may share. Clients of the legacy interface, which sends
    no `names` of the parameters, need them in their order (``list(model.state_dict())``). `privacy` is Flower's
    `LocalDpMod` where that stands behind this mod, or what else gives differential privacy. The facts are what holds of
    every round, as for `note`, whose word goes before this; ``examples`` can also be the name of the metric that holds
    the number of samples (by default ``"num-examples"``).
    """

    def __init__(self, folder: Path | str, *, names: Sequence[str] | None = None, privacy: Any = None, **facts: Any):
        self.folder, self.names, self.facts = Path(folder), names, facts
        self.privacy = of_mod(privacy) if type(privacy).__name__ == LOCAL else privacy

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Pass a message on, and record it if the client trained."""
        if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        origin: dict[str, Any] = {
            "round": _round(message),
            "node": str(message.metadata.dst_node_id),
            "seen_by": "client",
        }
        before = _attempted(
            state_of, message.content, self.names
        )  # now: clients take the parameters out of the message
        context.state.config_records.pop(NOTE, None)
        behind: State = {}
        token = _BEHIND.set(behind)
        try:
            reply = call_next(message, context)
        finally:
            _BEHIND.reset(token)
        noted: Mapping[str, Any] = context.state.config_records.pop(NOTE, {})
        if before and reply.has_content():
            with never_stopping(self.folder, log, **origin):
                facts = {**self.facts, **json.loads(str(noted.get("facts", "{}")))}
                after = state_of(reply.content, self.names)
                _BEHIND.get({}).update(after)
                facts["privacy"] = self._claim(_known(before), behind, after)
                examples = examples_of(reply.content, facts.pop("examples", None))
                keep(self.folder, facts, _known(before), after, examples=examples, log=log, **origin)
        return reply

    def _claim(self, before: State, behind: State, after: State) -> Any:
        """Return the claim with the tensors that got no noise: by a mod behind, or by how `LocalDpMod` works."""
        if not isinstance(self.privacy, Privacy):
            return self.privacy
        bare = {*self.privacy.unprotected, *find_tensors_without_noise(before, behind, after)}
        bare |= set(scalars(after)) if self.privacy.by == LOCAL else set()
        return replace(self.privacy, unprotected=tuple(sorted(bare)))


def recorded(strategy: S, folder: Path | str, *, names: Sequence[str] | None = None, **facts: Any) -> S:
    """Make a strategy record what it sends and what it gets back; return the same strategy.

    It may be any strategy of ``flwr.serverapp.strategy``, wrapped ones and those of one's own included, or a legacy
    one of ``flwr.server.strategy``. Under SecAgg+ the server sees one model, the mean over the clients: it is recorded
    as one contribution of the node ``"sum"``, from clients that train in parallel. It has labels if each client
    recorded its own in the same folder, by a `RecordingMod` behind ``secaggplus_mod``. What a server that sends every
    client another model gets under SecAgg+ is no update of one model, and is not recorded. Of Flower's strategies for
    differential privacy it is recorded what they claim, for the weights of each round.

    It goes on as before; what cannot be recorded is a warning in the log and a gap in the folder. `folder`, `names` and
    `facts` are as for `RecordingMod`; the server has to be told ``lr``, ``batch_size``, ``epochs`` and ``optimiser``,
    which it prescribes. The number of samples is the metric ``"num-examples"``, or that by which the strategy weights
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
        return _named(parameters_to_ndarrays(arrays), names) if legacy else state_of(arrays, names)

    def configured(server_round: int, *args: Any, **kwargs: Any) -> list:
        out = list(configure(server_round, *args, **kwargs))
        sent.clear()
        states: dict[int, State | Exception] = {}  # most strategies send one object to all
        for to in out:
            node, arrays = (to[0].node_id, to[1].parameters) if legacy else (to.metadata.dst_node_id, to.content)
            if id(arrays) not in states:
                states[id(arrays)] = _attempted(state, arrays)
            sent[str(node)] = states[id(arrays)]
        return out

    def aggregated(server_round: int, replies: Iterable[Any], *args: Any) -> Any:
        replies = list(replies)
        with never_stopping(folder, log, round=server_round, node="all", seen_by="server"):
            record_round(server_round, replies)
        return aggregate(server_round, replies, *args)

    def record_round(server_round: int, replies: list[Any]) -> None:
        got: list[tuple[str, Any, Any]]  # node, number of samples or content of the message, arrays
        if legacy:
            got = [(str(proxy.node_id), result.num_examples, result.parameters) for proxy, result in replies]
            weights = [examples for _, examples, _ in got]
            if len(got) > 1 and len({id(parameters) for *_, parameters in got}) == 1:
                models = [sent.pop(node, {}) for node, *_ in got]
                sent[SUM] = models[0] if len({id(model) for model in models}) == 1 else {}
                got = [(SUM, weights, got[0][2])]
        else:
            got = [(str(r.metadata.src_node_id), r.content, r.content) for r in replies if r.has_content()]
            weights = [metric(content, key) or 0 for _, _, content in got]
        claim = of_strategy(strategy, weights)
        for node, examples, arrays in got:
            origin: dict[str, Any] = {"round": server_round, "node": node, "seen_by": "server"}
            with never_stopping(folder, log, **origin):
                before, after = _known(sent.get(node, {})), state(arrays)
                privacy = checked(claim, strategy, before, after) if claim is not None and before else claim
                number = examples if legacy else examples_of(examples, samples_key, key)
                keep(folder, {"privacy": privacy, **facts}, before, after, examples=number, log=log, **origin)

    if legacy:
        s.configure_fit, s.aggregate_fit = configured, aggregated
    else:
        s.configure_train, s.aggregate_train = configured, aggregated
    return strategy


def state_of(content: RecordDict, names: Sequence[str] | None) -> State:
    """Return the one array record of a message as a state dict, empty if there is none.

    Raises `ValueError` if there are more, and `TypeError` for arrays of a serialisation of their own.
    """
    records: list[ArrayRecord] = list(content.array_records.values())
    if not records:
        return {}
    if len(records) > 1:
        raise ValueError(f"the message holds {len(records)} array records, which is not one model")
    arrays = [array.numpy() for array in records[0].values() if array.data]
    numbered = list(records[0]) == [str(k) for k in range(len(records[0]))]
    return _named(arrays, names) if numbered else _named(arrays, list(records[0]))


def _named(arrays: Sequence[np.ndarray], names: Sequence[str] | None) -> State:
    if not arrays:
        return {}
    names = names or [str(k) for k in range(len(arrays))]
    if len(names) != len(arrays):
        raise ValueError(f"there are {len(arrays)} arrays, and {len(names)} names")
    return {name: torch.from_numpy(np.array(array)) for name, array in zip(names, arrays, strict=True)}


def _attempted(read: Callable[..., State], *args: Any) -> State | Exception:
    """Return a state, or why there is none, for `_known` to raise where that cannot end a round."""
    try:
        return read(*args)
    except Exception as error:  # whatever a message holds
        return error


def _known(state: State | Exception) -> State:
    if isinstance(state, Exception):
        raise state
    return state


def _round(message: Message) -> int:
    numbers = [record.get("server-round") for record in message.content.config_records.values()]
    group = message.metadata.group_id
    return next((number for number in numbers if isinstance(number, int)), int(group) if group.isdecimal() else 0)
