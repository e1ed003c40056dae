"""Features of head gradients, simulated or real, and closed-form estimates of the class shares.

The closed forms are RLU, LLG+ and the whole head weighted by its noise, for all batches at once.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import mean_by_class
from fedleak.attacks.labels.counts import project
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient
from fedleak.attacks.labels.learned import simulated
from fedleak.attacks.labels.learned.simulated import ONE_STEP, LocalSteps, MakeDefence, Observation, Pool
from fedleak.attacks.labels.learned.table import HeadTable, make_table
from fedleak.attacks.labels.llg import extract, impact_and_offset
from fedleak.attacks.labels.whole_head import RIDGE
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import Head, head

N_DIRECTIONS = 16
"""Number of principal directions of the head's inputs; the gradient's products with them are features."""
MAX_COLUMNS = 512
"""Most columns of the gradient whose signs and extremes are features; a wider head gives evenly spaced ones."""
MAX_ENTRIES = 2000
"""Largest number of gradient entries in the weighted least squares; larger heads use the principal directions."""
MAX_IMAGES = 2000
"""Approximate number of images from which the principal directions are computed."""
MAX_REWEIGHTED_CLASSES, EQUATIONS_PER_CLASS = 15, 4
"""Most classes for which each batch's own noise weights the whole head; equations per class during the training."""
REWEIGHTINGS = 2
"""Number of further solutions of the whole head, each weighted by the noise of the shares that were found before."""
MAX_CLASSES = 200
"""Most classes of a model: the number of features grows with their square."""


def minimise_on_simplex(quadratic: Tensor, linear: Tensor, steps: int = 60, start: Tensor | None = None) -> Tensor:
    """Minimise ``x'Qx / 2 - l'x`` over shares x ``[..., n]``, by Nesterov's projected gradient.

    `quadratic` is Q, ``[n, n]`` for all problems or ``[..., n, n]``; `linear` is l, ``[..., n]``; `steps` start at
    `start`, ``[..., n]``, by default even shares.
    """
    rate = 1 / torch.linalg.eigvalsh(quadratic)[..., -1:].clamp(min=1e-300)
    point = ahead = torch.full_like(linear, 1 / linear.shape[-1]) if start is None else start
    for step in range(steps):
        slope = (ahead[..., None, :] @ quadratic)[..., 0, :] - linear
        last, point = point, project(ahead - rate * slope, 1)
        ahead = point + step / (step + 3) * (point - last)
    return point


def require_few_classes(n_classes: int) -> None:
    """Raise `ValueError` for more classes than `MAX_CLASSES`."""
    if n_classes > MAX_CLASSES:
        raise ValueError(f"clients are simulated for up to {MAX_CLASSES} classes, the model has {n_classes}: use rlu")


def has_few_samples(residual: Tensor) -> bool:
    """Return whether residuals ``[N, entries]`` have fewer samples than entries: N x N is the smaller matrix."""
    return residual.shape[0] < residual.shape[1]


