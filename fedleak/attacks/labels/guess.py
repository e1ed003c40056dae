"""The random guess: what somebody who sees no gradient gets right."""

import torch
from torch import Tensor, nn

from fedleak.attacks.registry import Attack, Need, register
from fedleak.federated import Update
from fedleak.models import head


def uniform_counts(samples: int, n_classes: int, trials: int, generator: torch.Generator) -> Tensor:
    """Draw the counts of `samples` i.i.d. uniform labels, ``[trials, n_classes]``."""
    labels = torch.randint(n_classes, (trials, samples), generator=generator)
    return torch.zeros(trials, n_classes, dtype=torch.long).scatter_add_(1, labels, torch.ones_like(labels))


def recover(update: Update, model: nn.Module, *, seed: int = 0) -> Tensor:
    """Guess every label independently and uniformly; returns counts ``[n]`` that sum to ``update.samples``."""
    generator = torch.Generator().manual_seed(seed)
    return uniform_counts(update.samples, head(model).layer.out_features, 1, generator)[0]


register(
    Attack(
        name="random guess",
        goal="labels",
        paper="wainakh2022llg",
        equation="Sec. 6.1",
        needs=frozenset({Need.SAMPLE_COUNT}),
        summary="Guesses every label independently and uniformly; sees no gradient.",
        run=recover,
    )
)
