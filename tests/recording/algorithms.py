"""Loops of algorithms that people use: what each adds to the plain loop, and whether its round is measured."""

import copy

import torch
from loops import CLASSES, WIDTH, Loop, Optimisers, Parts, accumulated, mlp, plain, sequential, simple, with_model
from torch import nn
from torch.nn import functional as F

RATE = 0.1
WITH = Optimisers(lr=RATE)
GAINS = torch.linspace(0.5, 1.5, CLASSES)
TEACHER = torch.randn(24, 32, generator=torch.Generator().manual_seed(5))


def made(loss=None, measured=False, network=mlp, optimiser=WITH, **parts):
    """A plain loop with another loss of the logits, or with other parts."""
    return Loop(measured, plain(**({"loss": loss} if loss else {}), **parts), network, optimiser)


def given(loss, measured=False, network=mlp, splits=4):
    """A plain loop whose loss takes the logits, the labels, the model and its inputs."""
    return Loop(measured, with_model(loss, splits), network, WITH)


def by(run, measured=False, network=mlp, optimiser=WITH):
    return Loop(measured, run, network, optimiser)


ce = F.cross_entropy
start = [p.detach().clone() for p in mlp().parameters()]
other = mlp()


def far(model, power=2):
    return sum((p - s).abs().pow(power).sum() for p, s in zip(model.parameters(), start, strict=True))


def gradients(model):
    return [p.grad for p in model.parameters()]


def contrast(z, y, m, x):
    h, g = m[:-1](x), other[:-1](x).detach()
    return ce(z, y) - F.cosine_similarity(h, g).mean() + F.cosine_similarity(h, TEACHER[: len(h)]).mean()


def prototypes(z, y, m, x):
    h = m[:-1](x)
    return ce(z, y) + sum((h[y == c] - TEACHER[c]).square().mean() for c in y.unique())


def adversarial(z, y, m, x):
    """Train on inputs that were changed to raise the loss."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(ce(m(x), y), x)
    return ce(m((x + 0.1 * slope.sign()).detach()), y)


def virtual(z, y, m, x):
    """Add a consistency term, as virtual adversarial training."""
    return ce(z, y) + F.kl_div(m(x + 0.5).log_softmax(1), z.detach().softmax(1), reduction="batchmean")


def penalised(z, y, m, x):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(ce(m(x), y), x, create_graph=True)
    return ce(z, y) + slope.square().sum()


def meta(model, optimiser, x, y, saw):
    """Per-FedAvg: the gradient at a look-ahead, at the weights before it."""
    for part in torch.arange(len(y)).chunk(4):
        before = copy.deepcopy(model.state_dict())
        plain(splits=1)(model, optimiser, x[part], y[part], saw)
        optimiser.zero_grad()
        ce(model(x[part]), y[part]).backward()
        model.load_state_dict(before)
        optimiser.step()


def sharp(model, optimiser, x, y, saw):
    for part in torch.arange(len(y)).chunk(2):
        saw(y[part])
        moves = 0.0
        for move in (1, -1):
            optimiser.zero_grad()
            ce(model(x[part]), y[part]).backward()
            with torch.no_grad():
                moves = moves or [p.grad.clone() for p in model.parameters()]
                for p, step in zip(model.parameters(), moves, strict=True):
                    p.add_(move * step)
        optimiser.step()


def pseudo(model, optimiser, x, y, saw):
    """FixMatch: half of the samples have labels of the model's own."""
    saw(y[:12])
    labels = torch.cat([y[:12], (model(x[12:]).argmax(1) + 1) % CLASSES])
    optimiser.zero_grad()
    ce(model(x), labels).backward()
    optimiser.step()


def ditto(model, optimiser, x, y, saw):
    personal = copy.deepcopy(model)
    optimiser.add_param_group({"params": list(personal.parameters())})
    plain(splits=4)(model, optimiser, x, y, saw)
    plain(splits=4)(personal, optimiser, x, y, lambda _: None)


def inner_steps(model, optimiser, x, y, saw):
    """pFedMe without its penalty: K steps on a batch that is shown once."""
    for part in torch.arange(len(y)).chunk(4):
        saw(y[part])
        plain(splits=1, epochs=3)(model, optimiser, x[part], y[part], lambda _: None)


