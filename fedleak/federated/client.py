"""An honest client: FedSGD and FedAvg on its own batches (McMahan et al., AISTATS 2017)."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.federated.update import Update


def fedsgd(model: nn.Module, x: Tensor, y: Tensor) -> Update:
    """Share the mean cross-entropy gradient of one batch; the model is left as it was.

    Parameters
    ----------
    model
        The global model of this round.
    x, y
        One batch: images ``[B, C, H, W]`` and labels ``[B]``.
    """
    return fedavg(model, x.unsqueeze(0), y.unsqueeze(0), lr=1.0, share="gradient")


def fedavg(
    model: nn.Module, x: Tensor, y: Tensor, lr: float, share: Literal["gradient", "delta"] = "gradient"
) -> Update:
    """Train on one batch after the other with plain SGD and share the result; the model is left as it was.

    Parameters
    ----------
    model
        The global model of this round; batch-norm layers are used in the mode they are in.
    x, y
        The local batches: images ``[steps, B, C, H, W]`` and labels ``[steps, B]``.
    lr
        Learning rate of the local steps.
    share
        ``"gradient"``: the gradients summed over the steps. ``"delta"``: weights after minus before.

    Returns
    -------
    Update
        With ``samples = steps * B``. With plain SGD the two kinds carry the same information.

    Raises
    ------
    ValueError
        For shapes that do not fit together, an empty batch or labels outside the model's classes.
    """
    if x.dim() < 3 or y.dim() != 2 or x.shape[:2] != y.shape or y.numel() == 0:
        raise ValueError(
            f"expected x [steps, B, ...] and y [steps, B], not empty; got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    start = {name: p.detach() for name, p in model.named_parameters()}
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    weights = start
    total = {name: torch.zeros_like(p) for name, p in start.items()}
    for step_x, step_y in zip(x, y, strict=True):
        weights = {name: p.detach().requires_grad_() for name, p in weights.items()}
        logits = functional_call(model, (weights, buffers), (step_x,))
        if int(y.max()) >= logits.shape[1] or int(y.min()) < 0:
            raise ValueError(f"labels lie in 0..{logits.shape[1] - 1}, got {int(y.min())}..{int(y.max())}")
        loss = nn.functional.cross_entropy(logits, step_y)
        # What the outputs do not depend on, such as a second head, has a gradient of zero.
        gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
            total[name] += gradient
            weights[name] = weight.detach() - lr * gradient
    steps = len(x)
    if share == "delta":
        delta = {name: weights[name] - start[name] for name in start}
        return Update(delta, "delta", y.numel(), steps, lr)
    return Update(total, "gradient", y.numel(), steps, lr if steps > 1 else None)
