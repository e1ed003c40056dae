"""A label attack to start from: the class whose row sum is smallest has all the samples."""

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import row_sums
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update


@attack(
    "smallest row",
    needs={Need.HEAD_GRADIENT, Need.SAMPLE_COUNT},
    summary="The class with the smallest row sum has all the samples.",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Recover the counts ``[n]``: all samples in the class with the smallest row sum.

    Raises `WithheldParameter` if the client did not share the gradient of the head's weights; `ValueError` if its shape
    is not that of the model's head.
    """
    g = row_sums(update, model)
    return update.samples * nn.functional.one_hot(torch.argmin(g), len(g))
