"""The arena: what the evidence page says beside the records; every measured number comes from the rows."""

import inspect

import pandas as pd

from fedleak import models
from fedleak.attacks import registry
from notebooks.show import markdown
from fedleak_book.experiments import entering
from fedleak_book.experiments.kinds import NUMBER, interval
from notebooks.arena import experiments as e
from notebooks.arena import experiments_entered as x
from notebooks.arena import registered
from notebooks.arena.expectations import EXPECTED, MIXED, SMOOTHED, predicted
from notebooks.arena.expectations import table as outcome
from notebooks.arena.experiments_updates import FLOORS, KNOWS
from notebooks.arena.figures import labelled
from notebooks.arena.ranking import CELL, KIND, REAL, WHOLE, adapting, answered
from notebooks.arena.ranking import best_of, by_network, deep, every, floor_of, leads
from notebooks.arena.ranking import means, met_once, noisy, of_images, patient, rows_of
from notebooks.arena.ranking import trade, waited
from notebooks.arena.ranking import winners, wide_of


def parts(*pieces):
    """Paragraphs and tables, one below the other."""
    return "\n\n".join(map(inspect.cleandoc, pieces))


def minus(text):
    """With the sign that the prose has."""
    return text.replace("-", "−")


def spread(mean, low, high, form="+.2f"):
    """A number with its interval."""
    return minus(f"{mean:{form}} [{low:{form}}, {high:{form}}]")


def listed(values, form=".2f"):
    """Numbers in a row."""
    *most, last = [minus(f"{v:{form}}") for v in values]
    return f"{', '.join(most)} and {last}" if most else last


def numbers(frame, form="{:.2f}"):
    """A frame's rows for a table, with its fractions as text."""
    for row in frame.to_dict("records"):
        yield {
            k: ("–" if v != v else minus(form.format(v))) if isinstance(v, float) else v
            for k, v in row.items()
        }


def board(run):
    """Every attack on every network"""
    rows = every(run)
    wide = means(labelled(rows), "row", "column")
    best, prior = best_of(rows, CELL, [*REAL, KNOWS]), floor_of(rows, CELL)
    lead = (best - prior).unstack("state")
    kept = (
        (100 * lead["trained"] / lead["untrained"]).groupby("net").agg(["min", "max"])
    )
    share = "; ".join(
        f"{models.title(net)} {low:.0f} to {high:.0f} %"
        for net, low, high in kept.itertuples()
    )
    mean = (
        answered(rows, CELL)
        .groupby([*CELL, "attack"])["iacc"]
        .mean()
        .unstack()
        .round(9)
    )
    trained = mean.xs("trained", level="state")
    behind = trained.max(axis=1) - trained["LLG"]
    far = behind.drop("lenet")[trained.drop("lenet").idxmax(axis=1) != "after SPEAR"]
    over = (mean["ZLG"] - mean["prior guess"]).drop("lenet", level="net").max()
    right = run.best(e.TRAINED).groupby("network", sort=False)["accuracy"].mean()
    shown = rows[
        rows["iacc"].notna() & ~rows["attack"].isin(FLOORS) & (rows["net"] == "lenet")
    ]
    size = sorted(shown["batch_size"].unique())[-2]
    time = (
        shown[shown["batch_size"] == size]
        .groupby("attack")["seconds"]
        .mean()
        .sort_values()
    )
    return parts(
        f"""
        Mean iAcc over the batch sizes, and over the networks. –: it refused, or was not asked, some of these updates. Cells: batch sizes
        and networks at which it answered all. The trained networks are right about {", ".join(f"{v:.0%} ({models.title(n)})" for n, v in right.items())}
        of test images. LeNet is trained on MNIST, the deep networks on the 8,380 images of CIFAR-10 that the recorded run had.
        """,
        markdown(numbers(wide)),
        f"""
        **What training leaves** of the best attack's lead over the prior guess, by network, over the batch sizes: {share}; over 100 % since
        the untrained networks met other updates.

        **How little is needed.** LLG, which reads signs and sizes of the gradients and nothing else, is {far.min():.2f} to {far.max():.2f} behind
        the best attack in those cells of trained deep networks that *after SPEAR* does not win, where 1,000 images are known, and at most
        {behind["lenet"].max():.2f} on the trained LeNet with 500. (The best is here simply the highest mean. Whether the images, the network or
        the data make the difference was not tested.) ZLG learns what the network says of a sample from random images: on deep networks
        that leaves it at most {over:.2f} above the prior guess, where ZLG+ has real images. Why is open.

        **Time of one recovery** on one core, LeNet at B = {size}, all passes over dummy and auxiliary images included, and of the learned
        attacker its training, which the updates of a network share: {", ".join(f"{name} {seconds:.2g} s" for name, seconds in time.items())}.
        The recording machine was shared.
        """,
    )


