"""The learned attacker: how each prediction of ``data/published/learned/claims.toml`` is measured on the records."""

from fedleak_book.evidence.cells import mean_of
from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.results import Number
from notebooks.learned.leads import EVEN, OWN, PUBLISHED, REAL, coverage, excess, gain
from notebooks.learned.leads import lead, leads_by, loss_without, scores_of
from notebooks.learned.updates import BEST, KNOWS, MOST, WHOLE

CLAIMS = Claims()


def predict(id, measure, *args, **settings):
    """Add a prediction: `measure` takes the run and the further arguments, and returns a number."""
    CLAIMS.predict(f"learned-{id}", lambda run: measure(run, *args, **settings))


def find_least_lead(run, *cells, **settings):
    """Return the least of the leads in some cells, which are given as `leads_by` takes them."""
    return min(leads_by(run, *cells, **settings))


def find_least(run, record, value, **settings):
    """Return the least number of a value in some cells of a record."""
    return Number.least(run.cells(record, **settings), value)


def find_most(run, record, value, **settings):
    """Return the largest number of a value in some cells of a record."""
    return Number.most(run.cells(record, **settings), value)


# --- the main judgement ---
def count_leads(run, other):
    """Count the cells of unbalanced batches in which the attacker leads another one by 0.05."""
    leads = leads_by(run, *JUDGED, other, composition="unbalanced")
    return sum(gap >= 0.05 for gap in leads)


def measure_coverage_error(run):
    """Return by how much a coverage of simulated batches differs from 0.9 at most."""
    by = ["data", "batch_size"]
    return abs(coverage(run, "judged", by, composition="simulated") - 0.9).max()


JUDGED = "judged", ["data", "batch_size", "composition"], "learned"
FRESH = "fresh", ["net", "batch_size", "composition"], "learned"
SMALL = {"composition": "balanced", "batch_size": [8, 32]}
predict("L1", count_leads, PUBLISHED)
predict("L2", find_least_lead, *JUDGED, WHOLE, composition=REAL)
predict("L3", find_least_lead, *JUDGED, EVEN, **SMALL)
predict("L4", measure_coverage_error)
predict("D4", find_least_lead, *FRESH, PUBLISHED)

# --- several local steps ---
OVER_RLU = "local", ["scheme"], "learned", "RLU"
predict("S1", find_least_lead, *OVER_RLU, state="trained", scheme="fedavg", lr=0.01)
predict("S2", find_least_lead, *OVER_RLU, state="trained", scheme="fedavg", lr=0.1)
predict("S3", find_least_lead, *OVER_RLU, state="trained", scheme=["sgdm", "scaffold"])


# --- images that the network was trained on ---
def find_least_coverage(run, record, half, attack="learned", **settings):
    """Return the least coverage of a half's counts over the batch sizes."""
    cell = {"half": half, "composition": "simulated", **settings}
    scores = scores_of(run, record, ["batch_size"], "coverage", **cell)[attack]
    groups = scores.dropna().groupby("batch_size", sort=False)
    return min(mean_of(group) for _, group in groups)


def compare_coverage(run, record, **settings):
    """Return the coverage for members minus that for others, over batches of 128 and 512, paired by trial."""
    cell = {"composition": "simulated", "batch_size": [128, 512], **settings}
    scores = scores_of(run, record, ["half"], "coverage", **cell)["learned"]
    return mean_of(scores["members"] - scores["others"])


HALF = {"composition": "unbalanced", "half": "others"}
MEMBERS = {"composition": "unbalanced", "half": "members"}
REMEDY, BY_SIZE = (KNOWS, "learned"), (["batch_size"], "learned", WHOLE)
predict("M1", find_least_coverage, "members", "others")
predict("M2", compare_coverage, "members")
predict("M3", find_least_lead, "members", *BY_SIZE, **HALF)
predict("M4", find_least_coverage, "members", "members", KNOWS)
predict("M5", lead, "members", *REMEDY, **MEMBERS)
predict("M6", lead, "members", *REMEDY, **HALF)
predict("M7", find_least_coverage, "members_resnet", "others", steps=600)
predict("M8", compare_coverage, "members_resnet", steps=600)
predict("M9", lead, "members_resnet", *REMEDY, **MEMBERS, steps=600)
predict("M10", lead, "members_resnet", *REMEDY, **MEMBERS, steps=300)


