"""LIA-SA: the claims in the paper's text as statistics of rows, by id in ``data/published/lia_sa/claims.toml``."""

import numpy as np
from fedleak_book.evidence.claims import Claims
from fedleak_book.experiments.kinds import DIFFERENCE, MEAN
from notebooks.lia_sa.clients import SPACED
from notebooks.lia_sa.clients import LIA, ONE, PAIRS, VGGS

CLAIMS = Claims()
claim = CLAIMS.add
LITERAL, LOG, VECTOR = LIA


def mean(t):
    """Return the mean of some cells."""
    return t.mean()


# --- Fig. 3 ---
def drop(t):
    """Return the loss from the smallest to the largest value."""
    return t[t.index.min()] - t[t.index.max()]


for net, data in PAIRS:
    for axis, fixed in (("B", {"clients": 5}), ("U", {"batch_size": 64})):
        for name, rule, value, how in (
            ("all", VECTOR, "all", min),
            ("literal", LITERAL, "target", min),
            ("llg", "LLG", "all", drop),
            ("ilrg", "iLRG", "all", drop),
        ):
            options = dict(
                of="fig3", value=value, kind=DIFFERENCE if how is drop else MEAN
            )
            filters = {"data": data, "rule": rule, **fixed}
            claim(f"fig3-{data}-{axis}-{name}", how, filters=filters, **options)
        if data == "cifar10":
            filters = {"data": data, "rule": LOG, **fixed}
            claim(
                f"fig3-{data}-{axis}-literal",
                min,
                of="fig3",
                filters=filters,
                value="target",
                kind=MEAN,
            )
        for c in SPACED:
            filters = dict(data=data, net=net, rule=LITERAL, constants=c, **fixed)
            options = dict(of="constants", value="target", kind=MEAN)
            claim(f"fig3-{data}-{axis}-literal", min, filters=filters, **options)


# --- Fig. 4 ---
for name, rule, value, how, nets in (
    ("all", VECTOR, "all", min, None),
    ("literal", LITERAL, "target", min, None),
    ("llg", "LLG", "all", max, None),
    ("ilrg-vgg", "iLRG", "all", max, VGGS),
    ("ilrg-resnet18", "iLRG", "all", max, ["resnet18"]),
    ("ilrg-resnet152", "iLRG", "all", max, ["resnet152"]),
):
    filters = {"rule": rule} | ({"net": nets} if nets else {})
    claim(f"fig4-{name}", how, of="fig4", value=value, filters=filters, kind=MEAN)
for c in SPACED:
    filters = {"data": ["cifar10", "cifar100"], "rule": LITERAL, "constants": c}
    filters |= {"clients": 5, "batch_size": 1024}
    claim(
        "fig4-literal", min, of="constants", value="target", filters=filters, kind=MEAN
    )


# --- Table II ---
READINGS = ("all", "head", "head weights", "layers")
for net, name in (("vgg11_bn", "vgg11"), ("resnet18", "resnet18")):
    for rule, key in (
        ("EludingSA", "eludingsa"),
        ("MANDRAKE", "mandrake"),
        (LITERAL, "liasa"),
    ):
        for reading in READINGS:
            filters = {"net": net, "rule": rule, "reading": reading}
            options = dict(of="table2", filters=filters, reading=reading)
            claim(f"tab2-{key}-{name}-cos", mean, **options)
            if rule == LITERAL:
                for c in (*SPACED, "log-spaced"):
                    options |= dict(
                        of="table2_constants", filters=filters | {"constants": c}
                    )
                    claim(f"tab2-{key}-{name}-cos", mean, **options)


# --- Fig. 5 ---
def exponent(t, by):
    """Fit log seconds against log B or log U, with the other at its smallest; return the slope and its cells."""
    other = "clients" if by == "batch_size" else "batch_size"
    t = t.reset_index() if t.index.names[0] else t
    t = t[t["net"] == "vgg11_bn"]
    line = t[t[other] == t[other].min()].sort_values(by)
    x, y = line[by].astype(float), line["total_seconds"].astype(float)
    return line, float(np.polyfit(np.log(x), np.log(y), 1)[0])


for id, statistic, filters in (
    ("B", lambda t: exponent(t.rename("total_seconds"), "batch_size")[1], None),
    ("U", lambda t: exponent(t.rename("total_seconds"), "clients")[1], None),
    ("small", max, {"net": "vgg11_bn", "batch_size": 64, "clients": 5}),
    ("large", max, {"net": "fcn3"}),
):
    claim(f"fig5-{id}", statistic, of="fig5", filters=filters)


# --- Fig. 6 ---
def says(id, recipe, statistic, reading="", wide=None, **filters):
    """Add a claim about Fig. 6, a statistic of LnAcc-target by level and batch size, for every choice of constants."""
    kind = DIFFERENCE if wide else MEAN
    if id.startswith("noise") or id in ("strong-literal-16", "strong-vector-16"):
        for rule in (recipe, "log", *SPACED) if recipe == "literal" else (recipe,):
            cell = {**filters, "net": "resnet18", "recipe": rule}
            claim(f"fig6-{id}", statistic, of="fig6_trials", filters=cell, kind=kind)
    for rule in (recipe, *SPACED, "log") if recipe == "literal" else (recipe,):
        options = dict(
            of="fig6_constants" if rule in SPACED else "fig6", wide=wide, kind=kind
        )
        cell = {**filters, "net": "resnet18", "recipe": rule}
        claim(f"fig6-{id}", statistic, filters=cell, reading=reading, **options)


def smaller_batches(t):
    """Return the mean lead of batches of 16 over those of 64, over the levels."""
    return (t[16] - t[64]).mean()


for recipe in ("literal", "vector"):
    for id, level, size in (
        ("noise", 1e-3, 16),
        ("noise", 1e-3, 64),
        ("strong", 1e-2, 16),
        ("strong", 1e-2, 64),
    ):
        filters = dict(defence="noise", level=level, batch_size=size)
        says(f"{id}-{recipe}-{size}", recipe, mean, **filters)
    for defence in (ONE, "compression"):
        reading = "one threshold" if defence == ONE else "a threshold for each tensor"
        options = dict(reading=reading, defence=defence)
        for end, level in (("", 0.8), ("-20", 0.2), ("-40", 0.4)):
            filters = options | dict(level=level, batch_size=16)
            says(f"sparse-{recipe}{end}", recipe, mean, **filters)
        filters = options | dict(level=[0.2, 0.4, 0.8], batch_size=[16, 64])
        says(f"batch-{recipe}", recipe, smaller_batches, wide="batch_size", **filters)
