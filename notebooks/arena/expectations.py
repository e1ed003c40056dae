"""The arena: what was expected, written down before the rows that decide it were there, and what came of it."""

from collections.abc import Callable
from typing import NamedTuple

from fedleak_book.experiments.records import NOW
from notebooks.arena import experiments as e
from notebooks.privacy import experiments as private
from notebooks.proofs import experiments as proofs
from notebooks.arena import registered
from notebooks.arena.ranking import (
    REAL,
    WITHOUT_AUX,
    KIND,
    adapting,
    beside_images,
    best_of,
    deep,
    every,
    floor_of,
    leads,
    learned_leads,
    met_once,
    noisy,
    patient,
    refusing,
    rows_of,
    trade,
    twelve,
    winners,
)


class Expectation(NamedTuple):
    """What was written before the run, and the numbers that decide it with whether it holds."""

    text: str
    measure: Callable[..., tuple[str, bool]]


EXPECTED = {}


def expect(id, text):
    """Keep an expectation; the function below it measures it."""

    def keep(measure):
        EXPECTED[id] = Expectation(text, measure)
        return measure

    return keep


def at_most(value, bound, room=0.0):
    """A value, and whether it is at most so much."""
    return f"{value:.2f}", bool(value <= bound + room)


def at_least(value, bound, room=0.0):
    """A value, and whether it is at least so much."""
    return f"{value:.2f}", bool(value >= bound - room)


# --- one update: the bound and its tolerance are the last two numbers ---
@expect(
    "E1",
    "On every untrained network and for every batch size, the best attack with auxiliary data finds nearly all labels of unbalanced FedSGD batches (worst cell, iAcc): at least 0.95, tolerance 0.05.",
)
def untrained(run):
    table = every(run).query("state == 'untrained'")
    return at_least(winners(table, ["net", "batch_size"])["iacc"].min(), 0.95, 0.05)


@expect(
    "E2",
    "Training protects against attackers without auxiliary data rather than against those with: on LeNet, B = 32, the best of the former loses more than the best of the latter (difference of the two losses): at least 0.10, tolerance 0.05.",
)
def training(run):
    table = rows_of(run, e.MODELS)
    sizes = set(table["batch_size"])
    table = table[table["batch_size"] == (32 if 32 in sizes else min(sizes))]
    lost = []
    for only in (WITHOUT_AUX, None):
        best = best_of(table, ["state"], only)
        lost.append(best["untrained"] - best["trained"])
    return at_least(lost[0] - lost[1], 0.10, 0.05)


@expect(
    "E3",
    "Local training is no defence: five FedAvg steps in place of one cost the best attack little (loss in iAcc, mean over untrained and trained LeNet): at most 0.05, tolerance 0.05.",
)
def local(run):
    five_steps = best_of(rows_of(run, e.BY_SCHEME), ["scheme", "state"])["FedAvg"]
    single_step = best_of(rows_of(run, e.DEFENCES), ["defence", "state", "strength"])[
        "none"
    ]
    return at_most(single_step.mean() - five_steps.mean(), 0.05, 0.05)


def first(run):
    """The balance on untrained networks."""
    return trade(run).query("state == 'untrained'")


@expect(
    "E4",
    "Noise is cheap: the weakest noise that brings the best attack on an untrained model to within 0.1 of the prior guess costs the trained model few points (loss in test accuracy): at most 0.05, tolerance 0.03.",
)
def cheap(run):
    noise = first(run).query("defence == 'noise'").sort_values("strength")
    return at_most(
        noise[noise["iacc"] <= noise["floor"] + 0.1]["cost"].iloc[0], 0.05, 0.03
    )


@expect(
    "E5",
    "Secure aggregation hides a client from a passive server: with five clients its best guess about each is only so much better than the prior guess (difference in iAcc): at most 0.15, tolerance 0.05.",
)
def hidden(run):
    prior = floor_of(rows_of(run, e.AGGREGATION), ["state"])["untrained"]
    return at_most(
        first(run).query("who == 'passive'")["iacc"].iloc[0] - prior, 0.15, 0.05
    )