def deep_learned(run):
    """The learned attacker on trained networks"""
    found = pd.DataFrame(deep(run))
    gain = (found["told"] - found["learned"]).groupby(found["net"]).mean()
    shown = (
        {
            "network": models.title(row["net"]),
            "B": row["batch_size"],
            "learned": f"{row['learned']:.2f}",
            "told": f"{row['told']:.2f}",
            "whole head": f"{row['whole']:.2f}",
            "best published": f"{row['which']} {row['published']:.2f}",
            "lead, not told": spread(row["lead"], row["lead low"], row["lead high"]),
            "lead, told": spread(
                row["lead told"], row["lead told low"], row["lead told high"]
            ),
        }
        for row in deep(run)
    )
    missed = ", ".join(
        f"{row['which']} at {row['batch_size']} on {models.title(row['net'])}"
        for row in deep(run)
        if row["lead"] < 0.05
    )
    lenet = "; ".join(
        f"B = {row['batch_size']}: {spread(row['lead'], row['low'], row['high'])} over {row['other']}"
        for row in leads(run)
    )
    return parts(
        f"""
        **On LeNet**, its leads over the best other attack: {lenet}. It has 500 images and 300 iterations. What more images would give
        {{ref}}`its own chapter <learned-rows>` has.

        **On deep networks.** “Told” is the attacker who also knows the {{ref}}`training loss <learned-members>`; published are all others but the
        whole head, GDBR's whitened form and the guesses, and the best of them is scored on other updates than it is picked on. Leads are means over three
        networks, with 95 % intervals.
        """,
        markdown(shown),
        f"""
        It is not ahead by 0.05 of {missed}. Being told changes what it finds by {minus(f"{gain.get('resnet18', float('nan')):+.2f}")} on ResNet-18 and by
        {minus(f"{gain.get('vgg11_bn', float('nan')):+.2f}")} on VGG-11, in the mean of the sizes. On a ResNet-18 of chapter 7, trained on half of the images to a
        lower loss, it is worth more ({{ref}}`there <learned-members>`); on the same network at a higher loss little.

        **What these networks had met.** An earlier form of the attacker was ahead of the best published attack by 5 points in none of eight
        cells. It was changed on a VGG-11 of another seed and on a ResNet-18 trained on half of the images, which are not judged here, and L4
        to L8 were written before it met these. After the verdicts it changed twice. First ({{ref}}`how <learned-forms>`), once it is trained, its
        whole head is solved with all equations and on all of the attacker's images. Then ({{ref}}`how <learned-rows>`) its network, which had
        read all rows at once, came to read each class's alike, was told of signs and extremes, and got moved copies of its images: that was
        chosen on LeNets, a VGG-11 and a ResNet-18 of other seeds, which are not judged, and T1 to T3 were written before it met these. The
        tables were recorded again under the same bounds.
        """,
    )


def splitting(run):
    """Exact splitting"""
    rows = rows_of(run, e.MODELS).query("batch_size == 8")
    wide = rows.set_index(["state", "trial", "attack"])["iacc"].unstack()
    read, trained = wide["after SPEAR"].dropna(), wide.loc["trained"]
    count, asked = read.groupby("state").size(), wide.groupby("state").size()
    both = trained["after SPEAR"].fillna(trained["learned"]).mean()
    assert (read == 1).all(), "what it reads is right"
    return f"""
    *After SPEAR* needs no images and no learning. It searches the gradient of a layer with ReLUs for the batch's own samples, and refuses where no
    splitting fits: it reads {count["trained"]} of {asked["trained"]} updates of 8 from a trained LeNet, {count["untrained"]} of {asked["untrained"]} from an untrained
    one, and all labels that it names there are right. A refusal is seen, so that an attacker can go on with another attack: its answer
    where there is one, and the learned attacker's elsewhere, is right about {both:.2f} of the labels from the trained LeNet, where the learned
    attacker alone finds {trained["learned"].mean():.2f}. It reads no batch of more than 16 samples, and not ResNet-18, whose last layer has no
    other fully connected one below it.
    """


