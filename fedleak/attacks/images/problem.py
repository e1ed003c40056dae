"""The objective of an inversion as a function of the dummy images, and its gradient."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

import torch
from torch import Tensor, nn

from fedleak.attacks.door import admit
from fedleak.attacks.images.objective import Distance, View, distance
from fedleak.attacks.images.ranges import Box, as_range, contradiction, example_pixels
from fedleak.errors import whole_number
from fedleak.models import as_inputs, head, input_shape
from fedleak.models.inputs import run, watched
from fedleak.models.zoo import Normalise


@dataclass(frozen=True)
class Descent:
    """The optimisation of an attack: its distance, regularisation and optimiser."""

    name: str
    distance: Distance
    """``"l2"`` (squared) or ``"cosine"``."""
    total_variation: float = 0.0
    """Weight of ``mean |dx| + mean |dy|`` of the normalised images."""
    box: bool = True
    """Whether pixels are clipped to their range, if they have one, after each step."""
    optimiser: Literal["adam", "lbfgs"] = "adam"
    """``"adam"`` or ``"lbfgs"``."""
    lr: float = 0.1
    """Learning rate, in units of normalised pixels."""
    signed: bool = False
    """Whether the images' gradient is replaced by its sign."""
    decay: tuple[float, ...] = ()
    """Shares of the iterations after which the learning rate falls to a tenth."""
    labels: bool = False
    """Whether the labels are optimised with the images."""


class Start(TypedDict, total=False):
    """Options of every inversion except its iterations; see `fedleak.attacks.images.engine.invert`."""

    seed: int | Sequence[int]
    shape: tuple[int, ...] | None
    snapshots: Sequence[int]
    box: Box


class Options(Start):
    """Options of an inversion without a default number of iterations."""

    iterations: int


@dataclass
class Inversion:
    """The results of N reconstructions."""

    images: Tensor
    """Pixels ``[N, P, C, H, W]``; in their range if the descent has a `box`."""
    label_logits: Tensor | None
    """Logits ``[N, P, classes]`` of optimised labels; None if labels were given."""
    values: Tensor
    """Distance at `images`, without total variation, ``[N]``."""
    diverged: Tensor
    """Iteration at which a reconstruction was stopped because of NaN, ``[N]``; -1 if it was not."""
    snapshots: dict[int, Tensor] = field(default_factory=dict)
    """Images by number of iterations."""
    pressure: str = ""
    """By how much the images' range holds them back, if it was assumed and does."""
    box: tuple[float, float] | None = None
    """Range of the inputs, if they have one."""
    unchecked: tuple[str, ...] = ()
    """Assumptions that were not checked: they may hold or not."""
    attack: str = ""

    def clipped(self) -> Tensor:
        """Return the images in their range."""
        return self.images if self.box is None else self.images.clamp(*self.box)

    def answer(self) -> Tensor:
        """Return the images in their range, and warn of each unchecked assumption."""
        for assumption in self.unchecked:
            warnings.warn(f"{self.attack}: {assumption}", stacklevel=3)
        return self.clipped()


