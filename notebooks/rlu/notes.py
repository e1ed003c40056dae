"""RLU: the notes of the evidence page on each figure; every measured number comes from the rows."""

import pandas as pd

from fedleak_book.evidence.verdicts import DIFFERS
from notebooks.rlu.cells import TABLE2, fall, joined, wide


def tab_rlu_2(run):
    cells, deep = joined(*map(run.best, TABLE2)), run.best("one_step")
    every = cells.query("rule == 'RLU'")["iacc"]
    single = wide(run.best("table2_cifar10"), steps=1)
    fifty = wide(deep[deep["net"] == "resnet50-imagenet"])
    exact, nearly = (every == 1).sum(), every.between(0.997, 1, inclusive="left").sum()
    net = cells[cells["net"] == "vgg16"]
    ten = wide(net, steps=10)
    cost = (wide(net, steps=1) - ten)[["RLU", "iLRG"]]
    printed = pd.DataFrame(run.published.tables["table2"].rows)
    printed = printed[printed["net"] == "vgg16"]
    paper = printed.pivot(
        index=["rule", "data", "activation"], columns="steps", values="iacc"
    )
    theirs = (paper[1] - paper[10]).astype(float).groupby("rule").agg(["min", "max"])
    named = [
        row["verdict"]
        for row in run.values
        if row["id"].startswith("tab2-1-vgg16-cifar10-")
    ]
    cacc = wide(net, steps=10, value="cacc").droplevel("data").loc[["elu", "selu"]]
    scanned = [r for r in run.values if r["id"].startswith("tab2-10-lenet5-svhn-")]
    words = [row["verdict"] for row in scanned]
    above = sorted({r["cell"]["rule"] for r in scanned if r["verdict"] == DIFFERS})
    far = [
        row["verdict"]
        for row in run.values
        if row["id"].startswith(("tab2-1-vgg16-cifar100-", "tab2-1-resnet50-"))
        and row["grade"] == "C"
    ]
    elu, selu = (ten.xs(a, level="activation").iloc[0] for a in ("elu", "selu"))
    return locals()


def fig_rlu_1(run):
    last = dict(data="svhn", stage=0.7)
    gap = run.mean(
        run.by_trial("fig1", rule="ZLG+", **last)
        - run.by_trial("fig1", rule="LLG+", **last)
    )
    last_row = run.best("fig1").query("data == 'svhn' and rule == 'RLU'").iloc[-1]
    rows = run.best("own_images")
    table = rows.pivot(
        index=["steps", "confidence", "stage"], columns="known", values="iacc"
    )
    single, ten, normal = (
        table.loc[1, "average"],
        table.loc[10, "average"],
        table.loc[1, "gaussian"],
    )
    late = dict(stage=0.95, steps=10, confidence="average")
    theirs = run.by_trial("own_images", known="server's", **late)
    share = (run.by_trial("own_images", known="own", **late) - theirs) / (1 - theirs)
    quiet = rows.query(
        "steps == 1 and confidence == 'average' and known == 'own'"
    ).set_index("stage")["quiet"]
    return locals()


def tab_rlu_3(run):
    vgg, fresh = (
        wide(run.best("table3_vgg16"), "alpha"),
        wide(run.best("table3"), "alpha", stage=0.0),
    )
    late = wide(run.best("table3"), "alpha", stage=0.4)
    sums = [vgg.loc[rule] for rule in ("LLG+", "ZLG+")]
    ilrg = vgg.loc["iLRG"].min()
    between = [late.loc[rule] for rule in ("ZLG+", "iLRG")]
    lost = fall(run.best("table3"), stage=0.4)
    lowest_sum = min(t.min() for t in sums)
    highest_sum = max(t.max() for t in sums)
    lowest_between = min(t.min() for t in between)
    highest_between = max(t.max() for t in between)
    return locals()


def fig_rlu_2(run):
    def cost(data, stage):
        many, few = (
            run.by_trial("fig2", data=data, stage=stage, size=size) for size in (100, 5)
        )
        return run.mean(many - few)

    return locals()


def tab_rlu_4(run):
    cells = wide(run.best("table4"), rounds=3)
    cost = {
        name: (t["RLU"] - t["RLU, ρ = 1"]).iloc[0] for name, t in cells.groupby("name")
    }
    mild = run.best("table4_choices").query("level == 'mild'")
    by = {
        name: mild[mild["name"] == name].pivot(
            index=parameter, columns="rule", values="iacc"
        )
        for name, parameter in (("sgdm", "momentum"), ("fedprox", "regularisation"))
    }
    sgdm, prox = by["sgdm"], by["fedprox"]
    theirs = pd.DataFrame(run.published.tables["table4"].rows)
    theirs = theirs[(theirs["data"] == "svhn") & (theirs["level"] == "mild")]
    theirs = theirs.set_index(["name", "rule"])["iacc"].astype(float)
    return locals()


def fig_rlu_3(run):
    psnr, lpips = (
        {
            net: run.cell("fig3", f"{value} gain", net=net, way="RLU's labels")
            for net in ("resnet32-4", "resnet32")
        }
        for value in ("psnr", "lpips")
    )
    level = run.best("fig3")["psnr"]
    return locals()


def fig_rlu_4(run):
    cells = run.best("normal").query("stage == 0").set_index(["net", "data"])
    failed, largest = 1 - cells["passed"], cells["largest_mean"]
    return locals()


def tab_rlu_alg2(run):
    rates = run.best("rates").pivot(index="lr", columns="rule", values="iacc")
    gain = wide(run.best("variants"), "form", "gain").drop("untrained", level="setting")
    rows = run.best("variants").query(
        "form == 'Alg. 2, Eq. 14 as printed' and setting != 'untrained'"
    )
    open_ = (rows["gain high"] > 0).sum()
    stable, printed = (
        -gain[form].dropna() for form in ("Alg. 2", "Alg. 2, Eq. 14 as printed")
    )
    return locals()


def fig_rlu_beyond(run):
    iacc = wide(run.best("variants"), "form").droplevel(
        ["steps", "activation", "data", "stage"]
    )
    closed = ((iacc["whole head"] - iacc["RLU"]) / (1 - iacc["RLU"])).drop("untrained")
    pairs = {
        title: f"{title} {iacc.loc[name, 'RLU']:.3f} → {iacc.loc[name, 'whole head']:.3f}"
        for name, title in {
            "single": "CIFAR-10, one step,",
            "cifar10": "CIFAR-10",
            "svhn": "SVHN",
            "tanh": "Tanh",
            "alpha": "α = 0.1",
            "late": "late in training",
        }.items()
    }
    return locals()
