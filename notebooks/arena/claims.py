"""The arena: what was predicted before each run, measured, by the id in ``data/published/arena/claims.toml``."""

from fedleak_book.experiments import Claims, Number, having
from notebooks.arena import experiments as e
from notebooks.arena import ranking as r
from notebooks.arena.experiments_registered import LDIA
from notebooks.privacy import experiments as private
from notebooks.proofs import experiments as proofs

CLAIMS = Claims()
SMOOTHED, MIXED = "smoothed by 0.1", "mixup, α = 1"
DROPOUT, NORM = "lenet with dropout", "lenet with batch norm"


def predict(id, measure):
    """Add the measure of a prediction: a function of the run that returns its number, or one number a bound."""
    CLAIMS.predict(f"arena-{id}", measure)


def rows(run, experiment, **settings):
    """Recorded rows with their networks, of some settings."""
    table = r.rows_of(run, experiment)
    return table[having(**settings)(table)]


# --- networks, training, local steps, defences ---
def training(run):
    """By how much more training protects against attackers without auxiliary data than against those with them."""
    sizes = set(r.lenets(run)["batch_size"])
    size = 32 if 32 in sizes else min(sizes)
    table = rows(run, e.NETWORKS, net="lenet", batch_size=size)
    lost = []
    for only in (r.WITHOUT_AUX, None):
        best = r.best_of(table, ["state"], only)
        lost.append(best["untrained"] - best["trained"])
    return lost[0] - lost[1]


def local(run):
    """What five steps in place of one cost the best attack."""
    five = r.best_of(rows(run, e.BY_SCHEME), ["scheme", "state"])["FedAvg"]
    by = ["defence", "state", "strength"]
    return r.best_of(rows(run, e.DEFENCES), by)["none"].mean() - five.mean()


def untrained_trade(run):
    """Benefit and cost of defences on untrained networks."""
    return r.trade(run).query("state == 'untrained'")


def cheap(run):
    """What the weakest noise costs that brings the best attack to within 0.1 of the prior guess."""
    noise = untrained_trade(run).query("defence == 'noise'").sort_values("strength")
    stopping = noise[noise["iacc"] <= noise["floor"] + 0.1]
    return Number.of(stopping.iloc[0], "cost")


def hidden(run):
    """What a passive server finds about a client of five, above the prior guess."""
    return r.over_floor(untrained_trade(run).query("who == 'passive'").iloc[0])


predict(
    "E1",
    lambda run: Number.least(
        r.winners(r.every(run).query("state == 'untrained'"), ["net", "batch_size"]),
        "iacc",
    ),
)
predict("E2", training)
predict("E3", local)
predict("E4", cheap)
predict("E5", hidden)


# --- the learned attacker ---
def least(lines, name="lead"):
    """The row with the least value."""
    return Number.of(min(lines, key=lambda row: row[name]), name)


def ahead(name):
    """In how many deep cells the attacker is ahead by 0.05, by the rule for the best attack and by the rule before.

    The prediction was written when the best attack was picked on the updates that it was scored on. It holds only if it
    holds by both rules.
    """

    def measure(run):
        lines = list(r.deep(run))
        names = name, f"{name}, rival picked on them"
        count, before = (sum(row[n] >= 0.05 for row in lines) for n in names)
        note = f"{count} of 8; {before} if the rival is picked on the same updates"
        return min(count, before), note

    return measure


def gain(run, net):
    """What knowing the training loss adds on a network, mean of the sizes."""
    gains = [row["told"] - row["learned"] for row in r.deep(run) if row["net"] == net]
    return sum(gains) / len(gains)


def fresh(run, name, above, *nets):
    """In how many cells of ten networks that nobody has met a lead's interval is above a bound."""
    return sum(row[name] > above for row in r.met_once(run) if row["net"] in nets)


def noise_gain(run):
    """What knowing the noise of σ = 0.1 adds."""
    lines = r.adapting(run)
    key = ("noise", 0.1)
    (row,) = (row for row in lines if (row["defence"], row["strength"]) == key)
    return Number.of(row, "gain")