class Problem:
    """The objective of N reconstructions as a function of their dummy images and labels."""

    def __init__(
        self, views: Sequence[View], descent: Descent, shape: tuple[int, ...] | None = None, box: Box = "pixels"
    ):
        if not views:
            raise ValueError("nothing to invert: no updates")
        self.views, self.descent = views, descent
        self.runs = len(views[0].updates)
        if any(len(v.updates) != self.runs for v in views):
            raise ValueError("every view holds one update for each reconstruction")
        self.classes = head(views[0].model).layer.out_features
        if any(
            head(v.model).layer.out_features != self.classes or v.parameters.keys() != views[0].parameters.keys()
            for v in views
        ):
            raise ValueError("updates of different models cannot be joined")
        for view in views:
            if (view.labels is None) != descent.labels:
                raise ValueError(f"{descent.name} takes {'no' if descent.labels else 'the'} labels")
            if view.labels is not None and not 0 <= int(view.labels.min()) <= int(view.labels.max()) < self.classes:
                raise ValueError(f"labels lie in 0..{self.classes - 1}")
        self.pool = 1 + max(i for v in views for i in v.index or ())
        self.shape = shape = input_shape(model := views[0].model, shape)
        inputs: dict[str, list[tuple[int, ...]]] = {}
        layers = {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
        with watched(layers, lambda name, x, _: inputs.setdefault(name, []).append((len(x) // 2, *x.shape[1:]))):
            if run(model, as_inputs(torch.zeros(2, *shape), model)) is None:
                raise ValueError(f"the model takes no inputs of shape {shape}: pass that of one input")
        for view in views:
            if descent.distance == "cosine":
                view.factorise(inputs)
            elif view.stacks:  # the layout of their gradients, which are products of inputs and outputs' gradients
                view.targets = [t.mT.contiguous().mT if t.dim() == 3 else t for t in view.targets]
        reference = views[0].targets[0]
        norm = getattr(views[0].model, "normalise", None)
        self.mean, self.std = reference.new_zeros(()), reference.new_ones(())
        if isinstance(norm, Normalise):  # a model's own of this name may mean anything
            self.mean, self.std = norm.mean, norm.std
        self.is_image = len(shape) > 2
        self.box = as_range(box, self.is_image)
        self.low, self.high = ((edge - self.mean) / self.std for edge in self.box or (-math.inf, math.inf))
        self.is_assumed = isinstance(box, str) and self.box is not None
        self.has_examples = any(example_pixels(view.model) is not None for view in views)

    def contradiction(self) -> str:
        """Return the fact in model or updates by which the inputs are no pixels in [0, 1]; "" without one."""
        edges = torch.as_tensor(self.low), torch.as_tensor(self.high)
        facts = (contradiction(admit(v.updates[0], v.model), v.model, self.shape, *edges) for v in self.views)
        return next(filter(None, facts), "")

    def start(self, seed: int | Sequence[int]) -> list[Tensor]:
        """Draw dummies, and label logits if labels are optimised, from N(0, 1).

        Reconstruction n has the seed ``seed + n``, or the n-th seed of a list.
        """
        if isinstance(seed, Sequence) and not isinstance(seed, str):
            seeds = [whole_number("a seed", one, None) for one in seed]
        else:
            seeds = [whole_number("seed", seed, None) + run for run in range(self.runs)]
        if len(seeds) != self.runs:
            raise ValueError(f"a seed for each of the {self.runs} reconstructions, or one for all; got {len(seeds)}")
        reference, sizes = self.views[0].targets[0], [self.shape]
        if self.descent.labels:
            sizes.append((self.classes,))
        draws: list[list[Tensor]] = []
        for run_seed in seeds:
            generator = torch.Generator().manual_seed(run_seed)
            draws.append([torch.randn(self.pool, *size, generator=generator).to(reference) for size in sizes])
        return [torch.stack(parts).requires_grad_() for parts in zip(*draws, strict=True)]

    def pixels(self, dummies: Tensor) -> Tensor:
        """Return the dummies as pixels, before the model's normalisation."""
        return dummies * self.std + self.mean

    def evaluate(self, dummies: list[Tensor], runs: slice = slice(None)) -> tuple[Tensor, list[Tensor]]:
        """Return the distances ``[N]`` and the gradients of the objective with respect to the dummies."""
        pieces = [self._evaluate(*piece) for piece in self._pieces(dummies, runs)]
        grads = [torch.cat(parts) for parts in zip(*(g for _, g in pieces), strict=True)]
        return torch.cat([value for value, _ in pieces]), grads

    def distances(self, dummies: list[Tensor]) -> Tensor:
        """Return the distances ``[N]`` alone, in less than half of the time of `evaluate`."""
        pieces = self._pieces(dummies, slice(None))
        parts = [torch.stack([value for value, _ in self._matches(*piece)]).sum(0) for piece in pieces]
        return torch.cat(parts).detach()

    def _pieces(self, dummies: list[Tensor], runs: slice) -> list[tuple[list[Tensor], slice]]:
        """Return the dummies and reconstructions that go through the model together."""
        if all(v.together for v in self.views) or len(dummies[0]) == 1:
            return [(dummies, runs)]
        return [([d[n : n + 1] for d in dummies], slice(n, n + 1)) for n in range(self.runs)]

    def _evaluate(self, dummies: list[Tensor], runs: slice) -> tuple[Tensor, list[Tensor]]:
        variables = [d.detach().requires_grad_() for d in dummies]
        total, values = [torch.zeros_like(d) for d in variables], variables[0].new_zeros(len(variables[0]))
        for value, matched in self._matches(variables, runs):
            if live := [(g, s) for g, s in matched if g.requires_grad]:
                outputs, along = zip(*live, strict=True)
                parts = torch.autograd.grad(outputs, variables, along, allow_unused=True)
                total = [t if p is None else t + p for t, p in zip(total, parts, strict=True)]
            values = values + value
        if self.descent.total_variation and self.is_image:
            total[0] = total[0] + self.descent.total_variation * total_variation_slope(variables[0].detach())
        return values, total

    def _matches(self, variables: list[Tensor], runs: slice) -> Iterator[tuple[Tensor, list[tuple[Tensor, Tensor]]]]:
        """Yield each view's weighted distances ``[N]``, and each layer's gradient with the distance's slope by it."""
        for view in self.views:
            images = self.pixels(variables[0].index_select(1, view.places))
            if view.labels is None:
                probabilities = variables[1].index_select(1, view.places).softmax(dim=-1)
            else:
                probabilities = nn.functional.one_hot(view.labels[runs], self.classes).to(images)
            dummy_gradients = view.gradients(images, probabilities, runs)
            targets = [t[runs] for t in view.targets]
            observed = (targets, view.alphas[runs], view.squares[runs])
            value, slopes = distance(self.descent.distance, [g.detach() for g in dummy_gradients], *observed)
            slopes = [view.epoch_weight * s for s in slopes] if view.epoch_weight != 1 else slopes
            yield view.epoch_weight * value, list(zip(dummy_gradients, slopes, strict=True))


def total_variation_slope(x: Tensor) -> Tensor:
    """Return the derivative of ``mean |dx| + mean |dy|`` for each reconstruction's images ``[N, P, C, H, W]``."""
    slope = torch.zeros_like(x)
    for dim in (-1, -2):
        sign = x.diff(dim=dim).sign() / x[0].narrow(dim, 0, x.shape[dim] - 1).numel()
        slope.narrow(dim, 1, x.shape[dim] - 1).add_(sign)
        slope.narrow(dim, 0, x.shape[dim] - 1).sub_(sign)
    return slope
