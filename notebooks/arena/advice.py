"""The arena's advice for somebody who runs federated learning: each sentence from rows, with whether they bear it out."""

from fedleak.models import title
from notebooks.arena import experiments as e
from notebooks.arena.experiments_updates import STATES
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
        f"**Protect the first rounds most.** Of untrained networks' batches the best attack without auxiliary data finds at least {write_percent(new)} of the labels",
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
        f"{write_percent(row[large])} on a {title(net)}" for net, row in old.iterrows()
    )
    yield (
        f"**Do not rely on large batches.** Trained, the best attack finds of {large} samples {per_network}; of {small} it finds {write_percent(old[small].min())} and more",
        BOARD,
        (old[large] > old[small] - 0.1).all(),
    )
    exact = load_lenets(run).query(
        "attack == 'after SPEAR' and state == 'trained' and batch_size == @small"
    )["iacc"]
    yield (
        f"**Do not send updates of a handful of samples.** Of {len(exact)} updates of {small} from a trained LeNet our reading of SPEAR splits {exact.count()} without an error, with no images of its own",
        SPLITTING,
        exact.count() > 0 and exact.min() == 1,
    )
    count = won["attack"].nunique()
    yield (
        f"**Test your set-up with more than one attack.** {count} attacks lead the {len(won)} cells; only in {won['clear'].sum()} is a lead clear",
        BOARD,
        count >= 3,
    )


def advise_on_local_steps(run):
    """Yield the advice on local steps and training schemes."""
    best = score_best(load_rows(run, e.BY_SCHEME), ["scheme", "state"]).unstack()
    best = best.drop("FedSGD", errors="ignore")
    least, low, high = best["untrained"].min(), *best["trained"].agg(["min", "max"])
    yield (
        f"**Do not rely on local steps or on the training scheme.** Under {len(best)} schemes the best attack finds {write_percent(least)} and more of an untrained LeNet's labels, {write_percent(low)} to {write_percent(high)} of a trained one's",
        CONDITIONS,
        least > 0.8,
    )


def advise_on_knowledge(run):
    """Yield the advice on the adversary's knowledge, from the ladder and the sums."""
    rung = rescore(run, find_best(load_rungs(run), ["state", "rung"]))
    rung = rung.set_index(["state", "rung"])["iacc"]
    prior = score_baseline(
        load_rows(run, e.LADDER).query("rung == 'class shares'"), ["state"]
    )
    few, most, without = (
        rung.xs(name, level="rung")[STATES]
        for name in ("gradients", "+ many images a class", "last layer withheld")
    )
    passive, malicious = (
        rung["untrained", f"only the sum, {who}"] for who in ("passive", "malicious")
    )
    yield (
        f"**Start from a model that is already good, if there is one.** Untrained, a server with auxiliary data finds {write_percent(most['untrained'])}; trained, {write_percent(most['trained'])}, where the classes' shares alone give {write_percent(prior['trained'])}",
        LADDER,
        most["trained"] < most["untrained"] - 0.2,
    )
    yield (
        f"**Count every server as one that knows your model.** With the gradients alone it finds {write_percent(few['untrained'])} untrained and {write_percent(few['trained'])} trained",
        LADDER,
        (most >= few - 0.02).all(),
    )
    yield (
        f"**Encrypting the last layer is not enough at the start.** The layers below still give {write_percent(without['untrained'])} untrained; trained, {write_percent(without['trained'])}, about what the shares give",
        LADDER,
        without["untrained"] > 0.8 and without["trained"] < prior["trained"] + 0.1,
    )
    yield (
        f"**Use secure aggregation, and make sure that all clients get the same model.** A passive server finds {write_percent(passive)} of a client's labels in a sum of five (prior guess {write_percent(prior['untrained'])}), one that sends each client its own model {write_percent(malicious)}",
        LADDER,
        passive < prior["untrained"] + 0.25 and malicious > 0.95,
    )
    late = score_waiting(run)
    rounds = late.index.levels[1]
    start, end = (late["trained", at] for at in rounds[[0, -1]])
    yield (
        f"**Do not send the same labels round after round, summed or not.** Trained, the sums of {rounds[0]} rounds give {write_percent(start)} of every client's labels, those of {rounds[-1]} rounds {write_percent(end)}",
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
        how = "takes" if len(stopped) else "at most takes"
        effects.append(
            f"σ = {row['strength']:g} {how} the best attack to {write_percent(row['iacc'])} {state}"
        )
    yield (
        f"**Choose noise for your participants and learning rate.** {effects[0]}, {effects[1]}; the loss in accuracy depends on [both](#arena-noise)",
        BALANCE,
        True,
    )
    sparse = (
        table.query("defence == 'sparsification' and state == 'untrained'")
        .sort_values("strength")
        .iloc[0]
    )
    yield (
        f"**Sparsification is compression first.** With {write_percent(sparse['strength'])} of the entries not sent the best attack still finds {write_percent(sparse['iacc'])} untrained",
        BALANCE,
        sparse["iacc"] > sparse["floor"] + 0.2,
    )
    tops = score_best(load_rows(run, e.DEFENCES), ["defence", "strength", "state"]).xs(
        0.0, level="strength"
    )
    bare, without_bias = tops["none"], tops["no last bias"]
    yield (
        f"**Taking off the last bias stops attacks, not attackers.** Without it the best attack finds {write_percent(without_bias['untrained'])} untrained and {write_percent(without_bias['trained'])} trained, with it {write_percent(bare['untrained'])} and {write_percent(bare['trained'])}",
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
