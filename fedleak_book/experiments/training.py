"""Federated training of one global model, all clients of a round at once; its accuracy; batch norm set and frozen."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad, vmap

from fedleak.data import Images, compose, draw
from fedleak.federated.client import check_batches
from fedleak.federated.defences import Defence
from fedleak.federated.update import Stacked
from fedleak.models import batch_dependent


def stacked_updates(model: nn.Module, x: Tensor, y: Tensor, lr: float, chunk: int | None = None) -> Stacked:
    """Return the shared updates of K `fedavg` clients (gradients summed over the steps), in one computation.

    Raises `ValueError` if batch norm in training mode makes a client's steps depend on each other's statistics, for
    shapes that do not fit together, or for a negative label.

    Parameters
    ----------
    model, lr
        The global model, without batch norm in training mode, and the learning rate of the local steps.
    x, y
        The clients' batches: images ``[K, steps, B, C, H, W]``, labels ``[K, steps, B]``.
    chunk
        Clients computed at a time, all by default.

    Returns
    -------
    dict
        Parameter name to ``[K, ...]``.
    """
    check_batches(x, y, "K", "steps")
    if int(y.min()) < 0:
        raise ValueError(f"labels are not negative, got {int(y.min())}")
    if batch_dependent(model):
        raise ValueError("batch norm in training mode cannot be stacked over clients: use fedavg, client by client")
    start = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, weights, (images,)), labels)

    def client(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        weights = start
        total: dict[str, Tensor] = {}
        for step in range(images.shape[0]):
            gradients = grad(loss)(weights, images[step], labels[step])
            weights = {name: w - lr * gradients[name] for name, w in weights.items()}
            total = {name: g + total.get(name, 0) for name, g in gradients.items()}
        return total

    return vmap(client, chunk_size=chunk)(x, y)


@dataclass
class Federation:
    """A global model and its users, each with a fixed set of samples."""

    model: nn.Module
    """The global model; trained in place."""
    images: Images
    users: Tensor
    """Which of the images are whose, ``[users, samples]``."""
    generator: Generator
    """Chooses the users and batches of each round."""

    @classmethod
    def of(
        cls, model: nn.Module, images: Images, *, users: int, samples: int, composition: str, seed: int
    ) -> "Federation":
        """Give every user `samples` samples composed by `composition` (see `fedleak.data.compose`)."""
        generator = torch.Generator().manual_seed(seed)
        labels = compose(composition, samples, images.n_classes, users, generator)
        return cls(model, images, draw(images, labels, generator), generator)

    def batches(self, clients: Tensor, steps: int, batch_size: int) -> Tensor:
        """Draw local batches for these clients, ``[K, steps, B]``: epochs in random order, one after the other."""
        local_size, needed = self.users.shape[1], steps * batch_size
        epochs = -(-needed // local_size)
        order = torch.rand(len(clients), epochs, local_size, generator=self.generator).argsort(dim=-1).flatten(1)
        chosen = self.users[clients].gather(1, order[:, :needed].to(self.users.device))
        return chosen.view(len(clients), steps, batch_size)

    def choose(self, participants: int) -> Tensor:
        """Choose the users of a round, without repetition."""
        if not 1 <= participants <= len(self.users):
            raise ValueError(f"of {len(self.users)} users at least 1 and at most all take part, got {participants}")
        return torch.randperm(len(self.users), generator=self.generator)[:participants]

    def updates(self, index: Tensor, lr: float) -> Stacked:
        """Return the clients' updates for local batches `index` ``[K, steps, B]``."""
        return stacked_updates(self.model, self.images.x[index], self.images.y[index], lr)

    def round(self, participants: int, steps: int, batch_size: int, lr: float, defence: Defence | None = None) -> None:
        """Train one round: every participant's update, averaged with equal weights, moves the model (LLG, Eq. 3)."""
        clients = self.choose(participants)
        updates = self.updates(self.batches(clients, steps, batch_size), lr)
        if defence is not None:
            updates = defence(updates, clients)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.sub_(lr * updates[name].mean(dim=0))


@torch.no_grad()
def accuracy(model: nn.Module, images: Images, chunk: int = 1024) -> float:
    """Return the share of images that the model classifies correctly."""
    right = sum(
        int((model(x).argmax(dim=1) == y).sum())
        for x, y in zip(images.x.split(chunk), images.y.split(chunk), strict=True)
    )
    return right / len(images)


@torch.no_grad()
def set_norms(model: nn.Module, images: Tensor) -> nn.Module:
    """Set batch norm's running statistics to their mean over these images, in batches of 100, and freeze them.

    Returns the model, in evaluation mode. One without batch norm is only put in that mode.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a mean of the batches' statistics
    model.train()
    for piece in images.split(100) if norms else ():
        model(piece)
    return model.eval()
