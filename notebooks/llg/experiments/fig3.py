"""LLG: Fig. 3, the gradients per class."""

import dataclasses

from fedleak.attacks.labels import llg
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.llg.clients import client, counted, probes, sets


def gradients(ctx, seed, data, init, composition):
    """One row a class and batch size: its occurrences, its gradient, and that less its offset."""
    images, auxiliary = sets(ctx, data)
    start = seed if init == "fresh" else 0
    model = ctx.build("cnn", images.shape, images.n_classes, seed=start)
    probed = probes(model, auxiliary, [2, 8, 32, 128], seed)
    for size, probe_gradients in probed.items():
        update, index = client(model, images, composition, size, 1, seed)
        raw = llg.class_gradients(update, model)
        calibrated = raw - llg.impact_and_offset(probe_gradients, size)[1]
        columns = (counted(images, index), raw, calibrated)
        for count, a, b in zip(*(c.tolist() for c in columns)):
            row = dict(batch_size=size, occurrences=count, raw=a, calibrated=b)
            yield row | {"images": len(images) + len(auxiliary)}


FIG3 = Experiment(
    "fig3",
    gradients,
    quick=grid(data="mnist5k", init=["fresh", "single"]),
    paper=grid(data="mnist", init=["fresh", "single"]),
    trials=(40, 200),
    by=("batch_size", "occurrences"),
    values=dict(raw=NUMBER, calibrated=NUMBER),
    facts="images",
    fixed={"net": "cnn", "composition": "unbalanced"},
)
FIG3_BALANCED = dataclasses.replace(
    FIG3,
    name="fig3_balanced",
    fixed=FIG3.fixed | {"composition": "balanced"},
    tables=("fig3", "fig3a"),
)
