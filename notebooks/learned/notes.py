"""The learned attacker: what the evidence page says beside the records; every measured number comes from the rows."""

import inspect

import pandas as pd

from fedleak_book.experiments import Number, Results, predictions, running
from notebooks.show import TITLES, enumerated, markdown
from fedleak.models import title
from notebooks.learned import experiments as e
from notebooks.learned.experiments_elsewhere import KNOWS
from notebooks.learned.experiments_networks import BEST, HALVES, MOST, SIMULATED, WHOLE
from notebooks.learned.leads import (
    EVEN,
    OWN,
    PUBLISHED,
    REAL,
    SIZES,
    behind_defences,
    beside_the_bias,
    best,
    bounds,
    coverage,
    gain,
    halved,
    honest,
    judged,
    lead,
    leads_by,
    losses,
    reading,
    remedy,
    trials,
)


def ends(values, form=".2f"):
    """The least and the largest of some numbers."""
    return f"{Number(values.min()):{form}} to {Number(values.max()):{form}}"


def before(rows, text, after=""):
    """Sentences, a table, and more sentences."""
    return "\n\n".join(
        [inspect.cleandoc(text), markdown(rows), inspect.cleandoc(after)]
    )


def main(run):
    """The judgement"""
    table = judged(run)
    names = {WHOLE: "whole head", EVEN: "even guess", "batch_size": "B"}
    numbers = table[["learned", PUBLISHED, WHOLE, EVEN]].map("{:.3f}".format)
    rows = numbers.assign(which=table["which"]).reset_index().rename(columns=names)
    mnist, cifar = (table.loc[name] for name in ("MNIST", "CIFAR-10"))
    over = [
        f"of {size}: {enumerated(table.xs((size, 'unbalanced'), level=(1, 2)).pipe(lambda t: t['learned'] - t[PUBLISHED]), '+.2f')} over the best published "
        f"attack, {enumerated(table.xs((size, 'unbalanced'), level=(1, 2)).pipe(lambda t: t['learned'] - t[WHOLE]), '+.2f')} over the whole head"
        for size in SIZES[1:]
    ]
    even = [
        table.xs((size, "balanced"), level=(1, 2)).pipe(
            lambda t: t["learned"] - t[EVEN]
        )
        for size in SIZES
    ]
    cell = dict(data="MNIST", batch_size=32, composition="unbalanced")
    scores = trials(run, e.JUDGED, **cell)
    rival = best(run, e.JUDGED, by_name=True, **cell)
    apart = enumerated(scores["learned"] - scores[rival], "+.2f")
    gap = lead(
        run,
        e.JUDGED,
        "learned",
        WHOLE,
        data="CIFAR-10",
        batch_size=8,
        composition="unbalanced",
    )
    text = f"""
    Leads in unbalanced batches, on MNIST and on CIFAR-10, {"; ".join(over)}. In balanced batches of 8, 32, 128 and 512 the leads over the
    even guess are {enumerated([v["MNIST"] for v in even], "+.2f")} on MNIST and {enumerated([v["CIFAR-10"] for v in even], "+.2f")} on CIFAR-10.
    These are means: by network those over {rival} on MNIST at 32 are {apart}, and the lead over the whole head on CIFAR-10 in
    batches of 8 is {gap:.2f ci}. The {cifar.loc[(8, "unbalanced"), "after SPEAR"]:.2f} of batches of 8 on CIFAR-10 are of our reading of SPEAR, which reads the
    layers below the head. On MNIST in batches of 8 the whole head finds {mnist.loc[(8, "unbalanced"), WHOLE]:.2f}.

    Tuning and judgement are apart. Features and the mixture of batches were chosen on one LeNet on MNIST (seed 0) with client batches of
    the seed 99. How the whole head enters was chosen on three LeNets on CIFAR-10 (seeds 501 to 503) and a VGG-11 of another seed than the
    arena's, the present network on those of {{ref}}`its section <learned-rows>`. The judgement has other networks (seeds drawn from the chapter's)
    and other batches; the form before was judged on these networks, too, and missed all four targets. Of the present form L1 to L3 were
    expected to hold, and L4 to fail, too wide for large batches.
    """
    return before(rows.to_dict("records"), text)


