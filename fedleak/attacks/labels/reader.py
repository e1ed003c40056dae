"""Features of head gradients, simulated or real, and the answers of closed forms.

The closed forms are the published estimates, and the whole head weighted by its noise, for all batches at once.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import by_class
from fedleak.attacks.labels.counts import project
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient, require_classes
from fedleak.attacks.labels.llg import extract, impact_and_offset
from fedleak.attacks.labels.simulated import (
    ONE_STEP,
    WIDER,
    Defended,
    Local,
    Observation,
    Pool,
    fitting,
    raise_own,
    walk,
)
from fedleak.attacks.labels.whole_head import RIDGE
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import Head, as_inputs, head, head_pass

DIRECTIONS = 16
"""Principal directions of the head's inputs whose coefficients are features."""
COLUMNS = 512
"""Columns whose signs and extremes are features, at most: of more, evenly spread ones."""
ENTRIES = 2000
"""Largest number of gradient entries in the weighted least squares; larger heads use the principal directions."""
ROWS = 2000
"""Images that the principal directions are found on, about."""
FEW_CLASSES, EQUATIONS = 15, 4
"""The most classes for which the whole head is weighted by a batch's own noise; equations of each in training."""
WEIGHINGS = 2
"""Times that it is solved again, weighted by the noise of a batch with the counts found last."""
CLASSES = 200
"""At most: features grow with their square."""


def minimise(quadratic: Tensor, linear: Tensor, steps: int = 60, start: Tensor | None = None) -> Tensor:
    """Minimise ``x'Qx / 2 - l'x`` over shares x for many l ``[..., n]`` at once, by Nesterov's projected gradient.

    All have one Q ``[n, n]``, or each its own ``[..., n, n]``. They start from even shares, or from others.
    """
    rate = 1 / torch.linalg.eigvalsh(quadratic)[..., -1:].clamp(min=1e-300)
    point = ahead = torch.full_like(linear, 1 / linear.shape[-1]) if start is None else start
    for step in range(steps):
        slope = (ahead[..., None, :] @ quadratic)[..., 0, :] - linear
        last, point = point, project(ahead - rate * slope, 1)
        ahead = point + step / (step + 3) * (point - last)
    return point


def by_samples(residual: Tensor) -> bool:
    """Return whether a matrix of N x N is smaller than the covariance of residuals ``[N, entries]``."""
    return residual.shape[0] < residual.shape[1]


def _own(errors: Tensor, labels: Tensor) -> Tensor:
    """Return the probability of each image's own class ``[N]`` from ``p - y``."""
    return 1 + errors.gather(1, labels[:, None])[:, 0]


