"""Training loops as people write them, by name; each is recorded, and says whether its round is measured.

One loop for each way through the recorder: whatever else a loss or an optimiser adds is found by the same comparison.
A loop takes a model, its optimiser, its samples and `saw`, trains, and returns nothing.
"""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

B, CLASSES, WIDTH, RATE = 24, 6, 20, 0.01
WEIGHT = torch.tensor([1.0, 5.0, 0.2, 3.0, 1.0, 0.5])


class Loop(NamedTuple):
    measured: bool
    run: object
    network: object
    optimiser: object


LOOPS: dict[str, Loop] = {}


def samples():
    generator = torch.Generator().manual_seed(3)
    y = torch.tensor([0] * 9 + [1] * 7 + [3] * 4 + [5] * 4)
    return torch.rand(B, WIDTH, generator=generator), y[torch.randperm(B, generator=generator)]


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, CLASSES))


class Optimisers:
    """What the recorder is given, and the loop steps."""

    def __init__(self, kind=torch.optim.SGD, **options):
        self.kind, self.options = kind, {"lr": RATE, **options}

    def __call__(self, model):
        return self.kind([p for p in model.parameters() if p.requires_grad], **self.options)


def loop(name, measured=True, network=mlp, optimiser=None):
    def decorate(run):
        LOOPS[name] = Loop(measured, run, network, optimiser or Optimisers())
        return run

    return decorate


def plain(loss=F.cross_entropy, splits=2, *, forward=lambda m, x: m(x), backward=None, after=None, epochs=1, **parts):
    """The usual loop, with one part replaced: `labels` to show, no `zero`, shown `late`, a batch `without` a step."""
    labels = parts.pop("labels", lambda y: y)
    zero, late, without = parts.pop("zero", True), parts.pop("late", False), parts.pop("without", None)
    assert not parts

    def run(model, optimiser, x, y, saw):
        for number, part in enumerate([*torch.arange(len(y)).chunk(splits)] * epochs):
            late or saw(labels(y[part]))
            zero and optimiser.zero_grad()
            loss(forward(model, x[part]), y[part]).backward()
            if backward:
                backward(model)
            if number != without:
                optimiser.step()
            late and saw(labels(y[part]))
            if after:
                after(model, optimiser)

    return run


def add(name, measured=True, network=mlp, optimiser=None, **parts):
    loop(name, measured, network, optimiser)(plain(**parts))


def add_loss(name, loss, measured=False):
    """Add the usual loop with a loss of the logits, the labels, the model and its inputs, at a rate that shows it."""
    run = plain(lambda z, y: loss(z[0], y, *z[1:]), 4, forward=lambda m, x: (m(x), m, x))
    loop(name, measured, optimiser=Optimisers(lr=0.1))(run)


def sequential(*layers):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), *(layer() for layer in layers), nn.Linear(32, CLASSES))

    return make


class Parts(nn.Module):
    """A model whose forward is the test's."""

    def __init__(self, forward, head=lambda: nn.Linear(32, CLASSES), **more):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.fc = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU()), head()
        for name, layer in more.items():
            setattr(self, name, layer)
        self.how = forward

    def forward(self, x):
        return self.how(self, x)


def simple(m, x):
    return m.fc(m.body(x))


# Optimisers
add("sgd")
add("momentum", optimiser=Optimisers(momentum=0.9))
add("Nesterov", optimiser=Optimisers(momentum=0.9, nesterov=True))
add("weight decay", optimiser=Optimisers(weight_decay=0.1), splits=1)
add("weight decay with momentum", optimiser=Optimisers(weight_decay=0.05, momentum=0.5))
add("dampening", False, optimiser=Optimisers(momentum=0.5, dampening=0.5), splits=3)
add("maximize", False, optimiser=Optimisers(maximize=True))
add("gradient ascent", False, loss=lambda z, y: -F.cross_entropy(z, y))
add("rate as a tensor", optimiser=Optimisers(lr=torch.tensor(RATE)))
add("Adam", False, optimiser=Optimisers(torch.optim.Adam))


class Subclass(torch.optim.SGD):
    """Its step runs the hooks, and the inherited one, once SGD itself has been used, runs them again."""

    def step(self, closure=None):
        return super().step(closure)


def wrapped(model):
    """An optimiser inside another object, as Accelerate has it."""
    inner = Optimisers()(model)
    return SimpleNamespace(optimizer=inner, step=inner.step, zero_grad=inner.zero_grad)


