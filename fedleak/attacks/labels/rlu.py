"""RLU, recovering labels from local updates (Chen and Vikalo, ICML 2024), by least squares on the head's bias.

The expected update of the head's bias is linear in the label counts, with the "erroneous confidence" of the model as
coefficients: the mean softmax of every other class. Labelled auxiliary data give these coefficients before and after
the round; a simulation of the round gives those in between.
"""

from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels import confidence as confidences
from fedleak.attacks.labels.confidence import Confidence, coefficients, erroneous_confidence, mean_by_class
from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import head_with_bias, require_classes
from fedleak.attacks.registry import WITH_AUXILIARY, Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.data import Images
from fedleak.federated import Scheme, Softening, Update
from fedleak.federated.update import fitting
from fedleak.models import as_inputs, head_pass

Trajectory = Literal["midpoint", "search"]
NEEDS = WITH_AUXILIARY.has - {Need.BELOW_HEAD_GRADIENT, Need.ADAPTER_GRADIENT}
MAX_ROUNDS, LOGIT_TOLERANCE = 5, 0.1
"""Most rounds of the search (App. B.2.2); difference between simulated and uploaded logits that ends it (Alg. 2)."""
MATRICES, MAX_BYTES = 6, 2**32
"""Matrices ``[n, n]`` in double precision that a recovery has at the same time, and their memory, at most."""


class Observed(NamedTuple):
    """The head's changes in one update, and the client's training as far as RLU uses it."""

    bias: Tensor
    """Change of the head's bias minus h, ``[n]``: ``-lr`` times the weighted sum of the steps' gradients."""
    weight: Tensor
    """Change of the head's weights, ``[n, d]``, h included."""
    scheme: Scheme
    batch_size: float
    """Samples per step; the mean if the batches differ."""
    smoothing: float = 0.0
    """The client's label smoothing."""

    @property
    def target(self) -> Tensor:
        """Right-hand side of Eq. 10, ``[n]``: A times the counts."""
        return self.bias * self.batch_size / self.scheme.lr


def observe(update: Update, model: nn.Module, scheme: Scheme | None, history: Tensor | None) -> Observed:
    """Read the head's changes from an update; parameters and errors are those of `prepare` and its ``recover``."""
    last = head_with_bias(model)
    if scheme is None:
        if update.steps > 1 and update.lr is None:
            raise ValueError("of several local steps RLU needs the client's learning rate: pass an update with lr")
        scheme = Scheme("fedavg", update.lr or 1.0, update.steps)
    if scheme.steps != update.steps or (update.lr is not None and scheme.lr != update.lr):
        raise ValueError(
            f"the update is of {update.steps} steps at rate {update.lr}, the scheme of {scheme.steps} at {scheme.lr}"
        )
    bias = fitting(update.delta(last.bias, scheme.lr).double(), last.bias, last.layer.bias)
    weight = fitting(update.delta(last.weight, scheme.lr).double(), last.weight, last.layer.weight)
    if history is not None:
        if history.shape not in (torch.Size([]), bias.shape):
            raise ValueError(f"history is h of the head's bias, {list(bias.shape)}, got {list(history.shape)}")
        bias = bias - history.to(bias)
    return Observed(bias, weight, scheme, update.samples / update.steps)


def average_embedding(weight: Tensor, bias: Tensor, ratios: bool = False) -> Tensor:
    """Estimate the mean input of the head, ``[d]`` (Eq. 14).

    By default it is the least-squares fit O of ``weight_j = bias_j O``. With `ratios` it is the mean over classes of
    ``weight_j / bias_j``, as printed, which one bias near zero spoils.
    """
    if ratios:
        return (weight / bias[:, None]).mean(0)
    return weight.T @ bias / (bias @ bias).clamp(min=1e-300)


def simulate_round(
    counts: Tensor, logits: Tensor, labels: Tensor, observed: Observed, embedding: Tensor
) -> tuple[Tensor, Tensor]:
    """Simulate a round with the given counts, spread evenly over the steps (Eqs. 12 and 13, Alg. 2).

    The bias moves by Eq. 12, and all logits by ``(1 + |O|^2)`` times as much (Eq. 13). Returns the coefficients A,
    averaged over the steps with `Scheme.weights`, ``[n, n]``, and the logits' shift at the end, ``[n]``.
    """
    scheme = observed.scheme
    scaled_counts = counts / scheme.steps * scheme.lr / observed.batch_size
    momentum, velocity = scheme.momentum, torch.zeros_like(counts)
    system, logit_shift = torch.zeros(len(counts), len(counts)).to(logits), torch.zeros_like(counts)
    odds = (logits - logits.max(dim=1, keepdim=True).values).exp()  # a shift of class j's logits scales column j
    for weight in scheme.weights().tolist():
        shift_factors = (logit_shift - logit_shift.max()).exp()
        normaliser = 1 / (odds @ shift_factors).clamp(min=1e-300)
        class_confidence = mean_by_class(odds * normaliser[:, None], labels, len(counts)) * shift_factors
        step_system = coefficients(class_confidence, observed.smoothing)
        system += weight * step_system
        logit_step = step_system @ scaled_counts * (1 + embedding @ embedding)
        velocity = momentum * velocity + logit_step
        step_taken = logit_step + momentum * velocity if scheme.name == "nag" else velocity
        logit_shift = logit_shift * scheme.shrinkage + step_taken
    return system / scheme.steps, logit_shift


