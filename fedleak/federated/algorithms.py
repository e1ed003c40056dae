"""Federated algorithms with several local steps: what clients and server do, and what updates are made of.

Every scheme's update of one client in one round is ``delta = -lr * sum_tau rho(tau) * gradient(tau) + h``: a weighted
sum of the steps' gradients and a term `h` that the server knows (RLU, Eq. 16 and Table 1). `Scheme.weights` is rho,
`Scheme.history` is h.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from fedleak.federated.client import Client, State
from fedleak.federated.update import Update

Name = Literal["fedavg", "sgdm", "nag", "scaffold", "fedprox", "feddyn", "feddc"]
SCHEMES: tuple[Name, ...] = get_args(Name)
_MOMENTUM = ("sgdm", "nag")
_REGULARISED = ("fedprox", "feddyn", "feddc")


@dataclass(frozen=True)
class Scheme:
    """What clients and server agree on for a training run.

    Raises
    ------
    ValueError
        For an unknown name, a value out of its range, or one that the scheme does not have or lacks.
    """

    name: Name
    """``"fedavg"``, ``"sgdm"`` (momentum), ``"nag"`` (Nesterov's, as `torch.optim.SGD` has it), ``"scaffold"``
    (option II of its paper), ``"fedprox"``, ``"feddyn"`` or ``"feddc"``."""
    lr: float
    """Learning rate of the local steps."""
    steps: int
    """Local steps m of a round, a batch each."""
    momentum: float = 0.0
    """Momentum in [0, 1), for ``"sgdm"`` and ``"nag"`` alone."""
    regularisation: float = 0.0
    """Weight of the quadratic term, half of it times the squared distance; for the last three alone."""

    def __post_init__(self) -> None:
        if self.name not in SCHEMES:
            raise ValueError(f"unknown scheme {self.name!r}; there are: {', '.join(SCHEMES)}")
        if self.lr is None or not self.lr > 0:
            raise ValueError(f"the learning rate is positive, got {self.lr}")
        if self.steps is None or self.steps < 1:
            raise ValueError(f"a round has at least one local step, got {self.steps}")
        if not 0 <= self.momentum < 1 or (self.momentum and self.name not in _MOMENTUM):
            raise ValueError(f"momentum is in [0, 1), and 0 except for {_MOMENTUM}; got {self.momentum}")
        if not self.regularisation >= 0 or (self.regularisation > 0) != (self.name in _REGULARISED):
            raise ValueError(f"regularisation is positive for {_REGULARISED} and else 0; got {self.regularisation}")

    @property
    def shrinkage(self) -> float:
        """How much of the way from the global model a regularised step leaves, ``1 - lr * regularisation``."""
        return 1 - self.lr * self.regularisation

    def optimiser(self, parameters: Iterable[Tensor]) -> torch.optim.SGD:
        """Return the clients' optimiser for a round."""
        nesterov = self.name == "nag" and self.momentum > 0
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum, nesterov=nesterov)

    def weights(self) -> Tensor:
        """Return rho(tau) for tau = 1 … m, ``[steps]``, float64 (RLU, Table 1)."""
        left = self.steps - torch.arange(1, self.steps + 1, dtype=torch.float64)  # m - tau
        if self.name in _MOMENTUM:
            terms = left + (2 if self.name == "nag" else 1)
            return (1 - self.momentum**terms) / (1 - self.momentum)
        return torch.as_tensor(self.shrinkage, dtype=torch.float64) ** left

    def history(self, own: Sequence[Tensor], controls: Sequence[Tensor] = (), mean: Tensor | None = None) -> Tensor:
        """Return h of one parameter in the round that is being attacked (RLU, Table 1).

        `own` are the client's updates of that parameter in all earlier rounds; `controls`, for Scaffold, the server's
        control variates of all rounds, this one included; `mean`, for FedDC, that of all clients' last updates.

        Raises
        ------
        ValueError
            If something is missing that the scheme needs.
        """
        if not own or self.name in ("fedavg", "fedprox", *_MOMENTUM):
            return torch.zeros(())
        past = torch.stack(list(own)).sum(0)
        if self.name == "scaffold":
            if len(controls) != len(own) + 1:
                raise ValueError(
                    f"Scaffold needs the control variates of {len(own) + 1} rounds, this one included; "
                    f"got {len(controls)}"
                )
            return -self.steps * self.lr * torch.stack(list(controls)).sum(0) - past
        if self.name == "feddc":
            if mean is None:
                raise ValueError("FedDC needs the mean of all clients' updates in the last round")
            past = past + (own[-1] - mean) / (self.lr * self.regularisation * self.steps)
        return -(1 - self.shrinkage**self.steps) * past


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

        Batches are ``[steps, B, C, H, W]`` and ``[steps, B]`` a client. Returned are the clients' updates of this
        round, from the model as it was before.

        Raises
        ------
        ValueError
            If there are not as many batches as clients; see `Client.train` for the rest.
        """
        if not len(x) == len(y) == self.clients:
            raise ValueError(f"expected the batches of {self.clients} clients, got {len(x)} and {len(y)}")
        zeros = {k: torch.zeros_like(p) for k, p in self.model.named_parameters()}
        self.controls.append({**zeros, **self.sent} if self.scheme.name == "scaffold" else zeros)
        updates = [c.train(self.model, a, b, self.sent) for c, a, b in zip(self.members, x, y, strict=True)]
        for record, update in zip(self.records, updates, strict=True):
            record.append(update)
        mean = {k: torch.stack([u.tensors[k] for u in updates]).mean(0) for k in zeros}
        self.aggregate(mean)
        return updates

    @torch.no_grad()
    def aggregate(self, mean: State) -> None:
        """Move the global model, and set what goes out with it in the next round."""
        name, step = self.scheme.name, mean
        if name == "scaffold":
            self.sent = {k: torch.stack([c.state[k] for c in self.members]).mean(0) for k in mean}
        elif name == "feddc":
            self.sent = mean
        if name in ("feddyn", "feddc"):  # both move by the mean of the updates of all rounds so far as well
            self.correction = {k: d + self.correction.get(k, 0) for k, d in mean.items()}
            step = {k: d + self.correction[k] for k, d in mean.items()}
        for k, parameter in self.model.named_parameters():
            parameter.add_(step[k])

    def history(self, client: int, name: str) -> Tensor:
        """Return h of parameter `name` in the last round's update of a client, from what the server has seen."""
        own = [u.tensors[name] for u in self.records[client][:-1]]
        mean = None
        if self.scheme.name == "feddc" and own:
            mean = torch.stack([record[-2].tensors[name] for record in self.records]).mean(0)
        return self.scheme.history(own, [c[name] for c in self.controls] if own else (), mean)
