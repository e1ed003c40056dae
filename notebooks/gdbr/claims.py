"""GDBR: the claims in the paper's text as statistics of rows, by the id in ``data/published/gdbr/claims.toml``."""

import itertools

import numpy as np
import pandas as pd

from fedleak_book.evidence.claims import Claims
from fedleak_book.experiments.kinds import DIFFERENCE, MEAN, RATE
from notebooks.gdbr.clients import FORMS, MODES, NETS, PAIRS, TITLES
from notebooks.gdbr.clients import NONE, OFF, ONE_HALF, OWN, STORED
from notebooks.gdbr.clients import (
    ANY,
    FIFTH,
    HALF,
    INITS,
    NOISE_SCALES,
    SCALES,
    TRUE,
    WIDTHS,
)

CLAIMS = Claims()
claim = CLAIMS.add
SHARE, LOST = RATE, DIFFERENCE
SHORT = {net: f"{net.removesuffix('-conv')}-{PAIRS[net][1]}" for net in NETS[:4]}
LAYERS = [1, 2, 3, 4, 5, 6]
CHOSEN = [
    dict(net=net, scale=scale, widths=widths)
    for net, scale in itertools.product(SHORT, SCALES)
    for widths in WIDTHS[net]
]


def in_modes(net, batch_norm, dropouts=(OFF, ONE_HALF)):
    """A network's cells with this batch norm and these dropouts, over every scale of the pixels and all widths."""
    cells = itertools.product(dropouts, SCALES, WIDTHS[net])
    return [
        dict(net=net, batch_norm=batch_norm, dropout=d, scale=s, widths=w)
        for d, s, w in cells
    ]


IN_MODES = [  # the experiments of Tables I and II and of Fig. 6, and a network's cells
    ("choices_modes", "fig6_modes", in_modes("alexnet", NONE) + in_modes("vgg11", OWN)),
    (
        "choices_norms",
        "fig6_norms",
        in_modes("vgg11", NONE) + in_modes("vgg11", STORED),
    ),
    ("choices_resnet", "fig6_resnet", in_modes("resnet18-conv", OWN, (OFF,))),
]

# --- Fig. 2 ---
for id, value in {
    "a-skew": "skew",
    "a-mean": "off",
    "a-similar": "spread",
    "b-mean": "top",
    "b-skew": "skew_p",
}.items():
    for init in INITS:
        options = dict(statistic=lambda t: t.iloc[0], value=value)
        claim(f"fig2{id}", of="fig2", filters={"init": init}, **options)
        for scale, widths in itertools.product(SCALES, WIDTHS["resnet18-conv"]):
            chosen = dict(init=init, scale=scale, widths=widths)
            claim(f"fig2{id}", of="fig2_choices", filters=chosen, **options)


# --- Table I ---
def single_higher(t):
    """Return the share of networks with a higher InsAcc on single-class batches than on random ones."""
    return (t["single"] > t["random"]).mean()


printed = dict(of="table1", filters=dict(net=NETS, init="positive", form="paper"))
claim("tab1-single", single_higher, wide="scheme", kind=MEAN, **printed)
claim("claim80-positive", lambda t: t.min(), kind=SHARE, **printed)
chosen = dict(net=NETS, init="default", form="paper", scheme="random")
claim("claim80-default", lambda t: t.min(), "table1", filters=chosen, kind=SHARE)


# --- Table II ---
def apart(first, second):
    """How far apart two columns are, in the mean over what is there."""
    return lambda t: np.mean(t[first] - t[second])


for scale in ("normalised", "raw"):
    for name, net in {"mean": NETS, **{TITLES[net]: net for net in NETS}}.items():
        options = dict(of="table2", wide="auxiliary", kind=LOST)
        options |= dict(filters=dict(scheme="random", scale=scale, net=net))
        options |= dict(reading=f"{scale} pixels, {name}")
        claim("tab2-comparable", apart("aux", "dummy"), **options)
        if net == NETS[4]:
            claim("tab2-imagenet-order", apart("aux", "dummy"), **options)


def over_dummies(sign, k):
    """The lead of auxiliary images over a number of dummies (rows of a transport have no dummies), or its negative."""
    return lambda t: (
        sign * (np.nanmean(t["aux"]) - (t["dummy"][k] if "dummy" in t else 0))
    )


for choice, k in itertools.product(CHOSEN, (1000, 100)):
    options = dict(wide="auxiliary", kind=LOST, filters=choice | {"scheme": "random"})
    data = PAIRS[choice["net"]][1]
    ahead = over_dummies(-1 if data == "mnist" else 1, k)
    claim(f"tab2-{data}-order", ahead, "choices", **options)
