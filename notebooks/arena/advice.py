"""The arena's advice for somebody who runs federated learning: each sentence from rows, with whether they bear it out."""

from fedleak.models import title
from notebooks.arena.updates import STATES
from notebooks.arena.ranking import NETWORK_CELL, WITHOUT_AUX, find_best, load_balance
from notebooks.arena.ranking import load_lenets, load_networks, load_rows, load_rungs
from notebooks.arena.ranking import rescore, score_baseline, score_best, score_waiting

BOARD, CONDITIONS, LADDER = (
    f"#fig-arena-{name}" for name in ("winners", "conditions", "ladder")
)
SPLITTING, BALANCE, WAITING = "#arena-splitting", "#fig-arena-balance", "#arena-waiting"


def write_percent(value):
    """Write a share as a whole percentage."""
    return f"{value:.0%}"


def advise_on_networks(run):
    """Yield the advice on training, batch size and the number of attacks."""
    table = load_networks(run)
    won = rescore(run, find_best(table, NETWORK_CELL))
    new = (
        find_best(table, NETWORK_CELL, WITHOUT_AUX)
        .query("state == 'untrained'")["iacc"]
        .min()
    )
    yield (
        f"**Protect the first rounds most.** Even without auxiliary data, the best attack recovers at least {write_percent(new)} of the labels of an untrained network's batch",
        BOARD,
        new > 0.8,
    )
    old = (
        won.set_index(NETWORK_CELL)["iacc"]
        .sort_index()
        .xs("trained", level="state")
        .unstack()
    )
    small, large = old.columns[[0, -1]]
    per_network = ", ".join(
        f"{write_percent(row[large])} ({title(net)})" for net, row in old.iterrows()
    )
    yield (
        f"**Do not rely on large batches.** In batches of {large} the best attack still recovers {per_network} of the labels on trained networks, and in batches of {small} at least {write_percent(old[small].min())}",
        BOARD,
        (old[large] > old[small] - 0.1).all(),
    )
    exact = load_lenets(run).query(
        "attack == 'after SPEAR' and state == 'trained' and batch_size == @small"
    )["iacc"]
    yield (
        f"**Do not send updates of a handful of samples**, because an attack can split them into single samples exactly. Our reimplementation of SPEAR recovers all labels of {exact.count()} of {len(exact)} batches of {small} from a trained LeNet, without any images",
        SPLITTING,
        exact.count() > 0 and exact.min() == 1,
    )
    count = won["attack"].nunique()
    yield (
        f"**Test your set-up with more than one attack**, because none is best everywhere. In {len(won)} settings, {count} different attacks are best at least once. In only {won['clear'].sum()} settings is the lead of the best attack statistically clear",
        BOARD,
        count >= 3,
    )


def advise_on_local_steps(run):
    """Yield the advice on local steps and training schemes."""
    best = score_best(load_rows(run, "schemes"), ["scheme", "state"]).unstack()
    best = best.drop("FedSGD", errors="ignore")
    least, low, high = best["untrained"].min(), *best["trained"].agg(["min", "max"])
    yield (
        f"**Do not rely on local steps or on the training scheme.** Under each of {len(best)} schemes (seven federated algorithms, one of them, FedAvg, with two numbers of steps) the best attack recovers at least {write_percent(least)} of an untrained LeNet's labels, and {write_percent(low)} to {write_percent(high)} of a trained one's",
        CONDITIONS,
        least > 0.8,
    )