def fresh(run):
    """Ten networks of each kind"""
    shown = (
        {
            "network": models.title(row["net"]),
            "B": row["B"],
            "rival": row["rival"],
            "learned": f"{row['learned']:.2f}",
            "the rival": f"{row['the rival']:.2f}",
            "prior guess": f"{row['prior guess']:.2f}",
            "lead": spread(row["lead"], row["lead low"], row["lead high"], "+.3f"),
            "rival over the guess": spread(
                row["over"], row["over low"], row["over high"], "+.3f"
            ),
            "networks": row["n"],
        }
        for row in met_once(run)
    )
    recorded = run.recorded_rows(e.ANEW) is not None
    return parts(
        "Means over networks, with 95 % intervals over them"
        + ("." if recorded else ": not recorded, of this run alone."),
        markdown(shown),
        "A1 and A3 were predictions of an earlier form of the attacker, and went with its rows."
        " The deep networks were trained and attacked on a GPU, in single precision, the LeNets on a processor.",
    )


def others(run):
    """Tables of others"""

    def cells(experiment, *values):
        found = run.best(experiment)
        for row in found.to_dict("records"):
            shown = (
                f"{row[v]:.3f} [{row[f'{v} low']:.3f}, {row[f'{v} high']:.3f}]"
                for v in values
            )
            keys = {k: row[k] for k in (*experiment.axes, *experiment.by) if k in row}
            yield keys | dict(zip(values, shown)) | {"n": row["n"]}

    rounds = e.ROUNDS.fixed
    ilrg = run.best_rows(e.DEPTH).query("attack == 'iLRG'").groupby("hidden")["lnacc"]
    printed = [registered.PREDICTED[f"R{n + 1}"].printed for n in ilrg.groups]
    assert (ilrg.min() <= printed).all()
    assert (ilrg.max() >= printed).all()
    return parts(
        """
        The ranges were committed before the records. What had been seen by then were runs of seconds on 5,000 digits and other networks: one
        network of iLRG's at two depths, two first layers at B = 64, and two federations of two and three users.
        The federations below were made smaller after that, for time, before any of their rows was looked at: half of the users, images and
        local batches, two thirds of the shadow clients and iterations, and three federations for five.
        """,
        markdown(predicted(run)),
        """
        **iLRG by depth.** Its released logs have the five printed values, each of one network and 50 batches; they and the code say what the
        setting is: default initialisation, normalised digits, batches drawn at random from the training images. LnAcc is there, as here, the
        share of the classes whose count is exactly right. Ours are 20 networks a depth, with 50 batches each; n counts networks, and
        every printed value lies between the lowest and the highest of them. LLG+ and RLU
        read the same updates, with 500 auxiliary images.
        """,
        markdown(cells(e.DEPTH, "lnacc")),
        """
        **Samples that peeling can reach.** A neuron with a ReLU that one sample of a batch alone activates has that sample's input in its
        gradient {cite:p}`pan2022exclusivity`. If such samples are taken off, others become alone, and so on: what is reached in the end bounds
        every attack that isolates single samples so. The printed shares are of such an attack; we had them as read by machine from a scan (OCR),
        not the paper itself, and do not know whether its pixels are normalised or its first layer has a bias. So all four are
        below: *alone* at once, *peeled* in the end. Activations alone are counted, in double precision; no attack was run. n counts networks, with ten batches
        each. CIFAR-10 is the 8,380 images that the recorded run had.
        """,
        markdown(cells(e.EXCLUSIVE, "alone", "peeled")),
        f"""
        **Many rounds of one client.** LDIA {{cite:p}}`gu2023ldia` trains a network on what shadow clients' heads change in the rounds that it
        observes. We had its released code, and of the paper the abstract: what it prints is not compared. *After LDIA* is our reading, smaller: a
        LeNet, {rounds["samples"]} images a user with Dirichlet shares (α = {rounds["alpha"]}), {rounds["steps"]} local steps at the rate {rounds["lr"]}, 4 users and 100 shadow
        clients of 500 auxiliary images, one to ten classes each. The code has 100 users, five epochs with momentum, 1,000 shadows, ten rounds, two
        convolutions before the fully connected layers, and for each shadow a global model of its own; here the shadows start from the server's.
        The loss is its own. The other attacks read each round by itself and their shares are averaged; the learned attacker is trained anew in
        every round, for {rounds["iterations"]} iterations, and takes part where the network is trained. n counts federations.
        """,
        markdown(cells(e.ROUNDS, "iacc", "cosine")),
        """
        Fed-Listing {cite:p}`nakarmi2026fedlisting` does the like on graphs, by its code: the last layer's changes of all rounds in a row, and shadow clients of
        four kinds. Its graphs are not here. Of *Whispers of Data* {cite:p}`ma2025whispers` only the abstract was at hand. Neither is compared.
        """,
    )