# --- the learned attacker ---
@expect(
    "L1",
    "Without a defence, at B = 8, 32, 128 and 512 on trained LeNets, it is ahead of the best other attack in at least two, and never behind it by more than 0.03.",
)
def on_lenet(run):
    gaps = [row["lead"] for row in leads(run)]
    return format_signed(gaps), sum(gap > 0 for gap in gaps) >= 2 and min(gaps) >= -0.03


def format_signed(values):
    """Signed numbers in a row."""
    return ", ".join(f"{value:+.2f}" for value in values)


@expect(
    "L2",
    "Behind noise of σ = 0.1, it finds at least 0.05 more if it is told of the noise than if it is not.",
)
def of_noise(run):
    (row,) = (
        r for r in adapting(run) if (r["defence"], r["strength"]) == ("noise", 0.1)
    )
    return at_least(row["gain"], 0.05)


@expect(
    "L3",
    "Told of the defence, it is at no strength more than 0.03 behind the best attack that is not told.",
)
def of_defences(run):
    worst = min(row["lead"] for row in adapting(run))
    return f"{worst:+.2f} at worst", worst >= -0.03


def ahead(run, which):
    """In how many of the eight deep cells one is ahead of the best published attack by at least 0.05.

    The prediction was written when the best attack was picked on the updates that it was scored on. Where that rule
    gives another count, both are shown, and the prediction holds only if it holds by both.
    """
    rows, before = list(deep(run)), f"{which}, rival picked on them"
    count, strict = (sum(row[name] >= 0.05 for row in rows) for name in (which, before))
    note = f" ({strict} if the rival is picked on the same updates)"
    return f"{count} of 8{note if count != strict else ''}", bool(
        min(count, strict) >= 5
    )


@expect(
    "L4",
    "On trained deep networks, not told, it is ahead of the best published attack by at least 0.05 in at least five of the eight cells.",
)
def untold_deep(run):
    return ahead(run, "lead")


@expect("L5", "Told of the training loss, the same.")
def told_deep(run):
    return ahead(run, "lead told")


@expect(
    "L6",
    "Not told, it is in none of the eight cells behind the whole head by more than 0.01.",
)
def whole_head(run):
    worst = min(row["learned"] - row["whole"] for row in deep(run))
    return f"{worst:+.3f} at worst", worst >= -0.01


def gain(run, net):
    """What being told changes on a network, mean of the sizes."""
    gains = [row["told"] - row["learned"] for row in deep(run) if row["net"] == net]
    return sum(gains) / len(gains)


@expect(
    "L7",
    "Told, it finds at least 0.05 more on ResNet-18 than not told, mean of the four sizes.",
)
def gains(run):
    return at_least(gain(run, "resnet18"), 0.05)


@expect("L8", "Told, it loses at most 0.05 on VGG-11 by it, mean of the four sizes.")
def loses(run):
    return at_most(-gain(run, "vgg11_bn"), 0.05)


def fresh(run, *nets):
    """The ten networks of a kind that nobody has met; a quick run's one decides nothing."""
    if run.profile == "quick" and (run.best(e.ANEW)["source"] == NOW).all():
        raise ValueError("not recorded")
    return [row for row in met_once(run) if row["net"] in nets]


def ahead_at(run, low, wanted):
    """At how many of the four sizes a lead's interval is above 0 on the ten LeNets, and whether that is as wanted."""
    count = sum(row[low] > 0 for row in fresh(run, "lenet"))
    return f"{count} of 4 sizes", count == wanted


@expect("A2", "At every size the rival is ahead of the prior guess.")
def over_the_guess(run):
    return ahead_at(run, "over low", 4)