def search(
    start: Tensor,
    before: Tensor,
    after: Tensor,
    labels: Tensor,
    observed: Observed,
    confidence: Confidence = "average",
    ratios: bool = False,
) -> Tensor:
    """Move counts until a simulated round ends at the client's model (Alg. 2), and return real counts ``[n]``.

    Each round moves one sample per step from the class whose simulated mean logit is furthest above the uploaded
    model's to the class furthest below. The equations are then solved with the last simulation's coefficients.

    `start` has the first counts, ``[n]``; `before` and `after` the auxiliary data's logits before and after the round,
    ``[N, n]``, and `labels` their labels, ``[N]``.
    """
    samples = int(start.sum().round())
    embedding = average_embedding(observed.weight, observed.bias, ratios)
    observed_shift = mean_by_class(after - before, labels, len(start)).mean(0)
    logits, classes = confidences.draw_logits(before, labels, confidence)
    counts = start.clone()
    for round_number in range(MAX_ROUNDS + 1):
        system, logit_shift = simulate_round(counts, logits, classes, observed, embedding)
        excess = logit_shift - observed_shift
        if round_number == MAX_ROUNDS or excess.abs().max() < LOGIT_TOLERANCE:
            break
        largest, smallest = excess.argmax(), excess.argmin()
        count = counts[largest].clamp(max=float(observed.scheme.steps))
        counts[largest] -= count
        counts[smallest] += count
    return solve(system, observed.target, samples)


@attack(
    "RLU",
    paper="chen2024rlu",
    equation="Alg. 1 and 2",
    needs=NEEDS,
    summary="Least squares on the bias with the mean softmax of auxiliary data, over simulated local steps.",
    options={"scheme", "history", "smoothing"},
    prepares=True,
)
def prepare(
    model: nn.Module, aux: Images, *, trajectory: Trajectory = "search", confidence: Confidence = "gaussian"
) -> Prepared:
    """Prepare RLU, which passes the auxiliary data through the model once.

    ``recover(update)`` returns counts ``[n]`` that sum to ``update.samples``. `Result.facts` has the real-valued
    ``estimates`` and the ``residual``, the share of the bias' change that no counts in [0, K] explain.

    Parameters
    ----------
    model, aux
        The model before the round; labelled images of every class.
    trajectory
        For several steps: ``"midpoint"`` solves with the mean of the coefficients before and after the round (Alg. 1),
        ``"search"`` continues with Alg. 2.
    confidence
        Estimator of the coefficients: ``"average"`` or ``"gaussian"``, as in `erroneous_confidence`.
    scheme, history, smoothing
        Arguments of ``recover`` that describe one client: its `Scheme` (default: plain SGD), h of the head's bias
        ``[n]`` (`fedleak.federated.Server.history`), and its label smoothing (`Softening`; beyond the paper).

    Raises
    ------
    ValueError
        The head has no bias, or a class no image; in ``recover``: the learning rate is missing, scheme and update
        disagree, a gradient is NaN or infinite, or the smoothing is not in [0, 1].
    WithheldParameter
        In ``recover``: one step needs the head's gradients, several steps those of all parameters.
    """
    if trajectory not in ("midpoint", "search"):
        raise ValueError(f"trajectory is 'midpoint' or 'search', not {trajectory!r}")
    layer = head_with_bias(model).layer
    require_classes(aux, layer.out_features)
    if (size := 8 * MATRICES * layer.out_features**2) > MAX_BYTES:
        raise ValueError(
            f"RLU's equations of {layer.out_features:,} classes would take {size / 2**30:,.1f} GiB, more than "
            f"{MAX_BYTES / 2**30:g}: use llg or ilrg"
        )
    x, labels = as_inputs(aux.x, model), aux.y.to(layer.weight.device)

    def compute_logits(network: nn.Module) -> Tensor:
        return confidences.logits_of(head_pass(network, x), network)

    @cache
    def pass_before_round() -> tuple[Tensor, Tensor]:
        before = compute_logits(model)
        return before, erroneous_confidence(before, labels, confidence)

    def make_result(update: Update, counts: Tensor, system: Tensor, target: Tensor) -> Result:
        residual = float((system @ counts - target).norm() / target.norm().clamp(min=1e-300))
        return Result(round_to_total(counts, update.samples), facts={"estimates": counts, "residual": residual})

    def read(
        update: Update, *, scheme: Scheme | None = None, history: Tensor | None = None, smoothing: float = 0.0
    ) -> Result:
        Softening(smoothing)  # raises outside [0, 1]
        observed = observe(update, model, scheme, history)._replace(smoothing=smoothing)
        before, confidence_before = pass_before_round()
        weight = float(observed.scheme.weights().mean())
        system = weight * coefficients(confidence_before, smoothing)
        if update.steps == 1:
            return make_result(update, solve(system, observed.target, update.samples), system, observed.target)
        after = compute_logits(update.model(model))
        system = (system + weight * coefficients(erroneous_confidence(after, labels, confidence), smoothing)) / 2
        estimate = solve(system, observed.target, update.samples)
        if trajectory == "search":
            estimate = search(estimate, before, after, labels, observed, confidence)
        return make_result(update, estimate, system, observed.target)

    return Prepared("RLU", read)


recover = once(prepare, scheme=None, history=None, smoothing=0.0)
