"""GDBR: Figs. 4 and 5 (b), the layers of MLP-6."""

import dataclasses

from fedleak.attacks.labels import gdbr
from fedleak.models import chain
from fedleak_book.experiments import Experiment, OneSeed, SeedByRole, grid
from notebooks.gdbr.clients import FORMS, INITS, NAMED, NOTHING, Clients, scores, share
from notebooks.gdbr.experiments import FACTS, SCANNED, kinds


def by_layer(ctx, seed, data, init, form=None, scale=None, draws=SeedByRole):
    """MLP-6 from every layer, in all forms, for one random batch: #1 is the layer below the last."""
    clients = Clients(ctx, "mlp6", data, OneSeed(seed))
    forms = [form] if form else FORMS
    batch = clients.batch("random", NAMED, 64, draws(seed), "batch of whole")
    views = clients.views([batch], init, scale)
    for row, last, aux_inputs, (chain_batch,) in views:
        names = [link.name for link in chain(last.model).links[:-1]][::-1]
        update = share(last.model, chain_batch.x, batch.labels, names)
        for layer, name in enumerate(names, 1):
            bridge = gdbr.Bridge(last.model, name)
            try:
                features = bridge.observe(aux_inputs)
                results = {f: bridge.recover(update, features, f) for f in forms}
                scored = {f: scores(r.counts, batch.truth) for f, r in results.items()}
            except ValueError:  # positive weights on negative pixels: all units are off
                results, scored = {}, dict.fromkeys(forms, NOTHING)
            for f, result in scored.items():
                of = {"layer": layer, "form": f, **batch.about, **result}
                gain = result["insacc"] - scored["paper"]["insacc"]
                deficient = len(results[f].facts["deficient"]) if f in results else None
                yield {**row, **of, "gain": gain, "deficient": deficient}


LAYERS = dict(
    trials=(2, 20),
    by=("layer", "form"),
    values=kinds("insacc", "clsacc", "gain", "deficient"),
    facts=FACTS,
    arguments=dict(draws=OneSeed),
)
MLP = dict(net="mlp6", scheme="random", batch_size=64, redrawn="network")
FIG4 = Experiment(
    "fig4",
    by_layer,
    quick=grid(data=["mnist5k", "photos"], init=INITS),
    paper=grid(data="mnist", init=INITS)
    + grid(data="svhn", init=INITS, trials=40)
    + grid(data="cifar10", init=INITS),
    fixed=MLP | dict(scale="raw"),
    tables=("fig4", "fig5b"),
    **LAYERS,
)
FIG4_NORMALISED = dataclasses.replace(
    FIG4,
    name="fig4_normalised",
    quick=grid(data="photos", init="positive"),
    paper=grid(data="cifar10", init="positive"),
    fixed=MLP | dict(scale="normalised"),
    tables=("fig4",),
)
FIG4_CHOICES = Experiment(
    "fig4_choices",
    by_layer,
    quick=grid(data="mnist5k", init="positive"),
    paper=grid(data="svhn", init=INITS) + grid(data="cifar10", init="positive"),
    by=("scale", "layer"),
    fixed=MLP | dict(form="paper"),
    tables=("fig4", "fig5b"),
    **SCANNED | dict(trials=(1, 10)),
)
