"""Train honest clients: by FedSGD and FedAvg (McMahan et al., AISTATS 2017), and by any other scheme."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.federated.losses import Loss
from fedleak.federated.schemes import Scheme
from fedleak.federated.update import Update
from fedleak.metrics import as_labels
from fedleak.models.wrappers import inner_model

State = dict[str, Tensor]
"""Tensors by parameter name."""


@dataclass(frozen=True)
class Softening:
    """A client's label smoothing and mixup.

    Raises `ValueError` for a smoothing outside [0, 1] or a mixup below 0.

    Parameters
    ----------
    smoothing
        Share of each label that is spread over all classes (Szegedy et al., CVPR 2016).
    mixup
        If above 0, each image and label is mixed with another one of the batch; its share λ is drawn once per batch
        from Beta(mixup, mixup) (Zhang et al., ICLR 2018).
    seed
        Random seed of mixup's draws.
    """

    smoothing: float = 0.0
    mixup: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing <= 1 or not 0 <= self.mixup < float("inf"):
            raise ValueError(f"smoothing is in [0, 1] and mixup at least 0, got {self.smoothing} and {self.mixup}")

    def mixed(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, float, Tensor]:
        """Return mixed images, the share λ of each image and its label, and the indices of their partners."""
        if not self.mixup:
            return x, 1.0, torch.arange(len(x), device=x.device)
        parts = torch._standard_gamma(torch.full((2,), self.mixup, dtype=torch.float64), generator=generator)
        share = float(parts[0] / parts.sum().clamp(min=1e-300))
        partners = torch.randperm(len(x), generator=generator).to(x.device)
        return share * x + (1 - share) * x[partners], share, partners


HARD = Softening()


def fedsgd(model: nn.Module, x: Tensor, y: Tensor, softening: Softening = HARD, loss: Loss | None = None) -> Update:
    """Return the gradient of the loss on images ``[B, C, H, W]`` and labels ``[B]`` as an update; see `fedavg`."""
    return fedavg(model, x.unsqueeze(0), y.unsqueeze(0), lr=1.0, share="gradient", softening=softening, loss=loss)


def fedavg(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    lr: float,
    share: Literal["gradient", "delta"] = "gradient",
    softening: Softening = HARD,
    loss: Loss | None = None,
) -> Update:
    """Train with plain SGD, one step per batch, and return the update; the model is not modified.

    Frozen parameters are neither trained nor shared. Wrappers such as DataParallel are taken off, also from names.

    Raises `ValueError` for shapes that do not fit together, an empty batch, labels outside the model's classes or that
    are no whole numbers, or a model without a trained parameter.

    Parameters
    ----------
    model, lr
        The global model of this round, whose mode batch norm follows; learning rate of the local steps.
    x, y
        The local batches: images ``[steps, B, C, H, W]`` and labels ``[steps, B]``.
    share
        ``"gradient"``: the gradients summed over the steps. ``"delta"``: the weights after minus those before. With
        plain SGD both contain the same information.
    softening
        Label smoothing and mixup, by default neither.
    loss
        Function of a batch's logits and labels that returns one number. Default: the mean cross-entropy.
    """
    check_batches(x, y, "steps")
    model = inner_model(model)
    start = trained_weights(model)
    weights = {name: p.clone().requires_grad_() for name, p in start.items()}
    total = {name: torch.zeros_like(p) for name, p in start.items()}
    for gradients in _iterate_gradients(model, weights, x, y, softening, loss):
        for name, gradient in gradients.items():
            total[name] += gradient
            weights[name].data -= lr * gradient
    steps = len(x)
    if share == "delta":
        return Update({k: w.detach() - start[k] for k, w in weights.items()}, "delta", y.numel(), steps, lr)
    return Update(total, "gradient", y.numel(), steps, lr if steps > 1 else None)


@dataclass
class Client:
    """One client of a scheme, with its state between rounds.

    ``state`` has, by parameter, Scaffold's control variate; FedDyn's linear term, minus the gradient at the last
    round's optimum; or FedDC's regularised drift and correction. It is empty for other schemes. `loss` is as for
    `fedavg`. ``statistics`` has what its last round left of all that is no trained parameter: batch norm's running
    statistics.
    """

    scheme: Scheme
    state: State = field(default_factory=dict)
    last: State = field(default_factory=dict)
    statistics: State = field(default_factory=dict, init=False)
    loss: Loss | None = None

    def train(self, model: nn.Module, x: Tensor, y: Tensor, server: Mapping[str, Tensor]) -> Update:
        """Train for a round from the global model, which is not modified, and return the change of the weights.

        Raises `ValueError` as for `fedavg`, or for another number of steps than the scheme's.

        Parameters
        ----------
        model, x, y
            As for `fedavg`, with the scheme's number of steps.
        server
            Tensors that the server sends besides the model: Scaffold's control variate, FedDC's mean update.
        """
        scheme, model = self.scheme, inner_model(model)
        check_batches(x, y, scheme.steps)
        start = trained_weights(model)
        zeros = {k: torch.zeros_like(p) for k, p in start.items()}
        from_server = {**zeros, **server}
        self.state = self.state or zeros
        horizon = scheme.lr * scheme.steps
        added = self.state if scheme.regularisation else {}  # to each gradient, independent of the weights
        if scheme.name == "scaffold":
            added = {k: from_server[k] - value for k, value in self.state.items()}
        elif scheme.name == "feddc" and self.last:
            added = {k: value + (self.last[k] - from_server[k]) / horizon for k, value in self.state.items()}
        weights = {k: p.clone().requires_grad_() for k, p in start.items()}
        velocities: list[Tensor | None] = [None] * len(weights)
        self.statistics = untrained(model)
        for gradients in _iterate_gradients(model, weights, x, y, HARD, self.loss, self.statistics):
            for k in added:
                gradients[k] = gradients[k] + (added[k] + scheme.regularisation * (weights[k].detach() - start[k]))
            scheme.step([*weights.values()], [*gradients.values()], velocities)
        self.last = delta = {k: w.detach() - start[k] for k, w in weights.items()}
        if scheme.name == "scaffold":
            self.state = {k: value - from_server[k] - delta[k] / horizon for k, value in self.state.items()}
        elif scheme.name in ("feddyn", "feddc"):
            self.state = {k: value + scheme.regularisation * delta[k] for k, value in self.state.items()}
        return Update(delta, "delta", y.numel(), scheme.steps, scheme.lr)


def trained_weights(model: nn.Module) -> State:
    """Return the parameters that are trained, detached; raise `ValueError` if all are frozen."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    if not weights:
        raise ValueError("every parameter of the model is frozen (requires_grad is False): nothing is trained")
    return weights


