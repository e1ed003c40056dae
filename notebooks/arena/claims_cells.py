"""The arena: what was predicted of attacks in a cell, measured, by the id in ``data/published/arena/claims.toml``.

That file has each prediction in words; here is the number of the records that decides it.
"""

from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.results import Number
from notebooks.arena import balance
from notebooks.arena import ranking as r
from notebooks.arena.updates import TOLD

CLAIMS = Claims()
SMOOTHED, MIXED = "smoothed by 0.1", "mixup, α = 1"
DROPOUT, NORM = "lenet with dropout", "lenet with batch norm"
TEXTS, TABLES = ["CLDR names"], ["wine", "breast cancer"]


def predict(id, measure, *args, **settings):
    """Add a prediction: `measure` takes the run and the further arguments, and returns a number, or one a bound."""
    CLAIMS.predict(f"arena-{id}", lambda run: measure(run, *args, **settings))


def find_best(run, record, by, only=None, **settings):
    """Return the best attack of every cell of some rows of a record."""
    return r.find_best(r.load_rows(run, record, **settings), by, only)


def score_best(run, record, by, only=None, **settings):
    """Return the best attack's iAcc in every cell of some rows of a record."""
    return find_best(run, record, by, only, **settings).set_index(by)["iacc"]


def find_least(run, record, value, **settings):
    """Return the least number of a value in some cells of a record."""
    return Number.least(run.cells(record, **settings), value)


def measure_leads(run, *cells, **settings):
    """Return the best attack's leads over the prior guess in some cells, as `find_best` takes them."""
    best = find_best(run, *cells, **settings)
    return [r.measure_lead(row) for _, row in best.iterrows()]


def find_worst(run, *cells, **settings):
    """Return the lowest iAcc of the best attack in some cells, as `find_best` takes them."""
    return Number.least(find_best(run, *cells, **settings), "iacc")


# --- networks, training, local steps, defences ---
def compare_protection(run):
    """Return how much more training protects against attackers without auxiliary data than against those with them."""
    cell = {"net": "lenet", "batch_size": 32}
    lost = []
    for only in (r.WITHOUT_AUX, None):
        best = score_best(run, "networks", ["state"], only, **cell)
        lost.append(best["untrained"] - best["trained"])
    return lost[0] - lost[1]


def measure_cost_of_steps(run):
    """Return the loss in the best attack's iAcc by five steps in place of one."""
    five = score_best(run, "schemes", ["scheme", "state"], scheme="FedAvg")
    one = score_best(run, "defences", ["defence", "state"], defence="none")
    return one.mean() - five.mean()


def measure_cost_of_stopping(run):
    """Return the cost of the weakest noise that brings the best attack to within 0.1 of the prior guess."""
    table = balance.load_balance(run).sort_values("strength")
    noise = table.query("defence == 'noise' and state == 'untrained'")
    return Number.of(noise[noise["iacc"] <= noise["floor"] + 0.1].iloc[0], "cost")


def measure_lead_in_sums(run):
    """Return a passive server's lead over the prior guess about a client of five."""
    table = balance.load_balance(run)
    row = table.query("state == 'untrained' and who == 'passive'").iloc[0]
    return r.measure_lead(row)


predict("E1", find_worst, "networks", ["net", "batch_size"], state="untrained")
predict("E2", compare_protection)
predict("E3", measure_cost_of_steps)
predict("E4", measure_cost_of_stopping)
predict("E5", measure_lead_in_sums)


# --- the learned attacker ---
def count_leads(run, attack):
    """In how many deep cells the attacker is ahead by 0.05, by the rule for the best attack and by the rule before.

    The prediction was written when the best attack was picked on the updates that it was scored on. It holds only if it
    holds by both rules.
    """
    table = r.compare_deep(run, attack)
    before = sum(row[attack] - row[row["other"]] >= 0.05 for _, row in table.iterrows())
    count = int((table["lead"] >= 0.05).sum())
    note = f"{count} of 8; {before} if the rival is picked on the same updates"
    return min(count, before), note


def compare_on_average(run, attack, other, net):
    """Return an attack's lead over another one on a deep network, mean of the sizes."""
    table = r.compare_deep(run).query("net == @net")
    return (table[attack] - table[other]).mean()


def count_cells(run, value, above, *nets):
    """Count the cells of ten fresh networks in which a value is above a bound."""
    table = r.compare_fresh(run)
    return int((table[table["net"].isin(nets)][value] > above).sum())


def measure_lenets(run):
    """Return at how many batch sizes the learned attacker is ahead on trained LeNets, and its least lead."""
    leads = r.compare_lenets(run)
    return int((leads["lead"] > 0).sum()), Number.least(leads, "lead")


def measure_gain_of_noise(run):
    """Return the gain by being informed of the noise of σ = 0.1."""
    gains = r.compare_informed(run).set_index(r.DEFENCE_CELL)
    return Number.of(gains.loc[("noise", 0.1), :], "gain")


def compare_with_whole_head(run):
    """Return the learned attacker's least lead over the whole head on deep networks."""
    table = r.compare_deep(run)
    return (table["learned"] - table[r.WHOLE_HEAD]).min()


DEEP = "vgg11_bn", "resnet18"
predict("L1", measure_lenets)
predict("L2", measure_gain_of_noise)
predict("L3", lambda run: Number.least(r.compare_informed(run), "lead"))
predict("L4", count_leads, "learned")
predict("L5", count_leads, r.KNOWS)
predict("L6", compare_with_whole_head)
predict("L7", compare_on_average, r.KNOWS, "learned", "resnet18")
predict("L8", compare_on_average, "learned", r.KNOWS, "vgg11_bn")
predict("A2", count_cells, "over low", 0, "lenet")
predict("T1", lambda run: r.compare_combined(run)["lead low"].min())
predict("T2", lambda run: int((r.compare_combined(run)["lead"] >= 0.05).sum()))
predict("T3", count_cells, "lead low", 0, "lenet")
predict("T4", count_cells, "lead low", -0.02, *DEEP)
predict("T5", count_cells, "lead low", 0, *DEEP)


