"""Real rounds of a scheme: the server, and the clients that it sends its model to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedleak.federated.client import Client, State
from fedleak.federated.schemes import SCHEMES as SCHEMES
from fedleak.federated.schemes import Scheme
from fedleak.federated.update import Update


@dataclass
class Server:
    """The server: the global model, what it sends along, and the record that an honest-but-curious one keeps."""

    model: nn.Module
    """The global model, trained in place."""
    scheme: Scheme
    """The scheme of all clients."""
    clients: int
    """How many there are; all of them take part in every round."""
    sent: State = field(default_factory=dict)
    correction: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ValueError(f"there is at least one client, got {self.clients}")
        self.members = [Client(self.scheme) for _ in range(self.clients)]
        self.records: list[list[Update]] = [[] for _ in self.members]
        self.controls: list[State] = []

    def round(self, x: Sequence[Tensor], y: Sequence[Tensor]) -> list[Update]:
        """Let every client train on its batches and move the model by their mean, as the scheme has it.

        Batches are ``[steps, B, C, H, W]`` and ``[steps, B]`` a client. The clients' updates of this round, which are
        returned, are from the model as it was before. Raises `ValueError` if there are not as many batches as clients;
        see `Client.train` for the rest.
        """
        if not len(x) == len(y) == self.clients:
            raise ValueError(f"expected the batches of {self.clients} clients, got {len(x)} and {len(y)}")
        zeros = {k: torch.zeros_like(p) for k, p in self.model.named_parameters()}
        self.controls.append({**zeros, **self.sent} if self.scheme.name == "scaffold" else zeros)
        updates = [c.train(self.model, a, b, self.sent) for c, a, b in zip(self.members, x, y, strict=True)]
        for record, update in zip(self.records, updates, strict=True):
            record.append(update)
        name, mean = self.scheme.name, {k: torch.stack([u.tensors[k] for u in updates]).mean(0) for k in zeros}
        if name == "scaffold":
            self.sent = {k: torch.stack([c.state[k] for c in self.members]).mean(0) for k in mean}
        elif name == "feddc":
            self.sent = mean
        if name in ("feddyn", "feddc"):  # both move by the mean of the updates of all rounds so far as well
            self.correction = {k: d + self.correction.get(k, 0) for k, d in mean.items()}
        for k, parameter in self.model.named_parameters():
            parameter.data.add_(mean[k] + self.correction[k] if self.correction else mean[k])
        return updates

    def history(self, client: int, name: str) -> Tensor:
        """Return h of parameter `name` in the last round's update of a client, from what the server has seen."""
        past = [u.tensors[name] for u in self.records[client][:-1]]
        mean = None
        if self.scheme.name == "feddc" and past:
            mean = torch.stack([record[-2].tensors[name] for record in self.records]).mean(0)
        return self.scheme.history(past, [c[name] for c in self.controls], mean)
