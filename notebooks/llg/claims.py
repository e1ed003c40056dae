"""LLG: the claims in the paper's text as statistics of rows, by the id in ``data/published/llg/claims.toml``."""

import itertools

import numpy as np
from torch import nn

from fedleak import models
from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.estimates import having
from fedleak_book.experiments.kinds import DIFFERENCE, MEAN, NUMBER, RATE
from notebooks.llg.released import privacy_budget
from notebooks.llg.clients import PLACES, PLAIN, RESIDUAL, SIZES, STEPS, TITLE, VARIANTS

CLAIMS = Claims()
claim = CLAIMS.add
LETTERS = dict(zip([(a, t) for a in STEPS for t in PLACES], "abcdefgh"))
NAMED = {"LLG": "llg", "LLG*": "llgstar", "LLG+": "llgplus"}


# --- statistics that several figures share: of cells by batch size, a column per attack, network or level ---
def mean_lead(first, second):
    """Return a statistic: the mean of one column less that of another."""
    return lambda t: np.mean(t[first] - t[second])


def lead_over_best(name, *others):
    """Return a statistic: the mean lead of one column over the best of others."""
    return lambda t: (t[name] - t[list(others)].max(axis=1)).mean()


def averaged(t):
    """Return the cells of FedAvg, which a record of FedAvg alone does not name."""
    return t.loc["FedAvg"] if "FedAvg" in t.index else t


# --- Fig. 3 ---
def correlation(rows):
    """Return the least correlation of calibrated gradients with occurrences, over the batch sizes."""
    pairs = rows.groupby("batch_size")[["occurrences", "calibrated"]]
    return pairs.apply(lambda t: np.corrcoef(t.T.to_numpy())[0, 1]).abs().min()


absent = lambda t: (t["init"] == "fresh") & (t["occurrences"] == 0)  # noqa: E731
present = lambda t: (t["init"] == "fresh") & (t["occurrences"] > 0)  # noqa: E731
for id, statistic, cell in (
    ("a-negative", lambda t: (t["raw"] < 0).mean(), absent),
    ("b-positive", lambda t: (t["raw"] >= 0).mean(), present),
    ("c-fresh", correlation, {"init": "fresh"}),
    ("c-single", correlation, {"init": "single"}),
):
    for experiment in ("fig3", "fig3_balanced"):
        claim(f"fig3{id}", statistic, of=experiment, rows=True, filters=cell)


# --- Figs. 4 and 8 ---
def says(id, statistic, titles, algorithm, attacks=(), of="fig4", **settings):
    """Add a claim about Fig. 4, a statistic of the ASR by batch size and attack; attacks bound its change, if named."""
    data = [name for title in titles for name in PLACES[title]]
    settings |= {"data": data, "algorithm": algorithm}
    parts = [lambda t, a=attack: np.mean(t[a]) for attack in attacks]
    options = dict(of=of, wide="attack", filters=settings, parts=parts)
    claim(f"fig4{id}", statistic, **options)


RECORDS = {letter: ["fig4"] for letter in "abcdefg"}
RECORDS["h"] = ["fig4", "fig4_faces"]  # more networks
unlike = lambda a, b: (a[VARIANTS] - b[VARIANTS]).mean().abs().max()  # noqa: E731
for (algorithm, title), letter in LETTERS.items():
    place = dict(data=PLACES[title], algorithm=algorithm)
    for attack, name in NAMED.items():
        cells = place | {"attack": attack}
        if algorithm == "FedSGD":
            id = f"fig4{letter}-{name}" + "-range" * ((letter, attack) == ("c", "LLG*"))
            claim(id, lambda t: t.min(), of="fig4", filters=cells, kind=RATE)
            continue
        ends = {"lowest": min, "highest": max}.items()  # over the batch sizes
        for of, (end, extreme) in itertools.product(RECORDS[letter], ends):
            options = dict(of=of, filters=cells, reading=f"{attack}, {end}")
            claim(f"fig4{letter}-range", extreme, **options)
    if algorithm == "FedSGD":
        options = dict(of=["fig4", "fig8"], wide="attack", filters=place)
        claim(f"fig8{letter}-balanced", unlike, **options)
