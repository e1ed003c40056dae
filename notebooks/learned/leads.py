"""The learned attacker: rows to the numbers that the lecture and the evidence speak of."""

import pandas as pd

from fedleak_book.experiments import Number, cells
from notebooks.learned import experiments as e
from notebooks.learned.experiments_elsewhere import KNOWS
from notebooks.learned.experiments_networks import BEST, HALVES, MOST, OURS
from notebooks.llg.experiments import having

EVEN, PUBLISHED = "prior guess", "best published"
REAL = ["unbalanced", "balanced"]  # compositions of clients' batches
SIZES = [8, 32, 128, 512]


def trials(run, experiment, by=(), value="iacc", **where):
    """A value by cell and trial, a column for each attack."""
    rows = run.best_rows(experiment)
    rows = rows[having(**where)(rows)]
    return rows.pivot_table(
        index=[*by, "trial"], columns="attack", values=value, sort=False
    )


def met(run, experiment, by, ours=OURS, **where):
    """iAcc by cell of the attacks that answered every network's updates; of the published ones the best, and which."""
    each = trials(run, experiment, by, **where)
    rows = {}
    for keys, cell in each.groupby(list(by), sort=False):
        wide = cell.droplevel(list(by)).dropna(axis=1)
        best = cells.best_of(wide, among=[name for name in wide if name not in ours])
        rows[keys] = {**wide.mean(), PUBLISHED: float(best.score), "which": best.attack}
    columns = [*each, PUBLISHED, "which"]
    found = pd.DataFrame(rows.values(), columns=columns)
    return found.set_axis(pd.MultiIndex.from_tuples(rows, names=by))


def number(values):
    """A mean over trials with its 95 % interval."""
    return cells.mean_of(values)


def points(share):
    """A difference in percentage points."""
    return Number(100 * share)


def lead(run, experiment, one, other, **where):
    """By how much one attack is ahead of another, or of the best published one, on the same updates, paired by trial."""
    each = trials(run, experiment, **where)
    if other != PUBLISHED:
        return number((each[one] - each[other]).dropna())
    return cells.lead_of(each, one, [name for name in each if name not in OURS])[0]


def best(run, experiment, by_name=False, **where):
    """What the best published attack of a cell finds, or its name."""
    each = trials(run, experiment, **where)
    found = cells.best_of(each, among=[name for name in each if name not in OURS])
    return found.attack if by_name else found.score


def judged(run):
    """The main table: by data set, batch size and composition."""
    return met(run, e.JUDGED, ["data", "batch_size", "composition"], composition=REAL)


def reading(run):
    """Two and three classes: what is found beside the best reading of the bias, by classes and batch size."""
    return met(run, e.BAYES, ["classes", "batch_size"])


def beside_the_bias(run):
    """By batch size, the points that the learned attacker is above the most of the bias with three classes, and above the
    best answer with two; how far RLU is below the best answer; and all iAcc with two classes, by network."""
    each = trials(run, e.BAYES, ["classes", "batch_size"])
    mean = 100 * each.groupby(level=["classes", "batch_size"]).mean()
    over, beside = mean["learned"] - mean[MOST], mean["learned"] - mean[BEST]
    return over.loc[3], beside.loc[2], mean[BEST] - mean["RLU"], each.loc[2]


def leads(run, other, composition):
    """The learned attacker's leads in the main table, by data set and batch size."""
    part = judged(run).xs(composition, level="composition")
    return part["learned"] - part[other]


def coverage(run, experiment, by, **where):
    """How much the learned attacker's 90 % intervals hold of the counts, by cell."""
    rows = run.best(experiment)
    rows = rows[having(**{"attack": "learned", **where})(rows)]
    return rows.set_index(list(by))["coverage"].sort_index()


def halved(run, experiment, value="iacc", **where):
    """By half of the clients' images and batch size: iAcc of real batches, or coverage of batches as simulated."""
    composition = "unbalanced" if value == "iacc" else "simulated"
    by = ["half", "batch_size"]
    each = trials(run, experiment, by, value, composition=composition, **where)
    return each.groupby(by, sort=False).mean()


def losses(run, experiment, **where):
    """The network's mean loss on the images that it was trained on, and on the others."""
    rows = run.best(experiment)
    loss = rows[having(**where)(rows)].groupby("half")["loss"].mean()
    return [loss[half] for half in HALVES]


def honest(run, experiment, **where):
    """By how much more the attacker finds than it expects, of batches drawn as it simulates them, by trial."""
    rows = run.best_rows(experiment).query("attack == 'learned'")
    rows = rows[having(**where)(rows)]
    return (rows["iacc"] - rows["expected"]).set_axis(rows["trial"])


def surprise(run, experiment, **where):
    """The same of all batches as simulated, in points, mean of the cells and networks."""
    found = honest(run, experiment, composition="simulated", **where)
    return points(found.mean())


def splits(run, images, value="read"):
    """The share of updates in single precision that head splitting reads, by state and batch size."""
    rows = run.best(e.SPLITS).query("sent == 'as it is'")
    rows = rows[rows["images"] == images]
    return rows.set_index(["state", "batch_size"])[value]


def unaware(run, strength):
    """iAcc and coverage behind noise of an attacker that does not know of it: 1,000 images, batches of 32."""
    where = dict(defence="noise" if strength else "none", strength=strength)
    values = ("iacc", "coverage")
    return {v: run.cell(e.LIMITS, v, aux_images=1000, **where) for v in values}


def altered(run):
    """The shares of updates that are told apart as changed: of undefended ones, and by defence and strength."""
    rows = run.best(e.LIMITS)
    none = rows["defence"] == "none"
    return {"none": rows[none]["altered"], "defended": rows[~none]["altered"]}


def bounds(run, size, knows="other images", images=10_000, iterations=300):
    """iAcc by trial of one attacker of unbalanced batches on MNIST: what it knows, and how long it is trained."""
    where = dict(batch_size=size, knows=knows, composition="unbalanced")
    each = trials(run, e.BOUNDS, aux_images=images, iterations=iterations, **where)
    return each["learned"]


def gain(run, more, size, **less):
    """What an attacker gains by more iterations, images or the clients' own; paired, over the three networks."""
    return number(bounds(run, size, **more) - bounds(run, size, **less))


OWN = dict(knows="clients' images", images=60_000)


def behind_defences(run):
    """iAcc of unbalanced batches by defence and strength; of the published attacks the best."""
    by = ["defence", "strength"]
    return met(run, e.ADAPTIVE, by, ours=[*OURS, "adaptive"])


def remedy(run, experiment, half, **where):
    """What the attacker finds more of a half's labels by knowing the training loss, by batch size."""
    found = halved(run, experiment, **where)
    return (found[KNOWS] - found["learned"])[half]


def without(run, part):
    """What the attacker loses without a part, by its number of images and batch size."""
    found = run.best(e.PARTS).pivot(
        index=["aux_images", "batch_size"], columns="without", values="iacc"
    )
    return found["nothing"] - found[part]


def weighed(run, form):
    """What a form of the whole head finds, mean over four batch sizes."""
    rows = run.best(e.WEIGHED)
    return rows[rows["attack"] == form]["iacc"].mean()
