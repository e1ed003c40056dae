"""Further training loops, by their losses, models and wrappers, or with SGD's steps in other clothes; see `loops`."""

import copy

import torch
from loops import CLASSES, RATE, WEIGHT, WIDTH, Optimisers, Parts, add, add_loss, loop, mlp, plain, sequential, simple
from networks import Tied
from torch import nn
from torch.nn import functional as F

# Losses
add("sum", loss=lambda z, y: F.cross_entropy(z, y, reduction="sum"))
add("nll of a log-softmax", network=sequential(), loss=lambda z, y: F.nll_loss(z.log_softmax(1), y))
add("log-softmax inside", network=lambda: Parts(lambda m, x: simple(m, x).log_softmax(1)), loss=F.nll_loss)
add("class weights", False, loss=lambda z, y: F.cross_entropy(z, y, weight=WEIGHT))
add("label smoothing", False, loss=lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1))
add("hard examples alone", False, loss=lambda z, y: F.cross_entropy(z, y, reduction="none").topk(4).values.mean())
add("BCE", False, loss=lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, CLASSES).float()))
add("ignored labels", loss=lambda z, y: F.cross_entropy(z, torch.where(y == 5, -100, y)), labels=lambda y: y[y != 5])
add("a prior added in place", False, loss=lambda z, y: F.cross_entropy(z.add_(WEIGHT), y))


def adversarial(z, y, m, x):
    """Train on inputs that were changed to raise the loss."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(m(x), y), x)
    return F.cross_entropy(m((x + 0.1 * slope.sign()).detach()), y)


def penalised(z, y, m, x):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(m(x), y), x, create_graph=True)
    return F.cross_entropy(z, y) + slope.square().sum()


add_loss("FedProx", lambda z, y, m, x: F.cross_entropy(z, y) + 0.1 * sum(p.square().sum() for p in m.parameters()))
add_loss("gradient penalty", penalised)
add_loss("adversarial inputs", adversarial, measured=True)
add_loss("two views", lambda z, y, m, x: (F.cross_entropy(z, y) + F.cross_entropy(m(x + 0.1), y)) / 2, measured=True)


# Steps in other clothes
@loop("Ditto, one optimiser")
def _(model, optimiser, x, y, saw):
    personal = copy.deepcopy(model)
    optimiser.add_param_group({"params": list(personal.parameters())})
    plain(splits=4)(model, optimiser, x, y, saw)
    plain(splits=4)(personal, optimiser, x, y, lambda _: None)


@loop("K steps on a batch")
def _(model, optimiser, x, y, saw):
    """pFedMe without its penalty, on a batch that is shown once."""
    for part in torch.arange(len(y)).chunk(4):
        saw(y[part])
        plain(splits=1, epochs=3)(model, optimiser, x[part], y[part], lambda _: None)


def all_of(model):
    return torch.optim.SGD(model.parameters(), RATE)


def frozen(part):
    return lambda: (m := mlp(), m[part].requires_grad_(False))[0]


@loop("FedRep, one optimiser", network=frozen(2), optimiser=all_of)
def _(model, optimiser, x, y, saw):
    """The head is trained first, then the body, on the same samples; the last round has left the body trainable."""
    for trained in (2, 0):
        model.requires_grad_(False)
        model[trained].requires_grad_(True)
        plain(splits=4)(model, optimiser, x, y, saw)


@loop("a batch that is left out")
def _(model, optimiser, x, y, saw):
    """PFLlib leaves out a last batch of one sample, which its loader has shown."""
    saw(y[:1])
    plain(splits=2)(model, optimiser, x, y, saw)


@loop("one step by hand")
def _(model, optimiser, x, y, saw):
    saw(y)
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.3 * p.grad


# Models and wrappers
def attacked(model, _):
    """Take a gradient in evaluation mode, as for adversarial inputs, and drop it."""
    F.cross_entropy(model.eval()(torch.rand(2, WIDTH)), torch.tensor([0, 1])).backward()
    model.train().zero_grad()


add("no bias", network=lambda: Parts(simple, lambda: nn.Linear(32, CLASSES, bias=False)))
add("batch norm and dropout", network=sequential(lambda: nn.BatchNorm1d(32), lambda: nn.Dropout(0.5)))
add("a batch norm that changes its mode", False, sequential(lambda: nn.BatchNorm1d(32)), after=lambda m, _: m.eval())
add("a pass in evaluation mode that no step uses", network=sequential(lambda: nn.BatchNorm1d(32)), after=attacked)
add("a bias in front of batch norm", optimiser=Optimisers(lr=0.1), network=sequential(lambda: nn.BatchNorm1d(32)))
add("a frozen body", network=frozen(0))
add("a frozen head", network=frozen(2))
thaw = lambda m, _: m.requires_grad_(True)
add("a body that thaws", False, network=frozen(0), optimiser=all_of, after=thaw)
add("a head that thaws", network=frozen(2), optimiser=all_of, after=thaw, epochs=8)


@torch.no_grad()
def shrink(model, _):
    for p in model.parameters():
        p.mul_(1 if p.requires_grad else 0.99)


add("a frozen head that shrinks", False, network=frozen(2), after=shrink)
add("a frozen body that shrinks", False, network=frozen(0), after=shrink)
add("a tied head", network=lambda: (torch.manual_seed(0), Tied("embed"))[1], forward=lambda m, x: m((6 * x).long()))
add(
    "features, projection, logits",
    network=lambda: Parts(lambda m, x: (m.body(x), m.other(m.body(x)), simple(m, x)), other=nn.Linear(32, 8)),
    forward=lambda m, x: m(x)[2],
)
add("layers called one by one", network=lambda: Parts(simple), forward=lambda m, x: m.fc(m.body(x)))
add("data parallel", network=lambda: nn.DataParallel(mlp()))
add("bfloat16", False, network=lambda: mlp().bfloat16(), forward=lambda m, x: m(x.bfloat16()))
add("outputs times 1/8", False, optimiser=Optimisers(lr=0.1), network=lambda: Parts(lambda m, x: simple(m, x) / 8))
add(
    "a learned scale behind the head",
    False,
    network=lambda: Parts(lambda m, x: simple(m, x) * m.scale, scale=nn.Parameter(torch.ones(CLASSES))),
)


def hooked(model, hook):
    hook(model)
    return model


add("a hook on a weight", False, network=lambda: hooked(mlp(), lambda m: m[0].weight.register_hook(torch.sign)))
backward_hook = lambda m: m[0].register_full_backward_hook(lambda *_: None)
add("a hook on a layer", False, network=lambda: hooked(mlp(), backward_hook))


@loop("passes without gradients in between")
def _(model, optimiser, x, y, saw):
    def look(model, _):
        with torch.no_grad():
            model(x)
        model(x)  # nor a backward pass

    plain(after=look)(model, optimiser, x, y, saw)
