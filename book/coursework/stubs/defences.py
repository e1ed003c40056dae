"""Coursework 6, defences: clipping, noise and sparsification."""

from torch import Tensor


def clip(update: dict[str, Tensor], bound: float) -> dict[str, Tensor]:
    """Scale an update down to the L2 norm `bound`, all tensors together; leave a smaller one as it is."""
    raise NotImplementedError


def add_noise(update: dict[str, Tensor], bound: float, noise_multiplier: float, seed: int) -> dict[str, Tensor]:
    """Add independent Gaussian noise of standard deviation ``noise_multiplier * bound`` to every entry."""
    raise NotImplementedError


def sparsify(gradient: Tensor, memory: Tensor, discard: float) -> tuple[Tensor, Tensor]:
    """Return what a client sends in this round, and what it keeps for the next (both shaped like `gradient`).

    `memory` is what it kept in the last round, `discard` the share of the entries that are not sent.
    """
    raise NotImplementedError


def exact_share(sigma: float, batch_size: int) -> float:
    """Return the share of the counts B (p - gradient) that round to the truth if the gradient has noise sigma.

    Counts are not clamped at 0.
    """
    raise NotImplementedError


def clamped_share(sigma: float, batch_size: int, zeros: float) -> float:
    """Return the share of exact counts as `exact_share`, but of counts that the attacker clamps at 0.

    `zeros` is the share of the true counts that are 0.
    """
    raise NotImplementedError


def measure(seed: int) -> list[dict]:
    """Measure the share of exact counts under noise of 0.003, 0.01, 0.03 and 0.1, and predict it.

    The 400 clients of `fedleak_book.coursework.given.noisy_clients` have B = 32 labels of 10 classes, and a model whose
    softmax p the server knows and which is the same for all samples (a fishing model, or an untrained network). Take
    the gradient of the logits by autograd, add sigma times the noise, and round B (p - gradient) to the nearest
    integer, without clamping. Return a row for each sigma, of all clients and classes, as
    ``{"sigma": 0.003, "predicted": …, "measured": …}``.
    """
    raise NotImplementedError
