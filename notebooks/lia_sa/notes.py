"""LIA-SA: the notes of the evidence page on each figure or section; every measured number comes from the rows."""

from notebooks.lia_sa.clients import RECIPES

VGG, RESNET = ("vgg11_bn", "resnet18")


def rows(run, experiment, **settings):
    """The recorded rows of some settings."""
    selected = run.best_rows(experiment)
    for column, wanted in settings.items():
        selected = selected[selected[column] == wanted]
    return selected


def tab_lia_honest(run):
    far = rows(run, "honest", batch_size=1024)
    vgg, rest = far[far["net"] == VGG], far[far["net"] != VGG]
    wrong = [(vgg[column] > 0.5).sum() for column in ("b_err", "closed")]
    return locals()


def fig_lia_condition(run):
    log10 = rows(run, "conditioning", mode="train").groupby(["recipe", "net"])["log10"]
    many = rows(run, "conditioning", mode="train", clients=5).groupby(["recipe", "net"])
    literal, log = (10 ** many["log10"].mean()[recipe] for recipe in ("literal", "log"))
    return locals()


def fig_lia_4(run):
    deep = rows(run, "precision")
    deep = deep[~deep["net"].isin(["resnet18", "resnet34"])]
    return locals()


def fig_lia_masked(run):
    cells = run.best("bits")
    exact = cells[cells["target"] == 1].groupby("recipe")["bits"].min()
    exact_from = {r: f"{exact[r]} bits" if r in exact else "more" for r in RECIPES}
    return locals()


def flowers_secagg(run):
    """Flower's SecAgg+."""
    cells = run.best("secagg").query("recipe == 'vector' and clients == 20")
    cells = cells.set_index("bits")["right"]
    return locals()


def fig_lia_3(run):
    far = rows(run, "fig3", net=VGG, rule="LIA-SA, literal", batch_size=1024)
    log = rows(run, "fig3", rule="LIA-SA, log", batch_size=64)
    accuracy_under = run.cell(
        "fig3", net=VGG, rule="LLG", clients=5, batch_size=16, value="all"
    )
    resnet = run.best("fig3").query("net == 'resnet18' and rule == 'LLG'")
    small = resnet.query("batch_size == 16").iloc[0]
    return locals()


def tab_lia_1(run):
    deep = rows(run, "table1", data="cifar100", rule="iLRG")["all"]
    image = {
        r: run.cell("table1", "all", data="imagenet", rule=r) for r in ("LLG", "iLRG")
    }
    alone = run.best("saturated").query("data == 'cifar100'")
    alone = alone.set_index(["batch_size", "scale"])["all"]
    largest = rows(run, "saturated", data="imagenet")["largest"]
    settings = dict(clients=5, batch_size=1024, rule="LIA-SA, literal")
    accuracies = rows(run, "constants", **settings).query("data != 'celeba-gender'")
    accuracies = accuracies.groupby(["net", "constants"])["target"].mean()
    less = run.best("reduced").pivot(
        index=["rule", "constants", "data", "clients", "batch_size"],
        columns="level",
        values="all",
    )
    worth = (less["whole"] - less["1117"]).abs().groupby("rule").max()
    lia = worth[["LIA-SA, literal", "LIA-SA, vector"]].max()
    far = [row["verdict"] for row in run.values if row["grade"] == "C"]
    return locals()


def tab_lia_2(run):
    cells = run.best("footprint").set_index(["net", "rule", "classes"])
    share = [
        cells.loc[key, "ratio"]
        for key in ((VGG, "LIA-SA", 10), (RESNET, "LIA-SA", 100))
    ]
    front = cells.loc[(VGG, "MANDRAKE", 100), "nomp"]
    return locals()


def fig_lia_5(run):
    cells = run.best("fig5")
    return locals()


def fig_lia_6(run):
    def accuracy_under(net, recipe, defence, level, size=16):
        how = dict(net=net, recipe=recipe, defence=defence, level=level)
        return run.cell("fig6", batch_size=size, **how)

    tensors = {
        (net, r): accuracy_under(net, r, "compression", 0.8)
        for net in (VGG, RESNET)
        for r in ("literal", "vector")
    }
    weak = {r: accuracy_under(VGG, r, "noise", 1e-3) for r in ("literal", "vector")}
    return locals()


def lia_notice(run):
    cells = run.best("notice").set_index(["kind", "net", "gamma"])["target"]
    literal, vector = (cells[f"LIA-SA, {r}"] for r in ("literal", "vector"))
    below = "below" if literal[VGG, 1e-4] < 0.9**8 else "above"
    return locals()