# --- the learned attacker that reads rows alike: written before its first row here was recorded ---
@expect(
    "T1",
    "After SPEAR's splitting where that reads a batch, it is ahead of every other attack in each of the twelve trained cells, or level (interval of the lead over networks above -0.02).",
)
def level_everywhere(run):
    worst = min(row["low"] for row in twelve(run))
    return f"{worst:+.3f} at worst", worst > -0.02


@expect("T2", "In nine of the twelve it is ahead by at least 0.05.")
def ahead_by_five(run):
    count = sum(row["lead"] >= 0.05 for row in twelve(run))
    return f"{count} of 12", count >= 9


@expect(
    "T3",
    "On ten LeNets that this form has not met it is ahead of the rival at every size (the interval over the networks is above 0).",
)
def always_ahead(run):
    return ahead_at(run, "lead low", 4)


# --- ten deep networks of each kind: written after the three of each, before any of these was trained ---
def deep_leads(run, low):
    """In how many of the eight deep cells, ten networks each, a lead's interval is above `low`."""
    return sum(row["lead low"] > low for row in fresh(run, "vgg11_bn", "resnet18"))


@expect(
    "T4",
    "On ten VGG-11 and ten ResNet-18 that it has not met it is ahead of the rival or level (interval of the lead over networks above -0.02) in at least seven of the eight cells.",
)
def level_on_deep(run):
    count = deep_leads(run, -0.02)
    return f"{count} of 8", count >= 7


@expect("T5", "In at least three of the eight it is ahead (interval above 0).")
def ahead_on_deep(run):
    count = deep_leads(run, 0)
    return f"{count} of 8", count >= 3


# --- labels that are not one-hot ---
SMOOTHED, MIXED = "smoothed by 0.1", "mixup, α = 1"


def soft(run):
    """The best attack that is not told of the smoothing, by state, labelling and batch size."""
    table = rows_of(run, e.SOFTENED)
    return best_of(table, ["state", "labelling", "batch_size"], REAL)


def lost(best, labelling):
    """What the best attack loses, at most over the batch sizes."""
    return (best["one-hot"] - best[labelling]).max()


@expect(
    "S1",
    "Untrained, the best attack loses at most 0.05 to smoothing, and at most 0.05 to mixup (at both batch sizes).",
)
def soft_untrained(run):
    best = soft(run)["untrained"]
    return at_most(max(lost(best, SMOOTHED), lost(best, MIXED)), 0.05)


@expect(
    "S2",
    "Trained, smoothing takes the best attack to within 0.10 of the prior guess, or below it (at both batch sizes).",
)
def soft_trained(run):
    prior = floor_of(rows_of(run, e.SOFTENED), ["state", "labelling", "batch_size"])
    over = (soft(run) - prior)["trained"][SMOOTHED].max()
    return f"{over:+.2f} at most", over <= 0.10


@expect(
    "S3", "Trained, the best attack loses at most 0.05 to mixup (at both batch sizes)."
)
def mixed(run):
    return at_most(lost(soft(run)["trained"], MIXED), 0.05)


@expect(
    "S4",
    "Trained, RLU and its extension find at least 0.95 of smoothed labels if they are told of the smoothing (at both batch sizes).",
)
def told_of_smoothing(run):
    table = rows_of(run, e.SOFTENED).query(
        "state == 'trained' and labelling == @SMOOTHED"
    )
    table = table[table["attack"].isin(e.TOLD)]
    least = table.groupby(["attack", "batch_size"])["iacc"].mean().min()
    return at_least(least, 0.95)


# --- texts and rows of tables ---
@expect(
    "K1",
    "Untrained, the best attack finds at least 0.95 of the labels of texts and of rows in every cell, tolerance 0.05.",
)
def kinds_untrained(run):
    cells = winners(
        rows_of(run, e.INPUTS).query("state == 'untrained'"), KIND, [*REAL, "learned"]
    )
    return at_least(cells["iacc"].min(), 0.95, 0.05)


