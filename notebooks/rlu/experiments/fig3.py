"""RLU: Figs. 3, 4 and 10: images reconstructed with its labels, its assumption on logits, the clients' partitions."""

import dataclasses

import numpy as np
import torch
from scipy import stats

from fedleak import metrics
from fedleak.attacks.images import invg
from fedleak.attacks.images.engine import invert
from fedleak.attacks.images.objective import View
from fedleak.attacks.labels import confidence, rlu
from fedleak_book.experiments import Experiment, grid
from fedleak.data.partitions import dirichlet
from fedleak.federated import fedsgd
from fedleak_book.experiments.kinds import NUMBER, rate
from fedleak.models import head_pass
from notebooks.rlu import clients as c
from notebooks.rlu.clients import ACCURACY, ALPHAS, CLIENTS, WAYS

JOINT = dataclasses.replace(invg.INVG, name="InvG with optimised labels", labels=True)


def middle(images, size):
    """Crop images to their central size x size pixels."""
    top, left = ((side - size) // 2 for side in images.shape[1:])
    x = images.x[:, :, top : top + size, left : left + size]
    return dataclasses.replace(images, x=x)


def inverted(ctx, seed, **batch):
    """Return the cached result of `in_every_way`."""
    key = ("inverted", seed, *sorted(batch.items()))
    return ctx.once(key, lambda: in_every_way(ctx, seed, **batch))


def in_every_way(ctx, seed, net, data, side, batch_size, iterations):
    """Invert one gradient in every way; return images, and {way: (paired reconstruction, label counts, distance)}."""
    images, test = (middle(part, side) for part in c.split_images(ctx, data))
    generator = torch.Generator().manual_seed(seed)
    index = torch.randperm(len(images), generator=generator)[:batch_size]
    x, y = images.x[index], images.y[index]
    model = ctx.build(net, images.shape, images.n_classes, seed=seed).eval()
    update, server, runs = fedsgd(model, x, y), c.sample_server(test, 20, seed), {}
    named = {
        WAYS[0]: c.count_labels(y, images.n_classes),
        WAYS[1]: rlu.recover(update, model, server, trajectory="midpoint"),
    }
    often = dict(iterations=iterations, seed=seed)
    for way, label_counts in named.items():
        equal = (runs[w] for w in runs if torch.equal(named[w], label_counts))
        labels = torch.arange(len(label_counts)).repeat_interleave(label_counts.cpu())
        guessed = labels[None].to(y)
        runs[way] = next(equal, None) or invg.invert_many(
            [update], model, guessed, **often
        )
    runs[WAYS[2]] = invert([View([update], model)], JOINT, **often)
    named[WAYS[2]] = c.count_labels(
        runs[WAYS[2]].label_logits[0].argmax(1), images.n_classes
    )
    paired = {way: metrics.paired(run.images[0], x) for way, run in runs.items()}
    return x, {way: (paired[way], named[way], runs[way].values.item()) for way in WAYS}


MEASURED = dict.fromkeys(["psnr", "psnr gain", "lpips", "lpips gain"], NUMBER)
MEASURED |= dict(iacc=rate("batch_size"), distance=NUMBER)


def label_knowledge(ctx, seed, **batch):
    """Score PSNR, LPIPS and labels of each way; gain: over optimised labels on the same batch."""
    x, ways = inverted(ctx, seed, **batch)
    truth, score = ways[WAYS[0]][1], {}
    for way, (images, named, distance) in ways.items():
        perceived = metrics.lpips(images, x)
        score[way] = {
            "psnr": metrics.psnr(images, x).mean().item(),
            "lpips": np.nan if perceived is None else perceived.mean().item(),
            "iacc": c.accuracies(named, truth)["iacc"],
            "distance": distance,
        }
    for way, row in score.items():
        gain = {f"{k} gain": row[k] - score[WAYS[2]][k] for k in ("psnr", "lpips")}
        yield {"way": way, **row, **gain}


FIG3 = Experiment(
    "fig3",
    label_knowledge,
    quick=grid(net="resnet20-4", data="photos", side=8, batch_size=2, iterations=40),
    paper=[
        dict(net=net, data="cifar10", side=12, batch_size=2, iterations=160)
        for net in ("resnet32", "resnet32-4")
    ],
    trials=(1, 4),
    by="way",
    values=MEASURED,
    fixed=dict(aux=20),
)


def class_logits(ctx, net, data, stage, s):
    """Return the logits of up to 100 images per class on one network, by class, and the network's accuracy."""
    images = c.split_images(ctx, data)[0]
    sample = c.sample_server(images, 100, s)
    if net == "lenet":
        model, train, _ = c.trained_lenet(ctx, data, "relu", stage, s)
    else:
        model = ctx.build(net, images.shape, images.n_classes, seed=s)
        train = c.accuracy(model, sample)
    z = confidence.logits_of(head_pass(model, sample.x), model).cpu().numpy()
    y = sample.y.cpu().numpy()
    return [z[y == label] for label in range(images.n_classes)], train


def normality(ctx, seed, net, data, stage):
    """Measure passes of Shapiro and Wilk's test, distance from the fitted normal, and signs of the means."""
    groups, train = class_logits(ctx, net, data, stage, seed)
    pairs = [g[:, j] for g in groups for j in range(len(groups))]
    passed = np.mean([stats.shapiro(v).pvalue > 0.05 for v in pairs])
    scaled = [(v - v.mean()) / v.std(ddof=1) for v in pairs]
    tests = [stats.kstest(v, "norm", method="asymp") for v in scaled]
    distance = np.mean([test.statistic for test in tests])
    means = np.array([g.mean(0) for g in groups])
    signs = np.where(np.eye(len(means), dtype=bool), means > 0, means < 0).mean()
    largest = float(np.abs(means).max())
    row = {"passed": passed, "train": train, "distance": distance, "signs": signs}
    row |= {"largest_mean": largest, "each": len(groups[0])}
    yield row | {"images": len(c.split_images(ctx, data)[0])}


NORMAL = Experiment(
    "normal",
    normality,
    quick=grid(net="lenet", data="mnist5k", stage=[0.0, 0.86]),
    paper=grid(net="lenet", data="mnist", stage=[0.0, 0.86])
    + grid(net="lenet", data="svhn", stage=0.0, trials=10)
    + grid(net="lenet", data="svhn", stage=0.7)
    + grid(net="lenet", data="cifar10", stage=[0.0, 0.5])
    + grid(net="vgg16", data="cifar10", stage=0.0, trials=10)
    + grid(net="vgg16", data="cifar100", stage=0.0)
    + grid(net="resnet50-imagenet", data="tiny-imagenet", stage=0.0),
    trials=(1, 3),
    values=dict(passed=rate(100), train=ACCURACY, distance=NUMBER)
    | dict(largest_mean=NUMBER, signs=rate(100), each=NUMBER),
    facts="images",
    fixed=dict(activation="relu"),
    tables="fig4",
)


def main_classes(ctx, seed, data, alpha):
    """Count the classes with 90 % of a client's images, mean over the clients."""
    labels, most = ctx.images(data).y, []
    for part in dirichlet(labels, CLIENTS, alpha, seed):
        sizes = labels[part].bincount().double().sort(descending=True).values
        most.append(int((sizes.cumsum(0) < 0.9 * sizes.sum() - 1e-9).sum()) + 1)
    yield {"classes": np.mean(most), "images": len(labels)}


PARTITIONS = Experiment(
    "partitions",
    main_classes,
    quick=grid(data="photos", alpha=ALPHAS),
    paper=grid(data="cifar10", alpha=ALPHAS),
    trials=20,
    values=dict(classes=NUMBER),
    facts="images",
    fixed=dict(clients=CLIENTS),
    tables="fig10",
)
