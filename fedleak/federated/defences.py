"""Defences: clients add noise to their updates, clip or sparsify them before sharing.

A defence transforms the updates of K clients at once, ``{name: [K, ...]}``; `protect` applies it to a single `Update`.
The arena and the audit measure all defences that are `register`-ed, at their strengths.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedleak.errors import is_same_source, whole_number
from fedleak.federated.restricted import Withhold
from fedleak.federated.update import Stacked, Update
from fedleak.models import head


class Defence(Protocol):
    """A function of the updates of K clients, with their indices `clients` ``[K]`` for defences that have a memory."""

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the updates that are shared."""


def protect(update: Update, defence: Defence, client: int = 0) -> Update:
    """Apply a defence to one client's update."""
    stacked = {name: t.unsqueeze(0) for name, t in update.tensors.items()}
    shared = fit_defence(defence, update)(stacked, torch.tensor([client]))
    return update.replace({name: t.squeeze(0) for name, t in shared.items()})


def fit_defence(defence: Defence, update: Update) -> Defence:
    """Return ``defence.fit_to(update)``, or the defence itself if it has no such method.

    A defence needs the method if its scale is that of changes of the weights, since updates may also be gradients.
    """
    fit = getattr(defence, "fit_to", None)
    return fit(update) if callable(fit) else defence


Maker = Callable[[float, nn.Module, int, int], Defence]
"""``make(strength, model, clients, seed)`` returns a new defence for that many clients of a model."""


@dataclass(frozen=True)
class Protection:
    """A kind of defence, and the strengths at which it is measured."""

    name: str
    make: Maker
    strengths: tuple[float, ...] = (0.0,)
    """Strengths that the arena measures."""
    remedies: tuple[float, ...] = (0.0,)
    """Strengths that an audit tries; `register` uses `strengths` by default."""
    relative: bool = False
    """Whether `remedies` are multiples of the root mean square of the update's entries."""
    says: Callable[[float], str] | None = None
    """Description of the defence at a strength; by default its name and the number."""
    changes_training: bool = True
    """Whether it changes the sum that the server learns from, which may cost accuracy."""

    def words(self, strength: float) -> str:
        """Return a description of the defence at a strength."""
        return self.says(strength) if self.says else f"{self.name}, {strength:g}" if strength else self.name


_PROTECTIONS: dict[str, Protection] = {}


def register(name: str, **fields: Any) -> Callable[[Maker], Maker]:
    """Register the decorated `Maker` as a `Protection` with these fields, in place of a previous definition of it.

    Raises `ValueError` if another function has its name.
    """

    def decorate(make: Maker) -> Maker:
        if name in _PROTECTIONS and not is_same_source(_PROTECTIONS[name].make, make):
            raise ValueError(f"a defence named {name!r} is registered already: give yours another name")
        _PROTECTIONS[name] = Protection(name, make, **{"remedies": fields.get("strengths", (0.0,)), **fields})
        return make

    return decorate


def protections() -> dict[str, Protection]:
    """Return all registered kinds of defences by name."""
    return dict(_PROTECTIONS)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} is a positive number, got {value}")


@dataclass
class PureNoise:
    """Add new noise from N(0, sigma^2) to each entry in each call (LLG, Sec. 6.5.1, "pure noise").

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
    """Clip an update's L2 norm to `bound`, then add noise (LLG, Sec. 6.5.1, after Geyer et al. 2017).

    A tensor with norm N is divided by ``max(1, N / bound)``. N is the tensor's own norm, as in LLG's released code, so
    that an update of T tensors has a norm of at most ``bound * sqrt(T)``; or, if `whole`, that of the whole update, as
    in DP-SGD (Abadi et al. 2016). Raises `ValueError` if `bound` or `sigma` is not a positive number.
    """

    bound: float
    sigma: float
    seed: int = field(repr=False)
    whole: bool = False
    """Whether the norm over all tensors is clipped, instead of each tensor's own."""

    def __post_init__(self) -> None:
        _positive(bound=self.bound)
        self.noise = PureNoise(self.sigma, self.seed)

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the clipped, noisy updates."""
        return self.noise(self.clip(updates), clients)

    def clip(self, updates: Mapping[str, Tensor]) -> Stacked:
        """Clip the updates of K clients, ``{name: [K, ...]}``."""
        wide = {name: t.to(torch.promote_types(t.dtype, torch.float32)) for name, t in updates.items()}  # no overflow
        norms = {name: t.reshape(len(t), -1).norm(dim=1) for name, t in wide.items()}
        if self.whole and norms:
            norms = dict.fromkeys(norms, torch.stack([*norms.values()]).norm(dim=0))
        excess = {name: (norms[name] / self.bound).clamp(min=1).to(t.dtype) for name, t in wide.items()}
        clipped = {name: t / excess[name].view(-1, *[1] * (t.dim() - 1)) for name, t in wide.items()}
        return {name: t.to(updates[name].dtype) for name, t in clipped.items()}

    def largest_norm(self, tensors: int) -> float:
        """Return the largest norm of a clipped update of this many tensors, before the noise."""
        return self.bound * (1.0 if self.whole else math.sqrt(tensors))


@dataclass
class Sparsification:
    """Gradient compression with memory (Lin et al., ICLR 2018): entries that are not sent are added to later rounds.

    Each client sends the entries with the largest magnitudes of each tensor, at least one.
    """

    discard: float
    """Share of the entries that are not sent in a round (LLG's compression ratio theta), in [0, 1)."""
    clients: int = field(default=1, repr=False)
    """Number of clients whose remainders are stored, at least 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.discard < 1:
            raise ValueError(f"discard is in [0, 1), got {self.discard}")
        whole_number("clients", self.clients)
        self.residual: Stacked = {}

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the sparse updates of this round and store the remainders."""
        sent = {}
        for name, tensor in updates.items():
            remainders = self.residual.setdefault(name, tensor.new_zeros(self.clients, *tensor.shape[1:]))
            accumulated = tensor + remainders[clients]
            flat = accumulated.flatten(1)
            discarded = min(round(self.discard * flat.shape[1]), flat.shape[1] - 1)
            sent[name] = flat.masked_fill(_smallest(flat.abs(), discarded), 0).view_as(accumulated)
            remainders[clients] = accumulated - sent[name]
        return sent


def _smallest(rows: Tensor, k: int) -> Tensor:
    """Return a mask of the k smallest entries of each row, ``[K, n]``; equal entries count in their order."""
    if k == 0:
        return torch.zeros_like(rows, dtype=torch.bool)
    limit = rows.kthvalue(k, dim=1, keepdim=True).values  # selects in linear time, where topk sorts
    below, equal = rows < limit, rows == limit
    return below | (equal & (equal.cumsum(1) <= k - below.sum(1, keepdim=True)))


@register(
    "noise",
    strengths=(0.01, 0.1, 0.3, 1.0),
    remedies=(1, 10),
    relative=True,
    says=lambda sigma: f"noise, σ = {sigma:.2g}",
)
def _noise(strength: float, model: nn.Module, clients: int, seed: int) -> Defence:
    return PureNoise(strength, seed)


# Not a remedy in audits: the bound would depend on the update's norm, and noise alone is a remedy already.
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
    return Withhold(
        [name for name, p in model.named_parameters() if name in (last.weight, last.bias) and p.requires_grad]
    )