for experiment, _, modes in IN_MODES:
    for mode, k in itertools.product(modes, (1000, 100)):
        if (mode["batch_norm"], mode["dropout"]) != (NONE, OFF):  # `choices` has these
            options = dict(wide="auxiliary", kind=LOST)
            options |= dict(filters=mode | {"scheme": "random"})
            name = f"tab2-{PAIRS[mode['net']][1]}-order"
            claim(name, over_dummies(1, k), experiment, **options)
claim("tab2-embeddings", lambda t: t.iloc[(t - 1).abs().argmax()], "dummies")


# --- Fig. 3 ---
def wins(rows):
    """Share of batch sizes, metrics and baselines with GDBR at least as good."""
    means = rows.groupby(["batch_size", "attack"])[["insacc", "clsacc"]].mean()
    won = [
        (wide["GDBR"] >= wide[baseline]).mean()
        for wide in (means[m].unstack("attack") for m in means)
        for baseline in ("ZLG", "LLG+")
    ]
    return np.mean(won)


for net, name in SHORT.items():
    claim(f"fig3-{name}-wins", wins, "fig3", filters={"net": net}, rows=True, kind=MEAN)
    options = dict(filters={"net": net, "attack": "GDBR"}, kind=RATE)
    claim(f"fig3-{name}-worst", lambda t: t.min(), "fig3", **options)
scanned = [c for c in CHOSEN if c["net"] in ("lenet", "vgg11")]
for choice, composition in itertools.product(scanned, (HALF, FIFTH, ANY)):
    name, choice = SHORT[choice["net"]], choice | {"composition": composition}
    options = dict(filters=choice | {"attack": "GDBR"}, kind=RATE)
    of = "fig3_mnist" if choice["net"] == "lenet" else "fig3_choices"
    claim(f"fig3-{name}-wins", wins, of, filters=choice, rows=True, kind=MEAN)
    claim(f"fig3-{name}-worst", lambda t: t.min(), of, **options)


# --- Fig. 5 (a) ---
def baselines(t):
    """InsAcc of the better baseline under every substitute, and GDBR's."""
    if t.index.nlevels > 2:
        raise ValueError("these rows have more than one setting")
    attacks, modes = (t.index.get_level_values(name) for name in ("attack", "mode"))
    values, is_baseline = t.to_numpy(), attacks != "GDBR"
    best = {m: values[is_baseline & (modes == m)].max() for m in MODES if m != TRUE}
    return best, values[~is_baseline][0]


def lead(t):
    """GDBR's InsAcc less that of the best baseline that does not get the true gradient."""
    best, ours = baselines(t)
    return ours - max(best.values())


def mask(t):
    """InsAcc of the better baseline under Mask less that under the best other substitute."""
    best, _ = baselines(t)
    return best.pop("mask") - max(best.values())


note = "GDBR beside the best baseline that does not get the true gradient"
nets = [dict(net="mlp6")]
nets += [dict(net="alexnet", widths=widths) for widths in WIDTHS["alexnet"]]
scanned = [("fig5a_choices", net | {"data": "svhn"}) for net in nets]
scanned = [
    (e, choice | {"scale": s}) for (e, choice), s in itertools.product(scanned, SCALES)
]
for of, filters in [("fig5a", None), *scanned]:
    claim("fig5a-wins", lead, of, filters=filters, kind=LOST, note=note)
    claim("fig5a-mask", mask, of, filters=filters, kind=LOST)


# --- Figs. 4 and 5 (b) ---
def last(t):
    """Return the mean of the other layers minus the bottom layer."""
    return t[:5].mean() - t[6]


def by_bottom(of, data, reading="", **filters):
    """Claim the difference of the bottom layer to the others, and the differences among these."""
    options = dict(of=of, reading=reading, kind=LOST)
    options |= dict(filters=filters | dict(data=data, init="positive"))
    claim(f"fig4-{data}-last", last, **options)
    claim(f"fig4-{data}-same", lambda t: np.ptp(t[:5]), **options)


def over_cifar10(t):
    """Return SVHN's lead over CIFAR-10, whose rows a transport does not change."""
    return np.mean(t["svhn"]) - (np.mean(t["cifar10"]) if "cifar10" in t else 0)


PAPERS = {"form": "paper"}
for scale in SCALES:
    by_bottom("fig4_choices", "svhn", scale=scale)