@expect(
    "K2",
    "Trained, B = 32, one step: the best attack on texts is within 0.10 of the best on images (LeNet).",
)
def texts_and_images(run):
    best = beside_images(run)["trained"]
    gap = best["CLDR names"] - best["MNIST"]
    return f"{gap:+.2f}", abs(gap) <= 0.10


@expect(
    "K3",
    "Of eight rows from trained networks after SPEAR splits at least half of the updates, and all that it splits without an error.",
)
def splits_rows(run):
    iacc = rows_of(run, e.INPUTS).query(
        "state == 'trained' and batch_size == 8 and attack == 'after SPEAR' and data != 'CLDR names'"
    )["iacc"]
    return (
        f"{iacc.count()} of {len(iacc)}, {(iacc.dropna() == 1).mean():.0%} exact",
        iacc.count() >= len(iacc) / 2 and iacc.min() == 1,
    )


@expect(
    "K4",
    "Trained, B = 32, one step: on both tables the best attack is ahead of the prior guess by at least 0.10.",
)
def trained_rows(run):
    lead = beside_images(run) - beside_images(run, "prior guess")
    return at_least(lead["trained"][["wine", "breast cancer"]].min(), 0.10)


@expect(
    "K5",
    "At most four attacks that answer every update of images (untrained LeNet, B = 32) refuse every update of texts, and none every update of rows.",
)
def refuse_texts(run):
    texts, tables = refusing(run, "CLDR names"), refusing(run, "wine", "breast cancer")
    summary = f"{len(texts)} refuse texts, {len(tables)} rows"
    return summary, len(texts) <= 4 and not len(tables)


@expect(
    "K6",
    "Untrained, the rows of the embedding that move name at least 0.90 of the bytes in 32 texts, and no other.",
)
def bytes_there(run):
    rows = run.best_rows(e.TRACES).query(
        "net == 'textcnn' and state == 'untrained' and batch_size == 32"
    )
    named, wrong = rows["named"].mean(), rows["wrong"].max()
    return f"{named:.2f}, {wrong:.2f} wrong", named >= 0.9 and wrong == 0


@expect(
    "K7",
    "Five FedAvg steps in place of one cost the best attack at most 0.05, B = 32, mean over the three sets and both states, tolerance 0.05.",
)
def kinds_local(run):
    best = best_of(rows_of(run, e.INPUTS).query("batch_size == 32"), KIND, REAL)
    lost = best.xs("FedSGD", level="scheme") - best.xs("FedAvg", level="scheme")
    return at_most(lost.mean(), 0.05, 0.05)


@expect(
    "K8",
    "On trained text CNNs the learned attacker is at most 0.05 behind the best other attack at both sizes; on tables, with 36 and 114 rows of its own, it is further behind in one cell at least.",
)
def learned_kinds(run):
    gap = learned_leads(run)
    texts, tables = gap.pop("CLDR names"), gap
    lowest = min(map(min, tables.values()))
    return f"{format_signed(texts)} and {lowest:+.2f}", min(
        texts
    ) >= -0.05 and lowest < -0.05


# --- networks in training mode ---
def costs(run, state, net):
    """What the client's training mode costs the best attack, with the better of the attacker's modes."""
    table = rows_of(run, e.IN_MODES).query("state == @state and net == @net")
    best = best_of(table, ["client", "attacker"], REAL)
    return best["evaluation"].max() - best["training"].max()


DROPOUT, NORM = "lenet with dropout", "lenet with batch norm"


@expect(
    "M1",
    "Untrained, dropout costs the best attack at most 0.05, and so does batch norm with the better of the attacker's two modes.",
)
def modes_untrained(run):
    return at_most(max(costs(run, "untrained", net) for net in (DROPOUT, NORM)), 0.05)


@expect("M2", "Trained, dropout costs it at most 0.05.")
def dropout(run):
    return at_most(costs(run, "trained", DROPOUT), 0.05)


