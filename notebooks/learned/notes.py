"""The learned attacker: the notes of the evidence page; every measured number comes from the rows."""

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
    by_defence,
    compare_to_bias,
    best_published,
    bound_scores,
    coverage,
    gain,
    by_half,
    excess,
    main_table,
    lead,
    leads_by,
    loss_by_half,
    few_class_table,
    remedy_gain,
    scores_of,
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
    table = main_table(run)
    names = {WHOLE: "whole head", EVEN: "even guess", "batch_size": "B"}
    numbers = table[["learned", PUBLISHED, WHOLE, EVEN]].map("{:.3f}".format)
    rows = numbers.assign(which=table["which"]).reset_index().rename(columns=names)
    mnist, cifar = (table.loc[name] for name in ("MNIST", "CIFAR-10"))
    over = [
        f"B = {size}: {enumerated(table.xs((size, 'unbalanced'), level=(1, 2)).pipe(lambda t: t['learned'] - t[PUBLISHED]), '+.2f')} over the best published "
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
    scores = scores_of(run, e.JUDGED, **cell)
    rival = best_published(run, e.JUDGED, by_name=True, **cell)
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
    The leads in unbalanced batches, on MNIST and on CIFAR-10, are: {"; ".join(over)}. In balanced batches of 8, 32, 128 and 512 the leads over the
    even guess are {enumerated([v["MNIST"] for v in even], "+.2f")} on MNIST and {enumerated([v["CIFAR-10"] for v in even], "+.2f")} on CIFAR-10.
    These are means. The leads over {rival} on MNIST at B = 32 are {apart}, by network. The lead over the whole head on CIFAR-10 in
    batches of 8 is {gap:.2f ci}. There *after SPEAR*, our reimplementation, recovers {cifar.loc[(8, "unbalanced"), "after SPEAR"]:.2f}; it uses the
    layers below the head. On MNIST in batches of 8 the whole head recovers {mnist.loc[(8, "unbalanced"), WHOLE]:.2f}.

    Tuning and judgement are separate. We chose features and the mixture of batches on one LeNet on MNIST (seed 0) with client batches of
    seed 99. We chose the use of the whole head on three LeNets on CIFAR-10 (seeds 501 to 503) and a VGG-11 with another seed than the
    arena's, and the current network on those of {{ref}}`its section <learned-rows>`. The judgement has other networks (seeds drawn from the chapter's)
    and other batches. The previous version was judged on these networks, too, and missed all four targets. For the current version we expected L1 to L3
    to hold, and L4 to fail because of too wide intervals for large batches.
    """
    return before(rows.to_dict("records"), text)


def forms(run):
    """The formulas among the inputs"""
    cells = run.best(e.WEIGHED)
    table = cells.pivot_table(index="batch_size", columns="attack", values="iacc")
    first, last = table["training"], table["reading"]
    behind = table[WHOLE] - last
    return f"""
    The whole head solves for shares $\\mathbf s$ with the noise $\\mathbf S(\\mathbf s)=\\sum_j s_j\\mathbf S_j$ of the classes'
    covariances: first with equal counts, then twice with its current counts. This is needed 256 times in each of a thousand iterations.
    We therefore use only four directions of the gradient per class, in which $\\mathbf S(\\mathbf s)$ is a small matrix. The
    network learns a correction to the answer of the whole head.

    A fifth of the attacker's images is held out for the intervals; neither the network nor the formulas see them. After the
    training the whole head and RLU are prepared again with all images, and the whole head with all equations. An update is thus attacked with better formulas
    than those of the training. (If the client defends itself or takes several steps, this does not apply: the noise is then not only that
    of the images.)

    `weighed` needs no training: it tests the whole head alone, in these variants, on the same unbalanced updates of three LeNets without any
    tuning (CIFAR-10, twenty updates per setting). With the weights of equal counts it recovers {enumerated(table["equal counts"])} of the
    labels of batches of 8, 32, 128 and 512. With the weights of the training it recovers {enumerated(first)}, on average {(first - table["equal counts"]).mean():.3f}
    more. With those of the attack it recovers {enumerated(last)}, on average another {(last - first).mean():.3f} more, and {behind.min():.3f} to {behind.max():.3f} less than
    the attack of the registry. More images alone change it by {enumerated(table["all images"] - first, "+.3f")}, more equations alone by
    {enumerated(table["all equations"] - first, "+.3f")}.

    **Two earlier versions of the attack were judged before this one**, on other networks. The first weighted the whole head for equal counts.
    On CIFAR-10 it was behind the whole head by 3 to 5 points in unbalanced batches of 32, 128 and 512. The second weighted it by each batch's
    counts, and attacked with the four equations per class and the four fifths of the images of its training. It was behind by
    1 to 3 points. (The rows of these two are not available.)
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
    There are {cells["n"].max()} LeNets (MNIST) with {run.best_rows(e.PARTS)["updates"].max()} unbalanced updates each. *Signs* are the sum of a row's negative entries, its smallest and
    largest entry, the smallest positive entry and the share of negative ones. The attackers are trained for 300 iterations, with 500 images as in
    the arena, or with all 10,000. We chose this version on LeNets with five other seeds, and on a VGG-11 and a ResNet-18 that are not judged, with
    batches of the clients' images. We omitted mixing the features of images, a bootstrap of the images, and the share of columns in which a row is the
    lowest: they gained at most a point.
    """
    return before(table, text)


def sure(run):
    """Coverage of the intervals"""
    coverages = {
        kind: coverage(run, e.JUDGED, ["data", "batch_size"], composition=kind)
        for kind in ("simulated", *REAL)
    }
    deep = coverage(run, e.DEEP, ["net", "batch_size"], composition=REAL)
    real = pd.concat([coverages[kind] for kind in REAL])
    return f"""
    The 90 % intervals contain {ends(coverages["simulated"])} of the counts of simulated batches, and {ends(real)} of those of unbalanced and balanced
    batches. L4 fails on one side: on CIFAR-10 the coverage is up to {coverages["simulated"]["CIFAR-10"].max():.2f}, which is too high. We did not test why.
    The intervals are calibrated on about 200 images, and before the formulas are prepared again with all images; both may contribute. For a single
    composition the coverage is up to {100 * (0.9 - real.min()):.0f} points below 0.90, and on the deep networks up to
    {100 * (0.9 - deep.min()):.0f}. All this holds for trained networks, after one local step, without a defence.
    """


def more(run):
    """The effect of longer training and more images"""
    sizes = (8, 32)

    def two(form=".2f", **what):
        return " and ".join(
            f"{bound_scores(run, b, **what).mean():{form}}" for b in sizes
        )

    def gained(more, **less):
        gains = [gain(run, more, b, **less) for b in sizes]
        return " and ".join(f"{difference:+.3f ci}" for difference in gains)

    cells = run.best(e.BOUNDS).query(
        "attack == 'even guess' and composition == 'unbalanced'"
    )
    even = cells.groupby("batch_size")["iacc"].mean()
    return f"""
    In unbalanced batches of 8 and of 32 the even guess recovers {even[8]:.2f} and {even[32]:.2f} of the labels. The attacker with 10,000 images
    recovers {two()} after 300 iterations, and {two(iterations=1200)} after 1,200. After 300 iterations it recovers {two(images=200)} with 200 images and
    {two(images=1000)} with 1,000. The oracle has the clients' own 60,000 images, a fifth of which calibrates its intervals as always. It recovers
    {two(**OWN)}. Paired gains over the three networks are: the oracle over 10,000 other images {gained(OWN)}; four times the training
    {gained(dict(iterations=1200))}; 10,000 images instead of 200 {gained({}, images=200)}. We did not test whether the clients' own images help
    more with longer training. All this is one architecture, on MNIST, with twenty updates per network.
    """


def expectations(run):
    """Expected and actual accuracy"""
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
                excess(run, experiment, composition=part, batch_size=b, **cell)
                for b in SIZES
            ]
            if len(gaps[0]):  # of halves there are no fifths
                row = {f"B = {b}": f"{gap.mean():+.3f}" for b, gap in zip(SIZES, gaps)}
                lines.append({"network": network, "batches": part, **row})
    text = """
    Actual minus expected iAcc by batch size, means over the networks. The expectation is fitted on 2,000
    batches of the held-out auxiliary images, the fifth that calibrates the intervals. The actual iAcc is measured on batches
    of the clients' images. The closed forms use all images, the held-out ones too; we did not measure the effect of this on the expectation.

    This measures calibration and is not a bound: another attack may recover more. Untrained networks were not run, so the recorded
    expectation about untrained LeNets has no outcome.
    """
    return before(lines, text)


def alone(run):
    """Samples determined by the head's gradient"""
    cells = run.best(e.DETERMINED)
    values = ["read", "wrong", "found", "strange"]
    columns = cells[["net", "state", "precision", "batch_size", *values]]
    texts = {v: columns[v].map("{:.2f}".format) for v in values}
    rows = columns.assign(net=columns["net"].map(title), **texts)
    updates = run.best_rows(e.DETERMINED).groupby("net")["updates"].max()
    text = f"""
    There are five networks per state, with {updates["lenet"]} batches for each LeNet (MNIST) and {updates["resnet20"]} for each ResNet-20 (1,117 images of CIFAR-100, on which it
    was trained for 300 steps). No image is twice in a batch: two equal samples are not distinguishable. *Read*: share of batches with all labels recovered, after every sample was
    found and all fit together. *Wrong*: the same with a wrong label. *Found*: share of samples in the first search, with three starts per label.
    *Strange*: its solutions that are not a sample of the batch (inputs that differ by more than 0.1 %; in single precision also inexact samples). A batch that is not read
    may still be determined: the search can miss a sample. Batches with more than half as many samples as classes are rejected.
    """
    return before(rows.rename(columns={"batch_size": "B"}).to_dict("records"), text)


