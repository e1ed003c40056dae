"""The learned attacker: compute the numbers of the chapter and the evidence page from rows."""

import pandas as pd

from fedleak_book.evidence import cells
from fedleak_book.evidence.results import Number
from notebooks.learned.updates import BEST, HALVES, MOST, UNPUBLISHED
from fedleak_book.evidence.estimates import having
from notebooks.learned.updates import KNOWS

EVEN, PUBLISHED = "prior guess", "best published"
REAL = ["unbalanced", "balanced"]  # compositions of clients' batches
SIZES = [8, 32, 128, 512]


def scores_of(run, experiment, by=(), value="iacc", **settings):
    """Return a value by cell and trial, with a column per attack."""
    rows = run.best_rows(experiment)
    rows = rows[having(**settings)(rows)]
    return rows.pivot_table(
        index=[*by, "trial"], columns="attack", values=value, sort=False
    )


def mean_scores(run, experiment, by, ours=UNPUBLISHED, **settings):
    """Return the mean iAcc per setting of attacks that answered every update, and the best published attack."""
    scores = scores_of(run, experiment, by, **settings)
    rows = {}
    for keys, cell in scores.groupby(list(by), sort=False):
        wide = cell.droplevel(list(by)).dropna(axis=1)
        best_published = cells.best_of(
            wide, among=[name for name in wide if name not in ours]
        )
        rows[keys] = {
            **wide.mean(),
            PUBLISHED: float(best_published.score),
            "which": best_published.attack,
        }
    columns = [*scores, PUBLISHED, "which"]
    table = pd.DataFrame(rows.values(), columns=columns)
    return table.set_axis(pd.MultiIndex.from_tuples(rows, names=by))


def to_points(share):
    """Convert a difference of shares to percentage points."""
    return Number(100 * share)


def lead(run, experiment, attack, other, **settings):
    """Return the lead of one attack over another, or over the best published one, on the same updates, paired by trial."""
    return cell_lead(scores_of(run, experiment, **settings), attack, other)


def cell_lead(scores, attack, other):
    """Return the lead in one cell from its scores by trial and attack."""
    if other != PUBLISHED:
        return cells.mean_of((scores[attack] - scores[other]).dropna())
    return cells.lead_of(
        scores, attack, [name for name in scores if name not in UNPUBLISHED]
    )[0]


def leads_by(run, experiment, by, attack, other, **settings):
    """Return the leads of one attack over another, or over the best published one, by cell."""
    scores = scores_of(run, experiment, by, **settings)
    return [
        cell_lead(cell.droplevel(by), attack, other)
        for _, cell in scores.groupby(by, sort=False)
    ]


def means_by(run, experiment, by, attack, value, **settings):
    """Return the means of an attack's value by cell."""
    scores = scores_of(run, experiment, by, value, **settings)[attack].dropna()
    return [cells.mean_of(cell) for _, cell in scores.groupby(by, sort=False)]


def best_published(run, experiment, by_name=False, **settings):
    """Return the score of the best published attack in a cell, or its name."""
    scores = scores_of(run, experiment, **settings)
    strongest = cells.best_of(
        scores, among=[name for name in scores if name not in UNPUBLISHED]
    )
    return strongest.attack if by_name else strongest.score


def main_table(run):
    """Return the main table, by data set, batch size and composition."""
    return mean_scores(
        run, "judged", ["data", "batch_size", "composition"], composition=REAL
    )


def anew(run, size):
    """Return the iAcc on ten further LeNets (the arena's; MNIST, unbalanced), a row per network and a column per attack.

    The attacker has 500 auxiliary images there. The other attack was chosen on three networks beforehand.
    """
    arena = type(run)("arena", device="cpu")
    rows = arena.best_rows("anew")
    rows = rows[having(net="lenet", batch_size=size)(rows)]
    return rows.pivot(index="trial", columns="attack", values="iacc").dropna(axis=1)


def few_class_table(run):
    """Return the scores with two and three classes, by classes and batch size."""
    return mean_scores(run, "bayes", ["classes", "batch_size"])


def compare_to_bias(run):
    """Compare the learned attacker with the best answer from the bias, by batch size.

    Returns its lead in points over the largest accuracy from the bias with three classes and over the best answer with
    two, the lead of the best answer over RLU, and all iAcc with two classes, by network."""
    scores = scores_of(run, "bayes", ["classes", "batch_size"])
    mean = 100 * scores.groupby(level=["classes", "batch_size"]).mean()
    over, beside = mean["learned"] - mean[MOST], mean["learned"] - mean[BEST]
    return over.loc[3], beside.loc[2], mean[BEST] - mean["RLU"], scores.loc[2]


