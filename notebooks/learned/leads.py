"""The learned attacker: rows to the numbers that the lecture and the evidence speak of."""

import pandas as pd

from fedleak_book.experiments import Number, cells
from notebooks.learned import experiments as e
from notebooks.learned.experiments_elsewhere import KNOWS
from notebooks.learned.experiments_networks import BEST, HALVES, MOST, OURS
from fedleak_book.experiments import having

EVEN, PUBLISHED = "prior guess", "best published"
REAL = ["unbalanced", "balanced"]  # compositions of clients' batches
SIZES = [8, 32, 128, 512]


def trials(run, experiment, by=(), value="iacc", **settings):
    """A value by cell and trial, a column for each attack."""
    rows = run.best_rows(experiment)
    rows = rows[having(**settings)(rows)]
    return rows.pivot_table(
        index=[*by, "trial"], columns="attack", values=value, sort=False
    )


def met(run, experiment, by, ours=OURS, **settings):
    """iAcc per setting of the attacks that answered every update, and the best published attack with its name."""
    scores = trials(run, experiment, by, **settings)
    rows = {}
    for keys, cell in scores.groupby(list(by), sort=False):
        wide = cell.droplevel(list(by)).dropna(axis=1)
        best = cells.best_of(wide, among=[name for name in wide if name not in ours])
        rows[keys] = {**wide.mean(), PUBLISHED: float(best.score), "which": best.attack}
    columns = [*scores, PUBLISHED, "which"]
    table = pd.DataFrame(rows.values(), columns=columns)
    return table.set_axis(pd.MultiIndex.from_tuples(rows, names=by))


def points(share):
    """A difference in percentage points."""
    return Number(100 * share)


def lead(run, experiment, attack, other, **settings):
    """By how much one attack is ahead of another, or of the best published one, on the same updates, paired by trial."""
    return lead_in(trials(run, experiment, **settings), attack, other)


def lead_in(scores, attack, other):
    """The same in one cell, of its scores by trial and attack."""
    if other != PUBLISHED:
        return cells.mean_of((scores[attack] - scores[other]).dropna())
    return cells.lead_of(scores, attack, [name for name in scores if name not in OURS])[
        0
    ]


def leads_by(run, experiment, by, attack, other, **settings):
    """The leads of one attack over another, or over the best published one, in each cell."""
    scores = trials(run, experiment, by, **settings)
    return [
        lead_in(cell.droplevel(by), attack, other)
        for _, cell in scores.groupby(by, sort=False)
    ]


def means_by(run, experiment, by, attack, value, **settings):
    """The means of an attack's value in each cell."""
    scores = trials(run, experiment, by, value, **settings)[attack].dropna()
    return [cells.mean_of(cell) for _, cell in scores.groupby(by, sort=False)]


def best(run, experiment, by_name=False, **settings):
    """What the best published attack of a cell finds, or its name."""
    scores = trials(run, experiment, **settings)
    strongest = cells.best_of(
        scores, among=[name for name in scores if name not in OURS]
    )
    return strongest.attack if by_name else strongest.score


def judged(run):
    """The main table: by data set, batch size and composition."""
    return met(run, e.JUDGED, ["data", "batch_size", "composition"], composition=REAL)


def reading(run):
    """Two and three classes: what is found beside the best reading of the bias, by classes and batch size."""
    return met(run, e.BAYES, ["classes", "batch_size"])


def beside_the_bias(run):
    """By batch size, the points that the learned attacker is above the most of the bias with three classes, and above the
    best answer with two; how far RLU is below the best answer; and all iAcc with two classes, by network."""
    scores = trials(run, e.BAYES, ["classes", "batch_size"])
    mean = 100 * scores.groupby(level=["classes", "batch_size"]).mean()
    over, beside = mean["learned"] - mean[MOST], mean["learned"] - mean[BEST]
    return over.loc[3], beside.loc[2], mean[BEST] - mean["RLU"], scores.loc[2]