def together(run):
    """With more samples than half the classes"""
    cells = run.best(e.JOINTLY)
    values = ["single", "read", "strange", "wrong"]
    columns = cells[["state", "batch_size", *values]]
    rows = columns.assign(**{v: columns[v].map("{:.2f}".format) for v in values})
    text = f"""
    There are {cells["n"].max()} LeNets per state (MNIST), with {run.best_rows(e.JOINTLY)["updates"].max()} batches each, no image twice, in double precision. The unknowns are the inputs of all samples
    in the span of the gradient's rows, $B(B-1)$ numbers. The equations are the gradient itself, $(n-1)B$ of them. We solve them by
    Levenberg and Marquardt's method, starting from auxiliary images of the assumed classes: twelve times with the right labels, and twelve times with a different
    label wrong. *Single*: the equations' derivative at the true inputs has full rank, so no other solution is adjacent.
    *Read*: one of the twelve solutions is the batch. *Strange*: one of the twelve solves the equations (to 1e-10) and is not the batch. *Wrong*: solutions
    with a wrong label. The search found none with a wrong label, which does not prove that none exists.
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
    **Updates** in single precision, {run.best_rows(e.SPLITS)["updates"].max()} for each of five LeNets per state (`splits`): the share that head splitting recovers, with 10,000 auxiliary images and
    without, and the share with wrong labels. It rejects the rest, for one of four reasons. Two label counts explain the gradient up to a client's
    rounding; a sample is fitted better than that; none of four searches succeeds; or the gradient was changed.
    """
    rows = rows.rename(columns={"batch_size": "B"}).to_dict("records")
    return f"{before(rows, text, after)}\n\n{markdown(sent.to_dict('records'))}"


