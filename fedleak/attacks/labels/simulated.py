"""Clients simulated on auxiliary images: what the head's gradient of any batch would be, from one forward pass.

The head's gradient of a batch is the mean over its samples of ``(p - y) a'``, a the head's input with a 1 appended for
the bias. So all that is linear in it is a mean of numbers that each auxiliary image has of its own, and thousands of
batches are gathered from one table. Beside it stand the published estimates, in forms that take all batches at once.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from fedleak.attacks.labels.confidence import by_class
from fedleak.attacks.labels.counts import project
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient, require_classes
from fedleak.attacks.labels.llg import extract, impact_and_offset
from fedleak.attacks.labels.whole_head import RIDGE
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.federated.defences import Defence
from fedleak.models import Head, as_inputs, head, head_pass


class Local(NamedTuple):
    """A client's local steps of plain SGD, on batches of equal size."""

    steps: int = 1
    lr: float = 1.0


ONE_STEP = Local()
Defended = Callable[[int, int], Defence]
"""``make(clients, seed)`` returns a client's defence for so many clients, without memory; it acts tensor by tensor."""

DIRECTIONS = 16
"""Principal directions of the head's inputs whose coefficients are features."""
ENTRIES = 2000
"""Entries of the gradient that the weighted least squares read, at most: of larger heads the principal directions."""
ROWS = 2000
"""Images that the principal directions are found on, about."""
AT_ONCE, NUMBERS = 2**18, 2**26
"""Samples whose rows are gathered at once, and numbers in these, at most: of large batches more would not fit."""
CLASSES = 200
"""At most: features grow with their square."""
EVEN, SINGLE = 1 / 5, 1 / 16
"""Shares of the simulated batches whose labels are uniform draws, and all of one class."""
ALPHA = (-1.5, 1.5)
"""log10 of the Dirichlet distribution's concentration, uniform between these, of all other batches' class shares."""


def draw_labels(batches: int, batch_size: int, n_classes: int, generator: Generator) -> Tensor:
    """Draw the labels of batches ``[batches, B]``: Dirichlet shares, some uniform, some of one class."""
    kind = torch.rand(batches, 1, generator=generator, dtype=torch.float64)
    alpha = 10 ** (ALPHA[0] + (ALPHA[1] - ALPHA[0]) * torch.rand(kind.shape, generator=generator, dtype=torch.float64))
    shares = torch._standard_gamma(alpha.expand(-1, n_classes).contiguous(), generator=generator).clamp(min=1e-300)
    one = torch.randint(n_classes, (batches, 1), generator=generator)
    single = torch.zeros_like(shares).scatter_(1, one, 1.0)
    shares = torch.where(kind < EVEN, torch.ones_like(shares), torch.where(kind > 1 - SINGLE, single, shares))
    return torch.multinomial(shares, batch_size, replacement=True, generator=generator)


def minimise(quadratic: Tensor, linear: Tensor, steps: int = 60) -> Tensor:
    """Minimise ``x'Qx / 2 - l'x`` over shares x for many l ``[..., n]`` at once, by Nesterov's projected gradient."""
    rate = 1 / torch.linalg.matrix_norm(quadratic, 2).clamp(min=1e-300)
    found = ahead = torch.full_like(linear, 1 / linear.shape[-1])
    for step in range(steps):
        last, found = found, project(ahead - rate * (ahead @ quadratic - linear), 1)
        ahead = found + step / (step + 3) * (found - last)
    return found


class Seen(NamedTuple):
    """What is read off head gradients, of simulated batches or of real ones, float32."""

    entries: Tensor
    """Linear features ``[..., F]``: row sums, the bias, rows along class means and principal directions."""
    pulls: Tensor
    """Class means' weighted products with the gradient, ``[..., n]``: all that the least squares need of it."""


def walk(inputs: Tensor, labels: Tensor, weight: Tensor, local: Local) -> Tensor:
    """Train the head alone on batches of its inputs, for many clients at once.

    Parameters
    ----------
    inputs, labels
        Of the clients' samples, step after step, ``[clients, K, d]`` and ``[clients, K]``.
    weight
        Of the head, ``[n, d]``, with the bias as a column if the inputs have its 1.
    local
        The local steps.

    Returns
    -------
    Tensor
        The mean gradient of the steps, ``[clients, n, d]``.
    """
    weights = weight.expand(len(inputs), -1, -1)
    total = torch.zeros_like(weights)
    for x, y in zip(inputs.chunk(local.steps, 1), labels.chunk(local.steps, 1), strict=True):
        errors = (x @ weights.mT).softmax(-1) - nn.functional.one_hot(y, len(weight))
        gradient = errors.mT @ x / x.shape[1]
        weights = weights - local.lr * gradient
        total += gradient
    return total / local.steps


