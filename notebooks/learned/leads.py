"""The learned attacker: compute the numbers of the chapter and the evidence page from rows."""

import pandas as pd

from fedleak_book.evidence import cells
from fedleak_book.evidence.estimates import having
from fedleak_book.evidence.results import Number
from notebooks.learned.updates import BEST, HALVES, KNOWS, MOST, UNPUBLISHED

EVEN, PUBLISHED = "prior guess", "best published"
REAL = ["unbalanced", "balanced"]  # compositions of clients' batches
SIZES = [8, 32, 128, 512]
OWN = dict(knows="clients' images", images=60_000)


def to_points(share):
    """Convert a difference of shares to percentage points."""
    return Number(100 * share)


# --- any record ---
def scores_of(run, experiment, by=(), value="iacc", **settings):
    """Return a value by cell and trial, with a column per attack."""
    rows = run.best_rows(experiment)
    rows = rows[having(**settings)(rows)]
    index = [*by, "trial"]
    return rows.pivot_table(index=index, columns="attack", values=value, sort=False)


def find_best_published(scores, ours=UNPUBLISHED):
    """Return the best published attack of a cell, from its scores by trial and attack."""
    return cells.best_of(scores, among=[name for name in scores if name not in ours])


def best_published(run, experiment, **settings):
    """Return the best published attack of a cell, with its score."""
    return find_best_published(scores_of(run, experiment, **settings))


def mean_scores(run, experiment, by, ours=UNPUBLISHED, **settings):
    """Return the mean iAcc per setting of attacks that answered every update, and the best published attack."""
    scores, rows = scores_of(run, experiment, by, **settings), {}
    for keys, cell in scores.groupby(by, sort=False):
        wide = cell.droplevel(by).dropna(axis=1)
        best = find_best_published(wide, ours)
        published = {PUBLISHED: float(best.score), "which": best.attack}
        rows[keys] = {**wide.mean(), **published}
    columns, index = (
        [*scores, PUBLISHED, "which"],
        pd.MultiIndex.from_tuples(rows, names=by),
    )
    return pd.DataFrame(rows.values(), index, columns)


def lead(run, experiment, attack, other, **settings):
    """Return the lead of one attack over another, or over the best published one, on the same updates, paired by trial."""
    return lead_in_cell(scores_of(run, experiment, **settings), attack, other)


def lead_in_cell(scores, attack, other):
    """Return the lead in one cell from its scores by trial and attack."""
    if other != PUBLISHED:
        return cells.mean_of((scores[attack] - scores[other]).dropna())
    rivals = [name for name in scores if name not in UNPUBLISHED]
    return cells.lead_of(scores, attack, rivals)[0]


def leads_by(run, experiment, by, attack, other, **settings):
    """Return the leads of one attack over another, or over the best published one, by cell."""
    groups = scores_of(run, experiment, by, **settings).groupby(by, sort=False)
    return [lead_in_cell(cell.droplevel(by), attack, other) for _, cell in groups]


def coverage(run, experiment, by, **settings):
    """Return the coverage of the learned attacker's 90 % intervals, by cell."""
    rows = run.best(experiment)
    rows = rows[having(**{"attack": "learned", **settings})(rows)]
    return rows.set_index(list(by))["coverage"].sort_index()


def excess(run, experiment, **settings):
    """Return the attacker's actual minus expected iAcc, by trial."""
    rows = run.best_rows(experiment)
    rows = rows[having(attack="learned", **settings)(rows)]
    return (rows["iacc"] - rows["expected"]).set_axis(rows["trial"])


def mean_excess(run, experiment, **settings):
    """Return the mean of `excess` over all simulated batches, in points."""
    gaps = excess(run, experiment, composition="simulated", **settings)
    return to_points(gaps.mean())


# --- single records ---
def main_table(run):
    """Return the main table, by data set, batch size and composition."""
    by = ["data", "batch_size", "composition"]
    return mean_scores(run, "judged", by, composition=REAL)


def lead_table(run, other, composition):
    """Return the learned attacker's leads in the main table, by data set and batch size."""
    part = main_table(run).xs(composition, level="composition")
    return part["learned"] - part[other]


def anew(run, size):
    """Return the iAcc on ten further LeNets (the arena's; MNIST, unbalanced), a row per network and a column per attack.

    The attacker has 500 auxiliary images there. The other attack was chosen on three networks beforehand.
    """
    rows = type(run)("arena", device="cpu").best_rows("anew")
    rows = rows[having(net="lenet", batch_size=size)(rows)]
    return rows.pivot(index="trial", columns="attack", values="iacc").dropna(axis=1)


def few_class_table(run):
    """Return the scores with two and three classes, by classes and batch size."""
    return mean_scores(run, "bayes", ["classes", "batch_size"])


def compare_to_bias(run):
    """Compare the learned attacker with the best answer from the bias, by batch size, in points.

    Returns its lead over the largest accuracy from the bias with three classes and over the best answer with two, and
    the lead of the best answer over RLU."""
    mean = 100 * few_class_table(run)[["learned", MOST, BEST, "RLU"]]
    over, beside = mean["learned"] - mean[MOST], mean["learned"] - mean[BEST]
    return over.loc[3], beside.loc[2], mean[BEST] - mean["RLU"]


def by_half(run, experiment, value="iacc", **settings):
    """Return the iAcc of real batches, or the coverage of simulated ones, by half of the images and batch size."""
    settings["composition"] = "unbalanced" if value == "iacc" else "simulated"
    by = ["half", "batch_size"]
    scores = scores_of(run, experiment, by, value, **settings)
    return scores.groupby(by, sort=False).mean()


def loss_by_half(run, experiment, **settings):
    """Return the network's mean losses on members and on non-members."""
    rows = run.cells(experiment, **settings)
    return rows.groupby("half")["loss"].mean()[[*HALVES]].tolist()


def remedy_gain(run, experiment, half, **settings):
    """Return the gain in a half's iAcc from the training loss, by batch size."""
    scores = by_half(run, experiment, **settings)
    return (scores[KNOWS] - scores["learned"])[half]


def bound_scores(run, size, knows="other images", images=10_000, iterations=300):
    """Return iAcc by trial on unbalanced batches of MNIST, for an attacker's images and training."""
    cell = dict(batch_size=size, knows=knows, composition="unbalanced")
    cell |= dict(aux_images=images, iterations=iterations)
    return scores_of(run, "bounds", **cell)["learned"]


def gain(run, more, size, **less):
    """Return the gain by more iterations, more images or the clients' images, paired over the three networks."""
    more, less = (bound_scores(run, size, **how) for how in (more, less))
    return cells.mean_of(more - less)


def by_defence(run):
    """Return iAcc of unbalanced batches by defence and strength, with the best published attack."""
    ours = [*UNPUBLISHED, "adaptive"]
    return mean_scores(run, "adaptive", ["defence", "strength"], ours)


def loss_without(run, part):
    """Return the attacker's loss of iAcc without a part, by its number of images and batch size."""
    by = ["aux_images", "batch_size"]
    scores = run.best("parts").pivot(index=by, columns="without", values="iacc")
    return scores["nothing"] - scores[part]