decrease = lambda a, b: (a.loc["FedSGD"] - averaged(b))[VARIANTS].mean().min()  # noqa: E731
for letters, id, statistic in (
    ("abcdgh", "plus", lead_over_best("LLG+", "LLG", "LLG*")),
    ("abcd", "falls", lambda t: (t.iloc[0] - t.iloc[-1])[VARIANTS].min()),
    ("abcd", "stable", lambda t: (t.loc[64] - t.loc[128])[VARIANTS].abs().max()),
    ("efgh", "random", lambda t: (t[VARIANTS].min(axis=1) - t["random guess"]).min()),
    ("efgh", "decrease", lambda t: decrease(t, t.loc[["FedAvg"]])),
    ("ef", "star", lead_over_best("LLG*", "LLG+")),
    ("c", "close", lead_over_best("LLG+", "LLG")),
):
    for (algorithm, title), letter in LETTERS.items():
        both = id == "decrease"
        for of in ["fig4"] if both else RECORDS[letter]:
            if letter in letters:
                sides = list(STEPS) if both else algorithm
                says(f"{letter}-{id}", statistic, [title], sides, of=of)
faces = dict(wide="attack", filters={"data": PLACES["CelebA"]})
claim("fig4h-decrease", decrease, of=["fig4", "fig4_faces"], **faces)


# --- orders, and what was not tried ---
def between(t, first, second):
    """Return the ASR on one data set minus that on another, by attack."""
    means = t.groupby("data").mean().rename(TITLE)
    return means.loc[first] - means.loc[second]


def apart(rows):
    """Return the largest difference between the means of 1 - Hellinger distance and of the ASR."""
    means = rows.groupby(["algorithm", "attack"])[["hellinger", "asr"]].mean()
    return (1 - means["hellinger"] - means["asr"]).abs().max()


two, ten = ["MNIST", "CIFAR-100"], ["MNIST", "SVHN"]
fewer = [p for name in ten for p in (("CIFAR-100", name), (name, "CelebA"))]
harm = lambda t: between(t, *two)[["LLG", "LLG+"]].max()  # noqa: E731
says("c-unharmed", harm, two, "FedSGD", ["LLG", "LLG+"])
ours = having(data=PLACES["MNIST"], attack=VARIANTS)
options = dict(rows=True, kind=DIFFERENCE, note="it is LLG that is apart, under FedSGD")
claim("fig4-hellinger", apart, of="fig4", filters=ours, **options)
gain = lambda t: -between(t, *two)["LLG*"]  # noqa: E731
only = dict(attack="LLG*", batch_size=128)
says("c-llgstar", gain, two, "FedSGD", ["LLG*"], **only)
similar = lambda t: between(t, *ten)[VARIANTS].abs().max()  # noqa: E731
says("-similar", similar, ten, "FedSGD", VARIANTS)
least = lambda t: min(between(t, *pair)["LLG"] for pair in fewer)  # noqa: E731
says("-classes", least, PLACES, "FedSGD", ["LLG"])


def by_dlg(title, algorithm, sizes, **net):
    """Select LLG+ and DLG on one data set; `dlg_short` has one network alone."""
    place = dict(data=PLACES[title], algorithm=algorithm, attack=["LLG+", "DLG"])
    return having(**place, **net, composition="unbalanced", batch_size=sizes)


ahead = lambda ours, theirs: (ours - theirs).mean()  # noqa: E731
behind = lambda ours, theirs: (theirs - ours).mean()  # noqa: E731
on_faces = lambda t: between(t, "CelebA", "MNIST")["DLG"]  # noqa: E731
faces = dict(data=[*PLACES["MNIST"], *PLACES["CelebA"]])
cnn, long, short = dict(net="cnn"), ["fig4", "dlg"], ["fig4", "dlg_short"]
for letter, statistic, of, cell in (
    ("a", ahead, long, by_dlg("MNIST", "FedSGD", SIZES, **cnn)),
    ("b", ahead, long, by_dlg("SVHN", "FedSGD", [1, 4], **cnn)),
    ("c", ahead, long, by_dlg("CIFAR-100", "FedSGD", [1, 4], **cnn)),
    ("e", behind, long, by_dlg("MNIST", "FedAvg", [1], **cnn)),
    ("d", on_faces, "dlg_short", having(**faces, algorithm="FedSGD", iterations=2)),
    ("f", behind, short, by_dlg("SVHN", "FedAvg", 1)),
):
    wide = "attack" if statistic is on_faces else None
    claim(f"fig4{letter}-dlg", statistic, of, filters=cell, wide=wide)

