"""RLU, recovering labels from local updates (Chen and Vikalo, ICML 2024): least squares on the head's bias.

The expected update of the head's bias is linear in the label counts, with the "erroneous confidence" of the model as
coefficients: the mean softmax of every other class. Labelled auxiliary data give these coefficients before and after
the round; a simulation of the round gives those in between.
"""

from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import Confidence, by_class, coefficients, drawn, erroneous_confidence, logits_of
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
ROUNDS, ENOUGH = 5, 0.1
"""Largest number of search rounds (App. B.2.2); difference of simulated and uploaded logits that ends it (Alg. 2)."""


class Observed(NamedTuple):
    """The quantities that RLU takes from one update."""

    bias: Tensor
    """``-(lr times the weighted sum of gradients)`` of the bias, the update less h, ``[n]``; times B / lr it is A n."""
    weight: Tensor
    """The same of the head's weights, ``[n, d]``, h included."""
    scheme: Scheme
    batch_size: float
    """Samples of a step, the mean where the batches differ."""
    smoothing: float = 0.0
    """The label smoothing that the client is known to train with."""

    @property
    def target(self) -> Tensor:
        """The right-hand side of Eq. 10, ``[n]``."""
        return self.bias * self.batch_size / self.scheme.lr


def observe(update: Update, model: nn.Module, scheme: Scheme | None, history: Tensor | None) -> Observed:
    """Read the head's update; see `recover`."""
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

    As printed, the mean over classes of ``weight_j / bias_j``, which is at the mercy of one bias near zero; by
    default the least-squares fit of ``weight_j = bias_j O``.
    """
    if ratios:
        return (weight / bias[:, None]).mean(0)
    return weight.T @ bias / (bias @ bias).clamp(min=1e-300)


def simulate_round(
    counts: Tensor, logits: Tensor, labels: Tensor, observed: Observed, embedding: Tensor
) -> tuple[Tensor, Tensor]:
    """Simulate a round with the given counts, the same share in every step (Eqs. 12 and 13, Alg. 2).

    The bias moves by Eq. 12, all logits by ``(1 + |O|^2)`` times that (Eq. 13), and the coefficients follow. Returns
    these, averaged over the steps with `Scheme.weights`, ``[n, n]``, and the shift of the logits, ``[n]``.
    """
    scheme = observed.scheme
    share = counts / scheme.steps * scheme.lr / observed.batch_size
    momentum, velocity = scheme.momentum, torch.zeros_like(counts)
    system, moved = torch.zeros(len(counts), len(counts)).to(logits), torch.zeros_like(counts)
    odds = (logits - logits.max(dim=1, keepdim=True).values).exp()  # a shift of all logits scales these
    for weight in scheme.weights().tolist():
        factors = (moved - moved.max()).exp()
        inverse = 1 / (odds @ factors).clamp(min=1e-300)
        class_confidence = by_class(odds * inverse[:, None], labels, len(counts)) * factors
        step = coefficients(class_confidence, observed.smoothing)
        system += weight * step
        push = step @ share * (1 + embedding @ embedding)
        velocity = momentum * velocity + push
        moved = moved * scheme.shrinkage + (push + momentum * velocity if scheme.name == "nag" else velocity)
    return system / scheme.steps, moved


def search(
    start: Tensor,
    before: Tensor,
    after: Tensor,
    labels: Tensor,
    observed: Observed,
    confidence: Confidence = "average",
    ratios: bool = False,
) -> Tensor:
    """Alg. 2: move counts until the simulated round ends where the client's did; returns the real counts ``[n]``.

    Where the simulated mean logit is furthest above the uploaded model's, one sample a step is taken away, and given
    to the class where it is furthest below. The last simulation's coefficients give the answer.
    """
    samples = int(start.sum().round())
    embedding = average_embedding(observed.weight, observed.bias, ratios)
    shift = by_class(after - before, labels, len(start)).mean(0)
    logits, classes = drawn(before, labels, confidence)
    counts = start.clone()
    for done in range(ROUNDS + 1):
        system, moved = simulate_round(counts, logits, classes, observed, embedding)
        off = moved - shift
        if done == ROUNDS or off.abs().max() < ENOUGH:
            break
        high, low = off.argmax(), off.argmin()
        taken = counts[high].clamp(max=float(observed.scheme.steps))
        counts[high] -= taken
        counts[low] += taken
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
        Estimator of the coefficients, see `erroneous_confidence`.
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
    x, labels = as_inputs(aux.x, model), aux.y.to(layer.weight.device)

    def logits(of: nn.Module) -> Tensor:
        return logits_of(head_pass(of, x), of)

    @cache
    def start() -> tuple[Tensor, Tensor]:
        before = logits(model)
        return before, erroneous_confidence(before, labels, confidence)

    def result(update: Update, counts: Tensor, system: Tensor, target: Tensor) -> Result:
        residual = float((system @ counts - target).norm() / target.norm().clamp(min=1e-300))
        return Result(round_to_total(counts, update.samples), facts={"estimates": counts, "residual": residual})

    def read(
        update: Update, *, scheme: Scheme | None = None, history: Tensor | None = None, smoothing: float = 0.0
    ) -> Result:
        Softening(smoothing)  # raises outside [0, 1]
        observed = observe(update, model, scheme, history)._replace(smoothing=smoothing)
        before, believed = start()
        weight = float(observed.scheme.weights().mean())
        system = weight * coefficients(believed, smoothing)
        if update.steps == 1:
            return result(update, solve(system, observed.target, update.samples), system, observed.target)
        after = logits(update.model(model))
        system = (system + weight * coefficients(erroneous_confidence(after, labels, confidence), smoothing)) / 2
        estimate = solve(system, observed.target, update.samples)
        if trajectory == "search":
            estimate = search(estimate, before, after, labels, observed, confidence)
        return result(update, estimate, system, observed.target)

    return Prepared("RLU", read)


recover = once(prepare, scheme=None, history=None, smoothing=0.0)
