"""The arena: advice for somebody who runs federated learning, each sentence with whether the rows bear it out; others."""

import pandas as pd

from fedleak.models import title
from fedleak_book.evidence.results import Number
from notebooks.arena import ranking as r
from notebooks.arena.balance import load_balance, score_waiting
from notebooks.arena.ranking import NETWORK_CELL, WITHOUT_AUX, find_best, load_networks
from notebooks.arena.ranking import load_rows, load_rungs, rescore, score_baseline
from notebooks.arena.ranking import score_best
from notebooks.notes import lines
from notebooks.show import markdown, prose
from notebooks.updates import STATES, TRAINED, UNTRAINED

BOARD, CONDITIONS, LADDER = (
    f"#fig-arena-{name}" for name in ("winners", "conditions", "ladder")
)
SPLITTING, BALANCE, WAITING = "#arena-splitting", "#fig-arena-balance", "#arena-waiting"


def advise_on_networks(run):
    """Yield the advice on training, batch size and the number of attacks."""
    table = load_networks(run)
    won = rescore(run, find_best(table, NETWORK_CELL))
    new = score_best(table, ["state", "net", "batch_size"], WITHOUT_AUX)[
        UNTRAINED
    ].min()
    yield (
        f"**Protect the first rounds most.** Even without auxiliary data, the best attack recovers at least {new:.0%} of the labels of an untrained network's batch",
        BOARD,
        new > 0.8,
    )
    old = won[won["state"] == TRAINED].pivot(
        index="net", columns="batch_size", values="iacc"
    )
    small, large = old.columns[[0, -1]]
    each = ", ".join(f"{iacc:.0%} ({title(net)})" for net, iacc in old[large].items())
    yield (
        f"**Do not rely on large batches.** In batches of {large} the best attack still recovers {each} of the labels on trained networks, and in batches of {small} at least {old[small].min():.0%}",
        BOARD,
        (old[large] > old[small] - 0.1).all(),
    )
    few = {"net": "lenet", "state": TRAINED, "batch_size": small}
    exact = load_networks(run, attack="after SPEAR", **few)["iacc"]
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
    best = score_best(load_rows(run, "schemes"), ["scheme", "state"]).unstack()
    best = best.drop("FedSGD", errors="ignore")
    least, low, high = best[UNTRAINED].min(), *best[TRAINED].agg(["min", "max"])
    yield (
        f"**Do not rely on local steps or on the training scheme.** Under each of {len(best)} schemes (seven federated algorithms, one of them, FedAvg, with two numbers of steps) the best attack recovers at least {least:.0%} of an untrained LeNet's labels, and {low:.0%} to {high:.0%} of a trained one's",
        CONDITIONS,
        least > 0.8,
    )


def advise_on_knowledge(run):
    """Yield the advice on the adversary's knowledge, from the ladder and the sums."""
    best = rescore(run, find_best(load_rungs(run), ["state", "rung"]))
    best = best.pivot(index="rung", columns="state", values="iacc")
    few, most = best.loc["gradients"], best.loc["+ many images a class"]
    without = best.loc["last layer withheld"]
    passive, malicious = (
        best.loc[f"only the sum, {who}", UNTRAINED] for who in ("passive", "malicious")
    )
    shares = load_rows(run, "ladder", rung="class shares")
    prior = score_baseline(shares, ["state"])
    yield (
        f"**Start from a trained model, if there is one.** A server with auxiliary data recovers {most[UNTRAINED]:.0%} of the labels from an untrained LeNet, but {most[TRAINED]:.0%} from a trained one, where guessing gives {prior[TRAINED]:.0%}",
        LADDER,
        most[TRAINED] < most[UNTRAINED] - 0.2,
    )
    yield (
        f"**Assume that the attacker knows your model**, because a server has it. With the model and images a server recovers far more than an attacker without either, who recovers {few[UNTRAINED]:.0%} of the labels from untrained and {few[TRAINED]:.0%} from trained networks",
        LADDER,
        (most >= few - 0.02).all(),
    )
    yield (
        f"**Encrypting the last layer is not enough in the first rounds.** From the layers below, GDBR recovers {without[UNTRAINED]:.0%} of an untrained network's labels, but only {without[TRAINED]:.0%} of a trained one's, hardly more than a guess",
        LADDER,
        without[UNTRAINED] > 0.8 and without[TRAINED] < prior[TRAINED] + 0.1,
    )
    yield (
        f"**Use secure aggregation, and make sure that all clients get the same model.** From the sum of five clients, a server that follows the protocol recovers {passive:.0%} of a client's labels, where guessing gives {prior[UNTRAINED]:.0%}. A server that sends each client a different model recovers {malicious:.0%}",
        LADDER,
        passive < prior[UNTRAINED] + 0.25 and malicious > 0.95,
    )
    late = score_waiting(run)[TRAINED]
    first, last = late.index[[0, -1]]
    yield (
        f"**Do not train on the same labels round after round**, because sums of many rounds can be separated. On a trained network a server recovers {late[first]:.0%} of every client's labels after {first} rounds, and {late[last]:.0%} after {last}",
        WAITING,
        late[last] > prior[TRAINED] + 0.1,
    )