@expect(
    "M3",
    "Trained, batch norm in training mode costs it at most 0.10, with the better of the attacker's two modes.",
)
def batch_norm(run):
    return at_most(costs(run, "trained", NORM), 0.10)


# --- a server that waits ---
@expect(
    "W1",
    "Untrained, after 40 rounds the best attack finds at least 0.90 of every client's labels.",
)
def waits_untrained(run):
    return at_least(patient(run)["untrained", 40], 0.90)


@expect(
    "W2", "Trained, after 160 rounds it is ahead of the prior guess by at least 0.20."
)
def waits_trained(run):
    table = rows_of(run, e.WAITING)
    prior = floor_of(table, ["state", "rounds"])["trained", 160]
    return at_least(patient(run)["trained", 160] - prior, 0.20)


@expect("W3", "Trained, 160 rounds give at least 0.05 more than 40.")
def waits_longer(run):
    best = patient(run)["trained"]
    return at_least(best[160] - best[40], 0.05)


# --- noise ---
def cost_of(run, low, high):
    """What noise costs where a round adds so much of it."""
    return [row["cost"] for row in noisy(run) if low < row["noise"] < high]


@expect(
    "N1",
    "At 0.009 a round the noise costs at most 0.05 in the mean, with ten participants and with 90.",
)
def little_noise(run):
    few, many = cost_of(run, 0.009, 0.01)
    return at_most(max(few, many), 0.05)


@expect("N2", "At 0.028 a round it costs at least 0.3.")
def much_noise(run):
    (cost,) = cost_of(run, 0.028, 0.029)
    return at_least(cost, 0.3)


# --- proofs: written after a pilot of three to ten updates a cell, before the run ---
def proven(run, *by, **settings):
    """Means by cells of the updates on which labels are proven."""
    rows = run.best_rows(e.PROVEN)
    for name, value in settings.items():
        rows = rows[rows[name] == value]
    return rows.groupby(list(by))[["proven", "gain"]].mean()


@expect(
    "P1",
    "Of fresh networks at least 0.9 of the labels of batches of 8 are proven (least of the networks).",
)
def small_batches(run):
    means = proven(run, "net", "precision", state="untrained", batch_size=8)
    return at_least(means["proven"].min(), 0.9)


@expect(
    "P2",
    "Of batches of 32 at least 0.9 on the fresh wide network, 0.1 to 0.4 on the fresh LeNet (single precision).",
)
def middle_batches(run):
    how = {"state": "untrained", "batch_size": 32, "precision": "single"}
    lenet, wide = proven(run, "net", **how)["proven"][["lenet", proofs.WIDE]]
    return f"{wide:.2f}, {lenet:.2f}", bool(wide >= 0.9 and 0.1 <= lenet <= 0.4)


@expect("P3", "Of batches of 128 at most 0.05, on every network.")
def large_batches(run):
    means = proven(run, "net", "state", "precision", batch_size=128)
    return at_most(means["proven"].max(), 0.05)


@expect(
    "P4",
    "Trained networks prove less than fresh ones, and in double precision more than in single (gaps of the means over the batch sizes, the least).",
)
def trained_and_single(run):
    by_state = proven(run, "net", "precision", "state")["proven"].unstack()
    by_precision = proven(run, "net", "state", "precision")["proven"].unstack().dropna()
    gaps = by_state["untrained"] - by_state["trained"]
    more = by_precision["double"] - by_precision["single"]
    value = min(gaps.min(), more.min())
    return f"{value:.2f}", bool(value > 0)


@expect(
    "P5",
    "With the proofs the counts are nowhere worse than the whole head's alone, by more than 0.02 in iAcc (the least mean gain of a cell).",
)
def never_worse(run):
    means = proven(run, "net", "state", "precision", "batch_size")
    return at_least(means["gain"].min(), -0.02)


@expect("P6", "No update has a wrong proof, of more than 10,000 (share).")
def wrong_proofs(run):
    rows = run.best_rows(e.PROOFS)
    return at_most(rows["wrong"].max(), 0.0)


