"""The arena: what was predicted before each run, measured, by the id in ``data/published/arena/claims.toml``."""

from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.estimates import having
from fedleak_book.evidence.results import Number
from notebooks.arena import ranking as r
from notebooks.privacy import notes as private
from notebooks.proofs import notes as proofs
from notebooks.arena.updates import LDIA, TOLD

CLAIMS = Claims()
SMOOTHED, MIXED = "smoothed by 0.1", "mixup, α = 1"
DROPOUT, NORM = "lenet with dropout", "lenet with batch norm"


def predict(id, measure):
    """Add the measure of a prediction: a function of the run that returns its number, or one number a bound."""
    CLAIMS.predict(f"arena-{id}", measure)


def rows(run, experiment, **settings):
    """Return rows with their networks, of some settings."""
    table = r.load_rows(run, experiment)
    return table[having(**settings)(table)]


# --- networks, training, local steps, defences ---
def compare_protection(run):
    """Return how much more training protects against attackers without auxiliary data than against those with them."""
    sizes = set(r.load_lenets(run)["batch_size"])
    size = 32 if 32 in sizes else min(sizes)
    table = rows(run, "networks", net="lenet", batch_size=size)
    lost = []
    for only in (r.WITHOUT_AUX, None):
        best = r.score_best(table, ["state"], only)
        lost.append(best["untrained"] - best["trained"])
    return lost[0] - lost[1]


def measure_cost_of_steps(run):
    """Return the loss in the best attack's iAcc by five steps in place of one."""
    five = r.score_best(rows(run, "schemes"), ["scheme", "state"])["FedAvg"]
    by = ["defence", "state", "strength"]
    return r.score_best(rows(run, "defences"), by)["none"].mean() - five.mean()


def select_untrained(run):
    """Return benefit and cost of defences on untrained networks."""
    return r.load_balance(run).query("state == 'untrained'")


def measure_cost_of_stopping(run):
    """Return the cost of the weakest noise that brings the best attack to within 0.1 of the prior guess."""
    noise = select_untrained(run).query("defence == 'noise'").sort_values("strength")
    stopping = noise[noise["iacc"] <= noise["floor"] + 0.1]
    return Number.of(stopping.iloc[0], "cost")


def measure_lead_in_sums(run):
    """Return a passive server's lead over the prior guess about a client of five."""
    return r.measure_lead(select_untrained(run).query("who == 'passive'").iloc[0])


predict(
    "E1",
    lambda run: Number.least(
        r.find_best(
            r.load_networks(run).query("state == 'untrained'"), ["net", "batch_size"]
        ),
        "iacc",
    ),
)
predict("E2", compare_protection)
predict("E3", measure_cost_of_steps)
predict("E4", measure_cost_of_stopping)
predict("E5", measure_lead_in_sums)


# --- the learned attacker ---
def find_least(lines, name="lead"):
    """Return the number with the least value."""
    return Number.of(min(lines, key=lambda row: row[name]), name)


def count_leads(name):
    """In how many deep cells the attacker is ahead by 0.05, by the rule for the best attack and by the rule before.

    The prediction was written when the best attack was picked on the updates that it was scored on. It holds only if it
    holds by both rules.
    """

    def measure(run):
        lines = list(r.compare_deep(run))
        names = name, f"{name}, rival picked on them"
        count, before = (sum(row[n] >= 0.05 for row in lines) for n in names)
        note = f"{count} of 8; {before} if the rival is picked on the same updates"
        return min(count, before), note

    return measure


def average_gain(run, net):
    """Return the gain in iAcc by knowing the training loss on a network, mean of the sizes."""
    gains = [
        row["told"] - row["learned"] for row in r.compare_deep(run) if row["net"] == net
    ]
    return sum(gains) / len(gains)


def count_fresh_cells(run, name, above, *nets):
    """Count the cells of ten fresh networks in which an end of a lead's interval (`name`) is above a bound."""
    return sum(row[name] > above for row in r.compare_fresh(run) if row["net"] in nets)


def measure_gain_of_noise(run):
    """Return the gain by being informed of the noise of σ = 0.1."""
    lines = r.compare_informed(run)
    key = ("noise", 0.1)
    (row,) = (row for row in lines if (row["defence"], row["strength"]) == key)
    return Number.of(row, "gain")


