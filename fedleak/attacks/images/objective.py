"""The gradients that an inversion matches, observed and of dummy images, and the distance between them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.attacks.door import admit, quiet
from fedleak.attacks.images.convolution import prefers_batched_kernels
from fedleak.attacks.images.factored import Matrices
from fedleak.attacks.images.layers import factorise, is_stackable, placeholder, stack_layers
from fedleak.errors import WithheldParameter
from fedleak.federated import Update
from fedleak.federated.update import fitting, unwrapped
from fedleak.models.wrappers import inner_model

Distance = Literal["l2", "cosine"]
LayerWeights = Callable[[Update, nn.Module], dict[str, float]]
"""``(update, model)`` gives weights by parameter name; the weight of other parameters is 1."""


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products ``[N]`` of rows ``[N, ...]``."""
    if prefers_batched_kernels(a):
        return torch.linalg.vecdot(a, b)
    return torch.stack([torch.dot(p, q) for p, q in zip(a, b, strict=True)])


def _products(gradient: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inner products ``[N]`` of a layer's gradient with its target and with itself."""
    if gradient.shape != target.shape:
        return gradient[:, 0], gradient[:, 1]
    rows = _flat(gradient)
    return _inner(rows, _flat(target)), _inner(rows, rows)


def distance(
    kind: Distance, gradients: Sequence[Tensor], target: Sequence[Tensor], weights: Tensor, square: Tensor | None = None
) -> tuple[Tensor, list]:
    """Return the distance of gradients from targets, and its derivative, in closed form.

    Parameters
    ----------
    kind
        ``"l2"``: the sum over layers of ``alpha_i |g_i - t_i|^2``. ``"cosine"``: one minus the cosine of AGIC's Eq. 6
        (Eq. 3 if all weights are equal), which is 0 for a zero gradient.
    gradients, target, weights
        A tensor ``[N, ...]`` per layer, for N reconstructions, and alpha, ``[N, layers]``. For a cosine a gradient
        can be replaced by ``<g_i, t_i>`` and ``|g_i|^2``, ``[N, 2]``.
    square
        The targets' weighted squared norms ``[N]``, if they are already computed.

    Returns
    -------
    (Tensor, list of Tensor)
        Values ``[N]``, and derivatives in the shapes of `gradients`.
    """
    if kind == "l2":
        differences = [f - t for f, t in zip(gradients, target, strict=True)]
        value, factors = _squares(differences, weights), (2 * weights).T
        return value, [g.mul_(a.view(-1, *[1] * (g.dim() - 1))) for a, g in zip(factors, differences, strict=True)]
    pairs = [_products(f, t) for f, t in zip(gradients, target, strict=True)]
    dot, size = ((weights * torch.stack(parts, dim=1)).sum(1) for parts in zip(*pairs, strict=True))
    norm = _squares(target, weights) if square is None else square
    size = size.clamp(min=0)  # from Gram matrices it can be rounded below 0
    length = (size * norm).sqrt()
    nonzero = torch.where(length > 0, length, torch.ones_like(length))  # a zero gradient has the cosine 0
    # The slope of the cosine is a multiple of each gradient (Eq. 3): no graph over all parameters is needed.
    by_target = -weights / nonzero[:, None]
    by_gradient = weights * (dot / (nonzero * size.where(size > 0, nonzero)))[:, None]
    slopes = [_slope(*terms) for terms in zip(gradients, target, by_target.T, by_gradient.T, strict=True)]
    return 1 - dot / nonzero, slopes


def _squares(target: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return the weighted squared norms ``[N]`` of a tensor ``[N, ...]`` per layer."""
    norms = [_inner(rows, rows) for rows in map(_flat, target)]
    return (weights * torch.stack(norms, dim=1)).sum(1)


def _slope(gradient: Tensor, target: Tensor, by_target: Tensor, by_gradient: Tensor) -> Tensor:
    if gradient.shape != target.shape:
        return torch.stack([by_target, by_gradient / 2], dim=1)
    rows = (_flat(gradient) * by_gradient[:, None]).addcmul_(_flat(target), by_target[:, None])
    return _shaped(rows, gradient)


@dataclass
class View:
    """One round of N independent reconstructions: their updates, the model, and the dummy images in the batch.

    Updates and model come through `fedleak.attacks.door`. Parameters whose gradient no update has, because the client
    froze, withheld or did not use them, are constants; all others are matched, in the updates' precision, at least
    single.

    Raises `ValueError` for updates that do not go together or do not fit the model, labels of another shape or outside
    the classes, or a simulation without labels or learning rate; `WithheldParameter` if no parameter is shared.
    """

    updates: Sequence[Update]
    """N updates with the same kind, number of samples, number of steps and learning rate."""
    model: nn.Module
    """The model before the round, whose batch norm is in the mode that the clients used."""
    labels: Tensor | None = None
    """Labels ``[N, samples]``, step after step; None if labels are optimised."""
    index: Sequence[int] | None = None
    """Index of each sample among the dummy images, ``[samples]``; by default all images in order."""
    epoch_weight: float = 1.0
    """Weight of the round, gamma of AGIC's Eq. 5."""
    layer_weights: LayerWeights | None = None
    """Rule for the layers' weights, alpha of AGIC's Eq. 6; by default 1 for each layer."""
    simulate: bool = False
    """Whether to simulate the client's local steps (InvG) instead of one batch of all samples (AGIC's Eq. 4)."""

    def __post_init__(self) -> None:
        first, self.model = self.updates[0], inner_model(self.model)
        if len({(u.samples, u.steps, u.lr) for u in self.updates}) > 1:
            raise ValueError("updates that are inverted together are of the same samples, steps and learning rate")
        updates, named = [admit(u, self.model) for u in self.updates], dict(self.model.named_parameters())
        self.matched = _names_to_match(updates, named)
        tensors = [{name: u.tensors[name] for name in self.matched} for u in updates]
        dtypes = [tensor.dtype for update in tensors for tensor in update.values()]
        dtype = reduce(torch.promote_types, dtypes, torch.float32)
        updates = [first.replace({n: t.to(dtype) for n, t in part.items()}) for part in tensors]
        self.targets = [
            _channels_last(torch.stack([fitting(u.gradient(name), name, named[name]) for u in updates]))
            for name in self.matched
        ]
        self.samples, self.steps, self.lr = first.samples, first.steps, first.lr
        if self.index is None:
            self.index = list(range(self.samples))
        if len(self.index) != self.samples:
            raise ValueError(f"the update holds {self.samples} samples, {len(self.index)} images were asked for")
        if self.labels is not None and self.labels.shape != (len(self.updates), self.samples):
            raise ValueError(
                f"labels are [updates, samples] = [{len(self.updates)}, {self.samples}], got {list(self.labels.shape)}"
            )
        if self.simulate and (self.labels is None or (self.steps > 1 and self.lr is None)):
            raise ValueError("a simulation of local steps needs every step's labels and the client's learning rate")
        self.batch_size = first.batch_size if self.simulate else self.samples
        device = self.targets[0].device
        self.labels = None if self.labels is None else self.labels.to(device)
        self.places = torch.as_tensor(self.index, device=device)
        # Layers with constants have no set of weights per reconstruction.
        self.stacks = is_stackable(self.model) and len(self.matched) == len(named)
        with quiet(self.model):
            copied = stack_layers(self.model, constant=not self.simulate) if self.stacks else copy.deepcopy(self.model)
        to: Any = copied.to  # the types of torch 2.11 lack its memory format
        self.net = to(dtype, memory_format=torch.channels_last) if dtype == torch.float32 else to(dtype)
        self.parameters = {n: p.detach() for n, p in self.net.named_parameters()}
        sent = unwrapped(first.tensors, self.model)
        self.trained = self.matched + [n for n, p in named.items() if p.requires_grad and n not in sent]
        """Parameters that the client's steps change; it trains what it withholds, too."""
        named_weights = [self.layer_weights(u, self.model) if self.layer_weights else {} for u in updates]
        self.alphas = self.targets[0].new_tensor([[g.get(n, 1.0) for n in self.matched] for g in named_weights])
        self.squares = _squares(self.targets, self.alphas)
        self.buffers = {name: b.clone() for name, b in self.net.named_buffers()}
        # One pass for all reconstructions needs stacked layers, and no simulated steps.
        self.together = self.stacks and (not self.simulate or self.steps == 1)
        self.factorised: dict[str, Matrices] = {}

    def factorise(self, inputs: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
        """Let layers with many weights return products instead of gradients; `inputs` are their shapes for one image.

        This suffices for a cosine. In a squared difference near 0, ``|G|^2 - 2 <G, T> + |T|^2`` cancels. Afterwards
        `targets` have no values of these layers, and the view serves cosines only.
        """
        if not self.stacks or self.simulate or self.factorised:
            return
        shapes = {name: [(self.samples * n, *size) for n, *size in sizes] for name, sizes in inputs.items()}
        targets = dict(zip(self.parameters, self.targets, strict=True))
        self.targets.clear()  # so that each is freed as it is replaced
        self.factorised = factorise(self.net, shapes, targets)
        self.targets = list(targets.values())
        self.parameters |= {n: placeholder(self.parameters[n]) for n in self.factorised}

    def gradients(self, images: Tensor, probabilities: Tensor, runs: slice) -> list[Tensor]:
        """Return the dummies' mean gradients over the local steps, ``[n, ...]`` per layer, differentiably.

        For factorised weights it is the product with the target and the squared norm, ``[n, 2]``.

        `images` is ``[n, samples, C, H, W]``, `probabilities` ``[n, samples, classes]``, of the reconstructions `runs`.
        """
        rows = images.shape[0]
        if not self.stacks and rows > 1:
            raise AssertionError("such a model is inverted one reconstruction at a time")
        # An expanded view takes no memory, but its gradient has an entry per reconstruction: N gradients from one pass.
        weights = {n: p.expand(rows, *p.shape) if self.stacks else p for n, p in self.parameters.items()}
        weights |= {n: images.new_zeros(rows, 2) for n in self.factorised}
        steps = self.steps if self.simulate else 1
        differentiated = self.matched if steps == 1 else self.trained
        weights |= {n: weights[n].detach().requires_grad_() for n in differentiated}
        for matrices in self.factorised.values():
            matrices.runs = runs
        batch = self.batch_size
        summed: list[Tensor] = []
        for step in range(steps):
            step_samples = slice(step * batch, (step + 1) * batch)
            x, soft_labels = images[:, step_samples].flatten(0, 1), probabilities[:, step_samples].flatten(0, 1)
            if x.dtype == torch.float32 and x.dim() == 4:
                x = x.contiguous(memory_format=torch.channels_last)
            logits = functional_call(self.net, (weights, self.buffers), (x,))
            loss = -(soft_labels * logits.log_softmax(dim=1)).sum() / batch
            of = [weights[n] for n in differentiated]
            # 0 for weights that these images do not use
            gradients = torch.autograd.grad(loss, of, create_graph=True, materialize_grads=True)
            summed = [t + f for t, f in zip(summed, gradients, strict=True)] if summed else list(gradients)
            if step + 1 < steps:
                assert self.lr is not None
                weights |= {n: weights[n] - self.lr * f for n, f in zip(differentiated, gradients, strict=True)}
        summed = summed[: len(self.matched)]
        mean = [t / steps for t in summed] if steps > 1 else summed
        return mean if self.stacks else [t[None] for t in mean]


def _names_to_match(updates: Sequence[Update], named: Mapping[str, Tensor]) -> list[str]:
    """Return the model's parameters of which the updates have a gradient; zeros are none while other entries moved."""
    shared = [n for n in named if all(n in u.tensors for u in updates)]
    moved = [n for n in shared if any(bool(u.tensors[n].any()) for u in updates)]
    if not shared:
        raise WithheldParameter(next(iter(named)), sorted(updates[0].tensors))
    return moved or shared


def _channels_last(tensor: Tensor) -> Tensor:
    """Store weights ``[..., I, h, w]`` channels-last, which makes convolutions in single precision faster."""
    if tensor.dim() < 4 or tensor.dtype != torch.float32:
        return tensor
    return tensor.movedim(-3, -1).contiguous().movedim(-1, -3)


def _flat(tensor: Tensor) -> Tensor:
    """Flatten a stack of gradients to rows, without a copy of channels-last weights."""
    return (tensor.movedim(-3, -1) if tensor.dim() == 5 else tensor).flatten(1)


def _shaped(rows: Tensor, reference: Tensor) -> Tensor:
    if reference.dim() != 5:
        return rows.view_as(reference)
    return rows.view(reference.movedim(-3, -1).shape).movedim(-1, -3)
