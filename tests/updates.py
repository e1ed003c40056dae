"""Updates of clients that train by PyTorch's own optimiser, and updates that are changed on their way."""

import copy

import torch
from torch.nn.functional import cross_entropy


def train_by_sgd(model, batches, loss=cross_entropy, **options):
    """Train a copy of a model, a step a batch; return it and the sums of its gradients by name."""
    after, total = copy.deepcopy(model), {}
    optimiser = torch.optim.SGD(after.parameters(), **options)
    for x, y in batches:
        optimiser.zero_grad()
        loss(after(x), y).backward()
        for name, p in after.named_parameters():
            if p.requires_grad:
                total[name] = total.get(name, 0) + p.grad
        optimiser.step()
    return after, total


def changed(update, change):
    return update.replace({name: change(t) for name, t in update.tensors.items()})


def noisy(share):
    """A change that adds noise of this share of a tensor's standard deviation."""
    generator = torch.Generator().manual_seed(0)
    return lambda t: t + share * t.std() * torch.randn(t.shape, generator=generator, dtype=t.dtype)
