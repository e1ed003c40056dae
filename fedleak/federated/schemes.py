"""Federated schemes with several local steps, and the composition of their updates.

In every scheme the update of one client in one round is ``delta = -lr * sum_tau weight(tau) * gradient(tau) + h``: a
weighted sum of the steps' gradients and a term `h` that the server knows (RLU, Eq. 16 and Table 1). `Scheme.weights`
returns the weights, rho in the paper; `Scheme.history` returns h.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.optim.sgd import sgd

Name = Literal["fedavg", "sgdm", "nag", "scaffold", "fedprox", "feddyn", "feddc"]
SCHEMES: tuple[Name, ...] = get_args(Name)
_MOMENTUM = ("sgdm", "nag")
_REGULARISED = ("fedprox", "feddyn", "feddc")


@dataclass(frozen=True)
class Scheme:
    """The training scheme that clients and server agree on.

    Raises `ValueError` for an unknown name, a value out of its range, or one that the scheme does not have or lacks.
    """

    name: Name
    """``"fedavg"``, ``"sgdm"`` (momentum), ``"nag"`` (Nesterov's, as `torch.optim.SGD` has it), ``"scaffold"``
    (option II of its paper), ``"fedprox"``, ``"feddyn"`` or ``"feddc"``."""
    lr: float
    """Learning rate of the local steps."""
    steps: int
    """Number of local steps per round, m, with one batch each."""
    momentum: float = 0.0
    """Momentum in [0, 1), for ``"sgdm"`` and ``"nag"`` alone."""
    regularisation: float = 0.0
    """Weight of the quadratic term (half of it times the squared distance), for the last three schemes alone."""

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
        """Factor of the distance from the global model per regularised step, ``1 - lr * regularisation``."""
        return 1 - self.lr * self.regularisation

    @torch.no_grad()
    def step(self, weights: list[Tensor], gradients: list[Tensor], velocities: list[Tensor | None]) -> None:
        """Take one of the clients' steps in place; velocities are None before a round's first one."""
        nesterov = self.name == "nag" and self.momentum > 0
        others: dict[str, Any] = {"weight_decay": 0.0, "dampening": 0.0, "maximize": False}
        # the class, `torch.optim.SGD`, imports PyTorch's compiler, which takes seconds
        sgd(weights, gradients, velocities, lr=self.lr, momentum=self.momentum, nesterov=nesterov, **others)

    def weights(self) -> Tensor:
        """Return the weight of each local step's gradient, ``[steps]``, float64 (rho in RLU, Table 1)."""
        remaining = self.steps - torch.arange(1, self.steps + 1, dtype=torch.float64)  # m - tau
        if self.name in _MOMENTUM:
            terms = remaining + (2 if self.name == "nag" else 1)
            return (1 - self.momentum**terms) / (1 - self.momentum)
        return torch.as_tensor(self.shrinkage, dtype=torch.float64) ** remaining

    def history(self, updates: Sequence[Tensor], controls: Sequence[Tensor] = (), mean: Tensor | None = None) -> Tensor:
        """Return h of one parameter in the attacked round (RLU, Table 1).

        Parameters
        ----------
        updates
            The client's updates of the parameter in all earlier rounds.
        controls
            For Scaffold: the server's control variates of all rounds, including this one; otherwise `ValueError`.
        mean
            For FedDC: the mean of all clients' updates in the last round; otherwise `ValueError`.
        """
        if not updates or self.name in ("fedavg", "fedprox", *_MOMENTUM):
            return torch.zeros(())
        past = torch.stack(list(updates)).sum(0)
        if self.name == "scaffold":
            if len(controls) != len(updates) + 1:
                raise ValueError(
                    f"Scaffold needs the control variates of {len(updates) + 1} rounds, this one included; "
                    f"got {len(controls)}"
                )
            return -self.steps * self.lr * torch.stack(list(controls)).sum(0) - past
        if self.name == "feddc":
            if mean is None:
                raise ValueError("FedDC needs the mean of all clients' updates in the last round")
            past = past + (updates[-1] - mean) / (self.lr * self.regularisation * self.steps)
        return -(1 - self.shrinkage**self.steps) * past
