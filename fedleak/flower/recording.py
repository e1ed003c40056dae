"""Record a Flower run: a client mod, and any strategy made to record; see `fedleak.federated.recording`."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.common import parameters_to_ndarrays
from torch import Tensor

from fedleak.federated.loop import told
from fedleak.federated.privacy import DELTA, Privacy
from fedleak.federated.recording import SUM, keep

NOTE = "fedleak.note"
log = logging.getLogger("fedleak.flower")
S = TypeVar("S")


def note(context: Context, **facts: Any) -> None:
    """Tell the recording mod what only the client knows; call it in the function that trains. Nothing is sent.

    The facts are ``labels`` of the training samples (integers ``[N]``), ``batch_size`` and ``epochs``; ``optimiser``,
    one of `torch.optim`, or its name (``"sgd"``, ``"nag"``, ``"adam"``, …) with ``lr`` and ``momentum``; or ``steps``,
    where they do not follow from samples, batch size and epochs.
    """
    context.state.config_records[NOTE] = ConfigRecord(told(facts))


class RecordingMod:
    """A mod of a Flower client app that records what comes in and what goes out when the client trains.

    It sees the reply of whatever stands behind it in ``mods=[...]``: in front of `localdp_mod` it sees what really
    leaves the client; behind `secaggplus_mod`, what would leave it without the masks. It never stops a run: what
    cannot be recorded is a warning in the log. All clients may share the run's `folder`. Clients of the legacy
    interface, which sends no `names` of the parameters, need them in their order (``list(model.state_dict())``).
    `privacy` is Flower's `LocalDpMod` where that stands behind this mod, or what else gives differential privacy. The
    facts are what holds of every round, as for `note`, whose word goes before this.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        names: Sequence[str] | None = None,
        privacy: LocalDpMod | Privacy | None = None,
        **facts: Any,
    ):
        self.folder, self.names = Path(folder), names
        self.facts = {**facts, "privacy": of_mod(privacy) if isinstance(privacy, LocalDpMod) else privacy}

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Pass a message on, and record it if the client trained."""
        before = state_of(message.content, self.names)  # now: clients take the parameters out of the message
        server_round = _round(message)
        context.state.config_records.pop(NOTE, None)
        reply = call_next(message, context)
        facts = {**self.facts, **context.state.config_records.pop(NOTE, {})}
        if message.metadata.message_type.partition(".")[0] == MessageType.TRAIN and before and reply.has_content():
            node, after = message.metadata.dst_node_id, state_of(reply.content, self.names)
            seen: dict[str, Any] = {"round": server_round, "node": str(node), "seen_by": "client"}
            keep(self.folder, facts, before, after, examples=_examples(reply.content), log=log, **seen)
        return reply


def recorded(strategy: S, folder: Path | str, *, names: Sequence[str] | None = None, **facts: Any) -> S:
    """Make a strategy record what it sends and what it gets back; return the same strategy.

    It may be any strategy of ``flwr.serverapp.strategy``, wrapped ones and those of one's own included, or a legacy
    one of ``flwr.server.strategy``. Under SecAgg+ the server sees one model, the mean over the clients: it is recorded
    as one contribution of the node ``"sum"``, of so many clients that train in parallel. It has labels if each client
    recorded its own in the same folder, by a `RecordingMod` behind ``secaggplus_mod``. What a server that sends every
    client another model gets under SecAgg+ is no update of one model, and is not recorded. Of Flower's strategies for
    differential privacy it is recorded what they claim.

    It goes on as before; what cannot be recorded is a warning in the log. `folder`, `names` and `facts` are as for
    `RecordingMod`; the server has to be told ``lr``, ``batch_size``, ``epochs`` and ``optimiser``, which it prescribes.
    """
    sent: dict[str, dict[str, Tensor]] = {}
    s: Any = strategy
    facts.setdefault("privacy", of_strategy(strategy))
    legacy = hasattr(strategy, "configure_fit")
    configure, aggregate = (s.configure_fit, s.aggregate_fit) if legacy else (s.configure_train, s.aggregate_train)

    def state(arrays: Any) -> dict[str, Tensor]:
        return _named(parameters_to_ndarrays(arrays), names) if legacy else state_of(arrays, names)

    def configured(server_round: int, *args: Any, **kwargs: Any) -> list:
        out = list(configure(server_round, *args, **kwargs))
        sent.clear()
        states: dict[int, dict[str, Tensor]] = {}  # most strategies send one object to all
        for one in out:
            node, arrays = (one[0].node_id, one[1].parameters) if legacy else (one.metadata.dst_node_id, one.content)
            if id(arrays) not in states:
                states[id(arrays)] = state(arrays)
            sent[str(node)] = states[id(arrays)]
        return out

    def aggregated(server_round: int, replies: Iterable[Any], *args: Any) -> Any:
        replies = list(replies)
        got: list[tuple[str, Any, Any]]
        if legacy:
            got = [(str(proxy.node_id), result.num_examples, result.parameters) for proxy, result in replies]
            if len(got) > 1 and len({id(parameters) for *_, parameters in got}) == 1:
                models = [sent.pop(node, {}) for node, *_ in got]
                sent[SUM] = models[0] if len({id(model) for model in models}) == 1 else {}
                got = [(SUM, [examples for _, examples, _ in got], got[0][2])]
        else:
            whole = [reply for reply in replies if reply.has_content()]
            got = [(str(reply.metadata.src_node_id), _examples(reply.content), reply.content) for reply in whole]
        for node, examples, arrays in got:
            seen: dict[str, Any] = {"round": server_round, "node": node, "seen_by": "server"}
            keep(folder, facts, sent.get(node, {}), state(arrays), examples=examples, log=log, **seen)
        return aggregate(server_round, replies, *args)

    if legacy:
        s.configure_fit, s.aggregate_fit = configured, aggregated
    else:
        s.configure_train, s.aggregate_train = configured, aggregated
    return strategy


def of_mod(mod: LocalDpMod) -> Privacy:
    """Return what Flower's mod claims: it adds noise by the sensitivity that it is told, whatever norm it clips to.

    Two updates clipped to a norm C lie up to 2 C apart.
    """
    delta = mod.delta or DELTA
    history: tuple[tuple[float, float, int], ...] = ()
    if mod.epsilon > 0 and mod.delta > 0:
        deviation = mod.sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / mod.epsilon
        history = ((deviation / (2 * mod.clipping_norm), 1.0, 1),)
    return Privacy(neighbours="client", history=history, delta=delta, stated=mod.epsilon, by="LocalDpMod")


def of_strategy(strategy: Any) -> Privacy | None:
    """Return what one of Flower's ``DifferentialPrivacy…`` strategies claims; None of another.

    All of them add the noise after aggregation, those with clipping in the clients too.
    """
    name = type(strategy).__name__
    if not name.startswith("DifferentialPrivacy"):
        return None
    config = getattr(getattr(strategy, "accountant", None), "config", None)
    delta = getattr(config, "target_delta", DELTA)
    history = ((float(strategy.noise_multiplier), 1.0, 1),)
    return Privacy(neighbours="client added", history=history, delta=delta, aggregated=True, by=name)


def state_of(content: RecordDict, names: Sequence[str] | None) -> dict[str, Tensor]:
    """Return the one array record of a message as a state dict; nothing if there is none, or more than one."""
    records = list(content.array_records.values())
    if len(records) != 1:
        return {}
    record: ArrayRecord = records[0]
    arrays = [array.numpy() for array in record.values() if array.data]
    numbered = list(record) == [str(k) for k in range(len(record))]
    return _named(arrays, names) if numbered else _named(arrays, list(record))


def _named(arrays: Sequence[np.ndarray], names: Sequence[str] | None) -> dict[str, Tensor]:
    names = names or [str(k) for k in range(len(arrays))]
    if len(names) != len(arrays):
        log.warning("%d arrays, but %d names: nothing recorded", len(arrays), len(names))
        return {}
    return {name: torch.from_numpy(np.array(array)) for name, array in zip(names, arrays, strict=True)}


def _examples(content: RecordDict) -> int:
    """Return the number of examples that a client says it has, in either interface; 0 if it does not say."""
    said = [record.get(key) for record in content.metric_records.values() for key in ("num-examples", "num_examples")]
    return next((int(number) for number in said if isinstance(number, int | float)), 0)


def _round(message: Message) -> int:
    said = [record.get("server-round") for record in message.content.config_records.values()]
    group = message.metadata.group_id
    return next((number for number in said if isinstance(number, int)), int(group) if group.isdigit() else 0)
