"""How often honest updates are said to be impossible, and how often turned, scaled, clipped and weighted ones are."""

import itertools

import torch
from torch import nn

from fedleak import Update
from fedleak.attacks.plausible import contradictions

N, LR, HONEST, ODD = 10, 0.1, 10_000, 200
KINDS = [
    (width, relu, bias, size, steps, fitted)
    for width, relu, bias in itertools.product((16, 64), (True, False), (True, False))
    for size, steps in ((1, 1), (8, 1), (32, 1), (32, 4), (256, 1), (256, 8))
    for fitted in (False, True)
]
CHANGES = {
    "as sent": lambda update: 1.0,
    "turned (start - end)": lambda update: -1.0,
    "× 0.1": lambda update: 0.1,
    "× 10": lambda update: 10.0,
    "× B (weighted by samples)": lambda update: float(update.samples),
    "× rate (not divided)": lambda update: LR,
    "/ rate": lambda update: 1 / LR,
    "clipped to a tenth of its norm": lambda update: 0.1,
}


def client(kind, seed):
    """Return a model and one client's honest update: labels of few classes or many, weights fresh or fitted."""
    width, relu, bias, size, steps, fitted = kind
    torch.manual_seed(seed)
    prototypes = torch.rand(N, 20)
    model = nn.Sequential(nn.Linear(20, width), nn.ReLU() if relu else nn.Tanh(), nn.Linear(width, N, bias=bias))

    def batch(number, concentration):
        shares = torch.distributions.Dirichlet(torch.full((N,), concentration)).sample()
        y = torch.multinomial(shares, number, replacement=True)
        return 0.5 * prototypes[y] + 0.5 * torch.rand(number, 20), y

    def descend(x, y, rounds, parts):
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        for _ in range(rounds):
            for part in torch.arange(len(y)).chunk(parts):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[part]), y[part]).backward()
                optimiser.step()

    if fitted:
        descend(*batch(128, 10.0), 60, 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    descend(*batch(size, 0.3), 1, steps)
    update = Update.from_states(before, model.state_dict(), size, steps, LR)
    model.load_state_dict(before)
    return model, update


torch.set_num_threads(1)
alarms = 0
for seed in range(HONEST):
    model, update = client(KINDS[seed % len(KINDS)], seed)
    alarms += bool(contradictions(update, model))
print(f"honest updates: {alarms} of {HONEST} said to be impossible, over {len(KINDS)} kinds of clients")
groups = {"ReLU, bias": (True, True), "ReLU, no bias": (True, False), "Tanh, bias": (False, True)}
print("| change | " + " | ".join(f"{group}, B = {size}" for group in groups for size in (8, 32)) + " |")
for change, factor in CHANGES.items():
    shares = []
    for relu, bias in groups.values():
        for size in (8, 32):
            reports = 0
            for seed in range(ODD):
                model, update = client((64, relu, bias, size, 1, seed % 2 == 0), 10**6 + seed)
                odd = update.replace({name: factor(update) * tensor for name, tensor in update.tensors.items()})
                reports += bool(contradictions(odd, model))
            shares.append(f"{reports / ODD:.2f}")
    print(f"| {change} | " + " | ".join(shares) + " |", flush=True)