class Reader:
    """Reads head gradients of one model, real ones and simulated ones, the same way.

    Raises `ValueError` for auxiliary data without a class or of other classes, a model without a linear head, with more
    than 200 classes, or whose outputs are NaN or infinite.

    Parameters
    ----------
    model
        Before the round.
    aux
        Images of every class, on which the directions and weights are found.
    bias
        Whether the client shares the gradient of the head's bias.
    train_loss
        Mean cross-entropy of the clients' images, if it is known: images that fit the model worse than this are read as
        if they fitted as well.
    """

    def __init__(self, model: nn.Module, aux: Images, bias: bool = True, train_loss: float | None = None):
        self.bias, self.n_classes = bias, head(model).layer.out_features
        if self.n_classes > CLASSES:
            raise ValueError(
                f"clients are simulated for up to {CLASSES} classes, the model has {self.n_classes}: use rlu"
            )
        require_classes(aux, self.n_classes)
        inputs, errors, labels = self._pass(model, aux)
        self.size = inputs.norm(dim=1).mean().item()
        self.shift = 0.0
        if train_loss is not None:
            self.shift = fitting(_own(errors, labels), train_loss)
        errors = self._fitted(errors, labels)
        some = inputs[:: max(1, len(inputs) // ROWS)]  # enough for the directions, and for large heads much faster
        self.axes = torch.linalg.svd(some, full_matrices=False).Vh[: max(1, ENTRIES // self.n_classes)].mT
        means = by_class(inputs, labels, self.n_classes)
        means = means / means.norm(dim=1, keepdim=True).clamp(min=1e-300)
        ones = torch.ones_like(inputs[0])
        last = torch.zeros_like(ones).index_fill(0, torch.tensor([len(ones) - 1], device=ones.device), 1.0)
        columns = [ones - last, last] if bias else [ones]
        linear = [torch.stack(columns, 1), means.mT, self.axes[:, :DIRECTIONS]]
        d, self.linear = len(ones) - bias, sum(block.shape[1] for block in linear)
        raw = torch.eye(len(ones), dtype=ones.dtype, device=ones.device)[:, : d : -(-d // COLUMNS)]
        self.basis = torch.cat([*linear, raw], dim=1)
        self._weigh(errors, inputs, labels, EQUATIONS)
        probe_row_sums = by_class(errors * (inputs @ columns[0])[:, None], labels, self.n_classes)
        self.impact, self.offset = impact_and_offset(probe_row_sums[None], 1)

    def _pass(self, model: nn.Module, aux: Images) -> tuple[Tensor, Tensor, Tensor]:
        """Return the head's inputs ``[N, d]`` (with the bias's 1), ``p - y`` ``[N, n]`` and labels."""
        passed = head_pass(model, as_inputs(aux.x, model))
        if not (torch.isfinite(passed.inputs).all() and torch.isfinite(passed.probabilities).all()):
            raise ValueError("on auxiliary images the model's head sees or gives NaN or infinite values")
        inputs, labels = passed.inputs.double(), aux.y.to(passed.inputs.device)
        inputs = nn.functional.pad(inputs, (0, 1), value=1.0) if self.bias else inputs
        return inputs, passed.probabilities.double() - nn.functional.one_hot(labels, self.n_classes), labels

    def sharpen(self, model: nn.Module, images: Images) -> None:
        """Weight the closed forms anew, with all equations and on more images: for reading after the training."""
        inputs, errors, labels = self._pass(model, images)
        self._weigh(self._fitted(errors, labels), inputs, labels, self.n_classes + 1)

    def _fitted(self, errors: Tensor, labels: Tensor) -> Tensor:
        return errors * raise_own(_own(errors, labels), torch.tensor(self.shift))[:, None]

    def _weigh(self, errors: Tensor, inputs: Tensor, labels: Tensor, equations: int) -> None:
        """Prepare least squares for the whole head, weighted by the counts' noise as in `whole_head`, and for RLU.

        The head's equations are kept along few directions, in which equal counts give noise of covariance 1: those that
        solve them for equal counts and, of few classes, for batches that one of them dominates.
        """
        n = self.n_classes
        per_sample = torch.einsum("si,sj->sij", errors, inputs @ self.axes).flatten(1)
        mean = by_class(per_sample, labels, n)
        residual = (per_sample - mean[labels]) / labels.bincount(minlength=n)[labels, None].sqrt()
        parts = [residual[labels == label] for label in range(n)]
        ridge = RIDGE * torch.stack([part.square().sum(0).mean() for part in parts])
        ridge = ridge + 1e-9 * mean.square().mean() + 1e-300  # where all images of a class are the same
        total = residual.mT @ residual

        def factor(share: float, label: int | None = None) -> Tensor:
            """Factorise the noise of batches in which `label` has this share and the other classes the rest."""
            rest = (1 - share) / n
            covariance = rest * total
            if label is not None:
                covariance.addmm_(parts[label].mT, parts[label], alpha=share)
            covariance.diagonal().add_((rest * ridge.sum() + (share * ridge[label] if label is not None else 0)).item())
            return torch.linalg.cholesky(covariance)

        few_samples = by_samples(residual)
        products, along = (residual @ residual.mT, residual @ mean.mT) if few_samples else (residual, residual)

        def solved(share: float, label: int) -> Tensor:
            """Solve for the means; with few samples by an N x N matrix, by Woodbury's identity."""
            if not few_samples:
                return torch.cholesky_solve(mean.mT, factor(share, label))
            rest = (1 - share) / n
            scale = (rest + share * (labels == label)).sqrt()[:, None]
            least = rest * ridge.sum() + share * ridge[label]
            inner = scale * products * scale.mT
            inner.diagonal().add_(least)
            inside = torch.cholesky_solve(scale * along, torch.linalg.cholesky(inner))
            return (mean.mT - residual.mT @ (scale * inside)) / least

        root, few = factor(0.0), n if n <= FEW_CLASSES else 0
        solutions = [torch.cholesky_solve(mean.mT, root), *(solved(0.9, label) for label in range(few))]
        candidates = root.mT @ torch.cat(solutions, 1)
        most = equations * n if few else n
        basis = torch.linalg.svd(candidates / candidates.norm(dim=0).clamp(min=1e-300), full_matrices=False).U[:, :most]
        self.directions = torch.linalg.solve_triangular(root.mT, basis, upper=True)
        self.means, noisy = mean @ self.directions, residual @ self.directions
        noise = torch.stack([noisy[labels == label].mT @ noisy[labels == label] for label in range(n)])
        self.noise = noise + ridge[:, None, None] * (self.directions.mT @ self.directions)
        self.mean_errors = by_class(errors, labels, n)

    def pool(self, model: nn.Module, images: Images, defence: Defended | None = None, local: Local = ONE_STEP) -> Pool:
        """Prepare images of every class for simulated batches, whose gradients go through the clients' defence."""
        require_classes(images, self.n_classes)
        inputs, errors, labels = self._pass(model, images)
        order, counts = (t.to(labels.device) for t in (images.class_order, images.class_counts))
        probabilities = _own(errors, labels).float() if self.shift else None
        shift = WIDER * self.shift
        if defence is None and local.steps == 1:
            pulls = torch.einsum("si,sj->sij", errors, inputs @ self.axes).flatten(1) @ self.directions
            pool = Pool(errors.float(), (inputs @ self.basis).float(), pulls.float(), order, counts)
            return pool._replace(label_probabilities=probabilities, shift=shift)
        last = head(model)

        def defended(gradient: Tensor, seed: int) -> Observation:
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
        pool = pool._replace(label_probabilities=probabilities, shift=shift)
        return pool if local.steps == 1 else pool._replace(walked=self._walked(pool.rows, labels, last, local))

    def _walked(self, rows: Tensor, labels: Tensor, last: Head, local: Local) -> Callable[[Tensor], Tensor]:
        """Return what lets clients train the head on some of these inputs; a bias that is not shared moves too."""
        weight = last.layer.weight.detach().float()
        if last.layer.bias is not None:
            weight = torch.cat([weight, last.layer.bias.detach().float()[:, None]], 1)
        inputs = nn.functional.pad(rows, (0, weight.shape[1] - rows.shape[1]), value=1.0)
        return lambda index: walk(inputs[index], labels[index], weight, local)[..., : rows.shape[1]]

    def _seen(self, gradient: Tensor) -> Observation:
        pulls = (gradient @ self.axes).flatten(-2) @ self.directions
        return Observation((gradient @ self.basis).float().flatten(-2), pulls.float())

    def read(self, update: Update, model: nn.Module) -> Observation:
        """Return what is seen of one real update, ``[1, ...]``; errors as `head_gradient` and `bias_gradient` say."""
        gradient = head_gradient(update, model)
        if self.bias:
            gradient = torch.cat([gradient, bias_gradient(update, model)[:, None]], dim=1)
        return self._seen(gradient[None])

    def altered(self, update: Update, model: nn.Module) -> bool:
        """Return whether an update was changed: a cross-entropy's gradient of the head has rows that sum to 0.

        Every sample's errors ``p - y`` do, whatever its label, soft ones too, and so do sums of them over samples and
        steps, and their multiples. Noise, missing entries and rounding leave a rest, and so does weight decay.
        """
        gradient, last = head_gradient(update, model), head(model)
        size = max(self.size, gradient.norm().item())
        if update.kind == "delta":  # a difference of weights, divided by what the steps are long
            size += last.layer.weight.norm().item() / ((update.lr or 1.0) * update.steps)
        rounding = torch.finfo(update.gradient(last.weight).dtype).eps
        return gradient.sum(0).norm().item() > self.n_classes * rounding * size

    def features(self, observation: Observation) -> Tensor:
        """Return a network's inputs for each class's row: linear features, then extremes and signs, ``[..., n, f]``.

        The row of a class without a sample has no negative entry if the head's inputs have none, as after a ReLU.
        """
        linear, row = observation.entries.unflatten(-1, (self.n_classes, -1)).tensor_split([self.linear], -1)
        below, above = row.clamp(max=0), row.clamp(min=0)
        summaries = below.sum(-1), below.amin(-1), above.amin(-1), above.amax(-1), (row < 0).float().mean(-1)
        return torch.cat([linear, torch.stack(summaries, -1)], -1)

    def estimates(self, observation: Observation, batch_size: int) -> Tensor:
        """Return the shares that closed forms find, ``[..., forms, n]``: whole head, RLU (if there is a bias), LLG+."""
        columns = observation.entries.view(-1, self.n_classes, self.basis.shape[1])[..., : self.linear].double()
        estimates = [self.whole_head(observation.pulls.double())]
        if self.bias:
            estimates.append(minimise(self.mean_errors @ self.mean_errors.mT, columns[..., 1] @ self.mean_errors.mT))
        impact = self.impact / batch_size
        counts = extract(columns[..., 0], impact, self.offset, batch_size, stop_at_samples=True)
        estimates.append(counts / counts.sum(-1, keepdim=True))
        return torch.stack(estimates, 1).float()

    def whole_head(self, pulls: Tensor, weighings: int = WEIGHINGS) -> Tensor:
        """Solve the whole head for shares ``[..., n]``, weighted by equal counts' noise, then by that of those found.

        `weighings` is how often it is weighted and solved again; with many classes it is not.
        """
        least = 0.02 / self.n_classes
        shares = minimise(self.means @ self.means.mT, pulls @ self.means.mT)
        for _ in range(weighings if self.n_classes <= FEW_CLASSES else 0):
            noise = torch.einsum("...j,jkl->...kl", shares.clamp(min=least), self.noise)
            weighted = torch.cholesky_solve(self.means.mT, torch.linalg.cholesky(noise))
            linear = (pulls[..., None, :] @ weighted)[..., 0, :]
            shares = minimise(self.means @ weighted, linear, 20, shares)
        return shares
