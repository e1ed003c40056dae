"""EludingSA, by model inconsistency (Pasquini et al., CCS 2022): all clients but the target are made to send zeros.

The target gets the normal model. The others get one with a layer whose outputs are all negative before its ReLU:
nothing reaches the head and nothing flows back. The sum is then the target's own update, but for the head's bias.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedleak.attacks.images import dlg
from fedleak.attacks.images.invg import inversion
from fedleak.attacks.labels.fishing import fishing_layer, with_constant
from fedleak.federated import Update
from fedleak.models import head

DEEP = -200.0
"""Pre-activation of a muted layer: a ReLU gives 0, a sigmoid 1e-87, which is 0 in single precision."""


def muted_model(model: nn.Module, layer: str | None = None) -> nn.Module:
    """Return a copy of the model whose `layer` puts out one very negative constant; it shares all other parameters.

    By default it is the first batch norm (128 parameters in VGG and ResNet), or the first fully connected layer where
    there is none. That silences everything behind it if biases behind it are 0, as they are in untrained VGGs and
    ResNets. With biases (or sigmoids) name the last layer before the head. Raises `ValueError` if the layer is not
    there, or has no weight and bias.
    """
    name = fishing_layer(model) if layer is None else layer
    if not {f"{name}.weight", f"{name}.bias"} <= dict(model.named_parameters()).keys():
        raise ValueError(f"there is no layer {name!r} with weight and bias to mute")
    return with_constant(model, name, torch.tensor(DEEP))


def target_update(aggregate: Update, model: nn.Module, samples: int) -> Update:
    """Read the target's update off the sum: all of it but the head's bias, which the muted clients add to."""
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
    aggregate: Update, model: nn.Module, *, samples: int = 1, iterations: int = dlg.ITERATIONS, seed: int = 0
) -> Tensor:
    """Reconstruct the target's images ``[samples, C, H, W]`` in [0, 1] from the sum of all clients' gradients.

    `aggregate` is the sum of the target's gradient and the muted clients', `model` the normal one, which the target
    got, `samples` its batch size; iterations and seed are those of `fedleak.attacks.images.dlg.match`. Raises
    `WithheldParameter` if a layer's gradient is not shared; `ValueError` for gradients that do not fit the model.
    """
    # The head's bias is a constant here, not a parameter: its gradient is the one that does not come through.
    frozen = copy.deepcopy(model)
    layer = head(frozen).layer
    if layer.bias is not None:
        bias = layer.bias.detach().clone()
        del layer._parameters["bias"]
        layer.register_buffer("bias", bias)
    found = dlg.match(target_update(aggregate, model, samples), frozen, iterations=iterations, seed=seed)
    return found.images[0].clamp(0, 1)


def clients_models(model: nn.Module, target: int, clients: int, layer: str | None = None) -> Sequence[nn.Module]:
    """Return what the server sends to each client: the normal model to the target, one muted model to all others."""
    if not 0 <= target < clients:
        raise ValueError(f"clients are numbered 0 to {clients - 1}, got {target}")
    muted = muted_model(model, layer)
    return [model if u == target else muted for u in range(clients)]
