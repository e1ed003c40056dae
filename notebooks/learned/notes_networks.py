"""The learned attacker: notes on expectations, heads, deep and local training, and members."""

from fedleak_book.evidence.results import Number
from notebooks.show import TITLES, enumerated
from fedleak.models import title
from notebooks.learned.updates import HALVES, SIMULATED, WHOLE
from notebooks.learned.leads import (
    PUBLISHED,
    SIZES,
    by_defence,
    best_published,
    coverage,
    by_half,
    excess,
    lead,
    leads_by,
    loss_by_half,
    remedy_gain,
)
from notebooks.learned.updates import KNOWS


def fig_learned_expects(run):
    lines = []
    for network, experiment, cell in (
        ("LeNet, MNIST", "judged", dict(data="MNIST")),
        ("LeNet, CIFAR-10", "judged", dict(data="CIFAR-10")),
        ("VGG-11", "deep", dict(net="vgg11_bn")),
        ("ResNet-18", "deep", dict(net="resnet18")),
        ("LeNet trained on half, members", "members", dict(half="members")),
        ("LeNet trained on half, others", "members", dict(half="others")),
    ):
        for part in SIMULATED:
            gaps = [
                excess(run, experiment, composition=part, batch_size=b, **cell)
                for b in SIZES
            ]
            if len(gaps[0]):  # of halves there are no fifths
                row = {f"B = {b}": f"{gap.mean():+.3f}" for b, gap in zip(SIZES, gaps)}
                lines.append({"network": network, "batches": part, **row})
    return locals()


def learned_head(run):
    cells = run.best("determined")
    values = ["read", "wrong", "found", "strange"]
    columns = cells[["net", "state", "precision", "batch_size", *values]]
    texts = {v: columns[v].map("{:.2f}".format) for v in values}
    rows = columns.assign(net=columns["net"].map(title), **texts)
    updates = run.best_rows("determined").groupby("net")["updates"].max()
    return locals()


def learned_together(run):
    cells = run.best("jointly")
    values = ["single", "read", "strange", "wrong"]
    columns = cells[["state", "batch_size", *values]]
    rows = columns.assign(**{v: columns[v].map("{:.2f}".format) for v in values})
    rows = rows.rename(columns={"batch_size": "B"})
    splits_table = run.best("splits").pivot(
        index=["state", "batch_size", "sent"],
        columns="images",
        values=["read", "wrong"],
    )
    splits = splits_table.map("{:.2f}".format)
    splits.columns = [f"{value}, {images}" for value, images in splits.columns]
    splits = splits.reset_index().rename(columns={"batch_size": "B"})
    return locals()


def learned_deep(run):
    texts = []
    for net in ("vgg11_bn", "resnet18"):
        cell = dict(net=net, composition="balanced")
        over = [
            lead(run, "deep", "learned", "even guess", batch_size=b, **cell)
            for b in SIZES
        ]
        coverages = coverage(
            run, "deep", ["batch_size"], net=net, composition="simulated"
        )
        texts.append(
            f"On {title(net)} the leads over the even-split baseline in balanced batches are {enumerated(over, '+.2f')}, and the coverage of the "
            f"intervals on simulated batches is {enumerated(coverages)}"
        )
    cell = ["batch_size", "composition"]
    least = {
        net: min(leads_by(run, "fresh", cell, "learned", PUBLISHED, net=net))
        for net in ("lenet", "vgg11_bn")
    }
    return locals()


def learned_local(run):
    rows, lines = run.best_rows("local"), []
    for state, scheme, lr in list(
        dict.fromkeys(zip(rows["state"], rows["scheme"], rows["lr"], strict=True))
    ):
        setting = dict(state=state, scheme=scheme, lr=lr)
        over = lead(run, "local", "learned", PUBLISHED, **setting)
        cell = run.cell("local", "coverage", attack="learned", **setting)
        lines.append(
            {
                "network": state,
                "scheme": TITLES[scheme],
                "rate": lr,
                "best published": best_published(run, "local", by_name=True, **setting),
                "its iAcc": f"{best_published(run, 'local', **setting):.3f}",
                "lead": f"{over:+.2f ci}",
                "coverage": f"{cell:.2f ci}",
            }
        )
    fast = rows[(rows["attack"] == "learned") & (rows["lr"] == 0.1)]
    together = run.mean(fast.groupby("trial")["coverage"].mean())
    return locals()


def fig_learned_members(run):
    parts = []
    for name, experiment, cell in (
        ("LeNet", "members", {}),
        ("ResNet-18, 300 steps", "members_resnet", dict(steps=300)),
        ("ResNet-18, 600 steps", "members_resnet", dict(steps=600)),
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
                f"{enumerated(mine[WHOLE])}; the even-split baseline has {enumerated(mine['even guess'])}. The coverage is {enumerated(coverages['learned'][half])}, "
                f"and given the training loss {enumerated(coverages[KNOWS][half])}."
            )
        gains = remedy_gain(run, experiment, "members", **cell)
        parts.append(
            f"The training loss gains {Number(gains.mean()):+.2f} on members, on average.\n\n   "
        )
    return locals()


def learned_defences(run):
    table = by_defence(run)
    over = table["adaptive"] - table[PUBLISHED]
    coverages = {
        who: coverage(run, "adaptive", ["defence", "strength"], attack=who)
        for who in ("adaptive", "learned")
    }
    images = [
        run.cell("limits", aux_images=n, defence="none") for n in (200, 1000, 5000)
    ]
    hundredth = [
        lead(
            run, "adaptive", "adaptive", "learned", defence="sparsification", strength=s
        )
        for s in (0.9, 0.99)
    ]
    return locals()