def forms(run):
    """The formulas among the inputs"""
    cells = run.best(e.WEIGHED)
    table = cells.pivot_table(index="batch_size", columns="attack", values="iacc")
    first, last = table["training"], table["reading"]
    behind = table[WHOLE] - last
    return f"""
    The whole head is solved for shares $\\mathbf s$ with the noise $\\mathbf S(\\mathbf s)=\\sum_j s_j\\mathbf S_j$ of the classes' own
    covariances: with equal counts first, and then twice with those found. That has to be done 256 times in each of a thousand iterations,
    so it is done along a few directions of the gradient only, four a class, in which $\\mathbf S(\\mathbf s)$ is a small matrix. The
    network's answer begins with that of the whole head, and what it learns is a correction.

    A fifth of the attacker's images is kept apart for the intervals, and neither the network nor the formulas see them. Once the training is
    done the whole head and RLU are made anew with all images, the whole head with all equations too: an update is read by better formulas
    than those that the network was trained with. (Not where the client defends itself or takes several steps: the noise is then not that
    of the images alone.)

    Nothing is trained for `weighed`: the whole head is asked alone, in these forms, about the same unbalanced updates of three LeNets that
    nothing was tuned on (CIFAR-10, twenty updates a cell). With the weights of equal counts it finds {enumerated(table["equal counts"])} of the
    labels of batches of 8, 32, 128 and 512; weighted as in training {enumerated(first)}, in the mean {(first - table["equal counts"]).mean():.3f}
    more; as in reading {enumerated(last)}, in the mean {(last - first).mean():.3f} more, which is {behind.min():.3f} to {behind.max():.3f} behind
    the attack of the registry. More images alone change it by {enumerated(table["all images"] - first, "+.3f")}, more equations alone by
    {enumerated(table["all equations"] - first, "+.3f")}.

    **Two earlier forms of the attack were judged before this one**, on other networks. The first weighted the whole head for equal counts;
    on CIFAR-10 it was behind the whole head by 3 to 5 points in unbalanced batches of 32, 128 and 512. The second weighted it by each batch's
    counts, and read with the four equations a class and the four fifths of the images that it was trained with; there it was behind by
    1 to 3. (Of these two no rows are kept.)
    """


def rows(run):
    """Signs, and images moved"""
    cells = run.best(e.PARTS)
    table = (
        {
            "images": f"{row['aux_images']:,}",
            "B": row["batch_size"],
            "without": row["without"],
            "iAcc": f"{Number(row['iacc'], row['iacc low'], row['iacc high']):.3f ci}",
        }
        for _, row in cells.iterrows()
    )
    text = f"""
    {cells["n"].max()} LeNets (MNIST), {run.best_rows(e.PARTS)["updates"].max()} unbalanced updates each. *Signs* are the sum of a row's negative entries, its least and
    largest entry, the least positive one and the share of negative ones. The attackers are trained for 300 iterations, with 500 images as in
    the arena, or with all 10,000. The form was chosen on LeNets of five other seeds, on a VGG-11 and a ResNet-18 that are not judged, by
    batches of the clients' images. Mixing the features of images, a bootstrap of the images, and the share of columns in which a row is the
    lowest brought at most a point there, and are left out.
    """
    return before(table, text)


def sure(run):
    """How sure it is"""
    coverages = {
        kind: coverage(run, e.JUDGED, ["data", "batch_size"], composition=kind)
        for kind in ("simulated", *REAL)
    }
    deep = coverage(run, e.DEEP, ["net", "batch_size"], composition=REAL)
    real = pd.concat([coverages[kind] for kind in REAL])
    return f"""
    The 90 % intervals hold {ends(coverages["simulated"])} of the counts of batches as simulated, and {ends(real)} in the cells of the two
    compositions. L4 fails on one side: on CIFAR-10 they hold up to {coverages["simulated"]["CIFAR-10"].max():.2f}, too many. Why was not tested:
    they are calibrated on about 200 images, and before the formulas are made anew with all of them; both may play a part. In single cells
    of one composition the coverage is down to {100 * (0.9 - real.min()):.0f} points below 0.90, on the deep networks to
    {100 * (0.9 - deep.min()):.0f}. All this is of trained networks, after one local step, without a defence.
    """


