"""ZLG, zero-shot label counts from gradients (Geng et al., 2021), and its variant with auxiliary data, ZLG+."""

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn

from fedleak.attacks.door import entering
from fedleak.attacks.labels.confidence import mean_by_class
from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.inputs import require_classes, row_sums
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, once
from fedleak.data import Images
from fedleak.errors import whole_number
from fedleak.federated import Update
from fedleak.models import HeadPass, as_inputs, head, head_pass, input_shape

N_DUMMY_IMAGES = 1000
"""Number of ZLG's dummy images, which are drawn from N(0, 1)."""
_ZLG = partial(attack, paper="geng2021zlg", equation="Sec. 4.1", prepares=True)
_NEEDS = {Need.HEAD_GRADIENT, Need.ALL_GRADIENTS, Need.SAMPLE_COUNT, Need.MODEL}


def estimate(row_sums: Tensor, probabilities: Tensor, mass: Tensor | float, samples: int) -> Tensor:
    """Estimate counts ``[..., n]`` with the sum K, ``n_i = K (p_i - grad_i / O)``, for any number of updates at once.

    Raises `ValueError` if O is 0.

    Parameters
    ----------
    row_sums
        Row sums of the head's mean gradient over a step, ``[..., n]``.
    probabilities, mass
        Expected softmax p of each class, ``[..., n]``, and expected sum O of the head's inputs.
    """
    if mass == 0:
        raise ValueError("the last layer's inputs sum to 0 on average: ZLG divides by this sum")
    return round_to_total(samples * (probabilities - row_sums / mass), samples)


@_ZLG(
    "ZLG",
    needs=_NEEDS,
    summary="Row sums against the mean probabilities and activations of noise images.",
    options={"dummies"},
)
def from_noise(
    model: nn.Module, *, seed: int = 0, shape: tuple[int, ...] | None = None, dummies: int = N_DUMMY_IMAGES
) -> Prepared:
    """Prepare ZLG, which passes N(0, 1) noise through the model; see `prepare`."""
    return prepare(model, seed=seed, shape=shape, dummies=dummies)


@_ZLG(
    "ZLG+",
    needs=_NEEDS | {Need.AUXILIARY_DATA},
    summary="ZLG with probabilities and activations of labelled auxiliary data.",
)
def from_auxiliary(model: nn.Module, aux: Images) -> Prepared:
    """Prepare ZLG+, in which p_i is the mean probability of class i on auxiliary images of class i; see `prepare`."""
    require_classes(aux, head(model).layer.out_features)
    return prepare(model, aux)


@entering
def prepare(
    model: nn.Module,
    aux: Images | None = None,
    *,
    seed: int = 0,
    shape: tuple[int, ...] | None = None,
    dummies: int = N_DUMMY_IMAGES,
) -> Prepared:
    """Prepare ZLG, or ZLG+ with labelled images.

    ``recover(update)`` returns counts ``[n]`` that sum to ``update.samples``. Several local steps need all parameters:
    probabilities and mass are then the mean of those before and after the round.

    Parameters
    ----------
    model, aux
        The model before the round; labelled images for ZLG+, None for ZLG.
    seed, shape
        Random seed of the noise; shape of one input, if it does not follow from the model.
    dummies
        Number of noise images.

    Raises
    ------
    ValueError
        The auxiliary data lack a class; in ``recover``: NaN or infinite gradients, or an update of another model.
    WithheldParameter
        In ``recover``: a parameter that is needed is not shared.
    """
    if aux is not None:
        require_classes(aux, head(model).layer.out_features)
    pass_at_ends = make_passes(model, draw_noise(model, seed, shape, dummies) if aux is None else aux.x)

    def read(update: Update) -> Tensor:
        sums, ends = row_sums(update, model), pass_at_ends(update)
        mass = torch.stack([p.inputs.double().sum(1).mean() for p in ends]).mean()
        softmax = torch.stack([p.probabilities.double() for p in ends]).mean(0)
        if aux is None:
            return estimate(sums, softmax.mean(0), mass, update.samples)
        by_class = mean_by_class(softmax, aux.y.to(softmax.device), len(sums))
        return estimate(sums, by_class.diagonal(), mass, update.samples)

    return Prepared("ZLG" if aux is None else "ZLG+", read)


recover = once(prepare)


def draw_noise(model: nn.Module, seed: int, shape: tuple[int, ...] | None, dummies: int) -> Tensor:
    """Draw dummy images from N(0, 1)."""
    size = whole_number("dummies", dummies), *input_shape(model, shape)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def make_passes(model: nn.Module, x: Tensor) -> Callable[[Update], list[HeadPass]]:
    """Return a function of an update: the inputs' passes through the model before and, for several steps, after it."""
    inputs = as_inputs(x, model)
    before = cache(lambda: head_pass(model, inputs))
    return lambda update: [before()] if update.steps == 1 else [before(), head_pass(update.model(model), inputs)]