# --- what more of something gains ---
def list_gains(run, more, **less):
    """List the gains in batches of 8 and of 32."""
    return [gain(run, more, size, **less) for size in (8, 32)]


INFORMED = "prior", ["batch_size"], "told"
predict("B1", lambda run: max(list_gains(run, dict(iterations=1200))))
predict("B2", lambda run: min(list_gains(run, {}, images=200)))
predict("B3", lambda run: max(list_gains(run, OWN)))
predict("B4", find_least_lead, *INFORMED, WHOLE, batch_size=[32, 128])
predict("B5", find_least_lead, *INFORMED, "learned", batch_size=[32, 128])

# --- the best that the bias gives ---
BAYES = "bayes", ["classes", "batch_size"]
predict("R1", lambda run: max(leads_by(run, *BAYES, "RLU", MOST)))
predict("R2", find_least_lead, *BAYES, "learned", MOST)
predict("R3", find_least_lead, *BAYES, BEST, PUBLISHED, batch_size=8)


# --- what it expects to recover ---
def list_surprises(run, record, part="simulated", **settings):
    """Return by how much its iAcc exceeds the one that it expects, by cell."""
    cells = run.cells(record, attack="learned", composition=part, **settings)
    return cells["iacc"] - cells["expected"]


def find_largest_surprise(run, part):
    """Return the largest difference of its iAcc from the expected one, on MNIST, in batches of up to 128."""
    cell = {"data": "MNIST", "batch_size": [8, 32, 128]}
    return abs(list_surprises(run, "judged", part, **cell)).max()


def measure_surprise(run, half):
    """Return the same for a network trained on half of the images, over batches of 128 and 512, with its interval."""
    cell = {"composition": "simulated", "half": half, "batch_size": [128, 512]}
    return mean_of(excess(run, "members", **cell).groupby(level="trial").mean())


def measure_shortfall(run, half):
    """Return `measure_surprise` with the other sign."""
    number = measure_surprise(run, half)
    return Number(-number, -number.high, -number.low, number.n)


predict("H1", find_largest_surprise, "simulated")
predict("H2", find_largest_surprise, "simulated, surest fifth")
predict("H3", lambda run: -list_surprises(run, "deep").min())
predict("H4", measure_shortfall, "members")
predict("H5", lambda run: abs(measure_surprise(run, "others")))

# --- parts of the attack ---
predict("X1", lambda run: loss_without(run, "signs").xs(8, level="batch_size").min())
predict("X2", lambda run: loss_without(run, "copies")[500, 128])
predict("X3", lambda run: loss_without(run, "copies")[10_000, 128])


# --- what the head alone determines ---
def select_determined(run, precision):
    """Return the cells of exact recoveries, for batches of at most half as many samples as classes."""
    cells = run.cells("determined", precision=precision)
    return cells[cells["batch_size"] <= cells["net"].map({"lenet": 5, "resnet20": 50})]


SIX = dict(net="lenet", batch_size=6, precision="double")
UP_TO_8 = [5, 6, 7, 8]
predict("I1", lambda run: Number.most(select_determined(run, "double"), "strange"))
predict("I2", lambda run: Number.least(select_determined(run, "double"), "read"))
predict("I3", lambda run: Number.least(select_determined(run, "single"), "read"))
predict("I4", find_least, "determined", "strange", **SIX)
predict("I5", find_most, "determined", "wrong")
predict("J1", find_least, "jointly", "single")
predict("J2", find_least, "jointly", "read", batch_size=UP_TO_8)
predict("J3", find_least, "jointly", "read", batch_size=9)
predict("J4", find_most, "jointly", "strange")
predict("J5", find_most, "jointly", "wrong")

# --- updates in single precision ---
IMAGES = dict(sent="as it is", images="with images")
FEW = dict(state="trained", batch_size=[4, 6])
DEFENDED = ["noise", "sparsification"]
predict("K1", find_least, "splits", "read", state="untrained", **IMAGES)
predict("K2", find_least, "splits", "read", **FEW, **IMAGES)
predict("K3", find_most, "splits", "wrong")
predict("A1", find_least, "limits", "altered", defence=DEFENDED)
predict("A2", find_most, "limits", "altered", defence="none")
