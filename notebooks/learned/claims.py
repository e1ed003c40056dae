"""The learned attacker: how each prediction of ``data/published/learned/claims.toml`` is measured on the records."""

from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.estimates import having
from fedleak_book.evidence.results import Number
from fedleak_book.evidence.cells import mean_of
from notebooks.learned.updates import BEST, MOST, WHOLE
from notebooks.learned.leads import (
    EVEN,
    OWN,
    PUBLISHED,
    REAL,
    coverage,
    gain,
    excess,
    lead,
    leads_by,
    means_by,
    scores_of,
    loss_without,
)
from notebooks.learned.updates import KNOWS

CLAIMS = Claims()


def predict(id, measure):
    """Add the measure of a prediction: a function of the run that returns its number."""
    CLAIMS.predict(f"learned-{id}", measure)


# --- the main judgement ---
CELL = ["data", "batch_size", "composition"]


def judged(run, other, **settings):
    """The learned attacker's leads in the main table, by cell."""
    return leads_by(run, "judged", CELL, "learned", other, **settings)


predict(
    "L1",
    lambda run: sum(
        gap >= 0.05 for gap in judged(run, PUBLISHED, composition="unbalanced")
    ),
)
predict("L2", lambda run: min(judged(run, WHOLE, composition=REAL)))
predict(
    "L3", lambda run: min(judged(run, EVEN, composition="balanced", batch_size=[8, 32]))
)
predict(
    "L4",
    lambda run: (
        (coverage(run, "judged", ["data", "batch_size"], composition="simulated") - 0.9)
        .abs()
        .max()
    ),
)
predict("D4", lambda run: min(untrained(run)))


def untrained(run):
    """The leads over the best published attack on untrained networks, by network, batch size and composition."""
    return leads_by(
        run, "fresh", ["net", "batch_size", "composition"], "learned", PUBLISHED
    )


# --- several local steps ---
def over_rlu(run, **settings):
    """The lead over RLU after local steps of a trained network."""
    return lead(run, "local", "learned", "RLU", state="trained", **settings)


predict("S1", lambda run: over_rlu(run, scheme="fedavg", lr=0.01))
predict("S2", lambda run: over_rlu(run, scheme="fedavg", lr=0.1))
predict("S3", lambda run: min(over_rlu(run, scheme=s) for s in ("sgdm", "scaffold")))


# --- images that the network was trained on ---
REAL_HALF, LATER = dict(composition="unbalanced"), dict(steps=600)


def least_coverage(run, experiment, half, attack="learned", **settings):
    """The least coverage of a half's counts over the batch sizes."""
    by_size = means_by(
        run,
        experiment,
        ["batch_size"],
        attack,
        "coverage",
        half=half,
        composition="simulated",
        **settings,
    )
    return min(by_size)


def coverage_gap(run, experiment, **settings):
    """The coverage for members minus that for others, over batches of 128 and 512, paired by trial."""
    sizes = dict(composition="simulated", batch_size=[128, 512])
    by_half = scores_of(run, experiment, ["half"], "coverage", **sizes, **settings)[
        "learned"
    ]
    return mean_of(by_half["members"] - by_half["others"])


def remedy(run, experiment, half, **settings):
    """The gain in a half's iAcc from the training loss, over all batch sizes, paired by trial."""
    return lead(run, experiment, KNOWS, "learned", half=half, **REAL_HALF, **settings)


predict("M1", lambda run: least_coverage(run, "members", "others"))
predict("M2", lambda run: coverage_gap(run, "members"))
predict(
    "M3",
    lambda run: min(
        leads_by(
            run, "members", ["batch_size"], "learned", WHOLE, half="others", **REAL_HALF
        )
    ),
)
predict("M4", lambda run: least_coverage(run, "members", "members", KNOWS))
predict("M5", lambda run: remedy(run, "members", "members"))
predict("M6", lambda run: remedy(run, "members", "others"))
predict("M7", lambda run: least_coverage(run, "members_resnet", "others", **LATER))
predict("M8", lambda run: coverage_gap(run, "members_resnet", **LATER))
predict("M9", lambda run: remedy(run, "members_resnet", "members", **LATER))
predict("M10", lambda run: remedy(run, "members_resnet", "members", steps=300))


# --- what more of something gains ---
def composition_lead(run, other):
    """The lesser lead of the attacker that is given the composition, batches of 32 and 128."""
    return min(lead(run, "prior", "told", other, batch_size=size) for size in (32, 128))


