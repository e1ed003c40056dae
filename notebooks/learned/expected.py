"""The learned attacker: what was expected, each written down before its run, and what was measured.

L: the main judgement; of the attack's present form L1 to L3 were expected to hold and L4 to fail. D, S, M: new networks,
local steps, images that the network was trained on. B: what more of something gains. R: beside the best reading of the
bias, after a look at one network of each kind. H: what the attacker finds beside what it expects; of the form before,
H1 failed by 0.007 and H2 held; H3 to H5 were written for the present one. X: what the parts bring of the form that reads
rows alike, after looks at five other LeNets. I: what the head alone determines, after looks at a LeNet of each state (six
batches a size) and at a ResNet-18 that is not among the networks judged. J: what it determines of more samples than half
the classes, after looks at three LeNets (two batches a size). K: updates in single precision, after looks at three
other LeNets of each state (three updates a size). A: whether an update that a defence has changed is told apart, after
looks at other networks.
"""

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
from fedleak_book.experiments import having


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
    """A value of exact readings by cell: of batches of at most half as many samples as classes."""
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
EXPECTED = {  # by name: what, at least or at most, the bound, and the number that rows give
    "L1": (
        "Unbalanced batches: cells, of 8, in which it is ahead of the best published attack by 5 points",
        "at least",
        6,
        lambda run: (leads(run, PUBLISHED, "unbalanced") >= 0.05).sum(),
    ),
    "L2": (
        "The least of its leads over the whole head, both compositions",
        "at least",
        -0.01,
        lambda run: (judged(run)["learned"] - judged(run)[WHOLE]).min(),
    ),
    "L3": (
        "Balanced batches of 8 and 32: the least of its leads over the even guess",
        "at least",
        0.0,
        lambda run: leads(run, EVEN, "balanced").loc[:, [8, 32]].min(),
    ),
    "L4": (
        "The largest distance of the 90 % intervals' coverage from 0.90, batches as simulated, of the clients' images",
        "at most",
        0.05,
        lambda run: (simulated(run) - 0.9).abs().max(),
    ),
    "D4": (
        "Untrained networks: the least of its leads over the best published attack",
        "at least",
        -0.01,
        lambda run: untrained(run).min(),
    ),
    "S1": (
        "Five local steps of plain SGD, trained, rate 0.01: its lead over RLU",
        "at least",
        0.05,
        lambda run: over_rlu(run, scheme="fedavg", lr=0.01),
    ),
    "S2": (
        "The same at the rate 0.1, where the layers below move",
        "at most",
        0.0,
        lambda run: over_rlu(run, scheme="fedavg", lr=0.1),
    ),
    "S3": (
        "Momentum and Scaffold at the rate 0.01: the lesser lead over RLU",
        "at least",
        0.0,
        lambda run: min(over_rlu(run, scheme=s) for s in ("sgdm", "scaffold")),
    ),
    "M1": (
        "LeNet trained on half (CIFAR-10): the least coverage, others' images",
        "at least",
        0.85,
        lambda run: halved(run, e.MEMBERS, "coverage")["learned"]["others"].min(),
    ),
    "M2": (
        "The coverage for members less that for others, mean of batches of 128 and 512",
        "at most",
        -0.1,
        lambda run: apart(run, e.MEMBERS),
    ),
    "M3": (
        "Others: the least of the leads over the whole head",
        "at least",
        -0.01,
        lambda run: (halved(run, e.MEMBERS)["learned"] - halved(run, e.MEMBERS)[WHOLE])[
            "others"
        ].min(),
    ),
    "M4": (
        "Told the training loss: the least coverage for members",
        "at least",
        0.85,
        lambda run: halved(run, e.MEMBERS, "coverage")[KNOWS]["members"].min(),
    ),
    "M5": (
        "Told the training loss: the mean gain in iAcc on members",
        "at least",
        0.02,
        lambda run: remedy(run, e.MEMBERS, "members").mean(),
    ),
    "M6": (
        "Told the training loss: the mean gain in iAcc on others",
        "at least",
        -0.03,
        lambda run: remedy(run, e.MEMBERS, "others").mean(),
    ),
    "M7": (
        "ResNet-18 trained on half, 600 steps: the least coverage, others' images",
        "at least",
        0.85,
        lambda run: halved(run, e.MEMBERS_RESNET, "coverage", **LATER)["learned"][
            "others"
        ].min(),
    ),
    "M8": (
        "The same: the coverage for members less that for others, mean of batches of 128 and 512",
        "at most",
        -0.1,
        lambda run: apart(run, e.MEMBERS_RESNET, **LATER),
    ),
    "M9": (
        "ResNet-18 trained on half for 600 steps: the mean gain on members of knowing the training loss",
        "at least",
        0.05,
        lambda run: remedy(run, e.MEMBERS_RESNET, "members", **LATER).mean(),
    ),
    "M10": (
        "The same for 300 steps, which fit members less well",
        "at most",
        0.05,
        lambda run: remedy(run, e.MEMBERS_RESNET, "members", steps=300).mean(),
    ),
    "B1": (
        "1,200 iterations in place of 300: the larger gain, batches of 8 and of 32",
        "at most",
        0.05,
        lambda run: max(gain(run, dict(iterations=1200), b) for b in (8, 32)),
    ),
    "B2": (
        "10,000 images in place of 200: the lesser gain",
        "at least",
        0.10,
        lambda run: min(gain(run, {}, b, images=200) for b in (8, 32)),
    ),
    "B3": (
        "The clients' own images in place of 10,000 others: the larger gain",
        "at most",
        0.05,
        lambda run: max(gain(run, OWN, b) for b in (8, 32)),
    ),
    "B4": (
        "Told the composition (CIFAR-10): the lesser lead over the whole head, batches of 32 and of 128",
        "at least",
        0.02,
        lambda run: composition_lead(run, WHOLE),
    ),
    "B5": (
        "Told the composition: the lesser gain",
        "at least",
        0.02,
        lambda run: composition_lead(run, "learned"),
    ),
    "R1": (
        "Two and three classes: RLU, which reads the bias alone, less the most that this gives; the largest mean",
        "at most",
        0.0,
        lambda run: (reading(run)["RLU"] - reading(run)[MOST]).max(),
    ),
    "R2": (
        "The learned attacker less the most that the bias gives, mean of the networks; the least",
        "at least",
        0.03,
        lambda run: (reading(run)["learned"] - reading(run)[MOST]).min(),
    ),
    "R3": (
        "Batches of 8: the best answer to the bias less the best formula, mean of the networks; the lesser",
        "at least",
        0.03,
        lambda run: (
            (reading(run)[BEST] - reading(run)[PUBLISHED])
            .xs(8, level="batch_size")
            .min()
        ),
    ),
    # the kept images are distributed as the clients', and 600 steps fit the latter hardly better
    "H1": (
        "Trained LeNets (MNIST), batches of up to 128 as simulated: the largest distance of what it finds from what it expects",
        "at most",
        0.02,
        lambda run: by_cell(run, e.JUDGED, **UP_TO_128).abs().max(),
    ),
    # being sure is learned on few images, so that the surest answers disappoint
    "H2": (
        "The same of the surest fifth of the batches",
        "at most",
        0.03,
        lambda run: (
            by_cell(run, e.JUDGED, "simulated, surest fifth", **UP_TO_128).abs().max()
        ),
    ),
    # the network fits its clients' images better, and the simulation is of others
    "H3": (
        "Deep networks (CIFAR-10), batches as simulated: the most that it finds less than it expects",
        "at least",
        0.02,
        lambda run: -by_cell(run, e.DEEP).min(),
    ),
    "H4": (
        "LeNet trained on half (CIFAR-10): what it finds less than it expects of members, mean of batches of 128 and 512",
        "at least",
        0.03,
        lambda run: -by_half(run)["members"],
    ),
    "H5": (
        "The same of others, either way",
        "at most",
        0.03,
        lambda run: abs(by_half(run)["others"]),
    ),
    "X1": (
        "Batches of 8: the least that it loses without signs and extremes (500 and 10,000 images)",
        "at least",
        0.05,
        lambda run: without(run, "signs").xs(8, level="batch_size").min(),
    ),
    "X2": (
        "Batches of 128, 500 images: what it loses without moved copies",
        "at least",
        0.03,
        lambda run: without(run, "copies")[500, 128],
    ),
    "X3": (
        "The same with 10,000 images",
        "at most",
        0.02,
        lambda run: without(run, "copies")[10_000, 128],
    ),
    # each sample has more equations than unknowns
    "I1": (
        "Batches of up to 5 of ten and 32 of a hundred classes, double precision: the most solutions a batch that are no sample of it",
        "at most",
        0.01,
        lambda run: determined(run, "strange", precision="double").max(),
    ),
    "I2": (
        "The same: the least share of batches that are read whole",
        "at least",
        0.8,
        lambda run: determined(run, "read", precision="double").min(),
    ),
    # trained networks' smallest errors are near the rounding of the largest
    "I3": (
        "In single precision: that least share",
        "at most",
        0.5,
        lambda run: determined(run, "read", precision="single").min(),
    ),
    # one equation fewer than unknowns: a curve of solutions a label
    "I4": (
        "LeNet, batches of 6, one more than half the classes, double precision: the fewest solutions a batch that are no sample",
        "at least",
        2,
        lambda run: beyond(run).min(),
    ),
    "I5": (
        "All readings: the largest share of batches whose labels are read whole and wrong",
        "at most",
        0.0,
        lambda run: run.best(e.DETERMINED)["wrong"].max(),
    ),
    # together the samples of given labels have more equations than unknowns up to one less than the classes
    "J1": (
        "All samples' equations together, up to 9 of ten classes, right labels: the least share of batches without another solution beside the true one",
        "at least",
        1,
        lambda run: run.best(e.JOINTLY)["single"].min(),
    ),
    "J2": (
        "Up to 8 samples: the least share of batches that one of twelve searches finds",
        "at least",
        0.8,
        lambda run: jointly(run, "read").drop(9, level="batch_size").min(),
    ),
    "J3": (
        "9 samples: the lesser such share",
        "at least",
        0.5,
        lambda run: jointly(run, "read").xs(9, level="batch_size").min(),
    ),
    "J4": (
        "The largest share of batches of which a solution with the right labels is another one",
        "at most",
        0.05,
        lambda run: jointly(run, "strange").max(),
    ),
    "J5": (
        "With one label wrong: the most solutions a batch",
        "at most",
        0,
        lambda run: jointly(run, "wrong").max(),
    ),
    # updates in single precision; a sample that is fitted better than this rounding cannot be told from others
    "K1": (
        "Head splitting with auxiliary images, untrained LeNets, updates of 2 to 8 samples: the least share that is read",
        "at least",
        0.9,
        lambda run: splits(run, "with images")["untrained"].min(),
    ),
    "K2": (
        "Trained ones: the least share of updates of 4 and of 6 samples",
        "at least",
        0.5,
        lambda run: splits(run, "with images")["trained"][[4, 6]].min(),
    ),
    "K3": (
        "All updates, noisy and rounded ones too: the largest share whose labels are read wrong",
        "at most",
        0,
        lambda run: run.best(e.SPLITS)["wrong"].max(),
    ),
    "A1": (
        "Updates behind noise from 0.001 on or without nine tenths of their entries: the least share that is told apart",
        "at least",
        1,
        lambda run: altered(run)["defended"].min(),
    ),
    "A2": (
        "The same of updates that nothing has changed: the largest share",
        "at most",
        0,
        lambda run: altered(run)["none"].max(),
    ),
}


def outcomes(run, letters="LDSMBRHXIJKA"):
    """The expectations of some letters beside what was measured."""
    rows = []
    for name, (what, side, bound, statistic) in EXPECTED.items():
        if name[0] in letters:
            measured = float(statistic(run))
            holds = measured >= bound if side == "at least" else measured <= bound
            outcome = {"measured": measured, "held": "✓ yes" if holds else "✗ no"}
            rows.append(
                {"": name, "expectation": what, "side": side, "bound": bound} | outcome
            )
    return pd.DataFrame(rows)