predict(
    "L1",
    lambda run: (
        sum(row["lead"] > 0 for row in r.compare_lenets(run)),
        min(
            Number(row["lead"], row["low"], row["high"])
            for row in r.compare_lenets(run)
        ),
    ),
)
predict("L2", measure_gain_of_noise)
predict("L3", lambda run: find_least(r.compare_informed(run)))
predict("L4", count_leads("lead"))
predict("L5", count_leads("lead told"))
predict(
    "L6", lambda run: min(row["learned"] - row["whole"] for row in r.compare_deep(run))
)
predict("L7", lambda run: average_gain(run, "resnet18"))
predict("L8", lambda run: -average_gain(run, "vgg11_bn"))
predict("A2", lambda run: count_fresh_cells(run, "over low", 0, "lenet"))
predict("T1", lambda run: min(row["low"] for row in r.compare_combined(run)))
predict("T2", lambda run: sum(row["lead"] >= 0.05 for row in r.compare_combined(run)))
predict("T3", lambda run: count_fresh_cells(run, "lead low", 0, "lenet"))
predict(
    "T4", lambda run: count_fresh_cells(run, "lead low", -0.02, "vgg11_bn", "resnet18")
)
predict("T5", lambda run: count_fresh_cells(run, "lead low", 0, "vgg11_bn", "resnet18"))


# --- labels that are not one-hot ---
SOFT = ["state", "labelling", "batch_size"]


def measure_loss(run, state, labelling):
    """Return the largest loss of the best uninformed attack by a labelling, over the batch sizes."""
    best = r.score_best(r.load_labellings(run), SOFT, r.READERS)[state]
    return (best["one-hot"] - best[labelling]).max()


def measure_largest_lead(run):
    """Return the best attack's largest lead over the prior guess on smoothed labels of trained networks."""
    table = rows(run, "client_steps", state="trained", labelling=SMOOTHED)
    return max(list_leads(table, SOFT, r.READERS))


def list_leads(table, by, only=None):
    """List the best attack's leads over the prior guess, one per cell."""
    return [r.measure_lead(row) for _, row in r.find_best(table, by, only).iterrows()]


def score_informed(run):
    """Return the least iAcc of attacks that are informed of the smoothing, on trained networks."""
    where = {"state": "trained", "labelling": SMOOTHED, "attack": list(TOLD)}
    table = rows(run, "client_steps", **where)
    return table.groupby(["attack", "batch_size"])["iacc"].mean().min()


predict(
    "S1",
    lambda run: max(measure_loss(run, "untrained", how) for how in (SMOOTHED, MIXED)),
)
predict("S2", measure_largest_lead)
predict("S3", lambda run: measure_loss(run, "trained", MIXED))
predict("S4", score_informed)


# --- texts and rows of tables ---
def score_kinds_untrained(run):
    """Return the least iAcc of the best attack on texts and tables, over the cells of untrained networks."""
    table = rows(run, "inputs", state="untrained")
    return Number.least(
        r.find_best(table, r.DATA_CELL, [*r.READERS, "learned"]), "iacc"
    )


def compare_texts_and_images(run):
    """Return the best attack's iAcc on texts minus that on images, trained."""
    best = r.score_kinds(run)["trained"]
    return best["CLDR names"] - best["MNIST"]


def measure_splitting(run):
    """Return the share of updates that *after SPEAR* splits, and the least iAcc of these."""
    where = {"state": "trained", "batch_size": 8, "attack": "after SPEAR"}
    table = rows(run, "inputs", **where)
    iacc = table[table["data"] != "CLDR names"]["iacc"]
    return iacc.count() / len(iacc), iacc.min()


def measure_least_lead_on_tables(run):
    """Return the least lead of the best attack over the prior guess on tables."""
    tables = {"data": ["wine", "breast cancer"], "state": "trained"}
    cell = {"batch_size": 32, "scheme": "FedSGD"}
    return min(list_leads(rows(run, "inputs", **tables, **cell), ["data"]))


def count_rejecting(run):
    """Count the attacks that reject every update of texts, and of tables."""
    sets = ("CLDR names",), ("wine", "breast cancer")
    return tuple(len(r.list_rejecting(run, *data)) for data in sets)