def more(run):
    """How much could be found"""
    sizes = (8, 32)

    def two(form=".2f", **what):
        return " and ".join(f"{bounds(run, b, **what).mean():{form}}" for b in sizes)

    def gained(more, **less):
        gains = [gain(run, more, b, **less) for b in sizes]
        return " and ".join(f"{difference:+.3f ci}" for difference in gains)

    cells = run.best(e.BOUNDS).query(
        "attack == 'even guess' and composition == 'unbalanced'"
    )
    even = cells.groupby("batch_size")["iacc"].mean()
    return f"""
    Of the labels of unbalanced batches of 8 and of 32 the even guess finds {even[8]:.2f} and {even[32]:.2f}. The attacker with 10,000 images
    finds {two()} after 300 iterations, and {two(iterations=1200)} after 1,200; with 200 images {two(images=200)}, with 1,000
    {two(images=1000)} after 300. The oracle, with the clients' own 60,000 images, of which a fifth calibrates its intervals as always, finds
    {two(**OWN)}. Paired gains over the three networks: the oracle's over 10,000 other images {gained(OWN)}; four times the training
    {gained(dict(iterations=1200))}; 10,000 images in place of 200 {gained({}, images=200)}. Whether the clients' own images would be worth
    more to one that is trained for longer is open. One architecture, MNIST, twenty updates a network.
    """


def expectations(run):
    """What it expects to find"""
    lines = []
    for network, experiment, cell in (
        ("LeNet, MNIST", e.JUDGED, dict(data="MNIST")),
        ("LeNet, CIFAR-10", e.JUDGED, dict(data="CIFAR-10")),
        ("VGG-11", e.DEEP, dict(net="vgg11_bn")),
        ("ResNet-18", e.DEEP, dict(net="resnet18")),
        ("LeNet trained on half, members", e.MEMBERS, dict(half="members")),
        ("LeNet trained on half, others", e.MEMBERS, dict(half="others")),
    ):
        for part in SIMULATED:
            gaps = [
                honest(run, experiment, composition=part, batch_size=b, **cell)
                for b in SIZES
            ]
            if len(gaps[0]):  # of halves there are no fifths
                row = {f"B = {b}": f"{gap.mean():+.3f}" for b, gap in zip(SIZES, gaps)}
                lines.append({"network": network, "batches": part, **row})
    text = """
    By how much more of the labels it finds than it expects, by batch size; means over the networks. What it expects is fitted on 2,000
    batches of the auxiliary images that are kept from the training, the fifth that calibrates the intervals; what it finds is counted on batches
    of the clients' images. The closed forms that it reads with are made of all images, the kept ones too; what that adds to what it expects was not measured.

    This is a measure of honesty, no bound: it says nothing of what another reading would find. Untrained networks were not run; an
    expectation of untrained LeNets was written, and goes with them.
    """
    return before(lines, text)


def alone(run):
    """What the head alone determines"""
    cells = run.best(e.DETERMINED)
    values = ["read", "wrong", "found", "strange"]
    columns = cells[["net", "state", "precision", "batch_size", *values]]
    texts = {v: columns[v].map("{:.2f}".format) for v in values}
    rows = columns.assign(net=columns["net"].map(title), **texts)
    updates = run.best_rows(e.DETERMINED).groupby("net")["updates"].max()
    text = f"""
    Five networks a state; {updates["lenet"]} batches of each LeNet, of MNIST, and {updates["resnet20"]} of each ResNet-20, of 1,117 images of CIFAR-100 on which it
    was trained for 300 steps. No image is twice in a batch: two equal samples cannot be told apart. *Read*: all labels, after every sample was
    found and all fit together; *wrong*: the same with a wrong label; *found*: samples that the first search meets, of three starts a label;
    *strange*: its solutions that are no sample of the batch (inputs more than 0.1 % apart; in single precision also inexact samples are). Not read is not
    undetermined: the search can miss a sample. Batches of more than half as many samples as classes are refused.
    """
    return before(rows.rename(columns={"batch_size": "B"}).to_dict("records"), text)