# --- run times ---
EQUAL = "a batch of equal dummy images has the gradient of one"
for id, slow, fast, note in (
    ("dlg", "DLG", "LLG+", ""),
    ("llg", "LLG+", "LLG", ""),
    ("guess", "LLG", "random guess", ""),
    ("dlg-llg", "DLG", "LLG", ""),
    ("star", "LLG*", "LLG+", EQUAL),
):
    ratio = lambda t, a=slow, b=fast: t[a].sum() / t[b].sum()  # noqa: E731
    options = dict(filters=dict(attack=[slow, fast], batch_size=SIZES), note=note)
    claim(f"runtime-{id}", ratio, of="runtime", **options)

# --- Fig. 5, by network ---
THREE = ["cnn", "lenet", "resnet20"]
spread = lambda t: np.ptp(t[THREE].mean())  # noqa: E731
of_plain = mean_lead(*PLAIN)
most = dict(algorithm="FedSGD", batch_size=SIZES[2:])
small, large = (dict(algorithm="FedAvg", batch_size=s) for s in (SIZES[:5], SIZES[5:]))
pair = dict(algorithm="FedAvg", net=PLAIN, batch_size=SIZES[5:])
same = dict(data=PLACES["MNIST"], algorithm="FedSGD", composition="unbalanced")
of_dlg = having(**same, net=PLAIN, batch_size=SIZES)
single = dict(data=PLACES["MNIST"], batch_size=1)
deep = having(**single, algorithm="FedSGD", iterations=3)
every = having(**single, algorithm="FedAvg", net=THREE)
for net in PLAIN:
    cell = {"algorithm": "FedSGD", "net": net}
    claim(f"fig5a-{net}", lambda t: t.mean(), of="fig5", filters=cell, kind=RATE)
change = lambda a, b: of_plain(a) - of_plain(b)  # noqa: E731
wider = lambda a, b: spread(a) - spread(b)  # noqa: E731
for id, statistic, of, cell in (
    ("a-resnet", mean_lead("resnet20", "cnn"), "fig5", most),
    ("a-cause", mean_lead(*RESIDUAL[::-1]), "fig5", most),
    ("b-cnn", lead_over_best("cnn", "lenet", "resnet20"), "fig5", small),
    ("b-close", lambda t: np.ptp(t[THREE], axis=1).mean(), "fig5", large),
    ("b-close-pair", of_plain, "fig5", pair),
    ("a-dlg", mean_lead("lenet", "cnn"), "dlg", of_dlg),
    ("a-sensitive", change, ["dlg", "fig5"], of_dlg),
    ("a-dlg-resnet", mean_lead("resnet20", "cnn"), "dlg_short", deep),
    ("b-sensitive", wider, ["dlg_short", "fig5"], every),
):
    claim(f"fig5{id}", statistic, of, filters=cell, wide="net")
cnn = having(**same, net="cnn")
claim("fig5a-dlg-cnn", lambda t: (t > 0.8).mean(), of="dlg", filters=cnn, kind=MEAN)


# --- Tables 2 and 3: counted ---
sizes = {"cnn": (1, 28, 28), "lenet": (1, 32, 32)}
cnn, lenet = (models.build(net, shape, 10, seed=0) for net, shape in sizes.items())
twelve = [m.out_channels == 12 for m in cnn if isinstance(m, nn.Conv2d)]
claim("tab2-layers", lambda: sum(twelve))
chained = [m.in_features for m in lenet if isinstance(m, nn.Linear)]
claim("tab3-chain", lambda: chained[0])


# --- Fig. 6 ---
def fall(t):
    """Return the loss from the first moment to the last."""
    t = t.dropna()
    return t.iloc[0] - t.iloc[-1]


