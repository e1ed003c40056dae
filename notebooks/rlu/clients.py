"""RLU: data, clients, rules and networks that the experiments share."""

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


def split_images(ctx, data, share=None):
    """Return the clients' images (or a share of the training split), and the images that the server samples from."""
    pool = ctx.images(data)
    if data == "svhn" and pool.subset:  # its test images are too few
        share = 0.6
    if share:
        return pool.split_in_two(seed=0, fraction=share)
    return pool, ctx.images(data, "test")


def sample_server(images, per_class, s=0):
    """Sample up to `per_class` images of each class."""
    generator = torch.Generator().manual_seed(s)
    by_class = [images.of_class(c) for c in range(images.n_classes)]
    drawn = [
        i[torch.randperm(len(i), generator=generator)[:per_class]] for i in by_class
    ]
    return images.take(torch.cat(drawn))


def count_labels(labels, n_classes=10):
    """Count labels of any shape, [n]."""
    return metrics.counts(labels.flatten(), n_classes)


def one_step(update):
    """Return the mean gradient of the local steps as the update of one large batch."""
    mean = {name: update.gradient(name) for name in update.tensors}
    return Update(mean, "gradient", update.samples)


def prepare_rules(model, server, trajectory="midpoint"):
    """Prepare the paper's four rules for one model; return a function that gives their counts for an update."""
    probed = not batch_dependent(model)  # otherwise B probe images in each of 10 n runs
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


def accuracies(counts, truth):
    """Return cAcc and iAcc of counts [n]."""
    return {
        "cacc": metrics.class_accuracy(counts, truth).item(),
        "iacc": metrics.instance_accuracy(counts, truth).item(),
    }


def round_facts(pool, parts, server):
    """Return the numbers of images in all, of the smallest client, and of the rarest auxiliary class."""
    fewest = min(len(part) for part in parts)
    return {"images": len(pool), "held": fewest, "aux": int(server.class_counts.min())}


def local_updates(model, pool, alpha, steps, batch_size, clients, s):
    """Yield each client's update by plain SGD from the global model, and its true counts."""
    generator = torch.Generator().manual_seed(s)
    for part in dirichlet(pool.y, CLIENTS, alpha, s)[:clients]:
        index = local_batches(part, steps, batch_size, generator)
        update = fedavg(model, pool.x[index], pool.y[index], LR, share="delta")
        yield update, count_labels(pool.y[index], pool.n_classes)


def accuracy(model, images, most=1000):
    """Return the accuracy on up to `most` images."""
    index = torch.linspace(0, len(images) - 1, min(most, len(images))).long()
    with torch.no_grad():
        right = model(images.x[index]).argmax(1) == images.y[index]
    return right.double().mean().item()


ACCURACY_MARKS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.86, 0.95)


def train_to_mark(model, images, mark, seed, most=3000):
    """Train in place on all clients' images until the accuracy on 500 of them reaches `mark`."""
    steps, generator = 0, torch.Generator().manual_seed(seed)
    rate = 0.003 if images.shape[0] == 1 else 0.01
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    while accuracy(model, images, 500) < mark and steps < most:
        networks.train(model, images, 20, generator, optimiser=optimiser)
        steps += 20


def trained_lenet(ctx, data, activation, mark, s):
    """Return a LeNet-5 trained to a mark of accuracy, from the previous mark's, with training and held-out accuracy."""

    def make():
        images, test = split_images(ctx, data)
        if mark == 0:
            shape, n = images.shape, images.n_classes
            model = ctx.build("lenet", shape, n, seed=s, activation=activation)
        else:
            before = ACCURACY_MARKS.index(mark) - 1
            model = trained_lenet(ctx, data, activation, ACCURACY_MARKS[before], s)[0]
            model = copy.deepcopy(model)
            train_to_mark(model, images, mark, (s + before + 1) % 2**63)
        return model, accuracy(model, images), accuracy(model, test)

    return ctx.once(("trained", data, activation, mark, s), make)


def attack_rows(ctx, model, data, alpha, steps, size, clients, s, share=None):
    """Yield a row for each rule and client."""
    pool, test = split_images(ctx, data, share)
    server = sample_server(test, AUX, s)
    real = round_facts(pool, dirichlet(pool.y, CLIENTS, alpha, s)[:clients], server)
    clients = local_updates(model, pool, alpha, steps, size, clients, s)
    read = prepare_rules(model, server)
    for update, truth in clients:
        for rule, counts in read(update).items():
            algorithm = "1" if rule == "RLU" and steps > 1 else ""
            row = {"rule": rule, "algorithm": algorithm}
            yield row | accuracies(counts, truth) | real


LABELS = (
    "clients",
    "batch_size",
    "steps",
)  # their product is the number of labels in a trial
IACC = dict(iacc=rate(*LABELS))
SCORES = IACC | dict(cacc=rate("clients", 10))
ACCURACY = rate(1000)
FACTS = "images", "held", "aux", "algorithm"
RULED = dict(by="rule", facts=FACTS, values=SCORES)
ROUND = dict(lr=LR, activation="relu", clients=CLIENTS)
ALPHAS = [0.05, 0.1, 0.5, 1.0, 5.0]


NAMES = ["fedavg", "sgdm", "nag", "scaffold", "fedprox", "feddyn", "feddc"]
WAYS = ("true labels", "RLU's labels", "optimised labels")