def leads(run, other, composition):
    """The learned attacker's leads in the main table, by data set and batch size."""
    part = judged(run).xs(composition, level="composition")
    return part["learned"] - part[other]


def coverage(run, experiment, by, **settings):
    """How much the learned attacker's 90 % intervals hold of the counts, by cell."""
    rows = run.best(experiment)
    rows = rows[having(**{"attack": "learned", **settings})(rows)]
    return rows.set_index(list(by))["coverage"].sort_index()


def halved(run, experiment, value="iacc", **settings):
    """By half of the clients' images and batch size: iAcc of real batches, or coverage of batches as simulated."""
    composition = "unbalanced" if value == "iacc" else "simulated"
    by = ["half", "batch_size"]
    scores = trials(run, experiment, by, value, composition=composition, **settings)
    return scores.groupby(by, sort=False).mean()


def losses(run, experiment, **settings):
    """The network's mean loss on the images that it was trained on, and on the others."""
    rows = run.best(experiment)
    loss = rows[having(**settings)(rows)].groupby("half")["loss"].mean()
    return [loss[half] for half in HALVES]


def honest(run, experiment, **settings):
    """By how much more the attacker finds than it expects, of batches drawn as it simulates them, by trial."""
    rows = run.best_rows(experiment).query("attack == 'learned'")
    rows = rows[having(**settings)(rows)]
    return (rows["iacc"] - rows["expected"]).set_axis(rows["trial"])


def surprise(run, experiment, **settings):
    """The same of all batches as simulated, in points, mean of the cells and networks."""
    gaps = honest(run, experiment, composition="simulated", **settings)
    return points(gaps.mean())


def splits(run, images, value="read"):
    """The share of updates in single precision that head splitting reads, by state and batch size."""
    rows = run.best(e.SPLITS).query("sent == 'as it is'")
    rows = rows[rows["images"] == images]
    return rows.set_index(["state", "batch_size"])[value]


def unaware(run, strength):
    """iAcc and coverage behind noise of an attacker that does not know of it: 1,000 images, batches of 32."""
    settings = dict(defence="noise" if strength else "none", strength=strength)
    values = ("iacc", "coverage")
    return {v: run.cell(e.LIMITS, v, aux_images=1000, **settings) for v in values}


def altered(run):
    """The share of updates detected as changed, without a defence and by defence and strength."""
    rows = run.best(e.LIMITS)
    none = rows["defence"] == "none"
    return {"none": rows[none]["altered"], "defended": rows[~none]["altered"]}


def bounds(run, size, knows="other images", images=10_000, iterations=300):
    """iAcc by trial of one attacker of unbalanced batches on MNIST: what it knows, and how long it is trained."""
    settings = dict(batch_size=size, knows=knows, composition="unbalanced")
    scores = trials(run, e.BOUNDS, aux_images=images, iterations=iterations, **settings)
    return scores["learned"]


def gain(run, more, size, **less):
    """What an attacker gains by more iterations, images or the clients' own; paired, over the three networks."""
    return cells.mean_of(bounds(run, size, **more) - bounds(run, size, **less))


OWN = dict(knows="clients' images", images=60_000)


def behind_defences(run):
    """iAcc of unbalanced batches by defence and strength, with the best published attack."""
    by = ["defence", "strength"]
    return met(run, e.ADAPTIVE, by, ours=[*OURS, "adaptive"])


def remedy(run, experiment, half, **settings):
    """What the attacker finds more of a half's labels by knowing the training loss, by batch size."""
    scores = halved(run, experiment, **settings)
    return (scores[KNOWS] - scores["learned"])[half]


def without(run, part):
    """What the attacker loses without a part, by its number of images and batch size."""
    scores = run.best(e.PARTS).pivot(
        index=["aux_images", "batch_size"], columns="without", values="iacc"
    )
    return scores["nothing"] - scores[part]


def weighed(run, form):
    """What a form of the whole head finds, mean over four batch sizes."""
    rows = run.best(e.WEIGHED)
    return rows[rows["attack"] == form]["iacc"].mean()