wins = lambda t: t["DLG"] > t[VARIANTS].max(axis=1)  # noqa: E731
LAST = (  # by panel, of the ASR by attack at the last moment
    ("ab", "random", lambda t: t["random guess"]),
    ("ab", "llgplus", lambda t: t["LLG+"]),
    ("a", "llg", lambda t: t["LLG"]),
    ("a", "dlg", lambda t: t["DLG"] - t["random guess"]),
    ("a", "above", lambda t: t[["LLG", "LLG+"]].min() - t["random guess"]),
    ("b", "llgstar", lambda t: t["LLG*"]),
    ("b", "dlg", lambda t: t["DLG"]),
)
ALONG = (  # and of the ASR by moment and attack
    ("a", "drop", lambda t: fall(t[VARIANTS]).min()),
    ("a", "dlg-drop", lambda t: fall(t["DLG"])),
    ("b", "all", lambda t: t[VARIANTS].min().min()),
    ("b", "rise", lambda t: (t.loc[300] - t.loc[100])[["LLG*", "LLG+"]].min()),
    ("b", "peak-llgstar", lambda t: t["LLG*"][300]),
    ("b", "peak-llgplus", lambda t: t["LLG+"][300]),
    ("b", "dlg-ahead", lambda t: wins(t)[t["DLG"].notna()].mean()),
)
AGAINST = {  # and of FedSGD's and FedAvg's
    "stable-llg": lambda a, b: fall(a["LLG"]) - fall(b["LLG"]),
    "stable-dlg": lambda a, b: fall(a["DLG"]) - fall(b["DLG"]),
    "start": lambda a, b: (a - b).loc[0, [*VARIANTS, "DLG"]].min(),
}
EDGE = "a guess's expectation is 0.001 inside the band: trials do not decide it"
READINGS = {"1,000 local steps": "fig6", "1,000 rounds": "fig6_rounds"}
panels = [("a", "FedSGD", "", "fig6")]
panels += [("b", "FedAvg", *read) for read in READINGS.items()]
for letter, algorithm, reading, runs in panels:
    last = lambda t, a=algorithm: (  # noqa: E731
        (t["algorithm"] == a) & (t["iteration"] == t["iteration"].max())
    )
    options = dict(of=runs, reading=reading)
    at_end = dict(filters=last, **options)
    claim(f"fig6{letter}-accuracy", lambda t: t.mean(), value="accuracy", **at_end)
    for _, name, statistic in (row for row in LAST if letter in row[0]):
        note = EDGE if (letter, name) == ("a", "random") else ""
        claim(f"fig6{letter}-{name}", statistic, note=note, **at_end)
    options |= dict(wide="attack", filters=having(algorithm=algorithm))
    for _, name, statistic in (row for row in ALONG if letter in row[0]):
        kind = MEAN if name == "dlg-ahead" else NUMBER
        claim(f"fig6{letter}-{name}", statistic, kind=kind, **options)
for _, name, statistic in ALONG[3:6]:  # more networks
    options = dict(of="fig6_early", wide="attack", reading="1,000 local steps")
    claim(f"fig6b-{name}", statistic, **options)
for (reading, runs), name in itertools.product(READINGS.items(), AGAINST):
    paired = lambda a, b, f=AGAINST[name]: f(a.loc["FedSGD"], averaged(b))  # noqa: E731
    claim(f"fig6b-{name}", paired, of=["fig6", runs], wide="attack", reading=reading)


# --- Fig. 7 ---
def found_at(t):
    """Pivot the ASR by batch size and level."""
    return t.groupby("batch_size").max()  # a level is of one defence: the rest is empty


def above_guess(t):
    """Return how far LLG+ under clipping is above the random guess, at most over the batch sizes."""
    found = found_at(t) if "batch_size" in t.index.names else t.max()
    return np.max(found["dp"] - found["random guess"])


def lost(t):
    """Return the attack's loss of ASR by level of a defence and batch size."""
    return -found_at(t).drop(columns=0.0).sub(found_at(t)[0.0], axis=0)


def under(algorithm, kind, level, sizes):
    """Select rows of LLG+ under one defence, and of the random guess or without a defence."""
    cell = dict(algorithm=algorithm, data=PLACES["MNIST"], attack="random guess")
    return having(**cell, defence=kind, level=level, batch_size=sizes)