def together(run):
    """With more samples than half the classes"""
    cells = run.best(e.JOINTLY)
    values = ["single", "read", "strange", "wrong"]
    columns = cells[["state", "batch_size", *values]]
    rows = columns.assign(**{v: columns[v].map("{:.2f}".format) for v in values})
    text = f"""
    {cells["n"].max()} LeNets a state (MNIST), {run.best_rows(e.JOINTLY)["updates"].max()} batches of each, no image twice, double precision. The unknowns are the inputs of all samples
    inside the span of the gradient's rows, $B(B-1)$ numbers; the equations are the gradient itself, $(n-1)B$ of them. They are solved by
    Levenberg and Marquardt's method, from inputs of auxiliary images of the classes that are tried: twelve times with the right labels, twelve times with one
    label wrong, another each time. *Single*: the equations' derivative at the true inputs has full rank, so that no other solution is next
    to them; *read*: one of the twelve is the batch; *strange*: one of the twelve solves the equations (to 1e-10) and is not the batch; *wrong*: solutions
    with a wrong label. That none was found with a wrong label does not prove that there is none.
    """
    splits_table = run.best(e.SPLITS).pivot(
        index=["state", "batch_size", "sent"],
        columns="images",
        values=["read", "wrong"],
    )
    sent = splits_table.map("{:.2f}".format)
    sent.columns = [f"{value}, {images}" for value, images in sent.columns]
    sent = sent.reset_index().rename(columns={"batch_size": "B"})
    after = f"""
    **Updates**, in single precision, {run.best_rows(e.SPLITS)["updates"].max()} of each of five LeNets a state (`splits`): the share that head splitting reads, with 10,000 auxiliary images and
    without, and the share whose labels it reads wrong. The rest is refused: where two label counts explain the gradient to what a client
    rounds, because a sample is fitted better than that, where no search of four succeeds, or where the gradient was changed.
    """
    rows = rows.rename(columns={"batch_size": "B"}).to_dict("records")
    return f"{before(rows, text, after)}\n\n{markdown(sent.to_dict('records'))}"


def bayes(run):
    """The best that the bias gives"""
    table, (*_, two) = reading(run), beside_the_bias(run)
    gap = two[BEST] - two["learned"]
    columns = ["learned", MOST, BEST, PUBLISHED, "RLU", WHOLE, EVEN]
    numbers = table[columns].map("{:.3f}".format)
    rows = numbers.assign(which=table["which"]).reset_index()
    text = f"""
    Five LeNets a cell, trained on the first two or three digits for 100 and 150 steps, so that some images are still wrong; 100 updates each,
    of batches from the attacker's own prior, of images that it does not have. The table of answers is made from {2**21:,} simulated batches of
    the auxiliary images, with 1,000 cells for one number and 100 by 100 for two, each with as many batches as the next along an axis. *{MOST}*
    is what the answers find of the batches that they were chosen by; *{BEST}* what they find of {2**18:,} batches of the clients' images.
    The first is too large in the mean: by what chance in a cell gives, and by what can be recognised of single auxiliary images. It is the
    most at the grid's resolution, and of clients whose images are distributed as the auxiliary ones. With more classes the gradient has too
    many numbers for a table, and so has that of the weights.

    With two classes the table finds more than the learned attacker in {(gap > 0).sum()} of {len(gap)} networks and sizes, up to {gap.max():.2f} more;
    why was not tested.
    """
    return before(rows.to_dict("records"), text)


def prior(run):
    """What the prior costs"""
    sizes = (32, 128)

    def two(attack):
        cells = [run.cell(e.PRIOR, batch_size=b, attack=attack) for b in sizes]
        return " and ".join(f"{cell:.3f}" for cell in cells)

    scores = [trials(run, e.PRIOR, batch_size=b) for b in sizes]
    ahead = sum(
        int((t["told"] > t[["learned", WHOLE]].max(axis=1)).sum()) for t in scores
    )
    return f"""
    Told the composition, the attacker finds {two("told")} of the labels of unbalanced batches of 32 and 128 (CIFAR-10); not told,
    {two("learned")}; the whole head finds {two(WHOLE)}. The one that is told is ahead of both others in {ahead} of
    {sum(map(len, scores))} pairs of a network and a size. Three networks and twenty updates each.
    """


def deep(run):
    """Deep networks, and new ones"""
    texts = []
    for net in ("vgg11_bn", "resnet18"):
        cell = dict(net=net, composition="balanced")
        over = [
            lead(run, e.DEEP, "learned", "even guess", batch_size=b, **cell)
            for b in SIZES
        ]
        coverages = coverage(
            run, e.DEEP, ["batch_size"], net=net, composition="simulated"
        )
        texts.append(
            f"On {title(net)} its leads over the even guess in balanced batches are {enumerated(over, '+.2f')}, and of batches as simulated its "
            f"intervals hold {enumerated(coverages)} of the counts"
        )
    cell = ["batch_size", "composition"]
    least = {
        net: min(leads_by(run, e.FRESH, cell, "learned", PUBLISHED, net=net))
        for net in ("lenet", "vgg11_bn")
    }
    return f"""
    {". ".join(texts)} (batches of 8, 32, 128 and 512). One trained network of each, twenty updates a cell, from the head's gradient alone:
    what lies below the head does not change in one step, so that all images pass the network once.

    Untrained: a LeNet and a VGG-11 with batch norm, whose statistics are set on 200 images and frozen; three networks of each, five updates
    a cell. The least lead over the best published attack is {least["lenet"]:+.3f} on LeNet and {least["vgg11_bn"]:+.3f} on VGG-11, over B = 8, 32
    and 128 and both compositions.
    """


