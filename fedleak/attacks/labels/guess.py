"""Guesses without a gradient: the baselines of all label attacks."""

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.registry import Need, attack
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.metrics import counts
from fedleak.models import head


def uniform_counts(samples: int, n_classes: int, trials: int, generator: torch.Generator) -> Tensor:
    """Draw the counts of `samples` i.i.d. uniform labels, ``[trials, n_classes]``."""
    return counts(torch.randint(n_classes, (trials, samples), generator=generator), n_classes)


@attack(
    "random guess",
    paper="wainakh2022llg",
    equation="Sec. 6.1",
    needs={Need.SAMPLE_COUNT},
    summary="Guesses every label independently and uniformly; sees no gradient.",
    options={"seed"},
)
def recover(update: Update, model: nn.Module, *, seed: int = 0) -> Tensor:
    """Guess each label independently and uniformly; return counts ``[n]`` that sum to ``update.samples``."""
    generator = torch.Generator().manual_seed(seed)
    layer = head(model).layer
    return uniform_counts(update.samples, layer.out_features, 1, generator)[0].to(layer.weight.device)


@attack(
    "prior guess",
    needs={Need.SAMPLE_COUNT, Need.AUXILIARY_DATA},
    summary="Spreads the samples over the classes as often as these occur; sees no gradient.",
    options={"prior"},
)
def recover_prior(update: Update, model: nn.Module, aux: Images, *, prior: Tensor | None = None) -> Tensor:
    """Return counts ``[n]`` in proportion to `prior` ``[n]`` or, by default, to the auxiliary data's classes.

    Raises `ValueError` for a prior of another shape, with a negative or infinite entry, or of the sum 0.
    """
    n, weights = head(model).layer.out_features, aux.class_counts if prior is None else prior
    if weights.shape != (n,) or not (bool((weights >= 0).all()) and 0 < float(weights.sum()) < torch.inf):
        raise ValueError(f"a prior has a frequency of each of the {n} classes, not negative; got {weights}")
    shares = update.samples * weights.double() / weights.double().sum()
    return round_to_total(shares, update.samples).to(head(model).layer.weight.device)