def bayes(run):
    """The best answer from the bias"""
    table, (*_, two) = few_class_table(run), compare_to_bias(run)
    gap = two[BEST] - two["learned"]
    columns = ["learned", MOST, BEST, PUBLISHED, "RLU", WHOLE, EVEN]
    numbers = table[columns].map("{:.3f}".format)
    rows = numbers.assign(which=table["which"]).reset_index()
    text = f"""
    Each setting has five LeNets, trained on the first two or three digits for 100 and 150 steps, so that some images are still misclassified. Each has 100 updates
    of batches from the attacker's prior, with images that the attacker does not have. The table of answers comes from {2**21:,} simulated batches of
    the auxiliary images. It has 1,000 cells for one number and 100 by 100 for two, with equally many batches per cell along an axis. *{MOST}*
    is the answers' iAcc on the batches that they were chosen by, *{BEST}* that on {2**18:,} batches of the clients' images.
    The first is too large on average, because of chance within a cell and because single auxiliary images are recognised. It is the
    maximum at the grid's resolution, for clients whose images are distributed as the auxiliary ones. With more classes the gradient has too
    many numbers for a table, and so has that of the weights.

    With two classes the table recovers more than the learned attacker for {(gap > 0).sum()} of {len(gap)} networks and sizes, by up to {gap.max():.2f};
    we did not test why.
    """
    return before(rows.to_dict("records"), text)


