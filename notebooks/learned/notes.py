"""The learned attacker: variables of the notes in ``notes.md``, by the note's anchor."""

import pandas as pd

from fedleak.models import title
from fedleak_book.evidence import predictions
from fedleak_book.evidence.results import Results
from fedleak_book.experiments import running
from notebooks.learned.leads import EVEN, OWN, PUBLISHED, REAL, SIZES, best_published
from notebooks.learned.leads import bound_scores, by_defence, by_half, coverage, excess
from notebooks.learned.leads import few_class_table, gain, lead, leads_by, loss_by_half
from notebooks.learned.leads import main_table, remedy_gain, scores_of
from notebooks.learned.updates import BEST, HALVES, KNOWS, SIMULATED, WHOLE
from notebooks.show import TITLES, enumerated


# --- the judgement ---
def fig_learned_judged(run):
    table = main_table(run)
    leads = {name: table["learned"] - table[name] for name in (PUBLISHED, WHOLE, EVEN)}
    over = [
        f"B = {size}: {enumerated(leads[PUBLISHED].loc[:, size, 'unbalanced'], '+.2f')} over the best published "
        f"attack, {enumerated(leads[WHOLE].loc[:, size, 'unbalanced'], '+.2f')} over the whole head"
        for size in SIZES[1:]
    ]
    cell = dict(data="MNIST", batch_size=32, composition="unbalanced")
    scores, rival = (
        scores_of(run, "judged", **cell),
        best_published(run, "judged", **cell),
    )
    small = dict(data="CIFAR-10", batch_size=8, composition="unbalanced")
    return {
        "over": over,
        "even": {
            data: leads[EVEN].loc[data, :, "balanced"] for data in ("MNIST", "CIFAR-10")
        },
        "rival": rival.attack,
        "apart": scores["learned"] - scores[rival.attack],
        "gap": lead(run, "judged", "learned", WHOLE, **small),
        "scores": table,
    }


def fig_learned_coverage(run):
    by = ["data", "batch_size"]
    of_kind = {
        kind: coverage(run, "judged", by, composition=kind)
        for kind in ("simulated", *REAL)
    }
    deep = coverage(run, "deep", ["net", "batch_size"], composition=REAL)
    real = pd.concat([of_kind[kind] for kind in REAL])
    return {"coverages": of_kind, "deep": deep, "real": real}


def fig_learned_expects(run):
    rows = []
    for network, record, cell in (
        ("LeNet, MNIST", "judged", dict(data="MNIST")),
        ("LeNet, CIFAR-10", "judged", dict(data="CIFAR-10")),
        ("VGG-11", "deep", dict(net="vgg11_bn")),
        ("ResNet-18", "deep", dict(net="resnet18")),
        ("LeNet trained on half, members", "members", dict(half="members")),
        ("LeNet trained on half, others", "members", dict(half="others")),
    ):
        for part in SIMULATED:
            row = {"network": network, "batches": part}
            for size in SIZES:
                gaps = excess(run, record, composition=part, batch_size=size, **cell)
                row[f"B = {size}"] = f"{gaps.mean():+.3f}"
            if len(gaps):  # of halves there are no fifths
                rows.append(row)
    return {"rows": rows}


# --- parts of the attack, and more of something ---
def learned_forms(run):
    cells = run.best("weighed")
    table = cells.pivot_table(index="batch_size", columns="attack", values="iacc")
    first, last = table["training"], table["reading"]
    return {"table": table, "first": first, "last": last, "behind": table[WHOLE] - last}


def fig_learned_bounds(run):
    def scores(**how):
        return [bound_scores(run, size, **how).mean() for size in (8, 32)]

    def gains(more, **less):
        return [gain(run, more, size, **less) for size in (8, 32)]

    cells = run.cells("bounds", attack="even guess", composition="unbalanced")
    even = cells.groupby("batch_size")["iacc"].mean()
    return {"scores": scores, "gains": gains, "even": even, "own": OWN}


def fig_learned_bayes(run):
    two = scores_of(run, "bayes", ["classes", "batch_size"]).loc[2]
    gap = two[BEST] - two["learned"]
    return {"gap": gap, "scores": few_class_table(run).reset_index()}


