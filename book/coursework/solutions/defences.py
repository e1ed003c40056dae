"""Coursework 6, defences: clipping, noise and sparsification."""

import math

import torch
from torch import Tensor, nn

from fedleak_book.coursework.given import noisy_clients


def clip(update: dict[str, Tensor], bound: float) -> dict[str, Tensor]:
    """Scale an update down to the L2 norm `bound`, all tensors together; leave a smaller one as it is."""
    norm = torch.cat([t.flatten() for t in update.values()]).norm()
    factor = 1 / max(1.0, float(norm) / bound)
    return {name: factor * t for name, t in update.items()}


def add_noise(update: dict[str, Tensor], bound: float, noise_multiplier: float, seed: int) -> dict[str, Tensor]:
    """Add independent Gaussian noise of standard deviation ``noise_multiplier * bound`` to every entry."""
    generator = torch.Generator().manual_seed(seed)
    sigma = noise_multiplier * bound
    return {n: t + sigma * torch.randn(t.shape, generator=generator, dtype=t.dtype) for n, t in update.items()}


def sparsify(gradient: Tensor, memory: Tensor, discard: float) -> tuple[Tensor, Tensor]:
    """Return what a client sends in this round, and what it keeps for the next (both shaped like `gradient`).

    `memory` is what it kept in the last round, `discard` the share of the entries that are not sent.
    """
    whole = gradient + memory
    n_kept = whole.numel() - round(discard * whole.numel())
    places = whole.flatten().abs().topk(n_kept).indices
    sent = torch.zeros_like(whole).flatten().scatter(0, places, whole.flatten()[places]).view_as(whole)
    return sent, whole - sent


def exact_share(sigma: float, batch_size: int) -> float:
    """Return the share of the counts B (p - gradient) that round to the truth if the gradient has noise sigma.

    Counts are not clamped at 0.
    """
    return math.erf(1 / (2 * math.sqrt(2) * batch_size * sigma))


def clamped_share(sigma: float, batch_size: int, zeros: float) -> float:
    """Return the share of exact counts as `exact_share`, but of counts that the attacker clamps at 0.

    `zeros` is the share of the true counts that are 0.
    """
    share = exact_share(sigma, batch_size)
    return zeros * (1 + share) / 2 + (1 - zeros) * share


def measure(seed: int) -> list[dict]:
    """Measure the share of exact counts under noise of 0.003, 0.01, 0.03 and 0.1, and predict it.

    The 400 clients of `fedleak_book.coursework.given.noisy_clients` have B = 32 labels of 10 classes, and a model whose
    softmax p the server knows and which is the same for all samples (a fishing model, or an untrained network). Take
    the gradient of the logits by autograd, add sigma times the noise, and round B (p - gradient) to the nearest
    integer, without clamping. Return a row for each sigma, of all clients and classes, as
    ``{"sigma": 0.003, "predicted": …, "measured": …}``.
    """
    rows, batch = [], 32
    for sigma in (0.003, 0.01, 0.03, 0.1):
        right = []
        for bias, labels, noise in zip(*noisy_clients(seed), strict=True):
            bias.requires_grad_()
            (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(bias.expand(batch, 10), labels), [bias])
            noisy = gradient + sigma * noise
            recovered = (batch * (bias.softmax(0) - noisy)).round()
            right.append((recovered == torch.bincount(labels, minlength=10)).double().mean())
        rows.append(
            {
                "sigma": sigma,
                "predicted": exact_share(sigma, batch),
                "measured": float(torch.stack(right).mean()),
            }
        )
    return rows