by_bottom("fig4", "svhn", **PAPERS)  # pixels in [0, 1], with more networks
by_bottom("fig4", "cifar10", "pixels in [0, 1]", **PAPERS)
by_bottom("fig4_normalised", "cifar10", "normalised pixels", **PAPERS)
for reading, layer in {"mean": LAYERS, **{f"#{k}": k for k in LAYERS}}.items():
    chosen = dict(data=["svhn", "cifar10"], init="positive", layer=layer)
    options = dict(reading=reading, kind=LOST)
    recorded = [("fig4_choices", {"scale": scale}) for scale in SCALES]
    recorded.append(("fig4", PAPERS))  # pixels in [0, 1], with more networks
    for of, how in recorded:
        filters = chosen | how
        claim("fig4-order", over_cifar10, of, wide="data", filters=filters, **options)
        filters = dict(data="svhn", layer=layer) | how
        for id in ("fig5b-positive", "fig5b-gap"):
            gap = apart("positive", "default")
            claim(id, gap, of, wide="init", filters=filters, **options)


# --- Fig. 6 ---
def more_sensitive(t):
    """Return ResNet-18's loss at 0.1 minus that of the most sensitive other network."""
    lost = (t[0.0] - t[0.1]).groupby("net").mean()
    return lost["resnet18-conv"] - lost.drop("resnet18-conv").max()


def defended(name, experiment, noise_scales=({},), **filters):
    """Claim a network's losses under strong and moderate defences."""
    options = dict(of=experiment, filters=filters | {"defence": "pruning"})
    claim(f"fig6a-{name}-high", lambda t: t[0.0] - t[0.9], kind=LOST, **options)
    claim(f"fig6a-{name}-moderate", lambda t: t[0.5], kind=SHARE, **options)
    for scale in noise_scales:
        chosen = filters | {"defence": "noise"} | scale
        options = dict(of=experiment, filters=chosen, kind=LOST)
        claim(f"fig6b-{name}-high", lambda t: t[0.0] - t[0.2], **options)


paper = dict(form="paper", init="positive")
for net, name in SHORT.items():
    defended(name, "fig6", net=net, **paper)
for choice in CHOSEN:
    defended(SHORT[choice["net"]], "fig6_choices", **choice)
noise_scales = [{"noise_scale": scale} for scale in NOISE_SCALES]
for _, experiment, modes in IN_MODES:
    for mode in modes:
        defended(SHORT[mode["net"]], experiment, noise_scales, **mode)
noise = paper | {"defence": "noise"}
claim("fig6b-resnet", more_sensitive, "fig6", wide="level", filters=noise)


# --- our hypotheses, written down before the runs ---
def hypotheses(tables):
    """Our hypotheses H1 to H4, as they were written down before the runs: by how much each form is ahead, or loses."""
    compositions, layers, training = tables
    composed = compositions.query(
        "scheme == 'random' and form == 'whitened' and net not in ['lenet', 'mlp6']"
    )
    low = layers.query(
        "data == 'cifar10' and layer >= 5 and form == 'one vector' and init == 'positive'"
    )
    asked = (
        ("H1: whitened, positive weights", composed.query("init == 'positive'"), 0.03),
        ("H2: one vector, #5 and #6, CIFAR-10", low, 0.10),
        ("H3: whitened, default weights", composed.query("init == 'default'"), 0.05),
    )
    rows = [gained(*asked_for) for asked_for in asked]
    ends = training.query("scheme == 'random' and form in @FORMS").pivot_table(
        index="form", columns="rounds", values="insacc"
    )
    lost = ends[0] - ends[ends.columns.max()]
    accepted = lost.min() >= 0.1 and lost.idxmin() == "whitened"
    losses = ", ".join(f"{form} {lost[form]:+.2f}" for form in FORMS)
    rows.append(
        {
            "hypothesis": "H4: training lowers every form, whitened least (loss)",
            "asked": "≥ 0.10",
            "found": losses,
            "verdict": "accepted" if accepted else "not accepted",
        }
    )
    return pd.DataFrame(rows)


def gained(name, cells, least):
    """Test one hypothesis: the interval of the mean gain is above 0, and the mean reaches the required gain."""
    mean, k = cells["gain"].mean(), len(cells)
    ends = (cells["gain"] - cells[f"gain {end}"] for end in ("low", "high"))
    down, up = ((end**2).sum(skipna=False) ** 0.5 / k for end in ends)
    accepted = mean - down > 0 and mean >= least
    return {
        "hypothesis": name,
        "asked": f"≥ {least:.2f}",
        "found": f"{mean:+.2f} [{mean - down:+.2f}, {mean + up:+.2f}]",
        "verdict": "accepted" if accepted else "not accepted",
    }