class Reader:
    """Reads real and simulated head gradients of one model in the same way.

    Parameters
    ----------
    model
        The model before the round.
    aux
        Labelled images of every class, or their table, from which directions and weights are computed.
    bias
        Whether the client shares the gradient of the head's bias.
    train_loss
        Mean cross-entropy of the clients' images, if it is known. If the auxiliary images have a larger one, their
        logits are shifted until they have the same.

    Raises
    ------
    ValueError
        The auxiliary data lack a class or have others; the model has no linear head, more than 200 classes, or outputs
        that are NaN or infinite.
    """

    def __init__(self, model: nn.Module, aux: Images | HeadTable, bias: bool = True, train_loss: float | None = None):
        self.bias, self.n_classes = bias, head(model).layer.out_features
        require_few_classes(self.n_classes)
        table = make_table(model, aux, bias)
        self.is_tied = bool(table.tokens.shape[1])
        """Whether an embedding shares the head's weight, and adds to its gradient."""
        self.mean_input_norm = table.inputs.norm(dim=1).mean().item()
        self.logit_shift = 0.0
        if train_loss is not None:
            self.logit_shift = simulated.find_logit_shift(table.true_probabilities, train_loss)
        table = table.with_logit_shift(self.logit_shift)
        inputs, labels = table.inputs, table.labels
        subset = inputs[:: max(1, len(inputs) // MAX_IMAGES)]  # for large heads much faster
        directions = torch.linalg.svd(subset, full_matrices=False).Vh
        self.input_axes = directions[: max(1, MAX_ENTRIES // self.n_classes)].mT
        means = mean_by_class(inputs, labels, self.n_classes)
        means = means / means.norm(dim=1, keepdim=True).clamp(min=1e-300)
        ones = torch.ones_like(inputs[0])
        last = torch.zeros_like(ones).index_fill(0, torch.tensor([len(ones) - 1], device=ones.device), 1.0)
        columns = [ones - last, last] if bias else [ones]
        blocks = [torch.stack(columns, 1), means.mT, self.input_axes[:, :N_DIRECTIONS]]
        d, self.n_linear_features = len(ones) - bias, sum(block.shape[1] for block in blocks)
        raw_columns = torch.eye(len(ones), dtype=ones.dtype, device=ones.device)[:, : d : -(-d // MAX_COLUMNS)]
        self.basis = torch.cat([*blocks, raw_columns], dim=1)
        self._prepare_least_squares(table, EQUATIONS_PER_CLASS)
        probe_row_sums = mean_by_class(table.gradients(columns[0][:, None]), labels, self.n_classes)
        self.impact, self.offset = impact_and_offset(probe_row_sums[None], 1)

    def reweight(self, model: nn.Module, images: Images | HeadTable) -> None:
        """Compute the closed forms' weights again, from more images and for all equations; call it after training."""
        table = make_table(model, images, self.bias).with_logit_shift(self.logit_shift)
        self._prepare_least_squares(table, self.n_classes + 1)

    def _prepare_least_squares(self, table: HeadTable, equations: int) -> None:
        """Prepare least squares for the whole head, weighted by the counts' noise as in `whole_head`, and for RLU.

        The head's equations are projected on a few directions, along which the noise of equal counts has covariance 1:
        the solutions for equal counts and, with few classes, for batches that one class dominates.
        """
        n, labels, per_sample = self.n_classes, table.labels, table.gradients(self.input_axes)
        mean = mean_by_class(per_sample, labels, n)
        residual = (per_sample - mean[labels]) / labels.bincount(minlength=n)[labels, None].sqrt()
        class_residuals = [residual[labels == label] for label in range(n)]
        ridge = RIDGE * torch.stack([part.square().sum(0).mean() for part in class_residuals])
        ridge = ridge + 1e-9 * mean.square().mean() + 1e-300  # where all images of a class are the same
        total = residual.mT @ residual

        def factorise_noise(share: float, label: int | None = None) -> Tensor:
            """Return the Cholesky factor of the noise of batches in which `label` has this share."""
            rest = (1 - share) / n
            covariance = rest * total
            if label is not None:
                covariance.addmm_(class_residuals[label].mT, class_residuals[label], alpha=share)
            covariance.diagonal().add_((rest * ridge.sum() + (share * ridge[label] if label is not None else 0)).item())
            return torch.linalg.cholesky(covariance)

        few_samples = has_few_samples(residual)
        products, along = (residual @ residual.mT, residual @ mean.mT) if few_samples else (residual, residual)

        def solve_for_means(share: float, label: int) -> Tensor:
            """Solve for the classes' means; with few samples an N x N system, by Woodbury's identity."""
            if not few_samples:
                return torch.cholesky_solve(mean.mT, factorise_noise(share, label))
            rest = (1 - share) / n
            scale = (rest + share * (labels == label)).sqrt()[:, None]
            batch_ridge = rest * ridge.sum() + share * ridge[label]
            inner = scale * products * scale.mT
            inner.diagonal().add_(batch_ridge)
            inside = torch.cholesky_solve(scale * along, torch.linalg.cholesky(inner))
            return (mean.mT - residual.mT @ (scale * inside)) / batch_ridge

        root, n_dominant = factorise_noise(0.0), n if n <= MAX_REWEIGHTED_CLASSES else 0
        solutions = [torch.cholesky_solve(mean.mT, root), *(solve_for_means(0.9, label) for label in range(n_dominant))]
        candidates = root.mT @ torch.cat(solutions, 1)
        size = equations * n if n_dominant else n
        candidates = candidates / candidates.norm(dim=0).clamp(min=1e-300)
        basis = torch.linalg.svd(candidates, full_matrices=False).U[:, :size]
        self.equation_directions = torch.linalg.solve_triangular(root.mT, basis, upper=True)
        self.projected_means, projected = mean @ self.equation_directions, residual @ self.equation_directions
        noise = torch.stack([part.mT @ part for part in (projected[labels == label] for label in range(n))])
        self.projected_noise = noise + ridge[:, None, None] * (self.equation_directions.mT @ self.equation_directions)
        self.mean_errors = mean_by_class(table.errors, labels, n)

    def make_pool(
        self,
        model: nn.Module,
        images: Images | HeadTable,
        defence: MakeDefence | None = None,
        local: LocalSteps = ONE_STEP,
    ) -> Pool:
        """Return the pool from which batches of these images are simulated, with a defence and local steps."""
        table = make_table(model, images, self.bias)
        inputs, errors, labels, tokens, embedded = table
        order, counts = labels.argsort(stable=True), labels.bincount(minlength=self.n_classes)
        probabilities = table.true_probabilities.float() if self.logit_shift else None
        shift = simulated.SHIFT_FACTOR * self.logit_shift
        if defence is None and local.steps == 1:
            projections = (table.gradients(self.input_axes) @ self.equation_directions).float()
            pool = Pool(errors.float(), (inputs @ self.basis).float(), projections, order, counts)
            pool = pool._replace(tokens=tokens, embedded=table.embedded_along(self.basis).float())
            return pool._replace(label_probabilities=probabilities, shift=shift)
        last = head(model)

        def observe_defended(gradient: Tensor, seed: int) -> Observation:
            if defence is None:
                return self._observe(gradient.double())
            clients = len(gradient)
            tensors = {last.weight: gradient[..., :-1] if self.bias else gradient}
            if self.bias:
                tensors[last.bias] = gradient[..., -1]
            defended = defence(clients, seed)(tensors, torch.arange(clients))
            parts = [t if t.dim() == 3 else t[..., None] for t in defended.values()]
            return self._observe(torch.cat(parts, -1).double())

        pool = Pool(errors.float(), inputs.float(), errors.new_empty(0), order, counts, observe_defended)
        pool = pool._replace(tokens=tokens, embedded=embedded.float(), label_probabilities=probabilities, shift=shift)
        if local.steps == 1:
            return pool
        return pool._replace(train_heads=self._make_train_heads(pool.rows, labels, last, local))

    def _make_train_heads(
        self, rows: Tensor, labels: Tensor, last: Head, local: LocalSteps
    ) -> Callable[[Tensor], Tensor]:
        """Return `Pool.train_heads` for these head inputs; a bias that is not shared is trained too."""
        weight = last.layer.weight.detach().float()
        if last.layer.bias is not None:
            weight = torch.cat([weight, last.layer.bias.detach().float()[:, None]], 1)
        inputs = nn.functional.pad(rows, (0, weight.shape[1] - rows.shape[1]), value=1.0)
        return lambda index: simulated.train_heads(inputs[index], labels[index], weight, local)[..., : rows.shape[1]]

    def _observe(self, gradient: Tensor) -> Observation:
        projections = (gradient @ self.input_axes).flatten(-2) @ self.equation_directions
        return Observation((gradient @ self.basis).float().flatten(-2), projections.float())

    def read(self, update: Update, model: nn.Module) -> Observation:
        """Return the observation of one real update, ``[1, ...]``; errors are those of `head_gradient`."""
        gradient = head_gradient(update, model)
        if self.bias:
            gradient = torch.cat([gradient, bias_gradient(update, model)[:, None]], dim=1)
        return self._observe(gradient[None])

    def is_altered(self, update: Update, model: nn.Module) -> bool:
        """Return whether an update was changed: the rows of its head gradient do not sum to 0.

        Under a cross-entropy they do, since every sample's errors ``p - y`` sum to 0, also with soft labels, summed
        over samples and steps, or scaled. Noise, missing entries, rounding and weight decay leave a remainder. Where an
        embedding adds to the weight's gradient, only the bias's entries do, and without a shared bias nothing is found.
        """
        gradient, last = head_gradient(update, model), head(model)
        if self.is_tied:
            gradient = bias_gradient(update, model)[:, None] if self.bias else torch.zeros_like(gradient)
        size = max(self.mean_input_norm, gradient.norm().item())
        if update.kind == "delta":  # the rounding of weights, divided by lr and steps
            size += last.layer.weight.norm().item() / ((update.lr or 1.0) * update.steps)
        rounding = torch.finfo(update.gradient(last.weight).dtype).eps
        return gradient.sum(0).norm().item() > self.n_classes * rounding * size

    def compute_features(self, observation: Observation) -> Tensor:
        """Return the features of each class's row, ``[..., n, f]``: linear ones, then extremes and signs.

        The row of a class without a sample has no negative entry if the head's inputs have none, as after a ReLU.
        """
        rows = observation.linear_features.unflatten(-1, (self.n_classes, -1))
        linear, row = rows.tensor_split([self.n_linear_features], -1)
        below, above = row.clamp(max=0), row.clamp(min=0)
        summaries = below.sum(-1), below.amin(-1), above.amin(-1), above.amax(-1), (row < 0).float().mean(-1)
        return torch.cat([linear, torch.stack(summaries, -1)], -1)

    def estimate_shares(self, observation: Observation, batch_size: int) -> Tensor:
        """Estimate shares in closed form, ``[..., forms, n]``: by the whole head, RLU (with a bias) and LLG+."""
        rows = observation.linear_features.view(-1, self.n_classes, self.basis.shape[1])
        columns = rows[..., : self.n_linear_features].double()
        estimates = [self.solve_whole_head(observation.projections.double())]
        if self.bias:
            quadratic, linear = (rows @ self.mean_errors.mT for rows in (self.mean_errors, columns[..., 1]))
            estimates.append(minimise_on_simplex(quadratic, linear))
        impact = self.impact / batch_size
        counts = extract(columns[..., 0], impact, self.offset, batch_size, stop_at_samples=True)
        estimates.append(counts / counts.sum(-1, keepdim=True))
        return torch.stack(estimates, 1).float()

    def solve_whole_head(self, projections: Tensor, reweightings: int = REWEIGHTINGS) -> Tensor:
        """Solve the whole head for shares ``[..., n]``, weighted by the noise of equal counts, then of the solution.

        `reweightings` is the number of further solutions; a model with many classes gets none.
        """
        min_share = 0.02 / self.n_classes
        means = self.projected_means
        shares = minimise_on_simplex(means @ means.mT, projections @ means.mT)
        for _ in range(reweightings if self.n_classes <= MAX_REWEIGHTED_CLASSES else 0):
            noise = torch.einsum("...j,jkl->...kl", shares.clamp(min=min_share), self.projected_noise)
            weighted = torch.cholesky_solve(means.mT, torch.linalg.cholesky(noise))
            linear = (projections[..., None, :] @ weighted)[..., 0, :]
            shares = minimise_on_simplex(means @ weighted, linear, 20, shares)
        return shares
