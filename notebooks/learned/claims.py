"""The learned attacker: what was predicted before each run, measured, by the id in ``data/published/learned/claims.toml``."""

import pandas as pd

from notebooks.learned import experiments as e
from notebooks.learned.experiments_elsewhere import KNOWS
from notebooks.learned.experiments_networks import BEST, MOST, WHOLE
from notebooks.learned.leads import (
    EVEN,
    OWN,
    PUBLISHED,
    altered,
    coverage,
    gain,
    halved,
    judged,
    lead,
    leads,
    met,
    reading,
    remedy,
    splits,
    without,
)
from fedleak_book.experiments import Claims, having


CLAIMS = Claims()


def predict(id, measure):
    """Add the measure of a prediction: a function of the run that returns its number."""
    CLAIMS.predict(f"learned-{id}", measure)


def over_rlu(run, **settings):
    """The lead over RLU after local steps of a trained network."""
    return lead(run, e.LOCAL, "learned", "RLU", state="trained", **settings)


def apart(run, experiment, **settings):
    """The coverage for members less that for others, mean of batches of 128 and 512."""
    shares = halved(run, experiment, "coverage", **settings)["learned"]
    return (shares["members"] - shares["others"])[[128, 512]].mean()


def untrained(run):
    """The leads over the best published attack on networks that have not been trained."""
    table = met(run, e.FRESH, ["net", "batch_size", "composition"])
    return table["learned"] - table[PUBLISHED]


def composition_lead(run, other):
    """By how much the attacker that is told the composition is ahead, the lesser of two sizes."""
    return min(lead(run, e.PRIOR, "told", other, batch_size=b) for b in (32, 128))


def simulated(run):
    """Coverage of batches as simulated."""
    return coverage(run, e.JUDGED, ["data", "batch_size"], composition="simulated")


def by_cell(run, experiment, part="simulated", **settings):
    """What the attacker finds more than it expects of batches as simulated, by cell (means of the networks)."""
    cells = run.best(experiment)
    cells = cells[having(attack="learned", composition=part, **settings)(cells)]
    by = [c for c in ("net", "half", "batch_size") if c in cells]
    return (cells["iacc"] - cells["expected"]).set_axis(
        pd.MultiIndex.from_frame(cells[by])
    )


def by_half(run):
    """The same of a network that was trained on half, by half: mean of batches of 128 and 512."""
    gaps = by_cell(run, e.MEMBERS, batch_size=[128, 512])
    return gaps.groupby(level="half").mean()


UP_TO_128 = dict(data="MNIST", batch_size=[8, 32, 128])


def determined(run, value, **settings):
    """A value of exact recoveries by setting, for batches of at most half as many samples as classes."""
    cells = run.best(e.DETERMINED)
    small = cells["batch_size"] <= cells["net"].map({"lenet": 5, "resnet20": 50})
    return cells[small & having(**settings)(cells)][value]


def jointly(run, value):
    """A value of the samples' equations together, by state and batch size."""
    return run.best(e.JOINTLY).set_index(["state", "batch_size"])[value]


def beyond(run):
    """Solutions that are no sample of batches of 6 of ten classes."""
    cells = run.best(e.DETERMINED)
    return cells[having(net="lenet", batch_size=6, precision="double")(cells)][
        "strange"
    ]


LATER = dict(steps=600)
predict("L1", lambda run: (leads(run, PUBLISHED, "unbalanced") >= 0.05).sum())
predict("L2", lambda run: (judged(run)["learned"] - judged(run)[WHOLE]).min())
predict("L3", lambda run: leads(run, EVEN, "balanced").loc[:, [8, 32]].min())
predict("L4", lambda run: (simulated(run) - 0.9).abs().max())
predict("D4", lambda run: untrained(run).min())
predict("S1", lambda run: over_rlu(run, scheme="fedavg", lr=0.01))
predict("S2", lambda run: over_rlu(run, scheme="fedavg", lr=0.1))
predict("S3", lambda run: min(over_rlu(run, scheme=s) for s in ("sgdm", "scaffold")))
predict("M1", lambda run: halved(run, e.MEMBERS, "coverage")["learned"]["others"].min())
predict("M2", lambda run: apart(run, e.MEMBERS))
predict(
    "M3",
    lambda run: (halved(run, e.MEMBERS)["learned"] - halved(run, e.MEMBERS)[WHOLE])[
        "others"
    ].min(),
)
predict("M4", lambda run: halved(run, e.MEMBERS, "coverage")[KNOWS]["members"].min())
predict("M5", lambda run: remedy(run, e.MEMBERS, "members").mean())
predict("M6", lambda run: remedy(run, e.MEMBERS, "others").mean())
predict(
    "M7",
    lambda run: halved(run, e.MEMBERS_RESNET, "coverage", **LATER)["learned"][
        "others"
    ].min(),
)
predict("M8", lambda run: apart(run, e.MEMBERS_RESNET, **LATER))
predict("M9", lambda run: remedy(run, e.MEMBERS_RESNET, "members", **LATER).mean())
predict("M10", lambda run: remedy(run, e.MEMBERS_RESNET, "members", steps=300).mean())
predict("B1", lambda run: max(gain(run, dict(iterations=1200), b) for b in (8, 32)))
predict("B2", lambda run: min(gain(run, {}, b, images=200) for b in (8, 32)))
predict("B3", lambda run: max(gain(run, OWN, b) for b in (8, 32)))
predict("B4", lambda run: composition_lead(run, WHOLE))
predict("B5", lambda run: composition_lead(run, "learned"))
predict("R1", lambda run: (reading(run)["RLU"] - reading(run)[MOST]).max())
predict("R2", lambda run: (reading(run)["learned"] - reading(run)[MOST]).min())
predict(
    "R3",
    lambda run: (
        (reading(run)[BEST] - reading(run)[PUBLISHED]).xs(8, level="batch_size").min()
    ),
)
predict("H1", lambda run: by_cell(run, e.JUDGED, **UP_TO_128).abs().max())
predict(
    "H2",
    lambda run: (
        by_cell(run, e.JUDGED, "simulated, surest fifth", **UP_TO_128).abs().max()
    ),
)
predict("H3", lambda run: -by_cell(run, e.DEEP).min())
predict("H4", lambda run: -by_half(run)["members"])
predict("H5", lambda run: abs(by_half(run)["others"]))
predict("X1", lambda run: without(run, "signs").xs(8, level="batch_size").min())
predict("X2", lambda run: without(run, "copies")[500, 128])
predict("X3", lambda run: without(run, "copies")[10_000, 128])
predict("I1", lambda run: determined(run, "strange", precision="double").max())
predict("I2", lambda run: determined(run, "read", precision="double").min())
predict("I3", lambda run: determined(run, "read", precision="single").min())
predict("I4", lambda run: beyond(run).min())
predict("I5", lambda run: run.best(e.DETERMINED)["wrong"].max())
predict("J1", lambda run: run.best(e.JOINTLY)["single"].min())
predict("J2", lambda run: jointly(run, "read").drop(9, level="batch_size").min())
predict("J3", lambda run: jointly(run, "read").xs(9, level="batch_size").min())
predict("J4", lambda run: jointly(run, "strange").max())
predict("J5", lambda run: jointly(run, "wrong").max())
predict("K1", lambda run: splits(run, "with images")["untrained"].min())
predict("K2", lambda run: splits(run, "with images")["trained"][[4, 6]].min())
predict("K3", lambda run: run.best(e.SPLITS)["wrong"].max())
predict("A1", lambda run: altered(run)["defended"].min())
predict("A2", lambda run: altered(run)["none"].max())
