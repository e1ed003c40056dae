"""EludingSA (Pasquini et al., CCS 2022): inconsistent models make all clients except the target send zeros.

The target gets the normal model. In the others' model all outputs of one layer are negative before its ReLU, so that
no input reaches the head and no gradient flows back. The sum is then the target's update, except for the head's bias.
"""

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from fedleak.attacks.images import dlg
from fedleak.attacks.images.invg import inversion
from fedleak.attacks.images.problem import Start
from fedleak.attacks.labels.fishing import fishing_layer, with_constant
from fedleak.federated import Update
from fedleak.models import head

DEEP = -200.0
"""Output of a muted layer before its activation: a ReLU gives 0, a sigmoid 1e-87, which is 0 in single precision."""


def muted_model(model: nn.Module, layer: str | None = None) -> nn.Module:
    """Return a copy of the model whose `layer` outputs a very negative constant; it shares all other parameters.

    By default the layer is the first batch norm (128 parameters in VGG and ResNet), or without one the first fully
    connected layer. This mutes all later layers if their biases are 0, as in untrained VGGs and ResNets. With biases or
    sigmoids name the last layer before the head. Raises `ValueError` if the layer does not exist, or has no weight and
    bias.
    """
    name = fishing_layer(model) if layer is None else layer
    if not {f"{name}.weight", f"{name}.bias"} <= dict(model.named_parameters()).keys():
        raise ValueError(f"there is no layer {name!r} with weight and bias to mute")
    return with_constant(model, name, torch.tensor(DEEP))


def target_update(aggregate: Update, model: nn.Module, samples: int) -> Update:
    """Return the target's update: the sum without the head's bias, to which the muted clients contribute."""
    last = head(model)
    if last.layer.bias is not None:
        aggregate = aggregate.without(last.bias)
    return Update(aggregate.tensors, "gradient", samples)


@inversion(
    "EludingSA",
    paper="pasquini2022eluding",
    equation="Sec. 4",
    summary="All clients but one get a model whose ReLUs are dead, so that the sum is that one's update.",
    sees="aggregate",
    server="malicious",
    standalone_reason="it ends in an image inversion, which is not tried under secure aggregation",
)
def reconstruct(
    aggregate: Update,
    model: nn.Module,
    *,
    samples: int = 1,
    iterations: int = dlg.ITERATIONS,
    **options: Unpack[Start],
) -> Tensor:
    """Reconstruct the target's images ``[samples, C, H, W]`` from the sum of all clients' gradients.

    `model` is the target's, the normal one, and `samples` its batch size; `iterations` and other options are those of
    `fedleak.attacks.images.dlg.reconstruct`. The gradient of the head's bias is unknown and thus not matched. Raises
    `WithheldParameter` if no gradient is shared; `ValueError` for gradients that do not fit the model.
    """
    return dlg.match(target_update(aggregate, model, samples), model, iterations=iterations, **options).answer()[0]


def clients_models(model: nn.Module, target: int, clients: int, layer: str | None = None) -> Sequence[nn.Module]:
    """Return the model for each client: the normal one for the target, one muted model for all others."""
    if not 0 <= target < clients:
        raise ValueError(f"clients are numbered 0 to {clients - 1}, got {target}")
    muted = muted_model(model, layer)
    return [model if u == target else muted for u in range(clients)]
