"""The learned attacker: rows to the numbers that the lecture and the evidence speak of."""

from fedleak_book.experiments import Number
from fedleak_book.experiments.kinds import NUMBER, interval
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


def met(run, experiment, by, **where):
    """iAcc by cell of the attacks that answered every network's updates; of the published ones the best, and which."""
    each = trials(run, experiment, by, **where)
    mean = each.groupby(list(by), sort=False).agg(lambda v: v.mean(skipna=False))
    rivals = mean.drop(columns=OURS, errors="ignore")
    return mean.assign(
        **{PUBLISHED: rivals.max(axis=1), "which": rivals.idxmax(axis=1)}
    )


def number(values):
    """A mean over trials with its 95 % interval."""
    return Number(values.mean(), *interval(values.to_numpy(), NUMBER), len(values))


def points(share):
    """A difference in percentage points."""
    return Number(100 * share)


def lead(run, experiment, one, other, **where):
    """By how much one attack is ahead of another on the same updates, paired by trial; "best published" is picked on them."""
    each = trials(run, experiment, **where)
    if other == PUBLISHED:
        rivals = each.drop(columns=OURS, errors="ignore")
        other = rivals.mean(skipna=False).idxmax()
    return number((each[one] - each[other]).dropna())


def best(run, experiment, by_name=False, **where):
    """What the best published attack of a cell finds, or its name."""
    rivals = trials(run, experiment, **where).drop(columns=OURS, errors="ignore")
    mean = rivals.mean(skipna=False)
    return mean.idxmax() if by_name else number(rivals[mean.idxmax()])


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
    cells = run.best(experiment)
    cells = cells[having(**{"attack": "learned", **where})(cells)]
    return cells.set_index(list(by))["coverage"].sort_index()


def halved(run, experiment, value="iacc", **where):
    """By half of the clients' images and batch size: iAcc of real batches, or coverage of batches as simulated."""
    composition = "unbalanced" if value == "iacc" else "simulated"
    by = ["half", "batch_size"]
    each = trials(run, experiment, by, value, composition=composition, **where)
    return each.groupby(by, sort=False).mean()


def losses(run, experiment, **where):
    """The network's mean loss on the images that it was trained on, and on the others."""
    cells = run.best(experiment)
    loss = cells[having(**where)(cells)].groupby("half")["loss"].mean()
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
    cells = run.best(e.SPLITS).query("sent == 'as it is'")
    cells = cells[cells["images"] == images]
    return cells.set_index(["state", "batch_size"])[value]


def unaware(run, strength):
    """iAcc and coverage behind noise of an attacker that does not know of it: 1,000 images, batches of 32."""
    where = dict(defence="noise" if strength else "none", strength=strength)
    values = ("iacc", "coverage")
    return {v: run.cell(e.LIMITS, v, aux_images=1000, **where) for v in values}


def altered(run):
    """The shares of updates that are told apart as changed: of undefended ones, and by defence and strength."""
    cells = run.best(e.LIMITS)
    none = cells["defence"] == "none"
    return {"none": cells[none]["altered"], "defended": cells[~none]["altered"]}


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
    found = met(run, e.ADAPTIVE, ["defence", "strength"])
    rivals = found.drop(
        columns=[*OURS, "adaptive", PUBLISHED, "which"], errors="ignore"
    )
    return found.assign(**{PUBLISHED: rivals.max(axis=1)})


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
    cells = run.best(e.WEIGHED)
    return cells[cells["attack"] == form]["iacc"].mean()
