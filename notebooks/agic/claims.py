"""AGIC: the claims in the paper's text as statistics of rows, by the id in ``data/published/agic/claims.toml``."""

import inspect

from fedleak.attacks import registry
from fedleak.attacks.images import agic, dlg, invg
from fedleak_book.evidence.claims import Claims
from fedleak_book.experiments.kinds import DIFFERENCE
from notebooks.agic.clients import DESCENTS, STORED
from notebooks.agic.clients import METHODS, PLAIN, RULES, STATES

CLAIMS = Claims()
claim = CLAIMS.add
FINAL = {"final": True}


def orders(item, statistic, of, filters=None):
    """Claim an order by PSNR and SSIM, and by LPIPS, for which smaller is better."""
    claim(item, statistic, of=of, filters=filters)
    claim(f"{item}-ssim", statistic, of=of, filters=filters, value="ssim")
    less = lambda t, f=statistic: f(-t)  # noqa: E731
    claim(f"{item}-lpips", less, of=of, filters=filters, value="lpips")


# --- Eq. 4 ---
for item, lr in (("small", 1e-4), ("large", 1e-2)):
    for of in ("error", "error_training_mode"):
        claim(
            f"eq4-{item}",
            lambda t: 10 ** min(t.iloc[0], 6),  # at 1e-2 some are infinite
            of=of,
            filters={"precision": "float32", "steps": 4, "lr": lr},
        )


# --- Table IV and Figs. 6 and 7 ---
def ended(t):
    """Return the last row of each attack's run; runs differ in length."""
    return t.groupby("method").mean()


def ahead(t):
    """Return AGIC minus the better baseline."""
    t = ended(t)
    return t["AGIC"] - max(t["DLG-Adam"], t["InvG"])


chosen = [
    ("choices", FINAL | {"batch_size": 1, "batch_norm": STORED, "schedule": schedule})
    for schedule in DESCENTS
]
single, fours = ({"batch_size": size} for size in (1, 4))
runs = [(of, filters, filters) for of, filters in chosen]
runs.append(("table4", FINAL | single, {"iteration": 2000} | single))
runs.append(("distance", FINAL | single, FINAL | single))
for of, filters, equal in runs:  # methods are compared after as many iterations
    orders("tab4-cifar10-1-order", ahead, of, equal)
    alone = dict(of=of, filters=equal)
    claim("tab4-gain", lambda t: ended(t)["AGIC"] / ended(t)["InvG"], **alone)
    claim("tab4-invg", lambda t: ended(t)["InvG"] - ended(t)["DLG-Adam"], **alone)
    alone["filters"] = filters
    claim("fig6-identical-mean", lambda t: ended(t)["AGIC"], **alone)
    alone["filters"] = {**filters, "method": "AGIC"}
    claim("fig6-identical", lambda t: t["psnr"].max(), rows=True, **alone)
orders("tab4-cifar10-4-order", ahead, "distance", {"iteration": 5000} | fours)
orders("tab4-cifar10-4-order", ahead, "table4", FINAL | fours)


def rise(start, end):
    """Return a statistic: the change of the PSNR between two numbers of iterations."""

    def changed(t):
        means = t.groupby("iteration").mean()
        return means[end] - means[start]

    return changed


for item, start, end in (("single", 2000, 10000), ("fours", 1000, 5000)):
    for method in METHODS:
        size = {"single": single, "fours": fours}[item] | {"method": method}
        claim(
            f"distance-{item}-{method.lower()}",
            rise(start, end),
            of="distance",
            filters=size,
        )
claim("distance-lead", ahead, of="distance", filters=FINAL | single)
claim(
    "distance-fours-late",
    rise(5000, 10000),
    of="distance",
    filters=fours | {"method": "AGIC"},
)
large = dict(of="table4_imagenet", filters=FINAL)
orders("tab4-imagenet-1-order", ahead, **large)
claim("fig7-imagenet", lambda t: ended(t)["AGIC"] - ended(t)["InvG"], **large)

# --- Table I ---
for data in ("cifar10", "cifar100"):
    for item, statistic in {
        "increase": lambda t: t[2.0].min() - t.loc["none", 1.0],
        "decrease": lambda t: t[0.5].max() - t.loc["none", 1.0],
        "linear": lambda t: t.loc["linear", 2.0] - t[2.0].drop("linear").max(),
    }.items():
        options = dict(of="table1", wide="beta", filters={"data": data})
        claim(f"tab1-{data}-{item}", statistic, **options)

# --- Tables II and III ---
orders("tab2-cifar10-order", ahead, "table2", FINAL)
orders("tab2-cifar100-order", ahead, "table2_cifar100", FINAL)
for place, of in (
    ("tab2-imagenet", "table2_imagenet"),
    ("tab4-imagenet-4", "table4_imagenet_fours"),
):  # whose LPIPS has no order
    for value, end in (("psnr", ""), ("ssim", "-ssim")):
        claim(f"{place}-order{end}", ahead, of=of, filters=FINAL, value=value)