predict(
    "B1", lambda run: max(gain(run, dict(iterations=1200), size) for size in (8, 32))
)
predict("B2", lambda run: min(gain(run, {}, size, images=200) for size in (8, 32)))
predict("B3", lambda run: max(gain(run, OWN, size) for size in (8, 32)))
predict("B4", lambda run: composition_lead(run, WHOLE))
predict("B5", lambda run: composition_lead(run, "learned"))


# --- the best that the bias gives ---
def with_few_classes(run, attack, other, **settings):
    """One attack's leads over another with two and three classes, by classes and batch size."""
    return leads_by(run, "bayes", ["classes", "batch_size"], attack, other, **settings)


predict("R1", lambda run: max(with_few_classes(run, "RLU", MOST)))
predict("R2", lambda run: min(with_few_classes(run, "learned", MOST)))
predict("R3", lambda run: min(with_few_classes(run, BEST, PUBLISHED, batch_size=8)))


# --- what it expects to recover ---
UP_TO_128 = dict(data="MNIST", batch_size=[8, 32, 128])


def surprises(run, experiment, part="simulated", **settings):
    """By how much its iAcc exceeds the one that it expects, by cell."""
    cells = run.best(experiment)
    cells = cells[having(attack="learned", composition=part, **settings)(cells)]
    return (cells["iacc"] - cells["expected"]).to_numpy()


def of_half(run, half):
    """The same for a network trained on half of the images, over batches of 128 and 512, with its interval."""
    gaps = excess(
        run, "members", composition="simulated", half=half, batch_size=[128, 512]
    )
    return mean_of(gaps.groupby(level="trial").mean())


predict("H1", lambda run: abs(surprises(run, "judged", **UP_TO_128)).max())
predict(
    "H2",
    lambda run: abs(
        surprises(run, "judged", "simulated, surest fifth", **UP_TO_128)
    ).max(),
)
predict("H3", lambda run: -surprises(run, "deep").min())
predict("H4", lambda run: negative(of_half(run, "members")))
predict("H5", lambda run: abs(of_half(run, "others")))


def negative(number):
    """A number and its interval with the other sign."""
    return Number(-number, -number.high, -number.low, number.n)


# --- parts of the attack ---
predict("X1", lambda run: loss_without(run, "signs").xs(8, level="batch_size").min())
predict("X2", lambda run: loss_without(run, "copies")[500, 128])
predict("X3", lambda run: loss_without(run, "copies")[10_000, 128])


# --- what the head alone determines ---
def determined(run, **settings):
    """Settings of exact recoveries, for batches of at most half as many samples as classes."""
    cells = run.cells("determined", **settings)
    return cells[cells["batch_size"] <= cells["net"].map({"lenet": 5, "resnet20": 50})]


SIX = dict(net="lenet", batch_size=6, precision="double")
predict("I1", lambda run: Number.most(determined(run, precision="double"), "strange"))
predict("I2", lambda run: Number.least(determined(run, precision="double"), "read"))
predict("I3", lambda run: Number.least(determined(run, precision="single"), "read"))
predict("I4", lambda run: Number.least(run.cells("determined", **SIX), "strange"))
predict("I5", lambda run: Number.most(run.best("determined"), "wrong"))
predict("J1", lambda run: Number.least(run.best("jointly"), "single"))
predict(
    "J2", lambda run: Number.least(run.best("jointly").query("batch_size != 9"), "read")
)
predict(
    "J3", lambda run: Number.least(run.best("jointly").query("batch_size == 9"), "read")
)
predict("J4", lambda run: Number.most(run.best("jointly"), "strange"))
predict("J5", lambda run: Number.most(run.best("jointly"), "wrong"))

# --- updates in single precision ---
IMAGES = dict(sent="as it is", images="with images")
predict(
    "K1",
    lambda run: Number.least(run.cells("splits", state="untrained", **IMAGES), "read"),
)
predict(
    "K2",
    lambda run: Number.least(
        run.cells("splits", state="trained", batch_size=[4, 6], **IMAGES), "read"
    ),
)
predict("K3", lambda run: Number.most(run.best("splits"), "wrong"))
predict(
    "A1",
    lambda run: Number.least(run.best("limits").query("defence != 'none'"), "altered"),
)
predict(
    "A2",
    lambda run: Number.most(run.best("limits").query("defence == 'none'"), "altered"),
)
