"""Rate of alarms about updates that cannot be right: honest updates, and turned, scaled, clipped and weighted ones.

Prints a table of `fedleak.attacks.plausible.contradictions`, the check that every label attack on one client makes.
Kinds of clients and networks are drawn anew for every update; one core takes about five minutes for 10,000.
"""

import copy
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedleak import Update
from fedleak.attacks.plausible import contradictions
from fedleak.models import head

SIDE = 6
Loss = Callable[[Tensor, Tensor], Tensor]


class Client(NamedTuple):
    """A network before the round, its client's samples, and the honest update."""

    model: nn.Module
    update: Update
    kind: str
    sent: Callable[[Loss], Update]
    """The honest update of a client with another loss."""


class Recurrent(nn.Module):
    """A GRU over the rows of an image, and a linear layer."""

    def __init__(self, classes: int):
        super().__init__()
        self.gru, self.fc = nn.GRU(SIDE, 24, batch_first=True), nn.Linear(24, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 1, H, W]`` to logits ``[B, n]``."""
        return self.fc(self.gru(x[:, 0])[0][:, -1])


class Attention(nn.Module):
    """One layer of a transformer over the rows of an image, and a linear layer on their mean."""

    def __init__(self, classes: int):
        super().__init__()
        self.into, self.fc = nn.Linear(SIDE, 16), nn.Linear(16, classes)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 1, H, W]`` to logits ``[B, n]``."""
        return self.fc(self.layer(self.into(x[:, 0])).mean(1))


def dense(n: int, activation: nn.Module, bias: bool = True, extra: nn.Module | None = None) -> nn.Module:
    """Make two fully connected layers, with a layer such as dropout between."""
    middle = [nn.Linear(SIDE * SIDE, 32), extra or nn.Identity(), activation]
    return nn.Sequential(nn.Flatten(), *middle, nn.Linear(32, n, bias=bias))


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "ReLU": lambda n: dense(n, nn.ReLU()),
    "no bias": lambda n: dense(n, nn.ReLU(), bias=False),
    "tanh": lambda n: dense(n, nn.Tanh()),
    "dropout": lambda n: dense(n, nn.ReLU(), extra=nn.Dropout(0.3)),
    "batch norm": lambda n: dense(n, nn.ReLU(), extra=nn.BatchNorm1d(32)),
    "convolution": lambda n: nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, n)
    ),
    "GRU": Recurrent,
    "transformer": Attention,
}
LOSSES = ("mean", "mean", "smoothing", "class weights")


def loss_of(kind: str, n: int) -> Loss:
    """Return a client's loss."""
    weight = torch.rand(n) * 5 + 0.2
    smoothing = 0.2 * float(torch.rand(()))
    return {
        "mean": nn.CrossEntropyLoss(),
        "smoothing": nn.CrossEntropyLoss(label_smoothing=smoothing),
        "class weights": nn.CrossEntropyLoss(weight=weight),
    }[kind]


def draw(options: list[str] | tuple[str, ...]) -> str:
    """Draw one of these."""
    return options[int(torch.randint(len(options), ()))]


def batch(size: int, n: int, prototypes: Tensor) -> tuple[Tensor, Tensor]:
    """Draw samples of few or many classes."""
    shares = torch._standard_gamma(torch.full((n,), 10 ** float(2 * torch.rand(()) - 1))).clamp(min=1e-12)
    y = torch.multinomial(shares, size, replacement=True)
    return (prototypes[y] + 0.5 * torch.randn(size, 1, SIDE, SIDE)).clamp(0, 2), y


def train(model: nn.Module, x: Tensor, y: Tensor, loss: Loss, steps: int, lr: float) -> nn.Module:
    """Train a copy for some steps of plain SGD, each on a part of the samples."""
    after = copy.deepcopy(model)
    optimiser = torch.optim.SGD(after.parameters(), lr=lr)
    for part in torch.arange(len(y)).tensor_split(steps):
        optimiser.zero_grad()
        loss(after(x[part]), y[part]).backward()
        optimiser.step()
    return after


def trained_server(n: int, network: str, loss: Loss, prototypes: Tensor) -> nn.Module:
    """Return a network that is new, or trained, sometimes until its loss is next to nothing."""
    model = NETWORKS[network](n)
    model.input_shape = (1, SIDE, SIDE)  # type: ignore[assignment]
    if length := (0, 0, 30, 300)[int(torch.randint(4, ()))]:
        x, y = batch(256, n, prototypes)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(length):
            optimiser.zero_grad()
            loss(model(x), y).backward()
            optimiser.step()
    return model


