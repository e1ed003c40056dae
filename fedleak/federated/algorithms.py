"""Run rounds of a scheme with a server and its clients."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedleak.errors import whole_number
from fedleak.federated.client import Client, State, trained_weights
from fedleak.federated.schemes import SCHEMES as SCHEMES
from fedleak.federated.schemes import Scheme
from fedleak.federated.update import Update
from fedleak.models.wrappers import inner_model


@dataclass
class Server:
    """The server: its global model, the tensors that it sends, and its record of all updates (honest but curious)."""

    model: nn.Module
    """The global model, trained in place."""
    scheme: Scheme
    """The scheme of all clients."""
    clients: int
    """Number of clients; all of them participate in every round."""
    sent: State = field(default_factory=dict)
    correction: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = inner_model(self.model)
        self.members = [Client(self.scheme) for _ in range(whole_number("clients", self.clients))]
        self.records: list[list[Update]] = [[] for _ in self.members]
        self.controls: list[State] = []

    def round(self, x: Sequence[Tensor], y: Sequence[Tensor]) -> list[Update]:
        """Train each client on its batches, update the model as the scheme prescribes, and return the updates.

        Batches are ``[steps, B, C, H, W]`` and ``[steps, B]`` per client. Raises `ValueError` if there are not as many
        batches as clients, and as `Client.train` does.

        Batch norm's running statistics become the mean of the clients', as in FedAvg over whole states; the updates
        leave them out.
        """
        if not len(x) == len(y) == self.clients:
            raise ValueError(f"expected the batches of {self.clients} clients, got {len(x)} and {len(y)}")
        zeros = {k: torch.zeros_like(p) for k, p in trained_weights(self.model).items()}
        self.controls.append({**zeros, **self.sent} if self.scheme.name == "scaffold" else zeros)
        updates = [c.train(self.model, a, b, self.sent) for c, a, b in zip(self.members, x, y, strict=True)]
        for record, update in zip(self.records, updates, strict=True):
            record.append(update)
        name, mean = self.scheme.name, {k: torch.stack([u.tensors[k] for u in updates]).mean(0) for k in zeros}
        if name == "scaffold":
            self.sent = {k: torch.stack([c.state[k] for c in self.members]).mean(0) for k in mean}
        elif name == "feddc":
            self.sent = mean
        if name in ("feddyn", "feddc"):  # both also add the mean of all earlier rounds' updates
            self.correction = {k: d + self.correction.get(k, 0) for k, d in mean.items()}
        for k, parameter in trained_weights(self.model).items():
            parameter.add_(mean[k] + self.correction[k] if self.correction else mean[k])
        self._average_statistics()
        return updates

    def _average_statistics(self) -> None:
        """Give the model the mean of what the clients' forward passes changed, and leave the rest bit by bit."""
        entries = self.model.state_dict(keep_vars=True)  # what a state file holds, whose tensors these are
        for name in self.members[0].statistics.keys() & entries.keys():
            after, before = [client.statistics[name] for client in self.members], entries[name].detach()
            if not all(torch.equal(value, before) for value in after):
                before.copy_(torch.stack(after).double().mean(0))

    def history(self, client: int, name: str) -> Tensor:
        """Return h of parameter `name` in a client's last update, computed from the server's records."""
        past = [u.tensors[name] for u in self.records[client][:-1]]
        mean = None
        if self.scheme.name == "feddc" and past:
            mean = torch.stack([record[-2].tensors[name] for record in self.records]).mean(0)
        return self.scheme.history(past, [c[name] for c in self.controls], mean)
