"""The learned attacker: the notes of the evidence page; every measured number comes from the rows."""

import pandas as pd

from fedleak_book.evidence import predictions
from fedleak_book.evidence.results import Number, Results
from fedleak_book.experiments import running
from notebooks.show import enumerated
from notebooks.learned.updates import BEST, MOST, WHOLE
from notebooks.learned.leads import (
    EVEN,
    OWN,
    PUBLISHED,
    REAL,
    SIZES,
    compare_to_bias,
    best_published,
    bound_scores,
    coverage,
    gain,
    main_table,
    lead,
    few_class_table,
    scores_of,
)
from notebooks.learned.notes_parts import ends, before
from notebooks.learned.notes_networks import (
    expectations,
    alone,
    together,
    deep,
    local,
    members,
    defences,
)


def main(run):
    """The judgement"""
    table = main_table(run)
    names = {WHOLE: "RLU-WH", EVEN: "even-split baseline", "batch_size": "B"}
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
    scores = scores_of(run, "judged", **cell)
    rival = best_published(run, "judged", by_name=True, **cell)
    apart = enumerated(scores["learned"] - scores[rival], "+.2f")
    gap = lead(
        run,
        "judged",
        "learned",
        WHOLE,
        data="CIFAR-10",
        batch_size=8,
        composition="unbalanced",
    )
    text = f"""
    The leads in unbalanced batches, on MNIST and on CIFAR-10, are: {"; ".join(over)}. In balanced batches of 8, 32, 128 and 512 the leads over the
    even-split baseline are {enumerated([v["MNIST"] for v in even], "+.2f")} on MNIST and {enumerated([v["CIFAR-10"] for v in even], "+.2f")} on CIFAR-10.
    These are means. The leads over {rival} on MNIST at B = 32 are {apart}, by network. The lead over the whole head on CIFAR-10 in
    batches of 8 is {gap:.2f ci}. There SPEAR (reimplemented), our reimplementation, recovers {cifar.loc[(8, "unbalanced"), "after SPEAR"]:.2f}; it uses the
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
    cells = run.best("weighed")
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
    cells = run.best("parts")
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
    There are {cells["n"].max()} LeNets (MNIST) with {run.best_rows("parts")["updates"].max()} unbalanced updates each. *Signs* are the sum of a row's negative entries, its smallest and
    largest entry, the smallest positive entry and the share of negative ones. The attackers are trained for 300 iterations, with 500 images as in
    the arena, or with all 10,000. We chose this version on LeNets with five other seeds, and on a VGG-11 and a ResNet-18 that are not judged, with
    batches of the clients' images. We omitted mixing the features of images, a bootstrap of the images, and the share of columns in which a row is the
    lowest: they gained at most a point.
    """
    return before(table, text)


def sure(run):
    """Coverage of the intervals"""
    coverages = {
        kind: coverage(run, "judged", ["data", "batch_size"], composition=kind)
        for kind in ("simulated", *REAL)
    }
    deep = coverage(run, "deep", ["net", "batch_size"], composition=REAL)
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

    cells = run.best("bounds").query(
        "attack == 'even guess' and composition == 'unbalanced'"
    )
    even = cells.groupby("batch_size")["iacc"].mean()
    return f"""
    In unbalanced batches of 8 and of 32 the even-split baseline recovers {even[8]:.2f} and {even[32]:.2f} of the labels. The attacker with 10,000 images
    recovers {two()} after 300 iterations, and {two(iterations=1200)} after 1,200. After 300 iterations it recovers {two(images=200)} with 200 images and
    {two(images=1000)} with 1,000. The oracle has the clients' own 60,000 images, a fifth of which calibrates its intervals as always. It recovers
    {two(**OWN)}. Paired gains over the three networks are: the oracle over 10,000 other images {gained(OWN)}; four times the training
    {gained(dict(iterations=1200))}; 10,000 images instead of 200 {gained({}, images=200)}. We did not test whether the clients' own images help
    more with longer training. All this is one architecture, on MNIST, with twenty updates per network.
    """


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
        cells = [run.cell("prior", batch_size=b, attack=attack) for b in sizes]
        return " and ".join(f"{cell:.3f}" for cell in cells)

    scores = [scores_of(run, "prior", batch_size=b) for b in sizes]
    ahead = sum(
        int((t["told"] > t[["learned", WHOLE]].max(axis=1)).sum()) for t in scores
    )
    return f"""
    Informed of the composition, the attacker recovers {two("told")} of the labels of unbalanced batches of 32 and 128 (CIFAR-10). Uninformed, it recovers
    {two("learned")}, and the whole head {two(WHOLE)}. The informed attacker is ahead of both others in {ahead} of
    {sum(map(len, scores))} pairs of a network and a size. There are three networks with twenty updates each.
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