predict(
    "L1",
    lambda run: (
        sum(row["lead"] > 0 for row in r.leads(run)),
        min(Number(row["lead"], row["low"], row["high"]) for row in r.leads(run)),
    ),
)
predict("L2", noise_gain)
predict("L3", lambda run: least(r.adapting(run)))
predict("L4", ahead("lead"))
predict("L5", ahead("lead told"))
predict("L6", lambda run: min(row["learned"] - row["whole"] for row in r.deep(run)))
predict("L7", lambda run: gain(run, "resnet18"))
predict("L8", lambda run: -gain(run, "vgg11_bn"))
predict("A2", lambda run: fresh(run, "over low", 0, "lenet"))
predict("T1", lambda run: min(row["low"] for row in r.twelve(run)))
predict("T2", lambda run: sum(row["lead"] >= 0.05 for row in r.twelve(run)))
predict("T3", lambda run: fresh(run, "lead low", 0, "lenet"))
predict("T4", lambda run: fresh(run, "lead low", -0.02, "vgg11_bn", "resnet18"))
predict("T5", lambda run: fresh(run, "lead low", 0, "vgg11_bn", "resnet18"))


# --- labels that are not one-hot ---
SOFT = ["state", "labelling", "batch_size"]


def lost(run, state, labelling):
    """The largest loss of the best uninformed attack by a labelling, over the batch sizes."""
    best = r.best_of(r.labellings(run), SOFT, r.REAL)[state]
    return (best["one-hot"] - best[labelling]).max()


def over_guess(run):
    """The best attack's iAcc above the prior guess on smoothed labels of trained networks, at most."""
    table = rows(run, e.CLIENT_STEPS, state="trained", labelling=SMOOTHED)
    return max(over_floors(table, SOFT, r.REAL))


def over_floors(table, by, only=None):
    """The best attack's leads over the prior guess, in each cell."""
    return [r.over_floor(row) for _, row in r.winners(table, by, only).iterrows()]


def told_of_smoothing(run):
    """The least iAcc of attacks that are told of the smoothing, on trained networks."""
    where = {"state": "trained", "labelling": SMOOTHED, "attack": list(e.TOLD)}
    table = rows(run, e.CLIENT_STEPS, **where)
    return table.groupby(["attack", "batch_size"])["iacc"].mean().min()


predict("S1", lambda run: max(lost(run, "untrained", how) for how in (SMOOTHED, MIXED)))
predict("S2", over_guess)
predict("S3", lambda run: lost(run, "trained", MIXED))
predict("S4", told_of_smoothing)


# --- texts and rows of tables ---
def kinds_untrained(run):
    """The least iAcc of the best attack on texts and on rows, over the cells of untrained networks."""
    table = rows(run, e.INPUTS, state="untrained")
    return Number.least(r.winners(table, r.KIND, [*r.REAL, "learned"]), "iacc")


def texts_and_images(run):
    """The best attack's iAcc on texts less that on images, trained."""
    best = r.beside_images(run)["trained"]
    return best["CLDR names"] - best["MNIST"]


def split_rows(run):
    """The share of updates that after SPEAR splits, and the least iAcc of these."""
    where = {"state": "trained", "batch_size": 8, "attack": "after SPEAR"}
    table = rows(run, e.INPUTS, **where)
    iacc = table[table["data"] != "CLDR names"]["iacc"]
    return iacc.count() / len(iacc), iacc.min()


def trained_rows(run):
    """The least lead of the best attack over the prior guess on tables."""
    tables = {"data": ["wine", "breast cancer"], "state": "trained"}
    cell = {"batch_size": 32, "scheme": "FedSGD"}
    return min(over_floors(rows(run, e.INPUTS, **tables, **cell), ["data"]))


def refused(run):
    """Attacks that refuse every update of texts, and of rows."""
    sets = ("CLDR names",), ("wine", "breast cancer")
    return tuple(len(r.refusing(run, *data)) for data in sets)