def prior(run):
    """The cost of the prior"""
    sizes = (32, 128)

    def two(attack):
        cells = [run.cell(e.PRIOR, batch_size=b, attack=attack) for b in sizes]
        return " and ".join(f"{cell:.3f}" for cell in cells)

    scores = [scores_of(run, e.PRIOR, batch_size=b) for b in sizes]
    ahead = sum(
        int((t["told"] > t[["learned", WHOLE]].max(axis=1)).sum()) for t in scores
    )
    return f"""
    Informed of the composition, the attacker recovers {two("told")} of the labels of unbalanced batches of 32 and 128 (CIFAR-10). Uninformed, it recovers
    {two("learned")}, and the whole head {two(WHOLE)}. The informed attacker is ahead of both others in {ahead} of
    {sum(map(len, scores))} pairs of a network and a size. There are three networks with twenty updates each.
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
            f"On {title(net)} the leads over the even guess in balanced batches are {enumerated(over, '+.2f')}, and the coverage of the "
            f"intervals on simulated batches is {enumerated(coverages)}"
        )
    cell = ["batch_size", "composition"]
    least = {
        net: min(leads_by(run, e.FRESH, cell, "learned", PUBLISHED, net=net))
        for net in ("lenet", "vgg11_bn")
    }
    return f"""
    {". ".join(texts)} (batches of 8, 32, 128 and 512). There is one trained network of each, with twenty updates per setting, attacked by the head's gradient alone.
    The layers below the head do not change in one step, so all images pass the network once.

    The untrained networks are a LeNet and a VGG-11 with batch norm, whose statistics are set on 200 images and frozen. There are three networks of each, with five updates
    per setting. The smallest lead over the best published attack is {least["lenet"]:+.3f} on LeNet and {least["vgg11_bn"]:+.3f} on VGG-11, over B = 8, 32
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
                "best published": best_published(run, e.LOCAL, by_name=True, **setting),
                "its iAcc": f"{best_published(run, e.LOCAL, **setting):.3f}",
                "lead": f"{over:+.2f ci}",
                "coverage": f"{cell:.2f ci}",
            }
        )
    fast = rows[(rows["attack"] == "learned") & (rows["lr"] == 0.1)]
    together = run.mean(fast.groupby("trial")["coverage"].mean())
    text = f"""
    The clients train all their layers, in the second round of a scheme. The server subtracts the scheme's history
    $h$ and treats the rest as plain SGD at the rate $\\eta\\bar\\omega$, with $\\bar\\omega$ the mean weight of a step. The whole head rejects
    updates under Scaffold. S2 fails: at the rate 0.1 we expected the attacker to be behind RLU, as on the network of the tuning, and on average it is ahead.
    We did not measure the effect of the lower layers' movement. At the rate 0.1 the intervals contain {together:.2f ci} of the counts, averaged over
    both networks. They are calibrated on simulated rounds, in which the lower layers do not move. There is one LeNet per state (MNIST, unbalanced
    batches of 32, 300 iterations, eight updates per setting).
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
        coverages = by_half(run, experiment, "coverage", **cell)
        accuracies = by_half(run, experiment, **cell)
        members_loss, others = loss_by_half(run, experiment, **cell)
        parts.append(
            f"**{name}**, mean loss {members_loss:.2f} on members and {others:.2f} on non-members."
        )
        for half in HALVES:
            mine = accuracies.loc[half]
            parts.append(
                f"On {half} the iAcc is {enumerated(mine['learned'])}; given the training loss {enumerated(mine[KNOWS])}; the whole head has "
                f"{enumerated(mine[WHOLE])}; the even guess has {enumerated(mine['even guess'])}. The coverage is {enumerated(coverages['learned'][half])}, "
                f"and given the training loss {enumerated(coverages[KNOWS][half])}."
            )
        gains = remedy_gain(run, experiment, "members", **cell)
        parts.append(
            f"The training loss gains {Number(gains.mean()):+.2f} on members, on average.\n\n   "
        )
    return f"""
    All four numbers are for batches of 8, 32, 128 and 512: iAcc on twenty unbalanced updates, coverage on simulated batches. *Others* are non-members.

    {" ".join(parts)}
    We chose the range of the remedy's shifts on two LeNets with other seeds and longer training, 4,000 and 2,200 steps (mean losses
    0.2 on members, 5.9 and 3.9 on non-members). Their coverage in batches of 128 was 0.94 on non-members, and 0.41 and 0.36
    on members, with the remedy 0.79 and 0.90. (Their rows are not available.) The ResNet-18s were trained and attacked on a
    GPU. The remedy needs a close fit: after 300 steps it gains little, and its coverage falls. It costs labels of non-members, so `train_loss` is off by
    default. {{ref}}`The arena <arena-deep-learned>` has three ResNet-18s trained on all images. The published attacks were not run here.
    """


def defences(run):
    """Behind defences"""
    table = by_defence(run)
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
    The attacker informed of the defence is ahead of the best published attack by {ends(over, "+.2f")}. If only the largest tenth
    of the entries is sent, this information changes its iAcc by {hundredth[0]:+.2f ci}, and with the largest hundredth by {hundredth[1]:+.2f ci}.
    Its 90 % intervals contain {ends(coverages["adaptive"])} of these counts, those of the uninformed attacker {ends(coverages["learned"])}. All this is one architecture
    (MNIST, batches of 32, three networks, twenty updates each, 300 iterations).

    **Fewer auxiliary images** (`limits`): with 200, 1,000 and 5,000 images the attacker recovers {enumerated(images)} of the labels of unbalanced batches of 32.
    """