def advise_on_knowledge(run):
    """Yield the advice on the adversary's knowledge, from the ladder and the sums."""
    rung = rescore(run, find_best(load_rungs(run), ["state", "rung"]))
    rung = rung.set_index(["state", "rung"])["iacc"]
    prior = score_baseline(
        load_rows(run, "ladder").query("rung == 'class shares'"), ["state"]
    )
    few, most, without = (
        rung.xs(name, level="rung")[STATES]
        for name in ("gradients", "+ many images a class", "last layer withheld")
    )
    passive, malicious = (
        rung["untrained", f"only the sum, {who}"] for who in ("passive", "malicious")
    )
    yield (
        f"**Start from a trained model, if there is one.** A server with auxiliary data recovers {write_percent(most['untrained'])} of the labels from an untrained LeNet, but {write_percent(most['trained'])} from a trained one, where guessing gives {write_percent(prior['trained'])}",
        LADDER,
        most["trained"] < most["untrained"] - 0.2,
    )
    yield (
        f"**Assume that the attacker knows your model**, because a server has it. With the model and images a server recovers far more than an attacker without either, who recovers {write_percent(few['untrained'])} of the labels from untrained and {write_percent(few['trained'])} from trained networks",
        LADDER,
        (most >= few - 0.02).all(),
    )
    yield (
        f"**Encrypting the last layer is not enough in the first rounds.** From the layers below, GDBR recovers {write_percent(without['untrained'])} of an untrained network's labels, but only {write_percent(without['trained'])} of a trained one's, hardly more than a guess",
        LADDER,
        without["untrained"] > 0.8 and without["trained"] < prior["trained"] + 0.1,
    )
    yield (
        f"**Use secure aggregation, and make sure that all clients get the same model.** From the sum of five clients, a server that follows the protocol recovers {write_percent(passive)} of a client's labels, where guessing gives {write_percent(prior['untrained'])}. A server that sends each client a different model recovers {write_percent(malicious)}",
        LADDER,
        passive < prior["untrained"] + 0.25 and malicious > 0.95,
    )
    late = score_waiting(run)
    rounds = late.index.levels[1]
    start, end = (late["trained", at] for at in rounds[[0, -1]])
    yield (
        f"**Do not train on the same labels round after round**, because sums of many rounds can be separated. On a trained network a server recovers {write_percent(start)} of every client's labels after {rounds[0]} rounds, and {write_percent(end)} after {rounds[-1]}",
        WAITING,
        end > prior["trained"] + 0.1,
    )


def advise_on_defences(run):
    """Yield the advice on defences, from the balance."""
    table = load_balance(run)
    effects = []
    for state in STATES:
        noise = table.query("defence == 'noise' and state == @state").sort_values(
            "strength"
        )
        stopped = noise[noise["iacc"] <= noise["floor"] + 0.1]
        row = (stopped if len(stopped) else noise.tail(1)).iloc[0]
        kept = "only reduces" if not len(stopped) else "reduces"
        effects.append(
            f"σ = {row['strength']:g} {kept} the best attack to {write_percent(row['iacc'])} on an {state} network".replace(
                "an trained", "a trained"
            )
        )
    yield (
        f"**Choose the noise for your number of participants and learning rate**, because its cost in accuracy depends on [both](#arena-noise). Noise of {effects[0]}, and noise of {effects[1]}",
        BALANCE,
        True,
    )
    sparse = (
        table.query("defence == 'sparsification' and state == 'untrained'")
        .sort_values("strength")
        .iloc[0]
    )
    yield (
        f"**Do not use sparsification as a defence.** Although {write_percent(sparse['strength'])} of the entries are not sent, the best attack still recovers {write_percent(sparse['iacc'])} of an untrained network's labels",
        BALANCE,
        sparse["iacc"] > sparse["floor"] + 0.2,
    )
    tops = score_best(load_rows(run, "defences"), ["defence", "strength", "state"]).xs(
        0.0, level="strength"
    )
    bare, without_bias = tops["none"], tops["no last bias"]
    yield (
        f"**Do not rely on removing the last layer's bias.** Some attacks then fail, but the best remaining one recovers {write_percent(without_bias['untrained'])} of the labels of untrained and {write_percent(without_bias['trained'])} of trained networks, nearly as many as with the bias",
        BALANCE,
        (bare - without_bias).max() < 0.1,
    )


def advice(run):
    """Yield every sentence with its link, and whether the rows support it."""
    for part in (
        advise_on_networks,
        advise_on_local_steps,
        advise_on_knowledge,
        advise_on_defences,
    ):
        for text, anchor, holds in part(run):
            yield f"{text} ([data]({anchor})).", bool(holds)