def head_then_body(model, optimiser, x, y, saw):
    """FedRep with one optimiser: the head is trained first, then the body, on the same samples."""
    for trained in (2, 0):
        model.requires_grad_(False)
        model[trained].requires_grad_(True)
        plain(splits=4)(model, optimiser, x, y, saw)
    model.requires_grad_(True)


def head_warm_up(model, optimiser, x, y, saw):
    """The body is frozen for the first samples."""
    for k, part in enumerate(torch.arange(len(y)).chunk(4)):
        model[0].requires_grad_(k > 1)
        plain(splits=1)(model, optimiser, x[part], y[part], saw)


def skipped(model, optimiser, x, y, saw):
    """PFLlib leaves out a last batch of one sample, which its loader has shown."""
    saw(y[:1])
    plain(splits=2)(model, optimiser, x, y, saw)


def evaluated(model, optimiser, x, y, saw):
    """Log the loss of a pass of its own, with gradients, on the batch that is trained on."""
    for part in torch.arange(len(y)).chunk(2):
        saw(y[part])
        ce(model(x[part]), y[part]).item()
        plain(splits=1)(model, optimiser, x[part], y[part], lambda _: None)


def by_hand(model, optimiser, x, y, saw):
    saw(y)
    ce(model(x), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.3 * p.grad


def rate_by_epoch(model, optimiser, x, y, saw):
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    for _ in range(3):
        plain(splits=4)(model, optimiser, x, y, saw)
        schedule.step()


def gradient_alone(model, optimiser, x, y, saw):
    """FedSGD: the gradient of all batches is uploaded."""
    for part in torch.arange(len(y)).chunk(4):
        saw(y[part])
        (ce(model(x[part]), y[part]) / 4).backward()


def ema_weights(model, optimiser, x, y, saw):
    average = copy.deepcopy(model)
    for part in torch.arange(len(y)).chunk(4):
        plain(splits=1)(model, optimiser, x[part], y[part], saw)
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters(), strict=True):
                a.lerp_(p, 0.5)
    model.load_state_dict(average.state_dict())


def domain(z, y, m, x):
    """DANN: a second head on reversed gradients."""
    h = m.body(x)
    return ce(z, y) + ce(m.other(2 * h.detach() - h), (x.sum(1) > 10).long())


def noisy_logits(z, y):
    z.register_hook(lambda g: g + 0.01)
    return ce(z, y)


def in_place(z, y):
    z += GAINS
    return ce(z, y)


class Frozen(nn.Module):
    """Batch norm's statistics, and an average of a weight, as parameters that are not trained."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.bn, self.fc = nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.Linear(32, CLASSES)
        for name, buffer in list(self.bn.named_buffers()):
            delattr(self.bn, name)
            self.bn.register_parameter(name, nn.Parameter(buffer.float(), requires_grad=False))
        self.average = nn.Parameter(self.body.weight.detach().clone(), requires_grad=False)

    def forward(self, x):
        self.average.lerp_(self.body.weight.detach(), 0.1)
        return self.fc(self.bn(self.body(x)).relu())


class Tied(nn.Module):
    """A head that shares its weight with the table of the inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.fc = nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES)
        self.fc.weight = self.words.weight

    def forward(self, x):
        return self.fc(self.words((x * CLASSES).long()).mean(1))


def several(m, x):
    return m.body(x), m.other(m.body(x)), m.fc(m.body(x))


def behind(*layers):
    return lambda: (torch.manual_seed(0), nn.Sequential(*mlp(), *(layer() for layer in layers)))[1]