@expect(
    "P7",
    "Of clients that break a condition none has a label proven (largest share of a client's updates).",
)
def broken_conditions(run):
    rows = run.best_rows(e.PROOFS)
    broken = rows[rows["client"].isin(list(proofs.BROKEN))]
    share = broken.groupby("client")["shown"].mean().max()
    return f"{share:.3f}", bool(share == 0)


@expect(
    "P8",
    "By head splitting no update of any client has a wrong proof (share; at most half as many samples as classes).",
)
def wrong_splits(run):
    rows = run.best_rows(e.SPLIT_PROOFS)
    return at_most(rows["wrong"].max(), 0.0)


# --- differential privacy: written before the two records on it were made ---
def under(run, mechanism, epsilon, state="untrained"):
    """What the best attack names under a mechanism, and the prior guess."""
    rows = rows_of(run, e.PRIVATE)
    cell = {"mechanism": mechanism, "epsilon": epsilon, "state": state}
    for name, value in cell.items():
        rows = rows[rows[name] == value]
    by = list(cell)
    return best_of(rows, by, private.ATTACKS).iloc[0], floor_of(rows, by).iloc[0]


def canary_rows(run, mechanisms, epsilons, *states):
    """The rows on canaries of some mechanisms."""
    rows = run.best_rows(e.CANARY)
    rows = rows[rows["mechanism"].isin(mechanisms) & rows["epsilon"].isin(epsilons)]
    return rows[rows["state"].isin(states or ["untrained", "trained"])]


@expect(
    "D1",
    "DP-SGD whose ε of one sample is 4 does not hide the labels: on a fresh LeNet the best attack names at least 0.75 of them, tolerance 0.05.",
)
def labels_under_dp_sgd(run):
    return at_least(under(run, private.SAMPLE, 4)[0], 0.75, 0.05)


@expect(
    "D2",
    "The same ε of the client as a whole hides them: the best attack names at most 0.05 more than the prior guess, tolerance 0.05.",
)
def labels_under_clipping(run):
    best, prior = under(run, private.CLIENT, 4)
    return at_most(best - prior, 0.05, 0.05)


@expect(
    "D3",
    "Where the claim follows, at most 0.05 of the canaries' bounds are above it, tolerance 0.05.",
)
def claims_that_follow(run):
    rows = canary_rows(run, private.RIGHT, private.EPSILONS)
    return at_most(rows["above"].mean(), 0.05, 0.05)


@expect(
    "D4",
    "On a fresh LeNet, the bound for normal noise is at least 0.8 of the claimed ε for DP-SGD at 4 and 16 (mean, tolerance 0.1).",
)
def near_the_claim(run):
    rows = canary_rows(run, [private.SAMPLE], [4, 16], "untrained")
    return at_least((rows["gaussian"] / rows["epsilon"]).mean(), 0.8, 0.1)


@expect(
    "D5",
    "On a fresh LeNet, it is at most 0.7 of it for the clipped update, whose canary does not use up its bound (mean, tolerance 0.1).",
)
def far_from_the_claim(run):
    rows = canary_rows(run, [private.CLIENT], [4, 16], "untrained")
    return at_most((rows["gaussian"] / rows["epsilon"]).mean(), 0.7, 0.1)


@expect(
    "D6",
    "Canaries find both wrong claims: without clipping all bounds are above an ε of 4 and of 16, with noise after aggregation above one of 1 (share, tolerance 0.05).",
)
def claims_that_do_not(run):
    rows = canary_rows(run, [private.UNCLIPPED], [4, 16])
    rows = [rows["above"], canary_rows(run, [private.AFTER], [1])["above"]]
    return at_least(min(part.mean() for part in rows), 1.0, 0.05)


@expect(
    "D7",
    "With noise after aggregation the labels of a fresh LeNet are read as without any: at least 0.95, tolerance 0.05.",
)
def labels_before_aggregation(run):
    return at_least(under(run, private.AFTER, 1)[0], 0.95, 0.05)