def local(run):
    """Several local steps"""
    rows, lines = run.best_rows(e.LOCAL), []
    for state, scheme, lr in list(
        dict.fromkeys(zip(rows["state"], rows["scheme"], rows["lr"], strict=True))
    ):
        setting = dict(state=state, scheme=scheme, lr=lr)
        over = lead(run, e.LOCAL, "learned", PUBLISHED, **setting)
        cell = run.cell(e.LOCAL, "coverage", attack="learned", **setting)
        lines.append(
            {
                "network": state,
                "scheme": TITLES[scheme],
                "rate": lr,
                "best published": best(run, e.LOCAL, by_name=True, **setting),
                "its iAcc": f"{best(run, e.LOCAL, **setting):.3f}",
                "lead": f"{over:+.2f ci}",
                "intervals hold": f"{cell:.2f ci}",
            }
        )
    fast = rows[(rows["attack"] == "learned") & (rows["lr"] == 0.1)]
    together = run.mean(fast.groupby("trial")["coverage"].mean())
    text = f"""
    The clients are real ones, with all their layers. They train in the second round of a scheme; the server takes off the scheme's history
    $h$, and reads the rest as plain SGD at the rate $\\eta\\bar\\rho$, with $\\bar\\rho$ the mean weight of a step. Under Scaffold the whole head
    refuses. S2 fails: at the rate 0.1 the attacker was to be behind RLU, as on the network that was tuned on, and on the mean it is ahead.
    What the movement of the lower layers costs was not measured. At the rate 0.1 its intervals hold {together:.2f ci} of the counts on the mean of
    both networks: they are calibrated on simulated rounds, in which the lower layers stand still. One LeNet a state, MNIST, unbalanced
    batches of 32, 300 iterations, eight updates a cell.
    """
    return before(lines, text)


def members(run):
    """Images that the network was trained on"""
    parts = []
    for name, experiment, cell in (
        ("LeNet", e.MEMBERS, {}),
        ("ResNet-18, 300 steps", e.MEMBERS_RESNET, dict(steps=300)),
        ("ResNet-18, 600 steps", e.MEMBERS_RESNET, dict(steps=600)),
    ):
        coverages = halved(run, experiment, "coverage", **cell)
        accuracies = halved(run, experiment, **cell)
        members_loss, others = losses(run, experiment, **cell)
        parts.append(
            f"**{name}**, mean loss {members_loss:.2f} on members and {others:.2f} on others."
        )
        for half in HALVES:
            mine = accuracies.loc[half]
            parts.append(
                f"Of the {half}' labels it finds {enumerated(mine['learned'])}, told the training loss {enumerated(mine[KNOWS])}, the whole head "
                f"{enumerated(mine[WHOLE])}, the even guess {enumerated(mine['even guess'])}; the intervals hold {enumerated(coverages['learned'][half])} of "
                f"their counts, told {enumerated(coverages[KNOWS][half])}."
            )
        gains = remedy(run, experiment, "members", **cell)
        parts.append(
            f"The mean gain on members by being told is {Number(gains.mean()):+.2f}.\n\n   "
        )
    return f"""
    All four numbers are of batches of 8, 32, 128 and 512: iAcc of twenty unbalanced updates, coverage of batches as simulated.

    {" ".join(parts)}
    The range of the remedy's shifts was chosen on two LeNets with other seeds and of longer training, 4,000 and 2,200 steps (mean losses
    0.2 on members, 5.9 and 3.9 on others): there the intervals held 0.94 of the counts of others in batches of 128, and 0.41 and 0.36 of
    those of members; with the remedy 0.79 and 0.90. (No rows of these are kept.) The ResNet-18 were trained and attacked on a
    GPU. The remedy needs a close fit: after 300 steps it gains little, and its intervals hold fewer counts. It costs labels of others, so that `train_loss` is off unless it is
    asked for. {{ref}}`The arena <arena-deep-learned>` has three ResNet-18 that were trained on all of the images. The published attacks were not run here.
    """


