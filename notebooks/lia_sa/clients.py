"""LIA-SA: what the chapter's trials share: models, presets, honest clients, the score of a round."""

import torch
from fedleak import metrics
from fedleak.attacks.labels import ilrg, lia_sa, llg
from fedleak.attacks.labels.fishing import with_constant
from fedleak.federated import Update
from fedleak.models import HeadPass, head, head_pass
from torch import nn

RECIPES = ["literal", "log", "vector"]
LIA = [f"LIA-SA, {recipe}" for recipe in RECIPES]
SPACED = {
    "u": lambda u, clients: u + 1,
    "10^(u - U)": lambda u, clients: 10.0 ** (u + 1 - clients),
}
BASELINES = {"LLG": llg, "iLRG": ilrg}
CONSTANTS = {"literal": "0.1 u", "log": "log-spaced", "vector": "a vector each"}
PAIRS = [("vgg11_bn", "cifar10"), ("resnet18", "cifar100")]
SMALL = [("fcn3", "mnist"), ("resnet18", "celeba-gender"), *PAIRS]
VGGS = [f"vgg{d}_bn" for d in (11, 13, 16, 19)]
PASSIVE, ACTIVE = ["LLG", "iLRG"], [LIA[0], LIA[2]]
MORE = [2, 10, 20, 50, 100]
QUICK = [("vgg11_bn", "photos"), ("resnet18", "synthetic-100")]


def fishing(model, recipe, clients, s):
    """What the server sends to every client, by a recipe or by one constant of each client's."""
    if recipe in SPACED:
        name, clients_range = lia_sa.fishing_layer(model), range(clients)
        size = len(model.get_parameter(f"{name}.bias"))
        levels = [
            torch.full((size,), SPACED[recipe](u, clients)) for u in clients_range
        ]
        return [with_constant(model, name, level) for level in levels]
    return [lia_sa.fishing_model(model, recipe, u, clients, s) for u in range(clients)]


def images(ctx, data):
    """A data set by name; `synthetic-n` has n classes of patterns."""
    name, _, classes = data.partition("-")
    if name == "synthetic":
        return ctx.images(name, shape=(3, 32, 32), n_classes=int(classes))
    if name == "celeba":
        return ctx.images(data, size=128, limit=1000)
    return ctx.images(data, "all" if data == "imagenet" else "train")


def presets(ctx, net, data, recipe, clients, s):
    """What the server foresees, and what the clients compute in single precision: two head passes."""

    shape, n = (pool := images(ctx, data)).shape, pool.n_classes

    def make():
        models = fishing(ctx.build(net, shape, n, seed=s), recipe, clients, s)
        preset = lia_sa.preset(models, shape, torch.float32, seed=1)
        return lia_sa.foresee(models, shape), preset

    return ctx.once(("presets", net, shape, n, recipe, clients, s), make)


def enough(recipe, clients):
    """Clients to preset: log spacing depends on their number; the other recipes take the first of a larger set."""
    least = min(k for k in (5, 10, 20, 100) if k >= clients)
    return clients if recipe in ("log", "10^(u - U)") else least


def foreseen(ctx, net, data, recipe, clients, s):
    """`presets` of the first clients."""
    passes = presets(ctx, net, data, recipe, enough(recipe, clients), s)
    return [HeadPass(p.inputs[:clients], p.probabilities[:clients]) for p in passes]


def head_gradients(client, truth, batch_size):
    """Every client's gradients of the head by Eqs. 8 and 13: weights [U, n, m] and bias [U, n]."""
    bias = client.probabilities - truth / batch_size
    return {"weight": bias[:, :, None] * client.inputs[:, None, :], "bias": bias}


def head_sum(client, truth, batch_size):
    """Their sum, [n, m] and [n], without the tensor of all clients."""
    bias = client.probabilities - truth / batch_size
    return {"weight": bias.T @ client.inputs, "bias": bias.sum(0)}


def batches(ctx, data, clients, batch_size, s):
    """Random samples of a data set, [U, B], and the label counts, [U, n]."""
    pool, generator = images(ctx, data), torch.Generator().manual_seed(s)
    index = torch.randint(len(pool), (clients, batch_size), generator=generator)
    return index, metrics.counts(pool.y[index], pool.n_classes)


def score(server, gradient, truth, batch_size):
    """Solve Eqs. 16 and 17: LnAcc, B times the largest error of a bias gradient, LnAcc-target of zeros."""
    weight, bias = gradient["weight"].double(), gradient["bias"].double()
    solved = lia_sa.disaggregate(server.inputs, weight, bias)
    exact = lia_sa.counts(server.probabilities, solved, batch_size)
    counts = exact.round().clamp(min=0).long()
    return {
        "target": metrics.label_number_accuracy(counts, truth).mean().item(),
        "all": metrics.label_number_accuracy(counts.sum(0), truth.sum(0)).item(),
        "b_err": (exact - truth).abs().max().item(),
        "floor": (truth == 0).double().mean().item(),
    }


def honest_mean(ctx, net, data, clients, batch_size, s):
    """The head, the mean of honest clients' gradients of it by Eqs. 9-11, and their counts, [n]."""

    def make():
        pool = images(ctx, data)
        model = ctx.build(net, pool.shape, pool.n_classes, seed=s).eval()
        index, truth = batches(ctx, data, clients, batch_size, s)
        drawn, often = index.unique(return_counts=True)
        passed = head_pass(model, pool.x[drawn], 64)
        share = often[:, None].to(passed.inputs.device).double() / index.numel()
        hot = nn.functional.one_hot(pool.y[drawn], pool.n_classes)
        bias = share * (passed.probabilities.double() - hot)
        gradient = {"weight": bias.T @ passed.inputs.double(), "bias": bias.sum(0)}
        mean = Update(gradient, "gradient", index.numel())
        return head(model).layer, mean, truth.sum(0)

    return ctx.once(("mean", net, data, clients, batch_size, s), make)


def rule_with(constants):
    """LIA-SA with these constants."""
    named = {"0.1 u": "literal", "log-spaced": "log"}
    return f"LIA-SA, {named.get(constants, constants)}"


ONE = "compression, one threshold"
