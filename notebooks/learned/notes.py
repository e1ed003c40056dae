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


def fig_learned_judged(run):
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
    even_mnist = [v["MNIST"] for v in even]
    even_cifar10 = [v["CIFAR-10"] for v in even]
    return locals()


def learned_forms(run):
    cells = run.best("weighed")
    table = cells.pivot_table(index="batch_size", columns="attack", values="iacc")
    first, last = table["training"], table["reading"]
    behind = table[WHOLE] - last
    return locals()


def learned_rows(run):
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
    return locals()


def fig_learned_coverage(run):
    coverages = {
        kind: coverage(run, "judged", ["data", "batch_size"], composition=kind)
        for kind in ("simulated", *REAL)
    }
    deep = coverage(run, "deep", ["net", "batch_size"], composition=REAL)
    real = pd.concat([coverages[kind] for kind in REAL])
    return locals()


def fig_learned_bounds(run):
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
    oracle = two(**OWN)
    oracle_gain = gained(OWN)
    training_gain = gained(dict(iterations=1200))
    return locals()


def fig_learned_bayes(run):
    table, (*_, two) = few_class_table(run), compare_to_bias(run)
    gap = two[BEST] - two["learned"]
    columns = ["learned", MOST, BEST, PUBLISHED, "RLU", WHOLE, EVEN]
    numbers = table[columns].map("{:.3f}".format)
    rows = numbers.assign(which=table["which"]).reset_index()
    return locals()


def learned_prior(run):
    sizes = (32, 128)

    def two(attack):
        cells = [run.cell("prior", batch_size=b, attack=attack) for b in sizes]
        return " and ".join(f"{cell:.3f}" for cell in cells)

    scores = [scores_of(run, "prior", batch_size=b) for b in sizes]
    ahead = sum(
        int((t["told"] > t[["learned", WHOLE]].max(axis=1)).sum()) for t in scores
    )
    pairs = sum(map(len, scores))
    return locals()


def deep_cells():
    """The arena's trained deep networks: the learned attacker, the best published one, the whole head, by net and size."""
    rows = running.module("arena", "ranking").compare_deep(
        Results("arena", device="cpu")
    )
    return pd.DataFrame(rows).set_index(["net", "batch_size"])


def learned_later(run):
    table = predictions.table(run, *predictions.ids(run), anchors=True)
    mnist = main_table(run).loc["MNIST"].xs("unbalanced", level="composition")
    small = int((mnist["learned"] - mnist[PUBLISHED] >= 0.05).sum())
    arena, lenet = deep_cells(), main_table(run).loc["MNIST"]
    large = int((arena["learned"] - arena["published"] >= 0.05).sum())
    behind = 100 * (arena["whole"] - arena["learned"]).groupby("net").max()
    behind["lenet"] = 100 * (lenet[WHOLE] - lenet["learned"]).max()
    return locals()