def measure_bytes(run):
    """Return the share of the bytes that moved rows of the embedding name, and the largest share of wrong ones."""
    where = {"net": "textcnn", "state": "untrained", "batch_size": 32}
    return run.cell("traces", "named", **where), run.cell("traces", "wrong", **where)


def measure_cost_of_steps_by_kind(run):
    """Return the loss in the best attack's iAcc by five FedAvg steps in place of one on texts and tables."""
    best = r.score_best(rows(run, "inputs", batch_size=32), r.DATA_CELL, r.READERS)
    cost = best.xs("FedSGD", level="scheme") - best.xs("FedAvg", level="scheme")
    return cost.mean()


def measure_least_leads_by_kind(run):
    """Return the learned attacker's least lead over the best other attack on texts, and on tables."""
    gaps = r.compare_by_data(run)
    return min(gaps.pop("CLDR names")), min(map(min, gaps.values()))


predict("K1", score_kinds_untrained)
predict("K2", compare_texts_and_images)
predict("K3", measure_splitting)
predict("K4", measure_least_lead_on_tables)
predict("K5", count_rejecting)
predict("K6", measure_bytes)
predict("K7", measure_cost_of_steps_by_kind)
predict("K8", measure_least_leads_by_kind)


# --- networks in training mode ---
def measure_cost_of_mode(run, state, net):
    """Return the loss in the best attack's iAcc by the client's training mode, with the better of the attacker's modes."""
    table = rows(run, "client_steps", state=state, net=net)
    best = r.score_best(table, ["client", "attacker"], r.READERS)
    return best["evaluation"].max() - best["training"].max()


predict(
    "M1",
    lambda run: max(
        measure_cost_of_mode(run, "untrained", net) for net in (DROPOUT, NORM)
    ),
)
predict("M2", lambda run: measure_cost_of_mode(run, "trained", DROPOUT))
predict("M3", lambda run: measure_cost_of_mode(run, "trained", NORM))


# --- a server that waits; noise ---
def measure_lead_of_waiting(run):
    """Return the best attack's lead over the prior guess on a trained network, after 160 rounds."""
    prior = r.score_baseline(rows(run, "waiting"), ["state", "rounds"])["trained", 160]
    return r.score_waiting(run)["trained", 160] - prior


def list_costs(run, low, high):
    """List the costs of noise for trainings in which a round adds between two amounts of it."""
    lines = [row for row in r.compare_noise(run) if low < row["noise"] < high]
    return [Number(row["cost"], row["low"], row["high"], row["n"]) for row in lines]


predict("W1", lambda run: r.score_waiting(run)["untrained", 40])
predict("W2", measure_lead_of_waiting)
predict(
    "W3",
    lambda run: (
        r.score_waiting(run)["trained"][160] - r.score_waiting(run)["trained"][40]
    ),
)
predict("N1", lambda run: max(list_costs(run, 0.009, 0.01)))
predict("N2", lambda run: list_costs(run, 0.028, 0.029)[0])


# --- proofs ---
def average_proven(run, *by, **settings):
    """Return the means by cells of the updates on which labels are proven."""
    table = run.best_rows("proven")
    means = table[having(**settings)(table)].groupby(list(by))
    return means[["proven", "gain"]].mean()


def measure_middle_batches(run):
    """Return the proven shares of batches of 32 on the fresh wide network, and on the fresh LeNet."""
    cell = {"state": "untrained", "batch_size": 32, "precision": "single"}
    nets = (proofs.WIDE, "lenet")
    return tuple(run.cell("proven", "proven", net=net, **cell) for net in nets)


def measure_least_gap(run):
    """Return the least gap between fresh and trained networks, and between double and single precision."""
    by_state = average_proven(run, "net", "precision", "state")["proven"].unstack()
    by_precision = (
        average_proven(run, "net", "state", "precision")["proven"].unstack().dropna()
    )
    gaps = by_state["untrained"] - by_state["trained"]
    return min(gaps.min(), (by_precision["double"] - by_precision["single"]).min())


def measure_broken(run):
    """Return the largest share of updates with a proof, over clients that break a condition."""
    table = run.best_rows("proofs")
    broken = table[table["client"].isin(proofs.BROKEN)]
    return broken.groupby("client")["shown"].mean().max()