def defences(run):
    """Behind defences"""
    table = behind_defences(run)
    over = table["adaptive"] - table[PUBLISHED]
    coverages = {
        who: coverage(run, e.ADAPTIVE, ["defence", "strength"], attack=who)
        for who in ("adaptive", "learned")
    }
    images = [
        run.cell(e.LIMITS, aux_images=n, defence="none") for n in (200, 1000, 5000)
    ]
    hundredth = [
        lead(
            run, e.ADAPTIVE, "adaptive", "learned", defence="sparsification", strength=s
        )
        for s in (0.9, 0.99)
    ]
    return f"""
    The attacker that knows a defence is ahead of the best published attack by {ends(over, "+.2f")}. Where only the largest tenth
    of the entries is sent, knowing it changes what is found by {hundredth[0]:+.2f ci}, with the largest hundredth by {hundredth[1]:+.2f ci}.
    Its 90 % intervals hold {ends(coverages["adaptive"])} of these counts, those of the other {ends(coverages["learned"])}. One architecture, MNIST, batches
    of 32, three networks, twenty updates each, 300 iterations.

    **Fewer auxiliary images** (`limits`): with 200, 1,000 and 5,000 it finds {enumerated(images)} of the labels of unbalanced batches of 32.
    """


def deep_cells():
    """The arena's trained deep networks: the learned attacker, the best published one, the whole head, by net and size."""
    rows = running.module("arena", "ranking").deep(Results("arena", device="cpu"))
    return pd.DataFrame(rows).set_index(["net", "batch_size"])


def later(run):
    """Every prediction and its outcome"""
    table = predictions.table(run, *predictions.ids(run), anchors=True)
    mnist = judged(run).loc["MNIST"].xs("unbalanced", level="composition")
    small = int((mnist["learned"] - mnist[PUBLISHED] >= 0.05).sum())
    arena, lenet = deep_cells(), judged(run).loc["MNIST"]
    large = int((arena["learned"] - arena["published"] >= 0.05).sum())
    behind = 100 * (arena["whole"] - arena["learned"]).groupby("net").max()
    behind["lenet"] = 100 * (lenet[WHOLE] - lenet["learned"]).max()
    text = """
    Each was written down before the first runs, which were, but for L, M9 and M10, of an earlier form of the attacker; S3 without Scaffold
    then. D4 is a target that was set before the attack was built; nothing was tuned on its networks. (D1 to D3 were of trained deep networks;
    the arena's {ref}`L4 to L8 <arena-deep-learned>` took their place.) S1 and S2 follow from ten updates of another network, the one that was
    tuned on, where the lead over RLU was +0.06 at the rate 0.01 and −0.06 at 0.1. M1 to M8 were added after the other results were known, M7 and
    M8 after the LeNet's too, and each before its own run. M9 and M10 ask whether the remedy needs a network that fits members much better than
    others: an earlier form gained 0.13 with one of 600 steps, and little on the arena's, which fit less.
    """
    more = f"""
    **The first targets** were of twelve trained cells: LeNet (MNIST, here), VGG-11 and ResNet-18 (the arena's), four batch sizes each. *Ahead of the
    best published attack by 5 points in 9 of 12 unbalanced cells*: {small + large}, {small} of LeNet's 4 and {large} of the 8 deep ones. *Never
    behind the whole head by more than a point*: LeNet is behind by up to {behind["lenet"]:.1f} points, VGG-11 by {behind["vgg11_bn"]:.1f} and ResNet-18
    by {behind["resnet18"]:.1f}.
    """
    return before(table, text, more)


NOTES = {
    "learned-forms": forms,
    "learned-rows": rows,
    "fig-learned-judged": main,
    "fig-learned-coverage": sure,
    "fig-learned-bounds": more,
    "fig-learned-bayes": bayes,
    "fig-learned-expects": expectations,
    "learned-head": alone,
    "learned-together": together,
    "learned-prior": prior,
    "learned-defences": defences,
    "learned-local": local,
    "learned-deep": deep,
    "fig-learned-members": members,
    "learned-later": later,
}