def ten(run):
    """The learned attacker's leads on ten networks of each kind, as a table and in a sentence; of recorded rows."""
    if run.recorded_rows(e.ANEW) is None and run.profile != "paper":
        return "**Not recorded**: one network of this run decides nothing."
    rows = pd.DataFrame(met_once(run))
    ends = zip(rows["lead"], rows["lead low"], rows["lead high"], strict=True)
    rows["shown"] = [spread(*each) for each in ends]
    rows["network"] = rows["net"].map(models.title)
    shown = rows.pivot(index="B", columns="network", values="shown").reset_index()
    ahead, behind = (rows["lead low"] > 0).sum(), (rows["lead high"] < 0).sum()
    open_, worst = len(rows) - ahead - behind, rows["lead low"].min()
    first = rows.query("net == 'lenet'")
    every = " (of LeNet at every size)" if (first["lead low"] > 0).all() else ""
    return parts(
        markdown(shown, wide=False),
        f"""
        **It is clearly ahead of its rival in {ahead} of the {len(rows)} cells{every}, clearly behind in {behind}, and {open_} are open**; no interval reaches
        below {minus(f"{worst:+.3f}")}, and in {(rows["lead"] >= 0.05).sum()} cells the lead is 0.05 or more. The rival finds at least {rows["over"].min():.2f} more than
        the prior guess.
        """,
    )


def conditions(run):
    """Lead over the prior guess, by composition"""
    where = ["state", "composition"]
    rows = rows_of(run, e.COMPOSED)
    over = winners(rows, where, REAL).set_index(where)
    over = over.assign(prior=floor_of(rows, where)).reset_index()
    even = (
        rows.query("state == 'trained' and composition == 'balanced'")
        .groupby("attack")["iacc"]
        .mean()
    )
    shown = (
        {
            "network": row["state"],
            "composition": row["composition"],
            "best attack that reads the update": row["attack"],
            "its iAcc": f"{row['iacc']:.2f} [{row['iacc low']:.2f}, {row['iacc high']:.2f}]",
            "prior guess": f"{row['prior']:.2f}",
            "lead": minus(f"{row['iacc'] - row['prior']:+.2f}"),
        }
        for row in over.to_dict("records")
    )
    return parts(
        markdown(shown),
        f"""
        Of balanced batches of 32 the learned attacker finds {even["learned"]:.2f} on the trained LeNet, the prior guess {even["prior guess"]:.2f}.

        **Schemes** with local steps are attacked in their second round, so that those with a history have one. The server takes the history
        off and scales the update to that of plain SGD for all attacks that do not know the schemes themselves. LLG\\* and LLG+ follow their
        paper's released code, which divides the impact by the number of steps and measures the offset on the model before them:
        {{ref}}`of three readings <tab-llg-readings>` that one finds most at the rate 0.1, and least at 0.001; the arena's rate is 0.01.
        """,
    )