predict(
    "P1",
    lambda run: Number.least(
        run.cells("proven", state="untrained", batch_size=8), "proven"
    ),
)
predict("P2", measure_middle_batches)
predict("P3", lambda run: Number.most(run.cells("proven", batch_size=128), "proven"))
predict("P4", measure_least_gap)
predict("P5", lambda run: Number.least(run.cells("proven"), "gain"))
predict("P6", lambda run: run.best_rows("proofs")["wrong"].max())
predict("P7", measure_broken)
predict("P8", lambda run: run.best_rows("split_proofs")["wrong"].max())


# --- differential privacy ---
def find_best_under(run, mechanism, epsilon):
    """Return the best attack on an untrained network under a mechanism: a row of `ranking.find_best`."""
    cell = {"mechanism": mechanism, "epsilon": epsilon, "state": "untrained"}
    table, by = rows(run, "private", **cell), list(cell)
    return r.find_best(
        table, by, ["LLG+", "RLU, whole head", "GDBR", "after Decaf"]
    ).iloc[0]


def select_canaries(run, mechanisms, epsilons, states=("untrained", "trained")):
    """Return the rows on canaries of some mechanisms."""
    table = run.best_rows("private_canary")
    where = {"mechanism": mechanisms, "epsilon": epsilons, "state": list(states)}
    return table[having(**where)(table)]


def compare_with_claim(mechanism):
    """Measure the bound for normal noise as a share of the claimed ε, on untrained networks at ε of 4 and 16."""

    def measure(run):
        table = select_canaries(run, mechanism, [4, 16], ["untrained"])
        return run.mean(table["gaussian"] / table["epsilon"])

    return measure


def measure_wrong_claims(run):
    """Return the lesser share of canaries that reveal a wrong claim: without clipping, and with noise after aggregation."""
    tables = (
        select_canaries(run, private.UNCLIPPED, [4, 16]),
        select_canaries(run, private.AFTER, 1),
    )
    return min(table["above"].mean() for table in tables)


predict("D1", lambda run: Number.of(find_best_under(run, private.SAMPLE, 4), "iacc"))
predict("D2", lambda run: r.measure_lead(find_best_under(run, private.CLIENT, 4)))
predict(
    "D3",
    lambda run: select_canaries(
        run, [private.SAMPLE, private.CLIENT], [1.0, 4.0, 16.0, 64.0]
    )["above"].mean(),
)
predict("D4", compare_with_claim(private.SAMPLE))
predict("D5", compare_with_claim(private.CLIENT))
predict("D6", measure_wrong_claims)
predict("D7", lambda run: Number.of(find_best_under(run, private.AFTER, 1), "iacc"))


# --- tables of other papers ---
def measure_depth(hidden):
    """Measure iLRG's LnAcc at a depth."""
    return lambda run: run.cell("depth", "lnacc", hidden=hidden, attack="iLRG")


def measure_peeling(data, size):
    """Measure the share of samples that peeling can reach."""
    cell = {"data": data, "batch_size": size, "inputs": "pixels", "bias": "none"}
    return lambda run: run.cell("exclusive", "peeled", **cell)


def measure_later_lead(state, first, other):
    """Measure the lead in iAcc of one attack over another, each after a number of rounds, paired by federation."""

    def measure(run):
        values = (
            run.by_trial("rounds", state=state, attack=attack, rounds=rounds)
            for attack, rounds in (first, other)
        )
        return run.mean(next(values) - next(values))

    return measure


for depth in range(5):
    predict(f"R{1 + depth}", measure_depth(depth))
for place, size in enumerate((64, 128, 256)):
    predict(f"R{6 + place}", measure_peeling("MNIST", size))
for place, size in enumerate((64, 128, 256)):
    predict(f"R{9 + place}", measure_peeling("CIFAR-10", size))
predict("R12", measure_later_lead("untrained", ("RLU, whole head", 5), (LDIA, 5)))
predict("R13", measure_later_lead("trained", ("learned", 5), (LDIA, 5)))
predict("R14", measure_later_lead("trained", (LDIA, 5), (LDIA, 1)))
predict("R15", measure_later_lead("trained", ("learned", 5), ("learned", 1)))
