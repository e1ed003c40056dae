"""Least squares on the last layer's weights, for updates whose scale is unknown.

Clipping, or a factor of the loss, multiplies the head's gradient by an unknown s. It is then ``s sum_c q_c G_c``, with
the shares q of the classes and the mean gradients G of their auxiliary samples. Non-negative least squares for ``s q``
give both, as the shares' sum is 1. The bias is not read: where tensors are clipped one by one, its scale is another.
"""

from functools import cache

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.labels.whole_head import MAX_GRADIENT_ENTRIES, WeightedLeastSquares, compute_sample_gradients
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared
from fedleak.data import Images
from fedleak.errors import WithheldParameter
from fedleak.federated import Scheme, Update
from fedleak.models import HeadPass, as_inputs, head, head_pass

NAME = "least squares, any scale"
MAX_SAMPLES = 2000
"""Auxiliary samples that are used, at most: as many of each class as there are."""
ROUNDS = 3
"""Estimates of an update of several steps, each with the client's model at the scale of the one before."""


@attack(
    NAME,
    needs={Need.HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA},
    prepares=True,
    options={"scheme"},
    standalone_reason="it is for updates whose scale is unknown; RLU-WH reads those of a known one",
    applies=lambda *_: True,
    summary="Non-negative least squares on the gradient of the head's weights, whose scale is unknown.",
)
def prepare(model: nn.Module, aux: Images) -> Prepared:
    """Prepare the attack on updates of a model with a linear head.

    Raises `ValueError` if the head is too large for one auxiliary sample of each class, and, for an update, if no scale
    fits.
    """
    samples = _choose_samples(model, aux)
    before = head_pass(model, as_inputs(samples.x, model))

    def make_system(passes: list[HeadPass], step_weight: float) -> WeightedLeastSquares:
        weights = torch.full((len(passes),), step_weight).double()
        gradients = compute_sample_gradients(passes, samples, weights)[..., :-1]
        return WeightedLeastSquares(gradients.flatten(1), samples.y, samples.n_classes)

    first_system = cache(lambda step_weight: make_system([before], step_weight))

    def read(update: Update, *, scheme: Scheme | None = None) -> Tensor:
        gradient, step_weight = head_gradient(update, model), 1.0 if scheme is None else float(scheme.weights().mean())
        system = first_system(step_weight)
        shares = torch.full((len(gradient),), 1 / len(gradient)).to(gradient)
        for _ in range(ROUNDS):
            solution = system.solve_rescaled(gradient.flatten(), shares)
            if not solution.any():
                raise ValueError("no scale makes the head's gradient a mean of auxiliary samples' gradients")
            shares = solution / solution.sum()
            corrected = update.replace({name: t / float(solution.sum()) for name, t in update.tensors.items()})
            end = _end_model(corrected, model)
            if end is None:
                break
            system = make_system([before, head_pass(end, as_inputs(samples.x, end))], step_weight)
        return round_to_total(update.samples * shares, update.samples)

    return Prepared(NAME, read)


def _choose_samples(model: nn.Module, aux: Images) -> Images:
    """Return as many auxiliary samples, alike of each class, as the head's size allows."""
    most = min(MAX_SAMPLES, MAX_GRADIENT_ENTRIES // (head(model).layer.weight.numel() + aux.n_classes))
    if most < aux.n_classes:
        raise ValueError("the last layer is too large for one auxiliary sample of each class")
    rank = nn.functional.one_hot(aux.y, aux.n_classes).cumsum(0).gather(1, aux.y[:, None]).flatten()
    return aux if len(aux) <= most else aux.take(rank.argsort(stable=True)[:most])


def _end_model(update: Update, model: nn.Module) -> nn.Module | None:
    try:
        return update.model(model) if update.steps > 1 else None
    except WithheldParameter:  # the gradients before the round have to do
        return None
