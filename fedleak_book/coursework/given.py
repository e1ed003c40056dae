"""Shared inputs of student and checks: a small network, and the inputs of `measure`."""

from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor, nn

from fedleak.data import compose, draw, load
from fedleak.models import build, without_biases

SIDE = 8
"""Pixels a side of the images that `small_network` takes."""


def small_parameters(seed: int, n_classes: int = 10) -> list[Tensor]:
    """Return weights and biases of `small_network`, float64: two convolutions and a fully connected layer."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(8, 1, 3, 3), (8,), (8, 8, 3, 3), (8,), (n_classes, 8 * SIDE * SIDE), (n_classes,)]
    return [torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5 for shape in shapes]


def small_network(parameters: Sequence[Tensor], images: Tensor) -> Tensor:
    """Return logits ``[B, n]`` of images ``[B, 1, 8, 8]``; the sigmoids make the gradient's own gradient smooth."""
    first, bias, second, other, head, last = parameters
    hidden = torch.sigmoid(nn.functional.conv2d(images, first, bias, padding=1))
    hidden = torch.sigmoid(nn.functional.conv2d(hidden, second, other, padding=1))
    return hidden.flatten(1) @ head.T + last


def _unbalanced(seed: int, trials: int, batch_size: int) -> Iterator[tuple[int, Generator, Tensor, Tensor]]:
    """Yield for each trial its seed, the generator that goes on after its batch, and images and labels of this."""
    images = load("mnist5k")
    for trial_seed in range(100 * seed, 100 * seed + trials):
        generator = torch.Generator().manual_seed(trial_seed)
        labels = compose("unbalanced", batch_size, 10, 1, generator)[0]
        yield trial_seed, generator, images.x[draw(images, labels[None], generator)[0]], labels


def llg_trials(seed: int, batch_size: int) -> Iterator[tuple[nn.Module, Tensor, Tensor, Tensor]]:
    """Yield ``(model, images, labels, guess)`` for 10 fresh CNNs.

    Images ``[B, 1, 28, 28]`` and labels ``[B]`` are an unbalanced batch of digits, the guess ``[B]`` uniform labels.
    """
    for trial_seed, generator, x, labels in _unbalanced(seed, 10, batch_size):
        guess = torch.randint(10, (batch_size,), generator=generator)
        yield build("cnn", x.shape[1:], 10, seed=trial_seed), x, labels, guess


def manipulated_clients(seed: int, recipe: str, clients: int) -> tuple[Tensor, nn.Linear, Tensor]:
    """Return embeddings ``[U, 64]``, the head and labels ``[U, 32]`` of clients with manipulated models; float64.

    The network is 784 - 64 (ReLU) - 64 (ReLU) - 10, the same for all but for its first layer, which puts out (before
    its ReLU) ``0.1 (u + 1)`` in every entry for client u = 0, 1, … ("constant"), or 64 draws from U(0, 1) ("vector"),
    whatever the image is.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        middle, last = nn.Linear(64, 64).double(), nn.Linear(64, 10).double()
        first = 0.1 * torch.arange(1, clients + 1).double()[:, None].expand(-1, 64)
        if recipe == "vector":
            first = torch.rand(clients, 64).double()
        return middle(first.relu()).relu().detach(), last, torch.randint(10, (clients, 32))


def momentum_clients(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return an untrained LeNet, images and labels ``[8, 10, 32]`` of 8 clients with 10 steps of unbalanced batches."""
    images, generator = load("mnist5k"), torch.Generator().manual_seed(seed)
    labels = compose("unbalanced", 32, 10, 8, generator, steps=10)
    x = images.x[draw(images, labels.flatten(1), generator)].unflatten(1, (10, 32))
    return build("lenet", images.shape, 10, seed=seed), x, labels


def bridged_networks(seed: int, init: str) -> Iterator[tuple[nn.Module, Tensor, Tensor]]:
    """Yield 10 LeNets without biases, each with images and labels of an unbalanced batch of 64; float64."""
    for trial_seed, _, x, labels in _unbalanced(seed, 10, 64):
        yield without_biases(build("lenet", x.shape[1:], 10, seed=trial_seed, init=init)).double(), x.double(), labels


def local_batches(seed: int, steps: int) -> tuple[Tensor, Tensor]:
    """Return images ``[20, steps, 4, 1, 8, 8]``, float64, and labels of 20 clients' batches of 4."""
    images = load("mnist5k", size=SIDE)
    index = torch.randint(len(images), (20, steps, 4), generator=torch.Generator().manual_seed(seed))
    return images.x[index].double(), images.y[index]


def noisy_clients(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits ``[400, 10]``, labels ``[400, 32]`` and noise of deviation 1 ``[400, 10]`` of 400 clients."""
    generator = torch.Generator().manual_seed(seed)
    logits, noise = (torch.randn(400, 10, generator=generator) for _ in range(2))
    return logits, torch.randint(10, (400, 32), generator=generator), noise