clip = lambda a, b: dict(algorithm=a, batch_size=b, defence=["dp", "random guess"])  # noqa: E731
worst = lambda a, b: a.sub(b, axis=0).min().min()  # noqa: E731
best = lambda a, b: a.sub(b, axis=0).max().max()  # noqa: E731
range_of = lambda t: np.ptp(t, axis=0).max()  # noqa: E731
strongest = lambda t: t.iloc[-1]  # noqa: E731
NOISE, STRONG = [0.01, 0.1, 1.0], [32, 64, 128]
NOTE = "the interval is over blocks of 20 networks"
beside, clipping = (["fig7", "fig4"], "level"), ("fig7_whole", "defence")
in_blocks = "fig7_blocks", "defence"
largest = dict(algorithm="FedAvg", defence="dp", batch_size=128)
noisy = dict(algorithm="FedSGD", defence="noise")
for id, statistic, (of, wide), cell in (
    ("a-random", worst, beside, under("FedSGD", "noise", NOISE, SIZES)),
    ("d-random", worst, beside, under("FedAvg", "noise", NOISE, SIZES)),
    ("b-strong", best, beside, under("FedSGD", "dp", 1.0, STRONG)),
    ("c-80", best, beside, under("FedSGD", "sparse", 0.8, SIZES[2:])),
    ("e-mitigates", best, beside, under("FedAvg", "dp", 1.0, SIZES)),
    ("f-40", best, beside, under("FedAvg", "sparse", 0.4, SIZES[3:])),
    ("f-80", best, beside, under("FedAvg", "sparse", 0.8, SIZES)),
    ("e-mitigates", above_guess, in_blocks, clip("FedAvg", SIZES)),
    ("b-caption", above_guess, in_blocks, clip("FedSGD", [16])),
    ("e-mitigates", above_guess, clipping, clip("FedAvg", SIZES)),
    ("b-caption", above_guess, clipping, clip("FedSGD", [16])),
    ("b-strong", above_guess, clipping, clip("FedSGD", STRONG)),
    ("e-strong", strongest, ("fig7_whole", None), largest),
    ("a-stable", range_of, ("fig7_blocks", "level"), noisy),
):
    note = NOTE if of in ("fig7_blocks", "fig7_whole") else ""
    claim(f"fig7{id}", statistic, of, filters=cell, wide=wide, note=note)
at_16 = under("FedSGD", "dp", 1.0, [16])
claim("fig7b-caption", lambda a, b: a.iloc[0] - b.iloc[0], beside[0], filters=at_16)
for id, statistic, algorithm, kind in (
    ("a-batch", lambda t: lost(t)[1.0][8] - lost(t)[1.0].iloc[-1], "FedSGD", "noise"),
    ("a-order", lambda t: -found_at(t).mean().diff().max(), "FedSGD", "noise"),
    ("a-stable", lambda t: range_of(found_at(t)[NOISE].loc[16:]), "FedSGD", "noise"),
    ("c-20", lambda t: lost(t)[0.2].mean(), "FedSGD", "sparse"),
    ("d-flat", lambda t: lost(t).mean().abs().max(), "FedAvg", "noise"),
    ("f-20", lambda t: lost(t)[0.2].mean(), "FedAvg", "sparse"),
):
    cell = having(algorithm=algorithm, defence=["none", kind])
    claim(f"fig7{id}", statistic, of="fig7", wide="level", filters=cell)
strong = dict(algorithm="FedAvg", defence="dp", level=1.0)
claim("fig7e-strong", strongest, of="fig7", filters=strong)


# --- the privacy budget (Sec. 6.5.1), after 100 rounds, by the moments accountant's classic bound ---
ALL, SHARE = 0.1 * 100**0.5, 100 / 750  # noise of 100 of 750 users adds up
for reading, noise, sampled in (
    ("β = 1, noise of all 100 participants adds up", ALL, SHARE),
    ("the same, β = 5", ALL / 5, SHARE),
    ("β = 1, sensitivity β√8 of 8 tensors clipped one by one", ALL / 8**0.5, SHARE),
    ("β = 1, one user's noise alone", 0.1, SHARE),
    ("β = 1, noise adds up, all users in every round", ALL, 1.0),
):
    how = noise, sampled, 100
    claim("budget", lambda h=how: privacy_budget(*h, classic=True), reading=reading)
