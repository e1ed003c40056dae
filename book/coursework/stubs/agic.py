"""Coursework 5, AGIC: images from FedAvg updates."""

from torch import Tensor

from fedleak_book.coursework.given import SIDE, local_batches, small_network, small_parameters  # noqa: F401


def mean_gradient(delta: Tensor, lr: float, steps: int) -> Tensor:
    """Return the mean gradient of one local step, from the weights after minus before the round."""
    raise NotImplementedError


def layer_weights(zero_shares: list[float], beta: float) -> Tensor:
    """Return alpha_1 … alpha_N and, at the end, the weight of the fully connected layer, ``[N + 1]`` (Eqs. 7, 8).

    `zero_shares` are the N >= 2 convolutions' shares p_i of exact zeros in the gradient, each below 1.
    """
    raise NotImplementedError


def matching_loss(gradients: list[Tensor], target: list[Tensor], weights: list[float]) -> Tensor:
    """Return one minus the cosine of two gradients, with layer weights (Eq. 6); a scalar, differentiable."""
    raise NotImplementedError


def scale(gradients: list[Tensor], target: list[Tensor]) -> float:
    """Return the factor that brings `gradients` nearest to `target`, by least squares over all layers.

    A server that knows neither learning rate nor number of steps has the client's gradient only up to such a factor.
    """
    raise NotImplementedError


def total_variation(images: Tensor) -> Tensor:
    """Return the mean absolute step in x plus that in y of images ``[B, C, H, W]``; a scalar, differentiable."""
    raise NotImplementedError


def reconstruct(parameters: list[Tensor], target: list[Tensor], label: int) -> Tensor:
    """Return an image ``[1, 1, 8, 8]`` in [0, 1] whose gradient is `target`, in at most 10 seconds.

    The network is ``small_network(parameters, images)``, the loss the cross-entropy; the gradient is that of one image
    with this label, for each of the `parameters`. Give all of them the weight 1.
    """
    raise NotImplementedError


def measure(seed: int) -> list[dict]:
    """Measure the relative error of reading a FedAvg update as the gradient of one large batch (Eq. 4).

    Use `small_network` with ``small_parameters(seed)`` and the batches of 20 clients that `local_batches` gives, in
    float64, and 2 or 5 steps of plain SGD at the learning rates 0.0001, 0.001 and 0.01. Return a row for each,
    ``{"steps": 2, "lr": 0.0001, "error": …}``: the norm of the difference of the two gradients over the norm of the
    large batch's, all parameters together; the mean over the clients.
    """
    raise NotImplementedError
