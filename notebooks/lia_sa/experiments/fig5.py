"""LIA-SA: Fig. 5, run times of a whole round."""

import time

from fedleak import metrics
from fedleak.attacks.labels import lia_sa
from fedleak.federated import fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.models import head
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import MEAN, NUMBER
from notebooks.lia_sa.clients import batches, fishing, images


def timings(net, data, batch_sizes, numbers):
    """By batch size with the fewest clients, and by clients at the smallest batch."""
    return grid(net=net, data=data, clients=numbers[0], batch_size=batch_sizes) + grid(
        net=net, data=data, clients=numbers[1:], batch_size=batch_sizes[0]
    )


SECONDS = ("total_seconds", "client_seconds", "server_seconds")


def timed_round(ctx, seed, net, data, clients, batch_size):
    """A whole round of the attack with honest clients, in seconds by part."""
    pool = images(ctx, data)
    model = ctx.build(net, pool.shape, pool.n_classes, seed=seed)
    start = time.perf_counter()
    models = fishing(model, "vector", clients, seed)
    setup = time.perf_counter() - start
    index, truth = batches(ctx, data, clients, batch_size, seed)
    last, shared, start = head(model), [], time.perf_counter()
    for fished, i in zip(models, index):
        update = fedsgd(fished, pool.x[i], pool.y[i])
        of_head = {k: update.tensors[k] for k in (last.weight, last.bias)}
        shared.append(update.replace(of_head))
    honest, start = time.perf_counter() - start, time.perf_counter()
    recovered = lia_sa.recover(plain_sum(shared), models, batch_size, pool.shape)
    exact = metrics.label_number_accuracy(recovered, truth).mean().item()
    server = setup + time.perf_counter() - start
    seconds = dict(zip(SECONDS, (honest + server, honest, server)))
    yield {**seconds, "exact": exact, "hardware": ctx.device}


FIG5 = Experiment(
    "fig5",
    timed_round,
    quick=timings("vgg11_bn", "photos", [16, 64, 256], [2, 4, 8])
    + grid(net="fcn3", data="mnist5k", clients=20, batch_size=512),
    paper=timings("vgg11_bn", "cifar10", [64, 128, 256, 512], [5, 10, 20, 40])
    + grid(net="fcn3", data="mnist", clients=100, batch_size=5120),
    trials=(1, 3),
    values=dict.fromkeys(SECONDS, NUMBER) | dict(exact=MEAN),
    times=SECONDS,
    facts="hardware",
)
