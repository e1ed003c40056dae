"""RLU: what the experiments share: data, clients, the rules, networks that are trained up to a mark."""

import copy

import torch

from fedleak import metrics
from fedleak.attacks.labels import ilrg, llg, rlu, zlg
from fedleak.data.partitions import dirichlet, local_batches
from fedleak.federated import Update, fedavg
from fedleak_book.experiments import networks
from fedleak_book.experiments.kinds import rate
from fedleak.models import batch_dependent

LR, CLIENTS, AUX = 0.01, 10, 100  # the paper's: its rate on SVHN, server images a class


def sets(ctx, data, share=None):
    """The clients' images (if named, a share of the training split), and those that the server draws its own from."""
    pool = ctx.images(data)
    if data == "svhn" and pool.subset:  # its test images are too few
        share = 0.6
    if share:
        return pool.split_in_two(seed=0, fraction=share)
    return pool, ctx.images(data, "test")


def server_data(images, per_class, s=0):
    """Up to `each` images of every class."""
    generator = torch.Generator().manual_seed(s)
    by_class = [images.of_class(c) for c in range(images.n_classes)]
    drawn = [
        i[torch.randperm(len(i), generator=generator)[:per_class]] for i in by_class
    ]
    return images.take(torch.cat(drawn))


def counted(labels, n_classes=10):
    """Labels of any shape as counts [n]."""
    return metrics.counts(labels.flatten(), n_classes)


def one_step(update):
    """The mean gradient of the local steps, as if of one large batch."""
    mean = {name: update.gradient(name) for name in update.tensors}
    return Update(mean, "gradient", update.samples)


def rules(model, server, trajectory="midpoint"):
    """The paper's four rules, prepared for one model: a function that reads an update by all of them."""
    probed = not batch_dependent(model)  # else B probe images for each of 10 n runs
    by_size = llg.prepare(model, server) if probed else None
    zero_shot = zlg.prepare(model, server)
    local = rlu.prepare(model, server, trajectory=trajectory)

    def read(update, **knowledge):
        counts = {"LLG+": by_size.recover(one_step(update)).counts} if probed else {}
        return {
            **counts,
            "ZLG+": zero_shot.recover(update).counts,
            "iLRG": ilrg.recover(update, model),
            "RLU": local.recover(update, **knowledge).counts,
        }

    return read


def scored(counts, truth):
    """cAcc and iAcc of counts [n]."""
    return {
        "cacc": metrics.class_accuracy(counts, truth).item(),
        "iacc": metrics.instance_accuracy(counts, truth).item(),
    }


def facts(pool, parts, server):
    """What a round really had: images in all, with the poorest client, and auxiliary ones of the rarest class."""
    fewest = min(len(part) for part in parts)
    return {"images": len(pool), "held": fewest, "aux": int(server.class_counts.min())}


def local_updates(model, pool, alpha, steps, batch_size, clients, s):
    """Plain SGD at each client from the global model: (update, true counts) one by one."""
    generator = torch.Generator().manual_seed(s)
    for part in dirichlet(pool.y, CLIENTS, alpha, s)[:clients]:
        index = local_batches(part, steps, batch_size, generator)
        update = fedavg(model, pool.x[index], pool.y[index], LR, share="delta")
        yield update, counted(pool.y[index], pool.n_classes)


def accuracy(model, images, most=1000):
    """Share of right answers on up to `most` images."""
    index = torch.linspace(0, len(images) - 1, min(most, len(images))).long()
    with torch.no_grad():
        right = model(images.x[index]).argmax(1) == images.y[index]
    return right.double().mean().item()


MARKS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.86, 0.95)


def train_to(model, images, mark, seed, most=3000):
    """Train on all clients' images up to an accuracy on 500 of them, in place."""
    steps, generator = 0, torch.Generator().manual_seed(seed)
    rate = 0.003 if images.shape[0] == 1 else 0.01
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    while accuracy(model, images, 500) < mark and steps < most:
        networks.train(model, images, 20, generator, optimiser=optimiser)
        steps += 20


def trained(ctx, data, activation, mark, s):
    """LeNet-5, trained from one mark of training accuracy to the next: the model, its training and held-out accuracy."""

    def make():
        images, test = sets(ctx, data)
        if mark == 0:
            shape, n = images.shape, images.n_classes
            model = ctx.build("lenet", shape, n, seed=s, activation=activation)
        else:
            before = MARKS.index(mark) - 1
            model = trained(ctx, data, activation, MARKS[before], s)[0]
            model = copy.deepcopy(model)
            train_to(model, images, mark, (s + before + 1) % 2**63)
        return model, accuracy(model, images), accuracy(model, test)

    return ctx.once(("trained", data, activation, mark, s), make)


def attack_rows(ctx, model, data, alpha, steps, size, clients, s, share=None):
    """Every rule on every client: one row each."""
    pool, test = sets(ctx, data, share)
    server = server_data(test, AUX, s)
    real = facts(pool, dirichlet(pool.y, CLIENTS, alpha, s)[:clients], server)
    clients = local_updates(model, pool, alpha, steps, size, clients, s)
    read = rules(model, server)
    for update, truth in clients:
        for rule, counts in read(update).items():
            algorithm = "1" if rule == "RLU" and steps > 1 else ""
            row = {"rule": rule, "algorithm": algorithm}
            yield row | scored(counts, truth) | real


SEEN = "clients", "batch_size", "steps"  # their product: the labels of a trial
IACC = dict(iacc=rate(*SEEN))
SCORES = IACC | dict(cacc=rate("clients", 10))
ACCURACY = rate(1000)
FACTS = "images", "held", "aux", "algorithm"
RULED = dict(by="rule", facts=FACTS, values=SCORES)
ROUND = dict(lr=LR, activation="relu", clients=CLIENTS)
ALPHAS = [0.05, 0.1, 0.5, 1.0, 5.0]
