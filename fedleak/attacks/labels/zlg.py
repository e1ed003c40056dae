"""ZLG, zero-shot label counts (Geng et al., 2021): row sums of the last layer's gradient, unmixed by means."""

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import row_sums, whole_counts
from fedleak.attacks.registry import Attack, Need, register
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import head, head_pass, input_shape

DUMMIES = 1000


def estimate(row_sums: Tensor, probabilities: Tensor, mass: Tensor, samples: int) -> Tensor:
    """Estimate the counts ``K p_i - K g_i / O`` of any number of updates at once, not rounded.

    Parameters
    ----------
    row_sums
        Class gradients g of one step, ``[..., n]``: row sums of the mean weight gradient.
    probabilities
        Expected softmax of the outputs, ``[n]`` or ``[..., n]``.
    mass
        Expected sum O of the last layer's inputs, a number or ``[...]``.
    samples
        K.

    Raises
    ------
    ValueError
        If a mass is 0, so that nothing can be divided by it.
    """
    mass = torch.as_tensor(mass, dtype=row_sums.dtype, device=row_sums.device)
    if (mass == 0).any():
        raise ValueError("the last layer's inputs sum to 0 on average: ZLG divides by this sum")
    return samples * (probabilities - row_sums / mass.unsqueeze(-1))


def recover(update: Update, model: nn.Module, aux: Images | Tensor | None = None, *, seed: int = 0) -> Tensor:
    """Recover the counts ``[n]``, which sum to ``update.samples``.

    Parameters
    ----------
    update
        Must share the gradient of the head's weights.
    model
        The global model.
    aux
        Images from which the mean softmax and the mean feature sum are taken; dummy images from N(0, 1) by default.
    seed
        Seed of the dummy images.

    Raises
    ------
    WithheldParameter
        If the head's gradient is not shared.
    ValueError
        If the gradient is not finite or does not fit the model.
    """
    g = row_sums(update, model)
    if aux is None:
        aux = torch.randn(DUMMIES, *input_shape(model), generator=torch.Generator().manual_seed(seed))
    x = aux.x if isinstance(aux, Images) else aux
    seen = head_pass(model, x.to(head(model).layer.weight))
    mass = seen.inputs.double().sum(1).mean()
    return whole_counts(estimate(g, seen.probabilities.double().mean(0), mass, update.samples), update.samples)


register(
    Attack(
        name="ZLG",
        goal="labels",
        paper="geng2021towards",
        equation="label counts from the last layer",
        needs=frozenset({Need.HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL}),
        summary="Row sums of the last layer's gradient, with the mean softmax and feature sum of dummy images.",
        run=recover,
    )
)
