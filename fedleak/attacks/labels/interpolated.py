"""Label counts over local steps from interpolated statistics (Dimitrov et al., TMLR 2022).

ZLG needs the mean softmax p and the mean sum O of the head's inputs, which change over local steps. The server has the
models at both ends. Following the paper's idea and its released code, N(0, 1) noise gives p and O at both ends, linear
interpolation gives them before each step, each step has an equal share of the update, and the counts of all steps are
averaged. `zlg` uses the mean of p and O over both ends instead.
"""

import torch
from torch import Tensor, nn

from fedleak.attacks.labels import zlg
from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.inputs import row_sums
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, once
from fedleak.federated import Update


def estimate(row_sums: Tensor, probabilities: Tensor, masses: Tensor, samples: int, steps: int) -> Tensor:
    """Estimate real counts ``[n]``, the mean over the steps of ``K (p_t - grad / O_t)``.

    Raises `ValueError` if O is 0 at a step.

    Parameters
    ----------
    row_sums
        Row sums of the head's mean gradient over a step, ``[n]``.
    probabilities, masses
        p and O of the models before and after the round, ``[2, n]`` and ``[2]``.
    samples, steps
        Number of samples K and of steps T; step t, from 0 to T - 1, is at the fraction t/T of the round.
    """
    fractions = torch.arange(steps, dtype=masses.dtype, device=masses.device) / steps
    p = torch.lerp(probabilities[0], probabilities[1], fractions[:, None])
    mass = torch.lerp(masses[0], masses[1], fractions)
    if (mass == 0).any():
        raise ValueError("the last layer's inputs sum to 0 on average: ZLG divides by this sum")
    return samples * (p - row_sums / mass[:, None]).mean(0)


@attack(
    "ZLG, interpolated",
    paper="dimitrov2022fedavg",
    needs={Need.HEAD_GRADIENT, Need.ALL_GRADIENTS, Need.SAMPLE_COUNT, Need.MODEL},
    summary="ZLG at every local step, with probabilities and activations interpolated over the round.",
    options={"dummies"},
    prepares=True,
)
def prepare(
    model: nn.Module, *, seed: int = 0, shape: tuple[int, ...] | None = None, dummies: int = zlg.N_DUMMY_IMAGES
) -> Prepared:
    """Prepare interpolated ZLG, which passes noise through the model; with one step it is ZLG.

    ``recover(update)`` returns counts ``[n]`` that sum to ``update.samples``; several steps need all parameters. It
    raises `WithheldParameter` if a parameter that is needed is not shared; `ValueError` for NaN or infinite gradients,
    or an update of another model.

    Parameters
    ----------
    model
        The model before the round.
    seed, shape
        Random seed of the noise; shape of one input, if it does not follow from the model.
    dummies
        Number of noise images.
    """
    pass_at_ends = zlg.make_passes(model, zlg.draw_noise(model, seed, shape, dummies))

    def read(update: Update) -> Tensor:
        sums, passes = row_sums(update, model), pass_at_ends(update)
        ends = (passes[0], passes[-1])
        p = torch.stack([end.probabilities.double().mean(0) for end in ends])
        masses = torch.stack([end.inputs.double().sum(1).mean() for end in ends])
        return round_to_total(estimate(sums, p, masses, update.samples, update.steps), update.samples)

    return Prepared("ZLG, interpolated", read)


recover = once(prepare)
