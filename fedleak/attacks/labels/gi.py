"""GradInversion's label rule (Yin et al., CVPR 2021): the labels are the K rows with the smallest minimum."""

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update


@attack(
    "GI",
    paper="yin2021gradinversion",
    equation="Eq. 7",
    needs={Need.HEAD_GRADIENT, Need.SAMPLE_COUNT},
    summary="The K rows of the last layer's gradient with the smallest minimum; no repeated labels.",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Recover the K classes whose rows of the head's gradient have the smallest entries, as counts ``[n]`` of 0 and 1.

    Raises `ValueError` if there are more samples than classes: the rule cannot repeat a label.
    """
    gradient = head_gradient(update, model)
    n_classes = len(gradient)
    if update.samples > n_classes:
        raise ValueError(
            f"GI recovers distinct labels, so at most {n_classes} of them; this update holds {update.samples} samples"
        )
    classes = gradient.amin(dim=1).topk(update.samples, largest=False).indices
    return torch.zeros(n_classes, dtype=torch.long, device=gradient.device).index_fill_(0, classes, 1)
