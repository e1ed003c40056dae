"""Federated algorithms with several local steps: real clients, and what updates are made of.

Every scheme's update of one client in one round is ``delta = -lr * sum_tau rho(tau) * gradient(tau) + h``: a weighted
sum of the steps' gradients and a term `h` that the server knows (RLU, Eq. 16 and Table 1). `Scheme.weights` is rho,
`Scheme.history` is h.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.federated.update import Update

Name = Literal["fedavg", "sgdm", "nag", "scaffold", "fedprox", "feddyn", "feddc"]
SCHEMES: tuple[Name, ...] = get_args(Name)
_MOMENTUM = ("sgdm", "nag")
_REGULARISED = ("fedprox", "feddyn", "feddc")
State = dict[str, Tensor]


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

        Parameters
        ----------
        own
            The client's updates of that parameter in all earlier rounds.
        controls
            Scaffold: the server's control variates of all rounds, this one included.
        mean
            FedDC: the mean of all clients' updates in the last round.

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


def correction(scheme: Scheme, own: State, server: State, weight: Tensor, start: Tensor, name: str) -> Tensor:
    """Return what a scheme adds to the gradient of parameter `name` in one local step."""
    if scheme.name == "scaffold":
        return server[name] - own[name]
    if scheme.name in _REGULARISED:
        return own[name] + scheme.regularisation * (weight - start)
    return torch.zeros(())


@dataclass
class Client:
    """One client: what it keeps from one round to the next.

    ``state`` is, for each parameter: Scaffold's control variate; FedDyn's linear term, minus the gradient of the
    last round's optimum; FedDC's regularised drift together with its correction. Nothing for the other schemes.
    """

    scheme: Scheme
    state: State = field(default_factory=dict)
    last: State = field(default_factory=dict)

    def train(self, model: nn.Module, x: Tensor, y: Tensor, server: Mapping[str, Tensor]) -> Update:
        """Train for a round from the global model, which is left as it was, and share the change of the weights.

        Parameters
        ----------
        model
            The global model; batch-norm layers are used in the mode they are in.
        x, y
            Local batches: images ``[steps, B, C, H, W]``, labels ``[steps, B]``.
        server
            What the server sends besides the model: Scaffold's control variate, FedDC's mean update.

        Raises
        ------
        ValueError
            For shapes that do not fit, another number of steps than the scheme's, or labels outside the model's.
        """
        scheme = self.scheme
        if x.dim() < 3 or y.dim() != 2 or x.shape[:2] != y.shape or y.numel() == 0 or len(y) != scheme.steps:
            raise ValueError(
                f"expected x [{scheme.steps}, B, ...] and y [{scheme.steps}, B], not empty; "
                f"got {tuple(x.shape)} and {tuple(y.shape)}"
            )
        start = {k: p.detach() for k, p in model.named_parameters()}
        zeros = {k: torch.zeros_like(p) for k, p in start.items()}
        sent = {**zeros, **server}
        self.state = self.state or zeros
        own = self.linear_term(sent)
        buffers = {k: b.clone() for k, b in model.named_buffers()}
        weights = {k: p.clone().requires_grad_() for k, p in start.items()}
        optimiser = scheme.optimiser(weights.values())
        for images, labels in zip(x, y, strict=True):
            logits = functional_call(model, (weights, buffers), (images,))
            if int(labels.max()) >= logits.shape[1] or int(labels.min()) < 0:
                raise ValueError(
                    f"labels lie in 0..{logits.shape[1] - 1}, got {int(labels.min())}..{int(labels.max())}"
                )
            loss = nn.functional.cross_entropy(logits, labels)
            gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
            for (k, weight), gradient in zip(weights.items(), gradients, strict=True):
                weight.grad = gradient + correction(scheme, own, sent, weight.detach(), start[k], k)
            optimiser.step()
        delta = {k: w.detach() - start[k] for k, w in weights.items()}
        self.remember(delta, sent)
        return Update(delta, "delta", y.numel(), scheme.steps, scheme.lr)

    def linear_term(self, sent: Mapping[str, Tensor]) -> State:
        """Return what is added to every gradient of this round, whatever the weights are."""
        if self.scheme.name != "feddc" or not self.last:
            return self.state
        horizon = self.scheme.lr * self.scheme.steps
        return {k: s + (self.last[k] - sent[k]) / horizon for k, s in self.state.items()}

    def remember(self, delta: State, sent: Mapping[str, Tensor]) -> None:
        """Take this round's update into what is kept for the next."""
        scheme = self.scheme
        if scheme.name == "scaffold":
            horizon = scheme.lr * scheme.steps
            self.state = {k: c - sent[k] - delta[k] / horizon for k, c in self.state.items()}
        elif scheme.name in ("feddyn", "feddc"):
            self.state = {k: s + scheme.regularisation * delta[k] for k, s in self.state.items()}
        self.last = delta


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

        Parameters
        ----------
        x, y
            A client's batches each: ``[steps, B, C, H, W]`` and ``[steps, B]``.

        Returns
        -------
        list of Update
            The clients' updates of this round, from the model as it was before.

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
