"""How long many updates of one model take an attack that is prepared once, beside one call for each, in one run.

LLG* and LLG+ (10 probe batches a class), GDBR and LIA-SA on an untrained LeNet and digits; batches of 8, LIA-SA with
ten clients. Measured are the processor seconds of all updates, the preparation included, in rounds that alternate;
printed are the medians and the range of the ratio. Both must name the same labels: if not, the exit code is 1.

    python benchmarks/prepared.py [--updates 100] [--rounds 5] [--threads 1]
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
import typer
from torch import Tensor

from fedleak import data
from fedleak.attacks.labels import gdbr, lia_sa, llg
from fedleak.attacks.result import Prepared
from fedleak.federated import Update, fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.models import build
from fedleak_book.experiments.units import processor

BATCH, CLIENTS = 8, 10
Recover = Callable[[Update], Tensor]
Ways = tuple[Recover, Callable[[], Prepared], list[Update]]
"""The attack in one call, what prepares it, and the updates that both read."""


def contestants(updates: int) -> dict[str, Ways]:
    """Return the versions to compare, by the attack's name."""
    pool = data.load("mnist5k")
    aux, clients = pool.split_in_two(0, 0.2)
    model = build("lenet", pool.shape, pool.n_classes, seed=0).eval()
    index = torch.randint(len(clients), (updates, CLIENTS, BATCH), generator=torch.Generator().manual_seed(0))
    updates_sent = [fedsgd(model, clients.x[i], clients.y[i]) for i in index[:, 0]]
    fished = [lia_sa.fishing_model(model, "vector", u, CLIENTS, 0) for u in range(CLIENTS)]
    sums = [plain_sum([fedsgd(m, clients.x[i], clients.y[i]) for m, i in zip(fished, of, strict=True)]) for of in index]
    return {
        "LLG*": (
            partial(llg.recover, model=model, aux="zeros"),
            lambda: llg.prepare(model, "zeros"),
            updates_sent,
        ),
        "LLG+": (
            partial(llg.recover, model=model, aux=aux),
            lambda: llg.prepare(model, aux),
            updates_sent,
        ),
        "GDBR": (partial(gdbr.recover, model=model, aux=aux), lambda: gdbr.prepare(model, aux), updates_sent),
        "LIA-SA": (
            partial(lia_sa.recover, models=fished, batch_size=BATCH, input_shape=pool.shape),
            lambda: lia_sa.prepare(fished, BATCH, pool.shape),
            sums,
        ),
    }


def timed(make: Callable[[], Recover], updates: list[Update]) -> tuple[float, Tensor]:
    """Prepare an attack and run it on these updates; return the processor seconds and its answers."""
    started = time.process_time()
    recover = make()
    counts = torch.stack([recover(update) for update in updates])
    return time.process_time() - started, counts


def the_same(recover: Recover) -> Recover:
    """Return the attack itself, which needs no preparation."""
    return recover


def reading(prepare: Callable[[], Prepared]) -> Recover:
    """Return the function that recovers counts from updates, once it is prepared."""
    attack = prepare()
    return lambda update: attack.recover(update).counts


def main(
    updates: Annotated[int, typer.Option(help="Updates that each attack reads.", min=1)] = 100,
    rounds: Annotated[int, typer.Option(help="Rounds, of which the median is printed.", min=1)] = 5,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.", min=1)] = 1,
) -> None:
    """Time prepared attacks beside single calls."""
    torch.set_num_threads(threads)
    print(f"{processor()}, {threads} thread(s); {updates} updates, {rounds} rounds, processor seconds")
    same = True
    for name, (single, prepared, sent) in contestants(updates).items():
        seconds: list[tuple[float, float]] = []
        for _ in range(rounds):
            single_seconds, expected = timed(partial(the_same, single), sent)
            prepared_seconds, counts = timed(partial(reading, prepared), sent)
            seconds.append((single_seconds, prepared_seconds))
            same = same and counts.equal(expected)
        ratios = [a / b for a, b in seconds]
        calls, once = (statistics.median(column) for column in zip(*seconds, strict=True))
        print(
            f"{name:7s} single calls {calls:7.2f}   prepared {once:6.2f}   ratio {min(ratios):.1f} to {max(ratios):.1f}"
        )
    if not same:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