EXPECTED |= {
    id: Expectation(prediction.text, prediction.measure)
    for id, prediction in registered.PREDICTED.items()
}


def measured(run, id):
    """An expectation's numbers and whether it holds; None where these rows do not decide it."""
    try:
        value, holds = EXPECTED[id].measure(run)
        return value, bool(holds)
    except (
        KeyError,
        IndexError,
        ValueError,
    ):  # a setting that a quick run does not have
        return "not in these rows", None


PAGE = "../book/evidence/arena.md"


def verdict(run, *ids, about):
    """One line: which of some expectations held, and where the evidence for a section stands."""
    outcomes = {id: measured(run, id)[1] for id in ids}
    words = {True: "held", False: "did not", None: "not decided by these rows"}
    parts = [
        f"{', '.join(hit)} {word}"
        for how, word in words.items()
        if (hit := [i for i in ids if outcomes[i] is how])
    ]
    links = f"[expectations]({PAGE}#every-prediction-and-its-outcome), [evidence]({PAGE}#{about})"
    return f"*Predictions: {'; '.join(parts)} ({links}).*"


def table(run, *ids):
    """Expectations as rows: id, what was written, what was measured, and whether it holds."""
    marks = {True: "✓", False: "✗", None: "–"}
    for id in ids:
        value, holds = measured(run, id)
        yield {
            "": id,
            "expected": EXPECTED[id].text,
            "measured": value,
            "held": marks[holds],
        }


# --- others' tables ---
CAPTION = "What others print, what was predicted before the run, and ours, with 95 % intervals over networks or federations."


def predicted(run):
    """Printed, predicted and ours, a row a prediction."""
    for id, prediction in registered.PREDICTED.items():
        (row,) = table(run, id)
        printed = "–" if prediction.printed is None else f"{prediction.printed:.3f}"
        range = f"{prediction.low:.2f} to {prediction.high:.2f}".replace("-", "−")
        yield {
            "": id,
            "what": prediction.what,
            "printed": printed,
            "predicted": range,
            "ours": row["measured"],
            "held": row["held"],
        }


def of_others(run):
    """What came of them, in words."""
    depth = [run.cell(e.DEPTH, hidden=n, attack="iLRG") for n in range(5)]
    least = min(run.cell(e.DEPTH, hidden=n, attack="RLU") for n in range(5))
    assert least > 0.99
    assert depth == sorted(depth)
    ceilings = [registered.PREDICTED[f"R{n}"] for n in range(6, 12)]
    reached = [(value.printed, value.ours(run)) for value in ceilings]
    *near, (printed, reach), _ = reached
    assert all(value <= ours.high for value, ours in reached)
    assert all(abs(value - ours) < 0.06 for value, ours in (*near, reached[-1]))
    assert reach > printed + 0.06
    over, more, given, gain = (
        registered.PREDICTED[f"R{n}"].ours(run) for n in range(12, 16)
    )
    assert min(over.low, more.low) > 0
    assert max(given.low, gain.low) < 0
    return f"""
    **iLRG needs depth**: it has {depth[0]:.2f} of the counts of a fresh network with one hidden layer exactly, and {depth[-1]:.2f} with five. RLU, which has 500 images
    besides, has {least:.4f} or more at every depth. **No printed share is clearly above what peeling can reach, and all but one are near it**: of batches
    of 128 from CIFAR-10 {reach:.2f} could be reached, and {printed:.2f} is printed. **Five rounds of the same images add nothing** that {over.n} federations could
    show: on trained networks they give the learned attacker {gain:+.2f ci} and *after LDIA*, with a tenth of LDIA's shadow clients,
    {given:+.2f ci}. There the learned attacker is {more:.2f ci} ahead of it, and on untrained ones the whole head {over:.2f ci}.

    {verdict(run, *registered.PREDICTED, about="tables-of-other-papers")}
    """