ALGORITHMS = {
    # the four that a list of doubts let pass
    "features' size": given(lambda z, y, m, x: ce(z, y) + 0.3 * m[:-1](x).square().mean()),
    "a teacher's features": given(lambda z, y, m, x: ce(z, y) + (m[:-1](x) - TEACHER[: len(x)]).square().mean()),
    "MOON": given(contrast),
    "L1 of the body": given(lambda z, y, m, x: ce(z, y) + 0.01 * m[0].weight.abs().sum()),
    # other losses and terms
    "FedProto": given(prototypes),
    "FedProx, mu = 10": given(lambda z, y, m, x: ce(z, y) + 5 * far(m)),
    "FedDyn's linear term": given(lambda z, y, m, x: ce(z, y) - 0.05 * sum(p.sum() for p in m.parameters())),
    "elastic weights": given(lambda z, y, m, x: ce(z, y) + 50 * far(m) + 0.1 * far(m, 1)),
    "FedLC, a prior": made(lambda z, y: ce(z + GAINS.log(), y)),
    "FedRS, restricted softmax": made(lambda z, y: ce(z * torch.tensor([1, 1, 0.5, 1, 0.5, 1]), y)),
    "a prior added in place": made(in_place),
    "FedNTD": made(lambda z, y: ce(z, y) + 3 * F.kl_div(z.log_softmax(1), GAINS.softmax(0).expand_as(z))),
    "distillation beside it": made(lambda z, y: ce(z, y) + (z - 1).square().mean()),
    "entropy": made(lambda z, y: ce(z, y) - 0.5 * (z.softmax(1) * z.log_softmax(1)).sum(1).mean()),
    "generalised cross-entropy": made(lambda z, y: (1 - z.softmax(1).gather(1, y[:, None]) ** 0.7).mean() / 0.7),
    "log-cosh of a poly loss": made(lambda z, y: ce(z, y) + (1 - z.softmax(1).gather(1, y[:, None])).mean()),
    "hard examples alone": made(lambda z, y: ce(z, y, reduction="none").topk(4).values.mean()),
    "a margin (LDAM)": made(lambda z, y: ce(z - 2.0 * F.one_hot(y, CLASSES), y)),
    "virtual adversarial": given(virtual),
    "gradient penalty": given(penalised),
    "DANN": given(domain, network=lambda: Parts(simple, other=nn.Linear(32, 2))),
    "gradients of logits changed": made(noisy_logits),
    # other steps
    "SCAFFOLD": made(splits=4, backward=lambda m: [g.add_(0.02) for g in gradients(m)]),
    "Per-FedAvg": by(meta),
    "SAM": by(sharp),
    "pseudo-labels": by(pseudo),
    "sparse gradients": made(backward=lambda m: [g.mul_(g.abs() > g.abs().median()) for g in gradients(m)]),
    "an average of weights is sent": by(ema_weights),
    "head first on other samples": by(head_warm_up),
    # behind the head
    "outputs times 1/8": made(network=lambda: Parts(lambda m, x: simple(m, x) / 8)),
    "batch norm behind the head": made(network=behind(lambda: nn.BatchNorm1d(CLASSES))),
    "dropout behind the head": made(network=behind(lambda: nn.Dropout(0.5))),
    "a learned scale behind the head": made(
        network=lambda: Parts(lambda m, x: simple(m, x) * m.scale, scale=nn.Parameter(torch.ones(CLASSES)))
    ),
    "tanh behind the head": made(network=behind(nn.Tanh)),
    # plain SGD in other clothes
    "adversarial inputs": given(adversarial, measured=True),
    "two views": given(lambda z, y, m, x: (ce(z, y) + ce(m(x + 0.1), y)) / 2, measured=True),
    "Ditto, one optimiser": by(ditto, measured=True),
    "K steps on a batch": by(inner_steps, measured=True),
    "a rate by epoch": by(rate_by_epoch, measured=True),
    "FedRep": by(head_then_body, measured=True),
    "a batch that is left out": by(skipped, measured=True),
    "a pass to look": by(evaluated, measured=True),
    "one step by hand": by(by_hand, measured=True),
    "FedSGD": by(gradient_alone, measured=True),
    "accumulated and clipped alike": by(accumulated(1), measured=True),
    "frozen statistics and an average": made(measured=True, network=Frozen),
    "a tied head": made(measured=True, network=Tied),
    "features, projection, logits": made(
        measured=True,
        network=lambda: Parts(several, other=nn.Linear(32, 8)),
        forward=lambda m, x: m(x)[2],
    ),
    "group norm": made(measured=True, network=sequential(lambda: nn.GroupNorm(4, 32))),
    "biases alone": made(
        measured=True, optimiser=lambda m: torch.optim.SGD([p for p in m.parameters() if p.dim() == 1], RATE)
    ),
    "a frozen head": made(measured=True, network=lambda: (m := mlp(), m[2].requires_grad_(False))[0]),
    "a rate by group": made(
        measured=True,
        optimiser=lambda m: torch.optim.SGD(
            [{"params": m[0].parameters(), "lr": 0.01}, {"params": m[2].parameters()}], lr=RATE, momentum=0.9
        ),
    ),
}
