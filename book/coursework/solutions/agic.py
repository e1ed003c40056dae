"""Coursework 5, AGIC: images from FedAvg updates."""

import torch
from torch import Tensor, nn

from fedleak_book.coursework.given import SIDE, local_batches, small_network, small_parameters


def mean_gradient(delta: Tensor, lr: float, steps: int) -> Tensor:
    """Return the mean gradient of one local step, from the weights after minus before the round."""
    return -delta / (lr * steps)


def layer_weights(zero_shares: list[float], beta: float) -> Tensor:
    """Return alpha_1 … alpha_N and, at the end, the weight of the fully connected layer, ``[N + 1]`` (Eqs. 7, 8).

    `zero_shares` are the N >= 2 convolutions' shares p_i of exact zeros in the gradient, each below 1.
    """
    line = torch.linspace(1, beta, len(zero_shares), dtype=torch.float64)
    return torch.cat([line / (1 - torch.tensor(zero_shares, dtype=torch.float64)), line.mean()[None]])


def matching_loss(gradients: list[Tensor], target: list[Tensor], weights: list[float]) -> Tensor:
    """Return one minus the cosine of two gradients, with layer weights (Eq. 6); a scalar, differentiable."""

    def inner(a: list[Tensor], b: list[Tensor]) -> Tensor:
        return torch.stack([w * (p * q).sum() for w, p, q in zip(weights, a, b, strict=True)]).sum()

    return 1 - inner(gradients, target) / (inner(gradients, gradients) * inner(target, target)).sqrt()


def scale(gradients: list[Tensor], target: list[Tensor]) -> float:
    """Return the factor that brings `gradients` nearest to `target`, by least squares over all layers.

    A server that knows neither learning rate nor number of steps has the client's gradient only up to such a factor.
    """
    a, b = (torch.cat([t.flatten() for t in tensors]) for tensors in (gradients, target))
    return float(a @ b / (a @ a))


def total_variation(images: Tensor) -> Tensor:
    """Return the mean absolute step in x plus that in y of images ``[B, C, H, W]``; a scalar, differentiable."""
    across, down = images[..., 1:] - images[..., :-1], images[..., 1:, :] - images[..., :-1, :]
    return across.abs().mean() + down.abs().mean()


def reconstruct(parameters: list[Tensor], target: list[Tensor], label: int) -> Tensor:
    """Return an image ``[1, 1, 8, 8]`` in [0, 1] whose gradient is `target`, in at most 10 seconds.

    The network is ``small_network(parameters, images)`` of `fedleak_book.coursework.given`, the loss the cross-entropy;
    the gradient is that of one image with this label, for each of the `parameters`. Give all of them the weight 1.
    """
    parameters = [p.detach().requires_grad_() for p in parameters]
    image = torch.full((1, 1, SIDE, SIDE), 0.5, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([image], lr=0.1)
    for step in range(400):
        if step == 250:
            optimiser.param_groups[0]["lr"] = 0.01
        loss = nn.functional.cross_entropy(small_network(parameters, image), torch.tensor([label]))
        gradient = list(torch.autograd.grad(loss, parameters, create_graph=True))
        distance = matching_loss(gradient, target, [1.0] * len(gradient)) + 1e-6 * total_variation(image)
        (image.grad,) = torch.autograd.grad(distance, [image])
        optimiser.step()
        image.data.clamp_(0, 1)
    return image.detach()


def measure(seed: int) -> list[dict]:
    """Measure the relative error of reading a FedAvg update as the gradient of one large batch (Eq. 4).

    Use `small_network` with ``small_parameters(seed)`` and the batches of 20 clients that `local_batches` gives, all of
    `fedleak_book.coursework.given`, in float64, and 2 or 5 steps of plain SGD at the learning rates 0.0001, 0.001 and
    0.01. Return a row for each, ``{"steps": 2, "lr": 0.0001, "error": …}``: the norm of the difference of the two
    gradients over the norm of the large batch's, all parameters together; the mean over the clients.
    """
    start, rows = [p.requires_grad_() for p in small_parameters(seed)], []

    def gradient(parameters: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
        loss = nn.functional.cross_entropy(small_network(parameters, x), y)
        return list(torch.autograd.grad(loss, parameters))

    def error(x: Tensor, y: Tensor, lr: float) -> float:
        whole, weights = gradient(start, x.flatten(0, 1), y.flatten()), start
        for images, labels in zip(x, y, strict=True):
            slopes = gradient(weights, images, labels)
            weights = [(w - lr * s).detach().requires_grad_() for w, s in zip(weights, slopes, strict=True)]
        read = [mean_gradient((w - s).detach(), lr, len(x)) for w, s in zip(weights, start, strict=True)]
        gap = torch.cat([(r - g).flatten() for r, g in zip(read, whole, strict=True)]).norm()
        return float(gap / torch.cat([g.flatten() for g in whole]).norm())

    for steps in (2, 5):
        x, y = local_batches(seed, steps)
        for lr in (1e-4, 1e-3, 1e-2):
            errors = [error(images, labels, lr) for images, labels in zip(x, y, strict=True)]
            rows.append({"steps": steps, "lr": lr, "error": sum(errors) / len(errors)})
    return rows