def soft(run):
    """Labels that are not one-hot"""
    rows = rows_of(run, e.SOFTENED)
    where = ["labelling", "state", "batch_size"]
    untold = rows[~rows["attack"].str.endswith(", told")]
    cells = winners(untold, where, REAL).set_index(where)
    cells = cells.assign(prior=floor_of(rows, where)).reset_index()
    shown = (
        {
            "labels": row["labelling"],
            "network": row["state"],
            "B": row["batch_size"],
            "best attack": row["attack"],
            "its iAcc": f"{row['iacc']:.2f} [{row['iacc low']:.2f}, {row['iacc high']:.2f}]",
            "prior guess": f"{row['prior']:.2f}",
        }
        for row in cells.to_dict("records")
    )
    trained = answered(rows, where).query("state == 'trained'")
    mean = trained.groupby(["attack", "labelling", "batch_size"])["iacc"].mean()
    hard, (small, large) = (
        "one-hot",
        sorted(rows["batch_size"].unique())[:2]
        if rows["batch_size"].nunique() > 1
        else (8, 8),
    )
    told = []
    for name in ("RLU", WHOLE):
        gains = []
        for size in (small, large):
            cell = trained[trained["batch_size"] == size]
            wide = cell.pivot(
                index="trial", columns=["attack", "labelling"], values="iacc"
            )
            gap = by_network(wide[f"{name}, told", SMOOTHED] - wide[name, hard], cell)
            gains.append(
                f"{mean[f'{name}, told', SMOOTHED, size]:.2f} after {mean[name, hard, size]:.2f} at {size} (gain {spread(gap.mean(), *interval(gap, NUMBER))})"
            )
        told.append(f"{name} {' and '.join(gains)}")
    split = (
        rows.query("attack == 'after SPEAR' and batch_size == 8")
        .groupby(["state", "labelling"])["iacc"]
        .count()
    )
    each = {
        name: f"{listed([mean[name, MIXED, s] for s in (small, large)])} of mixed labels, after {listed([mean[name, hard, s] for s in (small, large)])}"
        for name in ("LLG", "RLU", WHOLE, "learned")
    }
    return parts(
        "The best attack that is not told of the smoothing, by how the client labels, with $\\varepsilon = 0.1$ and $\\alpha = 1$.",
        markdown(shown),
        f"""
        **Told $\\varepsilon$**, on the same images and three networks, against one-hot labels: {"; ".join(told)}. 0.95 was expected: the network is
        less sure than the argument has it, and what its softmax still differs by from image to image is noise on
        $\\varepsilon(\\mathbf y-1/n)$. It was trained without smoothing; one that was trained with it was not attacked, and there $\\mathbf p$ would be
        near $\\tilde{{\\mathbf y}}$.

        **Mixup** gives each label away once with λ and once with $1-\\lambda$, so that the mean of the mixed labels is the mean of the labels; it
        changes the images and the softmax alone. At B = {small} and {large}, {"; ".join(f"{name} finds {text}" for name, text in each.items())} of one-hot
        ones. The whole head and the learned attacker know gradients of images that are not mixed; but so does RLU, and why these two fall
        was not tested. *After SPEAR* looks for the samples and not for their labels: from the trained network it splits {split["trained", MIXED]} mixed
        batches of 8, {split["trained", hard]} one-hot and {split["trained", SMOOTHED]} smoothed ones, from the untrained one {split["untrained", MIXED]},
        {split["untrained", hard]} and {split["untrained", SMOOTHED]}. An earlier record, from the same seeds on another processor, has networks whose training
        rounds otherwise; cells of the trained ones differ by up to six points in the mean.
        """,
    )


def split_rows(run):
    """How many batches of eight rows or texts "after SPEAR" splits: answered, all, and the least iAcc, by network and data."""
    split = rows_of(run, e.INPUTS).query("attack == 'after SPEAR' and batch_size == 8")
    return split.groupby(["state", "data"])["iacc"].agg(["count", "size", "min"])


def inputs(run):
    """Texts and rows of tables"""
    eight = split_rows(run).loc["trained"]
    whole = ", ".join(
        f"{row['count']:.0f} of {row['size']:.0f} of {data}"
        for data, row in eight.iterrows()
    )
    table = of_images(run)
    names = ["MNIST", *e.KINDS]
    cells = winners(table, KIND, [*REAL, "learned"])
    cells["prior"] = [*floor_of(table, KIND).reindex(cells.set_index(KIND).index)]
    shown = (
        {
            "data": row["data"],
            "network": row["state"],
            "B": row["batch_size"],
            "scheme": row["scheme"],
            "best attack": row["attack"],
            "its iAcc": f"{row['iacc']:.2f} [{row['iacc low']:.2f}, {row['iacc high']:.2f}]",
            "prior guess": f"{row['prior']:.2f}",
            "networks": row["networks"],
        }
        for name in names
        for row in cells[cells["data"] == name].to_dict("records")
    )
    out = rows_of(run, e.INPUTS).query("iacc.isna()")
    why = out["reason"].str.replace(r"\d+ (samples|steps)", r"K \1", regex=True)
    out = out.assign(why=why.str.replace(r"got \d+ ", "got r ", regex=True))
    out = out.groupby(["attack", "why"], sort=False)
    out = out.agg(
        data=("data", lambda d: ", ".join(dict.fromkeys(d))), updates=("trial", "size")
    )
    right = run.best(e.INPUTS_TRAINED).groupby("data", sort=False)["accuracy"]
    right = ", ".join(
        f"{data} {low:.2f} to {high:.2f}"
        for data, low, high in right.agg(["min", "max"]).itertuples()
    )
    seen = run.best(e.TRACES)
    seen = seen[["data", "state", "batch_size", "idle", "named", "wrong", "n"]]
    seen = seen.rename(columns={"idle": "units at 0", "batch_size": "B"})
    return parts(
        f"""
        The texts are what ten languages call languages, countries, currencies and scripts, a name a sample, its label the language: bytes, cut or padded
        to 32, without the names that two of the languages share. They are names and no running text. The network has an embedding
        of 32 numbers a byte, 64 convolutions over three bytes, their maxima over the text, 64 units with a ReLU and the outputs; it is
        trained as LeNet is. The tables have 178 and 569 rows in all, their columns standardised; their network is FCN-3 of 256 and 128 units,
        trained in 50 steps. The attacker has 500 names, 36 rows or 114 rows. Five networks of each kind are trained. The share
        of what they were not trained on that they are right about: {right}. Of the twenty updates of a cell three of the trained
        networks have six each, and two have one.

        The best attack that reads the update; MNIST is LeNet's, from the records of the boards and of the schemes.
        """,
        markdown(shown),
        f"After SPEAR splits of the trained networks' batches of eight {whole}, and every label that it names is right. Who refused updates, and why:",
        markdown(out.reset_index().to_dict("records")),
        """
        **What else an update shows**: the share of the last layer's inputs that no sample of the batch reaches (their column of its gradient is 0),
        and, of texts, the share of the bytes in the batch whose row of the embedding moves, and of the rows that move those of no byte in the batch.
        """,
        markdown(numbers(seen)),
    )


