"""The arena: tasks and tables of others, run with predictions that were committed before.

iLRG's accuracy by depth, the samples that no other hides, and one client's many rounds.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import contest
from fedleak.attacks.labels.counts import round_to_total
from fedleak.data import draw
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak.federated import Scheme, Update, fedsgd
from fedleak_book.experiments.training import stacked_updates
from fedleak_book.experiments.kinds import MEAN, rate
from fedleak.models import head
from fedleak.models.zoo import MLP
from notebooks.arena.updates import ALL, STATES, images, make_network
from notebooks.arena.updates import LDIA

SCALES = {  # mean and deviation of the pixels, by colour; MNIST's are iLRG's own
    "MNIST": ([0.1307], [0.3081]),
    "MNIST, 5,000": ([0.1307], [0.3081]),
    "CIFAR-10": ([0.4915, 0.4823, 0.4468], [0.2470, 0.2435, 0.2616]),
    "photographs": ([0.4915, 0.4823, 0.4468], [0.2470, 0.2435, 0.2616]),
}


def generators(seed, *roles):
    """A generator for each role."""
    return [torch.Generator().manual_seed(spawned(seed, role)) for role in roles]


def normalised(x, data):
    """Pixels at mean 0 and deviation 1 by colour."""
    mean, deviation = (torch.tensor(v)[:, None, None] for v in SCALES[data])
    return (x - mean.to(x)) / deviation.to(x)


# --- iLRG by depth ---
BY_DEPTH = ["iLRG", "LLG+", "RLU"]


def depth(ctx, seed, data, hidden, batch_size, updates):
    """One fresh network, 784-300-[300]^hidden-10, and updates of images at random: LnAcc."""
    pool, aux = images(ctx, data), images(ctx, data, "aux")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spawned(seed, "weights"))
        model = MLP(pool.shape, pool.n_classes, [300] * (hidden + 1)).to(pool.x)
    with torch.no_grad():  # so that it normalises pixels itself
        first, (mean, deviation) = model[1], SCALES[data]
        first.weight /= deviation[0]
        first.bias -= mean[0] * first.weight.sum(1)
    model.input_shape = pool.shape
    (generator,) = generators(seed, "batches")
    accuracies, preparations = {}, {}
    for number in range(updates):
        index = torch.randperm(len(pool), generator=generator)[:batch_size]
        update = fedsgd(model, pool.x[index], pool.y[index])
        truth = metrics.counts(pool.y[index], pool.n_classes).cpu()
        who, knowledge = registry.WITH_AUXILIARY, {"aux": aux, "seed": number}
        entered = [ALL[name] for name in BY_DEPTH]
        for attempt in contest(
            update, model, who, knowledge, attacks=entered, prepared=preparations
        ):
            lnacc = metrics.label_number_accuracy(attempt.counts, truth).item()
            accuracies.setdefault(attempt.attack.name, []).append(lnacc)
    for attack, values in accuracies.items():
        yield {"attack": attack, "lnacc": np.mean(values)}


DEPTH = Experiment(
    "depth",
    depth,
    quick=grid(data="MNIST, 5,000", hidden=[0, 3], updates=5),
    paper=grid(data="MNIST", hidden=[0, 1, 2, 3, 4], updates=50),
    trials=(2, 20),
    by="attack",
    values={"lnacc": rate(10)},
    fixed={"batch_size": 64},
)


# --- samples that alone activate a neuron ---
def peeled(active):
    """Which of B samples alone activate a neuron, ``[B, neurons]``; at once, and when these are taken off."""
    remaining = torch.ones(len(active), dtype=torch.bool)
    while True:
        lonely = (active & remaining[:, None])[
            :, (active & remaining[:, None]).sum(0) == 1
        ]
        now = lonely.any(1)
        yield now
        if not now.any():
            return
        remaining &= ~now


def exclusive(ctx, seed, data, inputs, bias, batch_size, neurons, sigma, updates):
    """One first layer, N(0, sigma²), in double precision: the samples that its neurons separate."""
    pool = images(ctx, data)
    weights, batches = generators(seed, "weights", "batches")
    shape, how = (neurons, pool.x[0].numel()), {"dtype": torch.float64}
    weight = sigma * torch.randn(shape, generator=weights, **how)
    offset = sigma * torch.randn(neurons, generator=weights, **how) * (bias == "drawn")
    alone, after = [], []
    for _ in range(updates):
        x = pool.x[torch.randperm(len(pool), generator=batches)[:batch_size]].double()
        x = x if inputs == "pixels" else normalised(x, data)
        reached = [
            now.sum() for now in peeled(x.flatten(1).cpu() @ weight.T + offset > 0)
        ]
        alone.append(reached[0] / batch_size)
        after.append(sum(reached) / batch_size)
    yield {"alone": np.mean(alone), "peeled": np.mean(after)}


FIRST = {"inputs": ["pixels", "normalised"], "bias": ["none", "drawn"]}
EXCLUSIVE = Experiment(
    "exclusive",
    exclusive,
    quick=grid(data="MNIST, 5,000", **FIRST, batch_size=[64], updates=3),
    paper=grid(
        data=["MNIST", "CIFAR-10"], **FIRST, batch_size=[64, 128, 256], updates=10
    ),
    trials=(2, 20),
    values=dict.fromkeys(("alone", "peeled"), rate("batch_size", "updates")),
    fixed={"neurons": 1000, "sigma": 0.5},
)


# --- many rounds of one client ---
PER_ROUND = ["prior guess", "LLG+", "after Decaf", "RLU, whole head"]
EPOCHS = 100


def dirichlet(users, samples, alpha, n_classes, generator):
    """Labels of users whose class shares are Dirichlet draws."""
    concentration = torch.full((users, n_classes), alpha, dtype=torch.float64)
    shares = torch._standard_gamma(concentration, generator=generator).clamp(min=1e-300)
    return torch.multinomial(shares, samples, True, generator=generator)


def spacings(shadows, samples, n_classes, generator):
    """Labels of shadow clients with one class, two, and so on; shares between uniform cuts."""
    labels = []
    for number in range(shadows):
        many = 1 + number * n_classes // shadows
        some = torch.randperm(n_classes, generator=generator)[:many]
        cuts = torch.rand(many - 1, generator=generator).sort().values
        place = (torch.arange(samples) + 0.5) / samples
        labels.append(some[torch.searchsorted(cuts, place)])
    return torch.stack(labels)


def shadow_trained(features, shares, seed):
    """The attack model, from the head's updates in all rounds, ``[shadows, …]``, to class shares.

    The layers, loss and training of LDIA's released code, without its two convolutions.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = [features.shape[1], 512, 64, shares.shape[1]]
        layers = []
        for below, above in pairwise(sizes):
            layers += [nn.Linear(below, above), nn.ReLU()]
            nn.init.xavier_uniform_(layers[-2].weight)
        model = nn.Sequential(*layers[:-1], nn.Softmax(1))
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        later = torch.optim.lr_scheduler.MultiStepLR(adam, [EPOCHS // 2])
        for _ in range(EPOCHS):
            for index in torch.randperm(len(shares)).split(64):
                predicted, truth = model(features[index]), shares[index]
                loss = 2 * nn.functional.kl_div(
                    (predicted + 1e-7).log(), truth, None, None, "sum"
                )
                loss += nn.functional.smooth_l1_loss(predicted, truth, reduction="sum")
                loss += 3 * (truth.var(1) - predicted.var(1)).abs().sum()
                adam.zero_grad()
                (loss / len(index)).backward()
                adam.step()
            later.step()
    return model.eval()


def by_shadows(head_updates, shadow_counts, seed):
    """After LDIA: users' class shares, from what the shadow clients have sent in the same rounds."""
    features = torch.cat(head_updates, 1)
    features = features / features.std()
    shares = shadow_counts / shadow_counts.sum(1, keepdim=True)
    model = shadow_trained(features[-len(shadow_counts) :], shares, seed)
    with torch.no_grad():
        return model(features[: -len(shadow_counts)])


def rounds(
    ctx, seed, data, state, users, shadows, samples, steps, lr, alpha, last, iterations
):
    """One federation in which all users take part: what is known of their labels after some rounds."""
    pool, aux = images(ctx, data), images(ctx, data, "aux")
    model = make_network(ctx, "lenet", data, state, spawned(seed, "weights"))
    user_generator, shadow_generator = generators(seed, "users", "shadows")
    labels = dirichlet(users, samples, alpha, pool.n_classes, user_generator)
    mocked = spacings(shadows, samples, pool.n_classes, shadow_generator)
    truth = metrics.counts(labels, pool.n_classes)
    shadow_counts = metrics.counts(mocked, pool.n_classes).float()
    x = torch.cat(
        [
            pool.x[draw(pool, labels, user_generator)],
            aux.x[draw(aux, mocked, shadow_generator)],
        ]
    )
    y, who = torch.cat([labels, mocked]), torch.arange(users + shadows)[:, None, None]
    head_updates, totals = [], {}
    entered = [ALL[n] for n in PER_ROUND + ["learned"] * (state == "trained")]
    knowledge = {
        "aux": aux,
        "scheme": Scheme("fedavg", lr, steps),
        "iterations": iterations,
    }
    for number in range(1, last + 1):
        order = torch.rand(len(y), samples, generator=user_generator).argsort(1)
        order = order.view(len(y), steps, -1)
        sent = stacked_updates(model, x[who, order], y[who, order], lr, chunk=64)
        head_updates.append(sent[head(model).weight].flatten(1))
        preparations, knowledge["seed"] = {}, number
        for user in range(users):
            mine = {name: tensor[user] for name, tensor in sent.items()}
            update = Update(mine, "gradient", samples, steps, lr)
            how = {"attacks": entered, "prepared": preparations}
            for attempt in contest(
                update, model, registry.WITH_AUXILIARY, knowledge, **how
            ):
                total = totals.setdefault(attempt.attack.name, torch.zeros(truth.shape))
                total[user] += attempt.counts
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter -= lr * sent[name][:users].mean(0)
        if number in (1, last):
            estimates = {
                name: total / number / samples for name, total in totals.items()
            }
            estimates[LDIA] = by_shadows(
                head_updates, shadow_counts, spawned(seed, f"attack {number}")
            )
            for attack, shares in estimates.items():
                counts = round_to_total(samples * shares, samples)
                iacc = metrics.braun_blanquet(counts, truth).mean().item()
                cosine = nn.functional.cosine_similarity(shares, truth.float()).mean()
                row = {"attack": attack, "iacc": iacc, "cosine": cosine.item()}
                yield {"rounds": number, **row}


ROUNDS = Experiment(
    "rounds",
    rounds,
    quick=grid(data="MNIST, 5,000", state="trained", users=2, shadows=20, last=2),
    paper=grid(data="MNIST", state=STATES[::-1], users=4, shadows=100, last=5),
    trials=(1, 3),
    by=("rounds", "attack"),
    values={"iacc": rate("users", 80), "cosine": MEAN},
    fixed={"samples": 80, "steps": 5, "lr": 0.01, "alpha": 0.8, "iterations": 40},
)
