"""LLG: run times of the attacks."""

import time

from fedleak.attacks.images import dlg
from fedleak.attacks.labels import guess, llg
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.llg.clients import SIZES, VARIANTS, client, sets


FAST = ["random guess", *VARIANTS]


def timed(ctx, seed, data, attack, batch_size, iterations):
    """Milliseconds to attack one update, its probes included."""
    images, auxiliary = sets(ctx, data)
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    update, _ = client(model, images, "unbalanced", batch_size, 1, seed)
    call = {
        "random guess": lambda: guess.recover(update, model), "LLG": lambda: llg.recover(update, model),
        "LLG*": lambda: llg.recover(update, model, "zeros"), "LLG+": lambda: llg.recover(update, model, auxiliary),
        "DLG": lambda: dlg.recover(update, model, iterations=iterations),
    }[attack]  # fmt: skip
    began = time.perf_counter()
    call()
    taken = 1000 * (time.perf_counter() - began)
    yield {"milliseconds": taken, "hardware": ctx.device}


RUNTIME = Experiment(
    "runtime",
    timed,
    quick=grid(data="mnist5k", attack=FAST, batch_size=[1, 8], iterations=10)
    + grid(data="mnist5k", attack="DLG", batch_size=8, iterations=10, trials=1),
    paper=grid(data="mnist", attack=FAST, batch_size=SIZES, iterations=100)
    + grid(data="mnist", attack="DLG", batch_size=SIZES, iterations=100, trials=3),
    trials=7,
    values=dict(milliseconds=NUMBER),
    facts="hardware",
    times="milliseconds",
    fixed={"net": "cnn", "timed": "the attack alone"},
)