def advise_on_defences(run):
    """Yield the advice on defences, from the balance."""
    table = load_balance(run).sort_values("strength", kind="stable")
    effects = []
    for state, network in zip(STATES, ("an untrained", "a trained"), strict=True):
        noise = table[(table["defence"] == "noise") & (table["state"] == state)]
        stopped = noise[noise["iacc"] <= noise["floor"] + 0.1]
        row = (stopped if len(stopped) else noise.tail(1)).iloc[0]
        reduces = "reduces" if len(stopped) else "only reduces"
        effects.append(
            f"σ = {row['strength']:g} {reduces} the best attack to {row['iacc']:.0%} on {network} network"
        )
    yield (
        f"**Choose the noise for your number of participants and learning rate**, because its cost in accuracy depends on [both](#arena-noise). Noise of {effects[0]}, and noise of {effects[1]}",
        BALANCE,
        True,
    )
    sparse = table.query("defence == 'sparsification' and state == 'untrained'").iloc[0]
    yield (
        f"**Do not use sparsification as a defence.** Although {sparse['strength']:.0%} of the entries are not sent, the best attack still recovers {sparse['iacc']:.0%} of an untrained network's labels",
        BALANCE,
        sparse["iacc"] > sparse["floor"] + 0.2,
    )
    best = score_best(load_rows(run, "defences"), ["defence", "strength", "state"])
    bare, without_bias = best["none", 0.0], best["no last bias", 0.0]
    yield (
        f"**Do not rely on removing the last layer's bias.** Some attacks then fail, but the best remaining one recovers {without_bias[UNTRAINED]:.0%} of the labels of untrained and {without_bias[TRAINED]:.0%} of trained networks, nearly as many as with the bias",
        BALANCE,
        (bare - without_bias).max() < 0.1,
    )


def advice(run):
    """Yield every sentence with its link, and whether the rows support it."""
    for part in (advise_on_networks, advise_on_knowledge, advise_on_defences):
        for text, anchor, holds in part(run):
            yield f"{text} ([data]({anchor})).", bool(holds)


# --- other sentences ---
def ten(run):
    """The learned attacker's leads on ten networks of each kind, as a table and in a sentence, from recorded rows."""
    if run.recorded("anew") is None and run.profile != "paper":
        return "**Not recorded**: one network of this run decides nothing."
    rows = r.compare_fresh(run)
    shown = {"B": "{batch_size}", "network": "{network}", "lead": "{lead:+.2f ci}"}
    table = pd.DataFrame(lines(rows, shown)).astype({"B": int})
    table = table.pivot(index="B", columns="network", values="lead").reset_index()
    ahead, behind = (rows["lead low"] > 0).sum(), (rows["lead high"] < 0).sum()
    open_, worst = len(rows) - ahead - behind, rows["lead low"].min()
    first = rows.query("net == 'lenet'")
    every = " (of LeNet at every size)" if (first["lead low"] > 0).all() else ""
    text = f"""
    **It is clearly ahead of its rival in {ahead} of the {len(rows)} cells{every}, clearly behind in {behind}, and {open_} are open.** No interval reaches
    below {Number(worst):+.3f}, and in {(rows["lead"] >= 0.05).sum()} cells the lead is 0.05 or more. The rival's iAcc exceeds the class-prior baseline by at least
    {rows["over"].min():.2f}.
    """
    return f"{markdown(table, wide=False)}\n{prose(text)}"


def of_others(run):
    """What came of them, in words."""
    depth = [run.cell("depth", hidden=n, attack="iLRG") for n in range(5)]
    least = min(run.cell("depth", hidden=n, attack="RLU") for n in range(5))
    assert least > 0.99
    assert depth == sorted(depth)
    ceilings = [f"arena-R{n}" for n in range(6, 12)]
    reached = [(run.published.items[id].printed, run[id]) for id in ceilings]
    *near, (printed, reach), _ = reached
    assert all(value <= ours.high for value, ours in reached)
    assert all(abs(value - ours) < 0.06 for value, ours in (*near, reached[-1]))
    assert reach > printed + 0.06
    over, more, given, gain = (run[f"arena-R{n}"] for n in range(12, 16))
    assert min(over.low, more.low) > 0
    assert max(given.low, gain.low) < 0
    return f"""
    **iLRG needs depth**: it recovers {depth[0]:.2f} of the counts exactly from an untrained network with one hidden layer, and {depth[-1]:.2f} with five. RLU, which
    also has 500 images, recovers {least:.4f} or more at every depth. **No printed share clearly exceeds the reach of peeling, and all but one are near it**: for batches
    of 128 from CIFAR-10 peeling can reach {reach:.2f}, and the paper prints {printed:.2f}. **Five rounds of the same images add nothing** that {over.n} federations could
    show: on trained networks they give the learned attacker {gain:+.2f ci} and LDIA (reimplemented), with a tenth of LDIA's shadow clients,
    {given:+.2f ci}. There the learned attacker is {more:.2f ci} ahead of LDIA, and on untrained ones the whole head (RLU-WH) {over:.2f ci}.
    """