def learned_prior(run):
    def scores(attack):
        return [run.cell("prior", batch_size=size, attack=attack) for size in (32, 128)]

    updates = scores_of(run, "prior", ["batch_size"])
    is_ahead = updates["told"] > updates[["learned", WHOLE]].max(axis=1)
    return {"scores": scores, "is_ahead": is_ahead}


# --- other networks, clients and images ---
def learned_together(run):
    by = ["state", "batch_size", "sent"]
    table = run.best("splits").pivot(
        index=by, columns="images", values=["read", "wrong"]
    )
    table.columns = [f"{value}, {images}" for value, images in table.columns]
    table = table.reset_index().rename(columns={"batch_size": "B"})
    return {"splits": table, "single": run.best("jointly")}


def learned_deep(run):
    even = dict(by=["batch_size"], attack="learned", other="even guess")
    nets = [
        {
            "net": net,
            "leads": leads_by(run, "deep", **even, net=net, composition="balanced"),
            "coverage": coverage(
                run, "deep", ["batch_size"], net=net, composition="simulated"
            ),
        }
        for net in ("vgg11_bn", "resnet18")
    ]
    cell = ["batch_size", "composition"], "learned", PUBLISHED
    least = {
        net: min(leads_by(run, "fresh", *cell, net=net))
        for net in ("lenet", "vgg11_bn")
    }
    return {"nets": nets, "least": least, "title": title}


def learned_local(run):
    rows, by, shown = run.best_rows("local"), ["state", "scheme", "lr"], []
    for setting in rows[by].drop_duplicates().to_dict("records"):
        over = lead(run, "local", "learned", PUBLISHED, **setting)
        rival = best_published(run, "local", **setting)
        row = {"published": rival.attack, "iacc": rival.score, "lead": over}
        row["coverage"] = run.cell("local", "coverage", attack="learned", **setting)
        shown.append(setting | row | {"scheme": TITLES[setting["scheme"]]})
    fast = rows[(rows["attack"] == "learned") & (rows["lr"] == 0.1)]
    together = run.mean(fast.groupby("trial")["coverage"].mean())
    return {"rows": shown, "together": together}


def learned_defences(run):
    table, by = by_defence(run), ["defence", "strength"]
    gains = (
        lead(
            run, "adaptive", "adaptive", "learned", defence="sparsification", strength=s
        )
        for s in (0.9, 0.99)
    )
    return {
        "over": table["adaptive"] - table[PUBLISHED],
        "gains": [*gains],
        "coverages": {
            who: coverage(run, "adaptive", by, attack=who)
            for who in ("adaptive", "learned")
        },
        "images": [
            run.cell("limits", aux_images=n, defence="none") for n in (200, 1000, 5000)
        ],
    }


def fig_learned_members(run):
    parts = []
    for name, record, cell in (
        ("LeNet", "members", {}),
        ("ResNet-18, 300 steps", "members_resnet", dict(steps=300)),
        ("ResNet-18, 600 steps", "members_resnet", dict(steps=600)),
    ):
        parts.append(
            {
                "name": name,
                "loss": loss_by_half(run, record, **cell),
                "coverage": by_half(run, record, "coverage", **cell),
                "iacc": by_half(run, record, **cell),
                "gain": remedy_gain(run, record, "members", **cell).mean(),
            }
        )
    return {"parts": parts, "halves": HALVES, "knows": KNOWS}


def learned_later(run):
    arena = running.module("arena", "ranking").compare_deep(
        Results("arena", device="cpu")
    )
    lenet = main_table(run).loc["MNIST"]
    leads = (lenet["learned"] - lenet[PUBLISHED]).xs("unbalanced", level="composition")
    behind = 100 * (arena[WHOLE] - arena["learned"]).groupby(arena["net"]).max()
    behind["lenet"] = 100 * (lenet[WHOLE] - lenet["learned"]).max()
    return {
        "outcomes": predictions.table(run, *predictions.ids(run), anchors=True),
        "small": int((leads >= 0.05).sum()),
        "large": int((arena["lead"] >= 0.05).sum()),
        "behind": behind,
    }