def modes(run):
    """Networks in training mode"""
    where = ["net", "state", "client", "attacker"]
    shown = (
        {
            "network": models.title(row["net"]),
            "state": row["state"],
            "client's mode": row["client"],
            "attacker's passes": row["attacker"],
            "best attack": row["attack"],
            "its iAcc": f"{row['iacc']:.2f} [{row['iacc low']:.2f}, {row['iacc high']:.2f}]",
        }
        for row in winners(rows_of(run, e.IN_MODES), where, REAL).to_dict("records")
    )
    return parts(
        """
        Dropout before the last layer, or batch norm after both convolutions; B = 32, unbalanced batches. Where the client is in training
        mode the attacker passes its 500 images in evaluation mode, and for batch norm in training mode as well, all at once. Deep networks
        were not measured in training mode.
        """,
        markdown(shown),
    )


def balance(run):
    """What a defence takes, and what it costs"""
    found = trade(run)
    shown = []
    for row in found.to_dict("records"):
        name = row["defence"] + (f", {row['who']} server" if row["who"] else "")
        lost = row["cost"] == row["cost"] and (
            spread(row["cost"], row["cost low"], row["cost high"])
            if row["cost"]
            else "0 by construction"
        )
        shown.append(
            {
                "network": row["state"],
                "defence": name,
                "strength": f"{row['strength']:g}",
                "best attack": f"{row['attack']} {row['iacc']:.2f}",
                "taken from it": "–"
                if name == "none"
                else spread(row["taken"], row["taken low"], row["taken high"]),
                "accuracy lost": "–" if name == "none" or not lost else lost,
            }
        )
    told = (
        {
            "defence": row["defence"],
            "strength": f"{row['strength']:g}",
            "told": f"{row['told']:.2f}",
            "not told": f"{row['untold']:.2f}",
            "gain": spread(row["gain"], row["gain low"], row["gain high"]),
            "lead over the best other": f"{spread(row['lead'], row['lead low'], row['lead high'])} ({row['other']})",
            "prior guess": f"{row['prior']:.2f}",
        }
        for row in adapting(run)
    )
    rlu = rows_of(run, e.DEFENCES).query(
        "defence == 'noise' and state == 'untrained' and attack == 'RLU'"
    )
    rlu = rlu.groupby("strength")["iacc"].mean()
    bare = run.best_rows(e.UTILITY).query("defence == 'none'")["accuracy"]
    return parts(
        f"""
        What is taken is over the networks, what is lost over the trainings, each with its 95 % interval; one that holds 0 leaves it open, and
        below 0 the attack, or the model, gained. The cost is that of a LeNet trained by federated averaging **under that defence** from
        scratch, every user holding unbalanced data: ten of 100 users in each of 300 rounds, one step on 8 samples at a rate of 0.1. Ten
        trainings a strength, from the same ten starts; without a defence they end at {bare.min():.2f} to {bare.max():.2f}. (At a rate of 0.3 one
        of ten trainings without any defence learns little in 150 rounds: such trainings cannot tell what a defence costs.) Nothing was
        trained until it learned no more. Clipping bounds the norm of each tensor at 0.2, and its strength is the σ of the noise that follows;
        it costs the same at both strengths, so that it is the clipping that costs. Encryption and sums leave the model as it is but for the
        rounding of a fixed-point encoding; they were not trained under.
        """,
        markdown(shown),
        """
        **One attacker adapts.** On trained networks *learned, adaptive* is trained anew for each network and each strength, and its simulated
        clients defend themselves as the real ones do. It knows the kind of the defence and its strength, as a server does that prescribes
        them, and not which noise was drawn. All other attacks read a protected update as if it were not protected.
        """,
        markdown(told),
        f"""
        **RLU and noise.** Every attack that sums a row of the last layer's weights adds up the noise of all its entries. RLU reads the bias
        alone: $n$ numbers, each with the noise of one entry, which it multiplies by $B$. So its counts are off by about $\\sigma B$ each: by 3 of
        32 samples at σ = 0.1, by 10 at 0.3 and by 32 at 1; it finds {", ".join(f"{v:.2f} at {s:g}" for s, v in rlu.items())}, untrained. Under very strong
        noise an attack does worse than the prior guess: an attacker would then shrink its counts towards the shares, which the attacker
        that is told of the noise learns to.

        **Secure aggregation is not free**: in protocols like that of {{cite:t}}`bonawitz2017secagg` the clients of a round agree on keys with
        each other, share secrets so that the masks of those who drop out can be taken off, and mask every parameter, in several more
        messages a round. None of that is measured here.
        """,
    )