def lead_table(run, other, composition):
    """Return the learned attacker's leads in the main table, by data set and batch size."""
    part = main_table(run).xs(composition, level="composition")
    return part["learned"] - part[other]


def coverage(run, experiment, by, **settings):
    """Return the coverage of the learned attacker's 90 % intervals, by cell."""
    rows = run.best(experiment)
    rows = rows[having(**{"attack": "learned", **settings})(rows)]
    return rows.set_index(list(by))["coverage"].sort_index()


def by_half(run, experiment, value="iacc", **settings):
    """Return the iAcc of real batches, or the coverage of simulated ones, by half of the images and batch size."""
    composition = "unbalanced" if value == "iacc" else "simulated"
    by = ["half", "batch_size"]
    scores = scores_of(run, experiment, by, value, composition=composition, **settings)
    return scores.groupby(by, sort=False).mean()


def loss_by_half(run, experiment, **settings):
    """Return the network's mean losses on members and on non-members."""
    rows = run.best(experiment)
    loss = rows[having(**settings)(rows)].groupby("half")["loss"].mean()
    return [loss[half] for half in HALVES]


def excess(run, experiment, **settings):
    """Return the attacker's actual minus expected iAcc, by trial."""
    rows = run.best_rows(experiment).query("attack == 'learned'")
    rows = rows[having(**settings)(rows)]
    return (rows["iacc"] - rows["expected"]).set_axis(rows["trial"])


def mean_excess(run, experiment, **settings):
    """Return the mean of `excess` over all simulated batches, in points."""
    gaps = excess(run, experiment, composition="simulated", **settings)
    return to_points(gaps.mean())


def split_shares(run, images, value="read"):
    """Return the share of updates in single precision that head splitting recovers, by state and batch size."""
    rows = run.best("splits").query("sent == 'as it is'")
    rows = rows[rows["images"] == images]
    return rows.set_index(["state", "batch_size"])[value]


def uninformed(run, strength):
    """Return iAcc and coverage under noise of an uninformed attacker, with 1,000 images and batches of 32."""
    settings = dict(defence="noise" if strength else "none", strength=strength)
    values = ("iacc", "coverage")
    return {v: run.cell("limits", v, aux_images=1000, **settings) for v in values}


def altered_shares(run):
    """Return the share of updates that are detected as changed, without a defence, and with one by strength."""
    rows = run.best("limits")
    none = rows["defence"] == "none"
    return {"none": rows[none]["altered"], "defended": rows[~none]["altered"]}


def bound_scores(run, size, knows="other images", images=10_000, iterations=300):
    """Return iAcc by trial on unbalanced batches of MNIST, for an attacker's images and training."""
    settings = dict(batch_size=size, knows=knows, composition="unbalanced")
    scores = scores_of(
        run, "bounds", aux_images=images, iterations=iterations, **settings
    )
    return scores["learned"]


def gain(run, more, size, **less):
    """Return the gain by more iterations, more images or the clients' images, paired over the three networks."""
    return cells.mean_of(
        bound_scores(run, size, **more) - bound_scores(run, size, **less)
    )


OWN = dict(knows="clients' images", images=60_000)


def by_defence(run):
    """Return iAcc of unbalanced batches by defence and strength, with the best published attack."""
    by = ["defence", "strength"]
    return mean_scores(run, "adaptive", by, ours=[*UNPUBLISHED, "adaptive"])


def remedy_gain(run, experiment, half, **settings):
    """Return the gain in a half's iAcc from the training loss, by batch size."""
    scores = by_half(run, experiment, **settings)
    return (scores[KNOWS] - scores["learned"])[half]


def loss_without(run, part):
    """Return the attacker's loss of iAcc without a part, by its number of images and batch size."""
    scores = run.best("parts").pivot(
        index=["aux_images", "batch_size"], columns="without", values="iacc"
    )
    return scores["nothing"] - scores[part]


def weighted_iacc(run, form):
    """Return the iAcc of a variant of the whole head, the mean over four batch sizes."""
    rows = run.best("weighed")
    return rows[rows["attack"] == form]["iacc"].mean()