def bytes_named(run):
    """The share of the bytes that the moved rows of the embedding name, and the largest share of wrong ones."""
    where = {"net": "textcnn", "state": "untrained", "batch_size": 32}
    return run.cell(e.TRACES, "named", **where), run.cell(e.TRACES, "wrong", **where)


def kinds_local(run):
    """What five FedAvg steps in place of one cost the best attack on texts and rows."""
    best = r.best_of(rows(run, e.INPUTS, batch_size=32), r.KIND, r.REAL)
    cost = best.xs("FedSGD", level="scheme") - best.xs("FedAvg", level="scheme")
    return cost.mean()


def learned_kinds(run):
    """The learned attacker's least lead over the best other attack on texts, and on tables."""
    gaps = r.learned_leads(run)
    return min(gaps.pop("CLDR names")), min(map(min, gaps.values()))


predict("K1", kinds_untrained)
predict("K2", texts_and_images)
predict("K3", split_rows)
predict("K4", trained_rows)
predict("K5", refused)
predict("K6", bytes_named)
predict("K7", kinds_local)
predict("K8", learned_kinds)


# --- networks in training mode ---
def mode_cost(run, state, net):
    """What the client's training mode costs the best attack, with the better of the attacker's modes."""
    table = rows(run, e.CLIENT_STEPS, state=state, net=net)
    best = r.best_of(table, ["client", "attacker"], r.REAL)
    return best["evaluation"].max() - best["training"].max()


predict(
    "M1", lambda run: max(mode_cost(run, "untrained", net) for net in (DROPOUT, NORM))
)
predict("M2", lambda run: mode_cost(run, "trained", DROPOUT))
predict("M3", lambda run: mode_cost(run, "trained", NORM))


# --- a server that waits; noise ---
def waited(run):
    """The best attack's iAcc above the prior guess on a trained network, after 160 rounds."""
    prior = r.floor_of(rows(run, e.WAITING), ["state", "rounds"])["trained", 160]
    return r.patient(run)["trained", 160] - prior


def costs(run, low, high):
    """What noise costs where a round adds between these amounts of it."""
    lines = [row for row in r.noisy(run) if low < row["noise"] < high]
    return [Number(row["cost"], row["low"], row["high"], row["n"]) for row in lines]


predict("W1", lambda run: r.patient(run)["untrained", 40])
predict("W2", waited)
predict(
    "W3", lambda run: r.patient(run)["trained"][160] - r.patient(run)["trained"][40]
)
predict("N1", lambda run: max(costs(run, 0.009, 0.01)))
predict("N2", lambda run: costs(run, 0.028, 0.029)[0])


# --- proofs ---
def proven(run, *by, **settings):
    """Means by cells of the updates on which labels are proven."""
    table = run.best_rows(e.PROVEN)
    means = table[having(**settings)(table)].groupby(list(by))
    return means[["proven", "gain"]].mean()


def middle_batches(run):
    """The proven shares of batches of 32 on the fresh wide network, and on the fresh LeNet."""
    cell = {"state": "untrained", "batch_size": 32, "precision": "single"}
    nets = (proofs.WIDE, "lenet")
    return tuple(run.cell(e.PROVEN, "proven", net=net, **cell) for net in nets)


def trained_and_single(run):
    """The least gap between fresh and trained networks, and between double and single precision."""
    by_state = proven(run, "net", "precision", "state")["proven"].unstack()
    by_precision = proven(run, "net", "state", "precision")["proven"].unstack().dropna()
    gaps = by_state["untrained"] - by_state["trained"]
    return min(gaps.min(), (by_precision["double"] - by_precision["single"]).min())


def broken_conditions(run):
    """The largest share of a client's updates that have a proof, of clients that break a condition."""
    table = run.best_rows(e.PROOFS)
    broken = table[table["client"].isin(list(proofs.BROKEN))]
    return broken.groupby("client")["shown"].mean().max()