# --- labels that are not one-hot ---
def measure_loss(run, state, *labellings):
    """Return the largest loss of the best uninformed attack by one of some labellings, over the batch sizes."""
    by, cell = ["labelling", "batch_size"], {"net": "lenet", "state": state}
    best = score_best(run, "client_steps", by, r.READERS, **cell)
    return max((best["one-hot"] - best[name]).max() for name in labellings)


def score_informed(run):
    """Return the least iAcc of attacks that are informed of the smoothing, on trained networks."""
    rows = r.load_rows(run, "client_steps", attack=list(TOLD), **SMOOTHED_CELL)
    return rows.groupby(["attack", "batch_size"])["iacc"].mean().min()


SMOOTHED_CELL = {"state": "trained", "labelling": SMOOTHED}
SMOOTHED_LEADS = "client_steps", ["batch_size"], r.READERS
predict("S1", measure_loss, "untrained", SMOOTHED, MIXED)
predict("S2", lambda run: max(measure_leads(run, *SMOOTHED_LEADS, **SMOOTHED_CELL)))
predict("S3", measure_loss, "trained", MIXED)
predict("S4", score_informed)


# --- texts and rows of tables ---
def compare_texts_and_images(run):
    """Return the best attack's iAcc on texts minus that on images, trained."""
    best = r.score_best(r.load_kinds(run, **ONE_STEP), ["data"])
    return best["CLDR names"] - best["MNIST"]


def measure_splitting(run):
    """Return the share of updates that *after SPEAR* splits, and the least iAcc of these."""
    where = {"state": "trained", "batch_size": 8, "attack": "after SPEAR"}
    iacc = r.load_rows(run, "inputs", data=TABLES, **where)["iacc"]
    return iacc.count() / len(iacc), iacc.min()


def measure_cost_of_steps_by_kind(run):
    """Return the loss in the best attack's iAcc by five FedAvg steps in place of one on texts and tables."""
    by = ["scheme", "data", "state"]
    best = score_best(run, "inputs", by, r.READERS, batch_size=32)
    return (best["FedSGD"] - best["FedAvg"]).mean()


def measure_least_leads_by_kind(run):
    """Return the learned attacker's least lead over the best other attack on texts, and on tables."""
    rows = r.load_rows(run, "inputs", state="trained", scheme="FedSGD")
    leads = r.compare(rows, ["data", "batch_size"], "learned").set_index("data")["lead"]
    return leads[TEXTS].min(), leads[TABLES].min()


ONE_STEP = {"state": "trained", "batch_size": 32, "scheme": "FedSGD"}
BYTES = {"net": "textcnn", "state": "untrained", "batch_size": 32}
predict("K1", find_worst, "inputs", r.DATA_CELL, r.READERS, state="untrained")
predict("K2", compare_texts_and_images)
predict("K3", measure_splitting)
TABLE_LEADS = {"data": TABLES, **ONE_STEP}
predict("K4", lambda run: min(measure_leads(run, "inputs", ["data"], **TABLE_LEADS)))
predict(
    "K5", lambda run: tuple(len(r.list_rejecting(run, *d)) for d in (TEXTS, TABLES))
)
predict(
    "K6", lambda run: tuple(run.cell("traces", v, **BYTES) for v in ("named", "wrong"))
)
predict("K7", measure_cost_of_steps_by_kind)
predict("K8", measure_least_leads_by_kind)


# --- networks in training mode ---
def measure_cost_of_mode(run, state, *nets):
    """Return the largest loss in the best attack's iAcc by the client's training mode, with the better of the attacker's modes."""
    by, cell = ["net", "client", "attacker"], {"state": state, "net": list(nets)}
    best = score_best(run, "client_steps", by, r.READERS, **cell)
    best = best.groupby(["net", "client"]).max().unstack()
    return (best["evaluation"] - best["training"]).max()


predict("M1", measure_cost_of_mode, "untrained", DROPOUT, NORM)
predict("M2", measure_cost_of_mode, "trained", DROPOUT)
predict("M3", measure_cost_of_mode, "trained", NORM)


# --- a server that waits; noise ---
def measure_lead_of_waiting(run):
    """Return the best attack's lead over the prior guess on a trained network, after 160 rounds."""
    rows = r.load_rows(run, "waiting", state="trained", rounds=160)
    prior = r.score_baseline(rows, "state")["trained"]
    return balance.score_waiting(run)["trained", 160] - prior


def measure_gain_of_waiting(run):
    """Return the gain by 160 rounds in place of 40, on a trained network."""
    best = balance.score_waiting(run)["trained"]
    return best[160] - best[40]


def find_highest_cost(run, low, high):
    """Return the highest cost of noise, over trainings in which a round adds between two amounts of it."""
    costs = balance.compare_noise(run).query("@low < noise < @high")
    most = costs.loc[costs["cost"].idxmax()]
    return Number(most["cost"], most["cost low"], most["cost high"], int(most["n"]))


predict("W1", lambda run: balance.score_waiting(run)["untrained", 40])
predict("W2", measure_lead_of_waiting)
predict("W3", measure_gain_of_waiting)
predict("N1", find_highest_cost, 0.009, 0.01)
predict("N2", find_highest_cost, 0.028, 0.029)