def own_momentum(model):
    groups = [{"params": model[:-1].parameters()}, {"params": model[-1].parameters(), "momentum": 0.9}]
    return torch.optim.SGD(groups, lr=RATE)


add("a subclass", optimiser=lambda m: (Optimisers()(m), Optimisers(Subclass)(m))[1])
add("an optimiser inside a wrapper", optimiser=wrapped)
add("the head's own momentum", optimiser=own_momentum)
add("biases alone", optimiser=lambda m: torch.optim.SGD([p for p in m.parameters() if p.dim() == 1], 10 * RATE))


def warm(model):
    """Velocity from an earlier round."""
    optimiser = Optimisers(momentum=0.9)(model)
    for p in model.parameters():
        optimiser.state[p]["momentum_buffer"] = torch.full_like(p, 0.01)
    return optimiser


add("velocity of an earlier round", False, optimiser=warm)
add("much weight decay", False, optimiser=Optimisers(lr=0.5, weight_decay=0.1), splits=1, epochs=60)


@loop("a step by a closure", optimiser=Optimisers(lr=0.05, momentum=0.9))
def _(model, optimiser, x, y, saw):
    def closure():
        optimiser.zero_grad()
        value = F.cross_entropy(model(x), y)
        value.backward()
        return value

    for _ in range(2):
        saw(y)
        optimiser.step(closure)


# Schedules, clipping, and what else happens between the steps
def scheduled(gamma, epochs=1):
    """Change the rate after every step, or after every epoch of several."""

    def run(model, optimiser, x, y, saw):
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma)
        every_step = (lambda *_: schedule.step()) if epochs == 1 else None
        for _ in range(epochs):
            plain(splits=4, after=every_step)(model, optimiser, x, y, saw)
            schedule.step()

    return run


loop("a schedule inside", False)(scheduled(0.3))
loop("a slow schedule")(scheduled(0.95))
loop("a rate by epoch", optimiser=Optimisers(lr=0.1))(scheduled(0.5, epochs=3))
add("clipped norm", False, backward=lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.05))
add("SCAFFOLD", False, splits=4, backward=lambda m: [p.grad.add_(0.02) for p in m.parameters()])


@loop("lookahead", False)
def _(model, optimiser, x, y, saw):
    """Half of each step is taken back, so that the change is still a multiple of SGD's."""
    slow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def step_back(model, _):
        for p, before in zip(model.parameters(), slow, strict=True):
            p.copy_(before.lerp_(p, 0.5))

    plain(after=step_back)(model, optimiser, x, y, saw)


add("two steps a batch", False, splits=1, after=lambda _, optimiser: optimiser.step())
add("gradients never set to zero", False, splits=3, zero=False)


# Gradient accumulation and mixed precision
def accumulated(divide):
    def run(model, optimiser, x, y, saw):
        for half in torch.arange(B).chunk(2):
            optimiser.zero_grad()
            for part in half.chunk(3):
                saw(y[part])
                (F.cross_entropy(model(x[part]), y[part]) / divide).backward()
            optimiser.step()

    return run


loop("accumulation, divided")(accumulated(3))
loop("accumulation, not divided")(accumulated(1))
add("labels shown after the step", late=True)
add("labels that the loss did not use", False, labels=lambda y: (y + 1) % CLASSES)


@loop("one show for two parts of a batch")
def _(model, optimiser, x, y, saw):
    saw(y)
    (0.5 * F.cross_entropy(model(x[:12]), y[:12]) + 0.5 * F.cross_entropy(model(x[12:]), y[12:])).backward()
    optimiser.step()


def scaled(scale, unscale=False, **more):
    def run(model, optimiser, x, y, saw):
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for part in torch.arange(B).chunk(4):
            saw(y[part])
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.float16) if more else nullcontext():
                value = F.cross_entropy(model(x[part]), y[part])
            scaler.scale(value).backward()
            if unscale:
                scaler.unscale_(optimiser)
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            scaler.step(optimiser)
            scaler.update()

    return run


loop("GradScaler")(scaled(1024.0))
loop("GradScaler, fused", optimiser=Optimisers(fused=True))(scaled(1024.0))
loop("GradScaler and a clipped norm", False)(scaled(1024.0, unscale=True))
loop("GradScaler that skips steps in float16")(scaled(2.0**19, half=True))
loop("a scale that is never taken off")(plain(loss=lambda z, y: 1024 * F.cross_entropy(z, y)))
add("a batch without a step", splits=4, without=1)