predict(
    "P1",
    lambda run: Number.least(
        run.cells(e.PROVEN, state="untrained", batch_size=8), "proven"
    ),
)
predict("P2", middle_batches)
predict("P3", lambda run: Number.most(run.cells(e.PROVEN, batch_size=128), "proven"))
predict("P4", trained_and_single)
predict("P5", lambda run: Number.least(run.cells(e.PROVEN), "gain"))
predict("P6", lambda run: run.best_rows(e.PROOFS)["wrong"].max())
predict("P7", broken_conditions)
predict("P8", lambda run: run.best_rows(e.SPLIT_PROOFS)["wrong"].max())


# --- differential privacy ---
def under(run, mechanism, epsilon):
    """The best attack on an untrained network under a mechanism: a row of `ranking.winners`."""
    cell = {"mechanism": mechanism, "epsilon": epsilon, "state": "untrained"}
    table, by = rows(run, e.PRIVATE, **cell), list(cell)
    return r.winners(table, by, private.ATTACKS).iloc[0]


def canaries(run, mechanisms, epsilons, states=("untrained", "trained")):
    """The rows on canaries of some mechanisms."""
    table = run.best_rows(e.CANARY)
    where = {"mechanism": mechanisms, "epsilon": epsilons, "state": list(states)}
    return table[having(**where)(table)]


def share_of_claim(mechanism):
    """The bound for normal noise as a share of the claimed ε, on untrained networks at ε of 4 and 16."""

    def measure(run):
        table = canaries(run, mechanism, [4, 16], ["untrained"])
        return run.mean(table["gaussian"] / table["epsilon"])

    return measure


def wrong_claims(run):
    """The lesser share of canaries that find a wrong claim: without clipping, and with noise after aggregation."""
    tables = canaries(run, private.UNCLIPPED, [4, 16]), canaries(run, private.AFTER, 1)
    return min(table["above"].mean() for table in tables)


predict("D1", lambda run: Number.of(under(run, private.SAMPLE, 4), "iacc"))
predict("D2", lambda run: r.over_floor(under(run, private.CLIENT, 4)))
predict(
    "D3", lambda run: canaries(run, private.RIGHT, private.EPSILONS)["above"].mean()
)
predict("D4", share_of_claim(private.SAMPLE))
predict("D5", share_of_claim(private.CLIENT))
predict("D6", wrong_claims)
predict("D7", lambda run: Number.of(under(run, private.AFTER, 1), "iacc"))


# --- tables of other papers ---
def by_depth(hidden):
    """iLRG's LnAcc at a depth."""
    return lambda run: run.cell(e.DEPTH, "lnacc", hidden=hidden, attack="iLRG")


def ceiling(data, size):
    """The share of samples that peeling can reach."""
    cell = {"data": data, "batch_size": size, "inputs": "pixels", "bias": "none"}
    return lambda run: run.cell(e.EXCLUSIVE, "peeled", **cell)


def lead(state, first, other):
    """Lead in iAcc of one attack over another, each after a number of rounds, paired by federation."""

    def measure(run):
        values = (
            run.by_trial(e.ROUNDS, state=state, attack=attack, rounds=rounds)
            for attack, rounds in (first, other)
        )
        return run.mean(next(values) - next(values))

    return measure


for depth in range(5):
    predict(f"R{1 + depth}", by_depth(depth))
for place, size in enumerate((64, 128, 256)):
    predict(f"R{6 + place}", ceiling("MNIST", size))
for place, size in enumerate((64, 128, 256)):
    predict(f"R{9 + place}", ceiling("CIFAR-10", size))
predict("R12", lead("untrained", ("RLU, whole head", 5), (LDIA, 5)))
predict("R13", lead("trained", ("learned", 5), (LDIA, 5)))
predict("R14", lead("trained", (LDIA, 5), (LDIA, 1)))
predict("R15", lead("trained", ("learned", 5), ("learned", 1)))
