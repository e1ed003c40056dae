"""Defences: clients change their updates before sharing them, by noise, clipping or sparsification.

A defence works on the updates of K clients at once, ``{name: [K, ...]}``; `protect` applies it to a single `Update`.
Those that are `register`-ed, with their strengths, are measured by the arena and the audit.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedleak.federated.restricted import Withhold
from fedleak.federated.update import Stacked, Update
from fedleak.models import head


class Defence(Protocol):
    """A function of the updates of K clients; `clients` ``[K]`` says whose they are, for defences with a memory."""

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the updates as they are shared."""


def protect(update: Update, defence: Defence, client: int = 0) -> Update:
    """Apply a defence to one client's update."""
    stacked = {name: t.unsqueeze(0) for name, t in update.tensors.items()}
    shared = fit_defence(defence, update)(stacked, torch.tensor([client]))
    return update.replace({name: t.squeeze(0) for name, t in shared.items()})


def fit_defence(defence: Defence, update: Update) -> Defence:
    """Return the defence for updates of this kind: what ``defence.fit_to(update)`` returns, if it has that method.

    A defence needs it if its scale is that of changes of weights: it gets them, or gradients, and cannot tell which.
    """
    fit = getattr(defence, "fit_to", None)
    return fit(update) if callable(fit) else defence


Maker = Callable[[float, nn.Module, int, int], Defence]
"""``make(strength, model, clients, seed)`` returns a defence for that many clients of a model, without memory."""


@dataclass(frozen=True)
class Protection:
    """A kind of defence, and the strengths that it is measured at."""

    name: str
    make: Maker
    strengths: tuple[float, ...] = (0.0,)
    """Strengths that the arena measures."""
    remedies: tuple[float, ...] = (0.0,)
    """Strengths that an audit adds to a set-up; in `register` by default `strengths`."""
    relative: bool = False
    """Whether `remedies` are multiples of the size (root mean square) of the update's own entries."""
    says: Callable[[float], str] | None = None
    """Writes a remedy's strength in words; by default name and number."""
    changes_training: bool = True
    """Whether the server learns from something else than without it, which may cost accuracy."""

    def words(self, strength: float) -> str:
        """Write the defence at a strength in words."""
        return self.says(strength) if self.says else f"{self.name}, {strength:g}" if strength else self.name


_PROTECTIONS: dict[str, Protection] = {}


def register(name: str, **fields: Any) -> Callable[[Maker], Maker]:
    """Register the decorated `Maker` as a `Protection` with these fields; a name that is taken is a `ValueError`."""
    if name in _PROTECTIONS:
        raise ValueError(f"a defence named {name!r} is registered already")

    def decorate(make: Maker) -> Maker:
        _PROTECTIONS[name] = Protection(name, make, **{"remedies": fields.get("strengths", (0.0,)), **fields})
        return make

    return decorate


def protections() -> dict[str, Protection]:
    """Return every kind of defence that is registered, by name."""
    return dict(_PROTECTIONS)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} is a positive number, got {value}")


@dataclass
class PureNoise:
    """Add N(0, sigma^2) to every entry, new noise in every call (LLG, Sec. 6.5.1, "pure noise").

    Raises `ValueError` if `sigma` is not a positive number.
    """

    sigma: float
    seed: int = field(repr=False)

    def __post_init__(self) -> None:
        _positive(sigma=self.sigma)
        self.generator = torch.Generator().manual_seed(self.seed)

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the noisy updates."""
        return {
            name: t + self.sigma * torch.randn(t.shape, generator=self.generator, dtype=t.dtype).to(t.device)
            for name, t in updates.items()
        }


@dataclass
class ClippedNoise:
    """Clip each tensor to the L2 norm `bound`, then add noise (LLG, Sec. 6.5.1, after Geyer et al. 2017).

    The clipping is ``p / max(1, ||p|| / bound)``, per tensor as in the released code: a whole update of T tensors is
    then bounded by ``bound * sqrt(T)`` only, and that is the sensitivity to account for. Raises `ValueError` if `bound`
    or `sigma` is not a positive number.
    """

    bound: float
    sigma: float
    seed: int = field(repr=False)

    def __post_init__(self) -> None:
        _positive(bound=self.bound)
        self.noise = PureNoise(self.sigma, self.seed)

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the clipped, noisy updates."""
        return self.noise({name: self.clip(t) for name, t in updates.items()}, clients)

    def clip(self, tensor: Tensor) -> Tensor:
        """Clip each client's tensor of ``[K, ...]``."""
        flat = tensor.flatten(1)
        return (flat / (flat.norm(dim=1, keepdim=True) / self.bound).clamp(min=1)).view_as(tensor)


@dataclass
class Sparsification:
    """Gradient compression with memory (Lin et al., ICLR 2018): what is not sent now is added to later rounds.

    Each client sends the largest magnitudes of each tensor, at least one.
    """

    discard: float
    """Share of the entries that are not sent in a round (LLG's compression ratio theta), in [0, 1)."""
    clients: int = field(default=1, repr=False)
    """Number of clients whose rest is remembered, at least 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.discard < 1:
            raise ValueError(f"discard is in [0, 1), got {self.discard}")
        if self.clients < 1:
            raise ValueError(f"clients is at least 1, got {self.clients}")
        self.residual: Stacked = {}

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the sparse updates of this round and remember the rest."""
        sent = {}
        for name, tensor in updates.items():
            rest = self.residual.setdefault(name, tensor.new_zeros(self.clients, *tensor.shape[1:]))
            whole = tensor + rest[clients]
            flat = whole.flatten(1)
            discarded = min(round(self.discard * flat.shape[1]), flat.shape[1] - 1)
            smallest = flat.abs().topk(discarded, dim=1, largest=False).indices
            sent[name] = flat.scatter(1, smallest, 0).view_as(whole)
            rest[clients] = whole - sent[name]
        return sent


@register(
    "noise",
    strengths=(0.01, 0.1, 0.3, 1.0),
    remedies=(1, 10),
    relative=True,
    says=lambda sigma: f"noise, σ = {sigma:.2g}",
)
def _noise(strength: float, model: nn.Module, clients: int, seed: int) -> Defence:
    return PureNoise(strength, seed)


# No remedy of an audit: the bound would have to follow the update's norm, and noise is there by itself.
@register("clipping and noise", strengths=(0.003, 0.03), remedies=())
def _clipped_noise(strength: float, model: nn.Module, clients: int, seed: int) -> Defence:
    return ClippedNoise(0.2, strength, seed)


@register(
    "sparsification",
    strengths=(0.9, 0.99),
    remedies=(0.99,),
    says=lambda discard: f"largest {100 * (1 - discard):.3g} % of each tensor sent",
)
def _sparsification(strength: float, model: nn.Module, clients: int, seed: int) -> Defence:
    return Sparsification(strength, clients)


@register("last layer encrypted", remedies=(0.0,), says=lambda _: "last layer not shared", changes_training=False)
def _last_layer(strength: float, model: nn.Module, clients: int, seed: int) -> Defence:
    last = head(model)
    return Withhold([name for name, _ in model.named_parameters() if name in (last.weight, last.bias)])
