"""RLU: Table 1, Eq. 16 under every scheme."""

import torch
from torch import nn

from fedleak.federated import Scheme, Server
from fedleak.models import head
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.rlu.clients import LR, NAMES

EXTRA = {
    "sgdm": dict(momentum=0.9),
    "nag": dict(momentum=0.9),
    "fedprox": dict(regularisation=5.0),
    "feddyn": dict(regularisation=1.0),
    "feddc": dict(regularisation=1.0),
}


def round_with_gradients(server, x, y):
    """Run a round; return the clients' updates, and each step's bias gradient from the logits, [client, step, n]."""
    logits = []
    handle = server.model.register_forward_hook(lambda *a: logits.append(a[2].detach()))
    updates = server.round(x, y)
    handle.remove()
    p = torch.stack(logits).unflatten(0, y.shape[:2]).softmax(-1)
    return updates, (p - nn.functional.one_hot(y, p.shape[-1])).mean(2)


def identity(ctx, seed, name, data):
    """Compute the largest error of Eq. 16 over three rounds of three clients, with five steps each."""
    images, generator = ctx.images(data), torch.Generator().manual_seed(seed)
    worst, h = 0.0, torch.zeros(1)
    model = ctx.build("lenet", images.shape, 10, seed=seed).double()
    server = Server(model, Scheme(name, LR, 5, **EXTRA.get(name, {})), 3)
    bias = head(model).bias
    for _ in range(3):
        index = torch.randint(len(images), (3, 5, 16), generator=generator)
        x, y = images.x[index].double(), images.y[index]
        updates, gradients = round_with_gradients(server, x, y)
        for k, update in enumerate(updates):
            h = server.history(k, bias)
            by_eq_16 = h - LR * server.scheme.weights().to(gradients) @ gradients[k]
            worst = max(worst, (update.tensors[bias] - by_eq_16).abs().max().item())
    share = float(h.abs().max() / update.tensors[bias].abs().max())
    yield {"error": worst, "share_of_h": share}


TABLE1 = Experiment(
    "table1",
    identity,
    quick=grid(name=NAMES, data="mnist5k"),
    paper=grid(name=NAMES, data="mnist"),
    trials=(2, 10),
    values=dict(error=NUMBER, share_of_h=NUMBER),
    rounding="error",
)