def untrained(model: nn.Module) -> State:
    """Return copies of the entries of a model's state that are not trained: buffers and frozen parameters."""
    trained = trained_weights(model)
    entries = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: entry.detach().clone() for name, entry in entries.items() if name not in trained}


def check_batches(x: Tensor, y: Tensor, *axes: int | str) -> None:
    """Raise `ValueError` unless x and y have these axes (sizes, or names of any size), then one for the samples."""
    fit = y.dim() == len(axes) + 1 < x.dim() and x.shape[: y.dim()] == y.shape and y.numel()
    if not fit or any(isinstance(axis, int) and axis != size for axis, size in zip(axes, y.shape, strict=False)):
        of = ", ".join(map(str, axes))
        raise ValueError(
            f"expected x [{of}, B, ...] and y [{of}, B], not empty; got {tuple(x.shape)} and {tuple(y.shape)}"
        )


def _iterate_gradients(
    model: nn.Module,
    weights: State,
    x: Tensor,
    y: Tensor,
    softening: Softening,
    loss: Loss | None,
    statistics: State | None = None,
) -> Iterator[State]:
    """Yield each batch's gradients of the loss at the current `weights`; 0 for unused parameters.

    The caller changes the weights between batches. Batch norm's statistics change in `statistics` (by default a copy
    that is dropped), not in the model.
    """
    if loss is not None and softening.smoothing:
        raise ValueError("a loss of your own smooths its labels itself: leave out the softening's smoothing")
    loss = loss or partial(nn.functional.cross_entropy, label_smoothing=softening.smoothing)
    statistics = untrained(model) if statistics is None else statistics
    generator = torch.Generator().manual_seed(softening.seed)
    for images, labels in zip(x, as_labels(y), strict=True):
        mixed, share, partners = softening.mixed(images, generator)
        logits = functional_call(model, (weights, statistics), (mixed,))
        if int(labels.max()) >= logits.shape[1] or int(labels.min()) < 0:
            raise ValueError(f"labels lie in 0..{logits.shape[1] - 1}, got {int(labels.min())}..{int(labels.max())}")
        value = loss(logits, labels)
        if share < 1:
            value = share * value + (1 - share) * loss(logits, labels[partners])
        gradients = torch.autograd.grad(value, list(weights.values()), materialize_grads=True)
        yield dict(zip(weights, gradients, strict=True))