def wait(run):
    """A server that waits"""
    mean = waited(run)
    best = patient(run)
    rounds = best.index.levels[1]
    first, last = rounds[0], rounds[-1]
    return f"""
    From an untrained model RLU is at {mean["untrained", first, "RLU"]:.2f} after {first} rounds, LLG at {mean["untrained", first, "LLG"]:.2f} (after {last}:
    {mean["untrained", last, "LLG"]:.2f}) and LLG+ at {mean["untrained", first, "LLG+"]:.2f} (after {last}: {mean["untrained", last, "LLG+"]:.2f}). On a trained model
    the best attack finds {best["trained", first]:.2f} after {first} rounds and {best["trained", last]:.2f} after {last}. Each round brings new images of the same labels;
    whether that is why patience finds more was not tested. What a server finds of clients whose labels change was not measured.
    """


def noise(run):
    """What noise does"""
    shown = (
        {
            "participants": row["participants"],
            "rate": f"{row['lr']:g}",
            "noise a round": f"{row['noise']:.4f}",
            "accuracy without": f"{row['plain'].mean():.2f} (lowest {row['plain'].min():.2f})",
            "with σ = 0.3": f"{row['loud'].mean():.2f} (highest {row['loud'].max():.2f})",
            "cost": spread(row["cost"], row["low"], row["high"])
            if row["low"] == row["low"]
            else minus(f"{row['cost']:+.2f}"),
            "trainings": row["n"],
        }
        for row in noisy(run)
    )
    return parts(
        "150 rounds, each training also without noise, from the same start and with the same users. A cost below 0 is a gain.",
        markdown(shown),
        """
        At the rate 0.1 noise lets slow trainings learn sooner here; why was not tested. So on an untrained LeNet, where only σ = 1 stops the
        best attack, 0.01 a round takes 100 participants at $\\eta=0.1$, and by the rule 900 at $\\eta=0.3$; with ten the model is lost first.
        """,
    )


def knowledge(run):
    """What knowledge is worth"""
    rows = rows_of(run, e.LADDER).query(
        "state == 'trained' and rung == '+ many images a class'"
    )
    ((_, wide, cell),) = wide_of(rows, ["rung"])
    gap = by_network(wide["learned"] - wide["LLG"], cell)
    return f"""
    On trained LeNets the learned attacker's lead over LLG, which needs the gradients alone, is
    {spread(gap.mean(), *interval(gap, NUMBER))} over the three networks; {{ref}}`ten more <arena-anew>` have its leads over better rivals. Auxiliary data give the mean softmax of each class. On a trained network the mean of a client's few
    images need not be the class's; {{ref}}`the chapter on RLU takes that apart <tab-rlu-own>`.
    """


def refused(run):
    """Who could not take part"""
    tables = every(run), rows_of(run, e.BY_SCHEME), rows_of(run, e.DEFENCES)
    out = pd.concat(tables, ignore_index=True).query("iacc.isna()")
    why = (
        out["reason"]
        .str.replace(r"\d+ samples", "K samples", regex=True)
        .str.slice(0, 110)
    )
    out = out.assign(network=out["net"].map(models.title), why=why).groupby(
        ["attack", "why"], sort=False
    )
    out = out.agg(
        networks=("network", lambda n: ", ".join(dict.fromkeys(n))),
        updates=("trial", "size"),
    )
    return parts(
        "iDLG reads a single sample, GI names no label twice, RLG needs fewer directions than classes less one, our reading of SPEAR splits at most 16 samples: the registry and the attacks themselves refuse other batches. DLG, which optimises labels along with images, takes minutes for one batch of this size and is in {doc}`the chapter on LLG </notebooks/llg>`. The learned attacker takes part where the network is trained and the update is of one step.",
        markdown(out.reset_index().to_dict("records")),
    )