def deep_cells():
    """The arena's trained deep networks: the learned attacker, the best published one, the whole head, by net and size."""
    rows = running.module("arena", "ranking").compare_deep(
        Results("arena", device="cpu")
    )
    return pd.DataFrame(rows).set_index(["net", "batch_size"])


def later(run):
    """Every prediction and its outcome"""
    table = predictions.table(run, *predictions.ids(run), anchors=True)
    mnist = main_table(run).loc["MNIST"].xs("unbalanced", level="composition")
    small = int((mnist["learned"] - mnist[PUBLISHED] >= 0.05).sum())
    arena, lenet = deep_cells(), main_table(run).loc["MNIST"]
    large = int((arena["learned"] - arena["published"] >= 0.05).sum())
    behind = 100 * (arena["whole"] - arena["learned"]).groupby("net").max()
    behind["lenet"] = 100 * (lenet[WHOLE] - lenet["learned"]).max()
    text = """
    Each expectation was recorded before its first run. Except for L, M9 and M10 these runs had an earlier version of the attacker; S3 had no Scaffold
    then. D4 is a target that was set before the attack was built; nothing was tuned on its networks. (D1 to D3 concerned trained deep networks;
    the arena's {ref}`L4 to L8 <arena-deep-learned>` replaced them.) S1 and S2 follow from ten updates of the network of the tuning, on which
    the lead over RLU was +0.06 at the rate 0.01 and −0.06 at 0.1. M1 to M8 were added after the other results were known, M7 and
    M8 also after the LeNet's, and each before its own run. M9 and M10 test whether the remedy needs a network that fits members much better than
    non-members. An earlier version gained 0.13 on a network of 600 steps, and little on the arena's, which fit less.
    """
    more = f"""
    **The first targets** concerned twelve trained settings: LeNet (MNIST, here), VGG-11 and ResNet-18 (the arena's), with four batch sizes each. *Ahead of the
    best published attack by 5 points in 9 of 12 unbalanced cells*: this holds in {small + large}, {small} of LeNet's 4 and {large} of the 8 deep ones. *Never
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
