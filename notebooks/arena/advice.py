"""The arena's advice for somebody who runs federated learning: each sentence from rows, with whether they bear it out."""

from fedleak.models import title
from notebooks.arena import experiments as e
from notebooks.arena.experiments_updates import STATES
from notebooks.arena.ranking import CELL, WITHOUT_AUX, best_of, every, floor_of
from notebooks.arena.ranking import lenets, patient, rows_of, rungs, trade, winners

BOARD, CONDITIONS, LADDER = (
    f"#fig-arena-{name}" for name in ("winners", "conditions", "ladder")
)
SPLITTING, BALANCE, WAITING = "#arena-splitting", "#fig-arena-balance", "#arena-waiting"


def percent(value):
    """A share as text."""
    return f"{value:.0%}"


def models(run):
    """What the boards say of training, batch size and the number of attacks."""
    table = every(run)
    won = winners(table, CELL)
    new = winners(table, CELL, WITHOUT_AUX).query("state == 'untrained'")["iacc"].min()
    yield (
        f"**Protect the first rounds most.** Of untrained networks' batches the best attack without auxiliary data finds at least {percent(new)} of the labels",
        BOARD,
        new > 0.8,
    )
    old = (
        won.set_index(CELL)["iacc"].sort_index().xs("trained", level="state").unstack()
    )
    small, large = old.columns[[0, -1]]
    per_network = ", ".join(
        f"{percent(row[large])} on a {title(net)}" for net, row in old.iterrows()
    )
    yield (
        f"**Do not rely on large batches.** Trained, the best attack finds of {large} samples {per_network}; of {small} it finds {percent(old[small].min())} and more",
        BOARD,
        (old[large] > old[small] - 0.1).all(),
    )
    exact = lenets(run).query(
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


def local_steps(run):
    """What the training schemes say."""
    best = best_of(rows_of(run, e.BY_SCHEME), ["scheme", "state"]).unstack()
    best = best.drop("FedSGD", errors="ignore")
    least, low, high = best["untrained"].min(), *best["trained"].agg(["min", "max"])
    yield (
        f"**Do not rely on local steps or on the training scheme.** Under {len(best)} schemes the best attack finds {percent(least)} and more of an untrained LeNet's labels, {percent(low)} to {percent(high)} of a trained one's",
        CONDITIONS,
        least > 0.8,
    )


def knowledge(run):
    """What the ladder and its sums say."""
    rung = winners(rungs(run), ["state", "rung"]).set_index(["state", "rung"])["iacc"]
    prior = floor_of(rows_of(run, e.LADDER).query("rung == 'class shares'"), ["state"])
    few, most, without = (
        rung.xs(name, level="rung")[STATES]
        for name in ("gradients", "+ many images a class", "last layer withheld")
    )
    passive, malicious = (
        rung["untrained", f"only the sum, {who}"] for who in ("passive", "malicious")
    )
    yield (
        f"**Start from a model that is already good, if there is one.** Untrained, a server with auxiliary data finds {percent(most['untrained'])}; trained, {percent(most['trained'])}, where the classes' shares alone give {percent(prior['trained'])}",
        LADDER,
        most["trained"] < most["untrained"] - 0.2,
    )
    yield (
        f"**Count every server as one that knows your model.** With the gradients alone it finds {percent(few['untrained'])} untrained and {percent(few['trained'])} trained",
        LADDER,
        (most >= few - 0.02).all(),
    )
    yield (
        f"**Encrypting the last layer is not enough at the start.** The layers below still give {percent(without['untrained'])} untrained; trained, {percent(without['trained'])}, about what the shares give",
        LADDER,
        without["untrained"] > 0.8 and without["trained"] < prior["trained"] + 0.1,
    )
    yield (
        f"**Use secure aggregation, and make sure that all clients get the same model.** A passive server finds {percent(passive)} of a client's labels in a sum of five (prior guess {percent(prior['untrained'])}), one that sends each client its own model {percent(malicious)}",
        LADDER,
        passive < prior["untrained"] + 0.25 and malicious > 0.95,
    )
    late = patient(run)
    rounds = late.index.levels[1]
    start, end = (late["trained", at] for at in rounds[[0, -1]])
    yield (
        f"**Do not send the same labels round after round, summed or not.** Trained, the sums of {rounds[0]} rounds give {percent(start)} of every client's labels, those of {rounds[-1]} rounds {percent(end)}",
        WAITING,
        end > prior["trained"] + 0.1,
    )


def defences(run):
    """What the balance says."""
    table = trade(run)
    effects = []
    for state in STATES:
        noise = table.query("defence == 'noise' and state == @state").sort_values(
            "strength"
        )
        stopped = noise[noise["iacc"] <= noise["floor"] + 0.1]
        row = (stopped if len(stopped) else noise.tail(1)).iloc[0]
        how = "takes" if len(stopped) else "at most takes"
        effects.append(
            f"σ = {row['strength']:g} {how} the best attack to {percent(row['iacc'])} {state}"
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
        f"**Sparsification is compression first.** With {percent(sparse['strength'])} of the entries not sent the best attack still finds {percent(sparse['iacc'])} untrained",
        BALANCE,
        sparse["iacc"] > sparse["floor"] + 0.2,
    )
    tops = best_of(rows_of(run, e.DEFENCES), ["defence", "strength", "state"]).xs(
        0.0, level="strength"
    )
    bare, without_bias = tops["none"], tops["no last bias"]
    yield (
        f"**Taking off the last bias stops attacks, not attackers.** Without it the best attack finds {percent(without_bias['untrained'])} untrained and {percent(without_bias['trained'])} trained, with it {percent(bare['untrained'])} and {percent(bare['trained'])}",
        BALANCE,
        (bare - without_bias).max() < 0.1,
    )


def advice(run):
    """Every sentence with its link, and whether the rows bear it out."""
    for part in (models, local_steps, knowledge, defences):
        for text, anchor, holds in part(run):
            yield f"{text} ([data]({anchor})).", bool(holds)