claim(
    "tab2-cifar10-onebatch-order",
    lambda t: ended(t)["one batch"] - ended(t)["InvG"],
    of="table2",
    filters=FINAL,
)
orders("tab3-joint", lambda t: t["both"] - t["first"], "table3", {"method": "AGIC"})
orders("tab3-order", ahead, "table3", {"epochs": "first"})

# --- Fig. 8 ---
fig8, timed = (
    dict(of=experiment, wide="method") for experiment in ("fig8", "fig8_time")
)
claim("fig8-quality", lambda t: (t["AGIC"] - t["InvG"]).min(), **fig8)
for name in ("AGIC", "InvG"):
    claim(
        f"fig8-steps-{name.lower()}",
        lambda t: t.loc[t.index.max()] - t.loc[1],
        of="fig8",
        filters={"method": name},
    )


def slower(t):
    """Return the duration of the simulation with the most steps, relative to one batch."""
    last = t.index.max()
    return t.loc[last, "InvG"] / t.loc[last, "AGIC"]


claim("fig8-speed", slower, **timed)
claim("fig8-constant", lambda t: t["AGIC"].max() / t["AGIC"].min(), **timed)
claim("fig8-faster", lambda t: (t["InvG"] / t["AGIC"]).min(), **timed)
claim("fig8-simulation", lambda t: (t["InvG"] / t["InvG"].shift()).min(), **timed)


# --- Table V ---
def gain(level, more, less):
    """Return the lead of one value of a column over another, by cell."""
    return lambda t: t.unstack(level)[more] - t.unstack(level)[less]


ends = dict(of="table5", filters=FINAL, kind=DIFFERENCE)
labelled, pooled = gain("labels", *RULES[::-1]), gain("pooling", "pool", "no pool")
claim("tab5-labels", lambda t: labelled(t).min(), **ends)
claim("tab5-pool", lambda t: pooled(t).xs(RULES[0], level=1).min(), **ends)
for item, images in (("labels", 4), ("exception", 1)):
    claim(f"tab5-pool-{item}", lambda t, b=images: pooled(t)[b, "labels"], **ends)
claim("tab5-batch", lambda t: t[4, "labels", "pool"] - t[1, "labels", "pool"], **ends)

# --- Table VI ---
orders("tab6-joint", lambda t: t["both"] - t.drop("both").max(), "table6")


# --- Figs. 9 and 10 ---
def by_training(statistic):
    """Return a statistic of the PSNR by ratio: on the trained network minus on the untrained one."""

    def on(t, state):
        return statistic(t.xs(state, level="state").droplevel("trained"))

    return lambda t: on(t, "trained") - on(t, PLAIN)


plain, late = (
    dict(of="fig9", filters=FINAL | {"state": s}) for s in (PLAIN, "trained")
)
trained_options = dict(of="fig9", filters=FINAL | {"state": [PLAIN, "trained"]})
relu = dict(of="fig9", wide="state", filters=FINAL | {"state": STATES[:2]})
claim("fig9-untrained", lambda t: t[50.0] - t[1.0], **plain)
claim("fig9-trained", lambda t: t[2.0] - t[1.0], **late)
claim(
    "fig9-weaker",
    by_training(lambda r: (r.drop(1.0) - r[1.0]).max()),
    **trained_options,
)
claim("fig9-best", by_training(lambda r: r[2.0] - r[50.0]), **trained_options)
claim("fig9-relu", lambda t: (t[PLAIN] / t[STATES[1]] - 1).min(), **relu)
claim("fig9-relu-most", lambda t: (t[PLAIN] / t[STATES[1]] - 1).max(), **relu)
claim("fig10-beta", lambda t: t[20.0] - t[1.0], **plain)

# --- Table VII: the rows that are implemented here, without columns that other tables measure ---
ROWS = {  # distance, total variation, optimiser, and whether updates of several epochs are inverted together
    "DLG": (dlg.DLG, dlg.match, ("l2", False, "lbfgs", False)),
    "InvG": (invg.INVG, invg.invert_many, ("cosine", True, "adam", False)),
    "AGIC": (agic.AGIC, agic.invert_many, ("cosine", True, "adam", True)),
}


def confirmed(name):
    """Return whether an attack's declaration has the cells of its row, and needs no extra knowledge."""
    descent, function, printed = ROWS[name]
    terms = descent.distance, descent.total_variation > 0, descent.optimiser
    several = "models" in inspect.signature(function).parameters
    alone = registry.get(name).needs <= registry.WHITE_BOX.has
    return (*terms, several) == printed and alone


claim(
    "tab7-attributes",
    lambda: sum(map(confirmed, ROWS)) / len(ROWS),
    note="loss, optimiser, knowledge and epochs of DLG, InvG and AGIC; the table's six other attacks are not here",
)