class Pool(NamedTuple):
    """What batches of some images are gathered from: numbers of each image, and where the classes are."""

    errors: Tensor
    """``p - y``, ``[N, n]``."""
    rows: Tensor
    """Head inputs along the features' directions, ``[N, r]``; with a defence or local steps all of them."""
    pulls: Tensor
    """``[N, n]``, as `Seen.pulls`; empty with a defence or local steps."""
    order: Tensor
    """Indices of the images, class after class, ``[N]``."""
    counts: Tensor
    """Images of each class, ``[n]``."""
    defended: Callable[[Tensor, int], Seen] | None = None
    """What is seen of gradients of the head ``[batches, n, d]`` behind the clients' defence, with a seed."""
    walked: Callable[[Tensor], Tensor] | None = None
    """The mean gradients ``[batches, n, d]`` of local steps on these images ``[batches, K]``."""
    own: Tensor | None = None
    """Probability of each image's own class ``[N]``, where clients are simulated whose images fit the model better."""
    shift: float = 0.0
    """By how much the logit of the own class is raised, at most: for every batch uniform between 0 and this."""

    def draw(self, batches: int, batch_size: int, generator: Generator) -> tuple[Seen, Tensor]:
        """Draw batches; return what the server sees of them, and their counts ``[batches, n]``."""
        n = len(self.counts)
        labels = draw_labels(batches, batch_size, n, generator)
        place = torch.rand(labels.shape, generator=generator, dtype=torch.float64).to(self.order.device)
        labels = labels.to(self.order.device)
        start = self.counts.cumsum(0) - self.counts
        index = self.order[start[labels] + (place * self.counts[labels]).long()]
        seed = 0 if self.defended is None else int(torch.randint(2**31, (1,), generator=generator))
        weights = None
        if self.own is not None:
            raised = self.shift * torch.rand(batches, 1, generator=generator).to(index.device)
            weights = 1 / (1 + self.own[index] * raised.expm1())
        return self.of(index, seed, weights), nn.functional.one_hot(labels, n).sum(1)

    def of(self, index: Tensor, seed: int = 0, weights: Tensor | None = None) -> Seen:
        """Return what is seen of batches of these images ``[batches, B]``.

        The seed is the defence's. The weights ``[batches, B]`` are of the images' errors.
        """
        size = max(1, min(AT_ONCE, NUMBERS // self.rows.shape[1]) // index.shape[-1])
        parts = index.split(size)
        if self.walked is not None:
            gradient = torch.cat([self.walked(part) for part in parts])
        else:
            each = [None] * len(parts) if weights is None else weights.split(size)
            gradient = torch.cat([self._summed(*pair) for pair in zip(parts, each, strict=True)]) / index.shape[-1]
        if self.defended is not None:
            return self.defended(gradient, seed)
        if weights is None:
            pulls = nn.functional.embedding_bag(index, self.pulls, mode="mean")
        else:
            shares = weights / index.shape[-1]
            pulls = nn.functional.embedding_bag(index, self.pulls, mode="sum", per_sample_weights=shares)
        return Seen(gradient.flatten(1), pulls)

    def _summed(self, index: Tensor, weights: Tensor | None) -> Tensor:
        errors = self.errors[index] if weights is None else self.errors[index] * weights[..., None]
        return errors.mT @ self.rows[index]


class Reader:
    """Reads head gradients of one model, real ones and simulated ones, the same way.

    Parameters
    ----------
    model
        Before the round.
    aux
        Images of every class, on which the directions and weights are found.
    bias
        Whether the client shares the gradient of the head's bias.

    Raises
    ------
    ValueError
        For auxiliary data without a class or of other classes, a model without a linear head, with more than 200
        classes, or whose outputs are NaN or infinite.
    """

    def __init__(self, model: nn.Module, aux: Images, bias: bool = True):
        self.bias, self.n_classes = bias, head(model).layer.out_features
        if self.n_classes > CLASSES:
            raise ValueError(
                f"clients are simulated for up to {CLASSES} classes, the model has {self.n_classes}: use rlu"
            )
        require_classes(aux, self.n_classes)
        inputs, errors, labels = self._pass(model, aux)
        self.counts = labels.bincount(minlength=self.n_classes)
        some = inputs[:: max(1, len(inputs) // ROWS)]  # enough for the directions, and for large heads much faster
        self.axes = torch.linalg.svd(some, full_matrices=False).Vh[: max(1, ENTRIES // self.n_classes)].mT
        means = by_class(inputs, labels, self.n_classes)
        means = means / means.norm(dim=1, keepdim=True).clamp(min=1e-300)
        ones = torch.ones_like(inputs[0])
        last = torch.zeros_like(ones).index_fill(0, torch.tensor([len(ones) - 1], device=ones.device), 1.0)
        columns = [ones - last, last] if bias else [ones]
        self.basis = torch.cat([torch.stack(columns, 1), means.mT, self.axes[:, :DIRECTIONS]], dim=1)
        self._weigh(errors, inputs, labels)
        own = by_class(errors * (inputs @ columns[0])[:, None], labels, self.n_classes)
        self.impact, self.offset = impact_and_offset(own[None], 1)

    def _pass(self, model: nn.Module, aux: Images) -> tuple[Tensor, Tensor, Tensor]:
        """Return the head's inputs ``[N, d]`` (with the bias's 1), ``p - y`` ``[N, n]`` and labels."""
        seen = head_pass(model, as_inputs(aux.x, model))
        if not (torch.isfinite(seen.inputs).all() and torch.isfinite(seen.probabilities).all()):
            raise ValueError("on auxiliary images the model's head sees or gives NaN or infinite values")
        inputs, labels = seen.inputs.double(), aux.y.to(seen.inputs.device)
        inputs = nn.functional.pad(inputs, (0, 1), value=1.0) if self.bias else inputs
        return inputs, seen.probabilities.double() - nn.functional.one_hot(labels, self.n_classes), labels

    def _weigh(self, errors: Tensor, inputs: Tensor, labels: Tensor) -> None:
        """Prepare least squares: along the axes weighted as by `whole_head` for equal counts, and RLU's on the bias."""
        n = self.n_classes
        each = torch.einsum("si,sj->sij", errors, inputs @ self.axes).flatten(1)
        mean = by_class(each, labels, n)
        residual = (each - mean[labels]) / (n * self.counts[labels, None]).sqrt()
        covariance = residual.mT @ residual
        covariance.diagonal().add_(RIDGE * covariance.diagonal().mean() + 1e-300)
        weighted = torch.linalg.solve(covariance, mean.mT)
        quadratic = mean @ weighted
        scale = quadratic.diagonal().mean().clamp(min=1e-300)
        self.quadratic, self.weighted = quadratic / scale, weighted / scale
        self.mean_errors = by_class(errors, labels, n)

    def pool(self, model: nn.Module, images: Images, defence: Defended | None = None, local: Local = ONE_STEP) -> Pool:
        """Prepare images of every class for simulated batches, whose gradients go through the clients' defence."""
        require_classes(images, self.n_classes)
        inputs, errors, labels = self._pass(model, images)
        order, counts = (t.to(labels.device) for t in (images.class_order, images.class_counts))
        if defence is None and local.steps == 1:
            pulls = torch.einsum("si,sj->sij", errors, inputs @ self.axes).flatten(1) @ self.weighted
            return Pool(errors.float(), (inputs @ self.basis).float(), pulls.float(), order, counts)
        last = head(model)

        def defended(gradient: Tensor, seed: int) -> Seen:
            if defence is None:
                return self._seen(gradient.double())
            clients = len(gradient)
            tensors = {last.weight: gradient[..., :-1] if self.bias else gradient}
            if self.bias:
                tensors[last.bias] = gradient[..., -1]
            sent = defence(clients, seed)(tensors, torch.arange(clients))
            parts = [t if t.dim() == 3 else t[..., None] for t in sent.values()]
            return self._seen(torch.cat(parts, -1).double())

        pool = Pool(errors.float(), inputs.float(), errors.new_empty(0), order, counts, defended)
        return pool if local.steps == 1 else pool._replace(walked=self._walked(pool.rows, labels, last, local))

    def _walked(self, rows: Tensor, labels: Tensor, last: Head, local: Local) -> Callable[[Tensor], Tensor]:
        """Return what lets clients train the head on some of these inputs; a bias that is not shared moves too."""
        weight = last.layer.weight.detach().float()
        if last.layer.bias is not None:
            weight = torch.cat([weight, last.layer.bias.detach().float()[:, None]], 1)
        inputs = nn.functional.pad(rows, (0, weight.shape[1] - rows.shape[1]), value=1.0)
        return lambda index: walk(inputs[index], labels[index], weight, local)[..., : rows.shape[1]]

    def _seen(self, gradient: Tensor) -> Seen:
        """Read gradients of the head ``[..., n, d]``."""
        pulls = (gradient @ self.axes).flatten(-2) @ self.weighted
        return Seen((gradient @ self.basis).float().flatten(-2), pulls.float())

    def read(self, update: Update, model: nn.Module) -> Seen:
        """Return what is seen of one real update, ``[1, ...]``; errors as `head_gradient` and `bias_gradient` say."""
        gradient = head_gradient(update, model)
        if self.bias:
            gradient = torch.cat([gradient, bias_gradient(update, model)[:, None]], dim=1)
        return self._seen(gradient[None])

    def estimates(self, seen: Seen, batch_size: int) -> Tensor:
        """Return the shares that closed forms find, ``[..., forms, n]``: whole head, RLU (if there is a bias), LLG+."""
        columns = seen.entries.view(-1, self.n_classes, self.basis.shape[1]).double()
        found = [minimise(self.quadratic, seen.pulls.double())]
        if self.bias:
            found.append(minimise(self.mean_errors @ self.mean_errors.mT, columns[..., 1] @ self.mean_errors.mT))
        counts = extract(columns[..., 0] * batch_size, self.impact, self.offset, batch_size, stop_at_samples=True)
        found.append(counts / counts.sum(-1, keepdim=True))
        return torch.stack(found, 1).float()
