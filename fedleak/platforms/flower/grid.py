"""A Flower grid without a network, which calls client apps in this process."""

import copy
import itertools
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class InProcess(Grid):
    """A grid whose nodes are calls of a client app; messages, mods and strategies are Flower's, and unmodified.

    Each node has an id, from 1, and a context, whose ``node_config`` has ``"partition-id"`` (from 0) and
    ``"num-partitions"``. `lost` returns whether a message is lost, as when its node drops out.
    """

    def __init__(self, app: ClientApp, nodes: int, lost: Callable[[Message], bool] = lambda message: False):
        self.app, self.lost = app, lost
        configs: list[Any] = [{"partition-id": k, "num-partitions": nodes} for k in range(nodes)]
        self.contexts = {k: Context(1, k, config, RecordDict(), {}) for k, config in enumerate(configs, 1)}
        self._numbers = itertools.count(1)
        # Flower's messages read the identity of their process, which is not set outside Flower's processes.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1

    @property
    def run(self) -> Any:
        """An object with a ``run_id``, which Flower needs."""
        return SimpleNamespace(run_id=1)

    def set_run(self, run: Any) -> None:
        """Do nothing, as there is one run."""

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message of Flower."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Raise `NotImplementedError`: a message and its reply are one call."""
        raise NotImplementedError("messages are sent with send_and_receive")

    pull_messages: Any = push_messages

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Call the app with a copy of each message that is not lost, and return the replies."""
        replies = []
        for message in messages:
            if self.lost(message):
                continue
            request = copy.deepcopy(message)  # many messages share one content, which mods change
            request.metadata.__dict__["_message_id"] = str(next(self._numbers))
            replies.append(self.app(request, self.contexts[request.metadata.dst_node_id]))
        return replies