def entered(run):
    """Attacks that were entered, beside the package's on the same frozen updates"""
    rows = entering.entries()
    each = {one["attack"]: entering.scores(one) for one in rows}
    ours = {r["attack"]: each[r["attack"]] for r in rows if r["by"] == entering.PACKAGE}
    board, beside = [], []
    for row in rows:
        new, name = row["by"] == entering.ENTERED, row["attack"]
        found = entering.scored(each[name], ours if new else {})
        shown = {
            c: float("nan") if row["cells"][c]["refused"] else one["iacc"]
            for c, one in found.items()
        }
        time = sum(one["seconds"] for one in row["cells"].values()) / len(shown)
        who = {
            "attack": f"**{name}** (entered)" if new else name,
            "needs": len(row["needs"] if new else registry.get(name).uses),
        }
        board.append(
            {
                **who,
                **shown,
                "all": sum(shown.values()) / len(shown),
                "s": f"{time:.2g}",
            }
        )
        for cell, one in found.items() if new else ():
            lead = (
                spread(*(one[k] for k in ("lead", "lead low", "lead high")))
                if "lead" in one
                else "–"
            )
            why = "; ".join(
                f"{n}: {w}" for w, n in row["cells"][cell]["refused"].items()
            )
            iacc = (
                "–"
                if one["iacc"] is None
                else spread(*(one[k] for k in ("iacc", "iacc low", "iacc high")), ".2f")
            )
            beside.append(
                {
                    "entered": name,
                    "cell": cell,
                    "iAcc": iacc,
                    "lead": lead,
                    "beside": one.get("best", "–"),
                    "refused": why or "–",
                }
            )
    board = sorted(
        board,
        key=lambda line: line["all"] if line["all"] == line["all"] else -1,
        reverse=True,
    )
    return parts(
        f"`fedleak enter FILE` runs one attack on the {len(x.CELLS)} cells of `notebooks/arena/experiments_entered.py`: {x.NETWORKS} networks each, {x.UPDATES} updates of each network, an adversary with auxiliary data. Digits are the embedded 5,000; batches are unbalanced and of one step of SGD where a name does not say otherwise. Every row of `data/entries`, the package's too, was made by this command, on updates with the same fingerprints. The table has mean iAcc (–: some updates were refused, so that it is not ranked there), how many things the attack needs or, as auxiliary data, takes, and processor seconds an update, preparation included.",
        markdown(numbers(pd.DataFrame(board))),
        f"Intervals are over the {x.NETWORKS} networks. The lead is paired, update by update, over the best of the package's attacks that answered all of a cell, which is picked on other updates than it is scored on.",
        markdown(beside),
        "The attack is given the update and never its labels, by convention: it runs in the user's own process, and whoever wants to can compute the labels from the seeds. A row's answers are scored again when this page is made.",
    )


def expected(run):
    """Every expectation, and what came of it"""
    return parts(
        "Each was written before the rows that decide it were recorded. L1 to L3 were written after chapter 7 and after the experiment on soft labels; L4 to L8 before the attacker met the deep networks; A2 before any of the ten LeNets was trained; T1 to T3 before the form that reads rows had met a network here; T4 and T5 after the three networks of each kind, before any of the ten was trained; R1 to R15 after runs of seconds on other images and networks; N1 and N2 before their controls were recorded; K1 to K8 before the run, but after a timing run that showed who refuses (K5).",
        markdown(outcome(run, *EXPECTED)),
    )


NOTES = {
    "arena-expected": expected,
    "fig-arena-winners": board,
    "arena-deep-learned": deep_learned,
    "arena-splitting": splitting,
    "arena-anew": fresh,
    "arena-registered": others,
    "fig-arena-conditions": conditions,
    "arena-softened": soft,
    "fig-arena-inputs": inputs,
    "arena-modes": modes,
    "fig-arena-balance": balance,
    "arena-waiting": wait,
    "arena-noise": noise,
    "fig-arena-ladder": knowledge,
    "arena-newcomers": entered,
    "arena-refused": refused,
}