def clients(count: int, group: int = 10) -> Iterator[Client]:
    """Yield honest clients, `group` of the same network."""
    for _ in range(count // group):
        n, network, of_loss = (2, 5, 10, 30)[int(torch.randint(4, ()))], draw(list(NETWORKS)), draw(LOSSES)
        loss, prototypes = loss_of(of_loss, n), torch.rand(n, 1, SIDE, SIDE)
        model = trained_server(n, network, loss, prototypes)
        for _ in range(group):
            size = (4, 8, 32, 128)[int(torch.randint(4, ()))]
            x, y = batch(size, n, prototypes)
            form = draw(("gradient", "delta", "delta", "half", "bfloat16", "secure mean"))
            sent = partial(honest, model, x, y, form=form)
            yield Client(model, sent(loss), f"{network}, {of_loss}, {form}", sent)


def honest(model: nn.Module, x: Tensor, y: Tensor, loss: Loss, form: str) -> Update:
    """Return what an honest client sends."""
    if form != "delta":
        groups = torch.arange(len(y)).tensor_split(2 if form == "secure mean" else 1)  # clients of an aggregate
        gradients = [torch.autograd.grad(loss(model(x[g]), y[g]), list(model.parameters())) for g in groups]
        kinds = {"half": torch.float16, "bfloat16": torch.bfloat16}
        rounded = [
            (sum(parts) / len(groups)).to(kinds.get(form, parts[0].dtype)) for parts in zip(*gradients, strict=True)
        ]
        return Update(dict(zip(dict(model.named_parameters()), rounded, strict=True)), "gradient", len(y))
    steps = min((1, 2, 4)[int(torch.randint(3, ()))], len(y) // 2)
    lr = 10 ** (-3 * float(torch.rand(())))
    after = train(model, x, y, loss, steps, lr)
    names = dict(model.named_parameters()).keys()
    states = [{name: s[name] for name in names} for s in (model.state_dict(), after.state_dict())]
    return Update.from_states(*states, len(y), steps, lr)


def scaled(update: Update, factor: float) -> Update:
    """Return the update times a factor."""
    return update.replace({name: t * factor for name, t in update.tensors.items()})


def sigmoids(z: Tensor, y: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of one sigmoid per class."""
    return F.binary_cross_entropy_with_logits(z, F.one_hot(y, z.shape[1]).float())


def state_of(client: Client) -> Update:
    """Return the state after the round, passed as if it were the change."""
    delta = {k: client.update.delta(k, client.update.lr or 0.1) for k in client.update.tensors}
    state = {name: p.detach() + delta[name].to(p) for name, p in client.model.named_parameters()}
    return Update(state, "delta", client.update.samples, client.update.steps, client.update.lr or 0.1)


ALTERED: dict[str, Callable[[Client], Update]] = {
    "turned": lambda c: scaled(c.update, -1.0),
    "times 0.1": lambda c: scaled(c.update, 0.1),
    "times 10": lambda c: scaled(c.update, 10.0),
    "times the samples": lambda c: scaled(c.update, float(c.update.samples)),
    "times the learning rate (0.01)": lambda c: scaled(c.update, 0.01),
    "times 65,536": lambda c: scaled(c.update.replace({k: t.float() for k, t in c.update.tensors.items()}), 65536.0),
    "turned, times the samples": lambda c: scaled(c.update, -float(c.update.samples)),
    "clipped to norm 0.1": lambda c: scaled(c.update, min(1.0, 0.1 / float(_norm(c.update)))),
    "weighted by a tenth of the samples": lambda c: scaled(c.update, c.update.samples / 10),
    "a state, not its change": state_of,
    "one sigmoid per class": lambda c: c.sent(sigmoids),
    "a sum, not a mean": lambda c: c.sent(nn.CrossEntropyLoss(reduction="sum")),
}


def _norm(update: Update) -> Tensor:
    norms = [update.gradient(name).double().norm() for name in update.tensors]
    return torch.stack(norms).norm().clamp(min=1e-12)


def main(count: int) -> None:
    """Print the table: honest updates by kind, then the share of altered ones that is detected."""
    torch.manual_seed(0)
    alarms, causes, kinds = 0, Counter[str](), defaultdict[str, list[bool]](list)
    done = 0
    for client in clients(count):
        done += 1
        reasons = contradictions(client.update, client.model)
        alarms += bool(reasons)
        causes.update(f"{reason[:40]} | {client.kind}" for reason in reasons)
        if done % 10 == 0:
            few = client.update.samples < head(client.model).layer.out_features
            for name, alter in ALTERED.items():
                name = name + (", fewer samples than classes" if name == "turned" and few else "")
                kinds[name].append(bool(contradictions(alter(client), client.model)))
    print(f"| update | n | contradicted |\n|---|---|---|\n| honest | {done:,} | {alarms / done:.2%} |")
    for name, reports in kinds.items():
        print(f"| {name} | {len(reports):,} | {sum(reports) / len(reports):.0%} |")
    for reason, times in causes.most_common():
        print(f"false alarm, {times} times: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
