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


# --- Fig. 3 ---
def correlation(rows, gradient):
    """Compute Pearson's correlation between gradient and occurrences, by batch size."""
    pairs = rows.groupby("batch_size")[["occurrences", gradient]]
    coefficients = pairs.apply(lambda t: np.corrcoef(t.T.to_numpy())[0, 1])
    return coefficients.rename("B = {}".format)


for id, statistic, cell in (
    (
        "fig3a-negative",
        lambda t: (t["raw"] < 0).mean(),
        lambda t: (t["init"] == "fresh") & (t["occurrences"] == 0),
    ),
    (
        "fig3b-positive",
        lambda t: (t["raw"] >= 0).mean(),
        lambda t: (t["init"] == "fresh") & (t["occurrences"] > 0),
    ),
):
    for experiment in ("fig3", "fig3_balanced"):
        claim(id, statistic, of=experiment, rows=True, filters=cell)
for init, experiment in itertools.product(
    ("fresh", "single"), ("fig3", "fig3_balanced")
):
    claim(
        f"fig3c-{init}", lambda t: correlation(t, "calibrated").abs().min(),
        of=experiment, rows=True, filters={"init": init},
    )  # fmt: skip


# --- Figs. 4 and 8 ---
def says(id, statistic, titles, algorithm, parts=(), of="fig4", **settings):
    """Add a claim about Fig. 4, a statistic of the ASR by batch size and attack."""
    data = [name for title in titles for name in PLACES[title]]
    settings |= {"data": data, "algorithm": algorithm}
    options = dict(of=of, wide="attack", parts=parts)
    claim(f"fig4{id}", statistic, filters=settings, **options)


def ahead(t, attack, *others):
    """Return an attack's mean lead over the best of the others, over the batch sizes."""
    return (t[attack] - t[list(others)].max(axis=1)).mean()


NAMED = {"LLG": "llg", "LLG*": "llgstar", "LLG+": "llgplus"}
for (algorithm, title), letter in LETTERS.items():
    place = dict(data=PLACES[title], algorithm=algorithm)
    for attack, name in NAMED.items():
        options = dict(of="fig4", filters=place | {"attack": attack})
        if algorithm == "FedAvg":
            runs = ["fig4", "fig4_faces"] if letter == "h" else ["fig4"]
            ends = {"lowest": min, "highest": max}  # over the batch sizes
            for of, (end, extreme) in itertools.product(runs, ends.items()):
                options |= dict(of=of, reading=f"{attack}, {end}")
                claim(f"fig4{letter}-range", extreme, **options)
        else:
            id = f"fig4{letter}-{name}" + "-range" * ((letter, attack) == ("c", "LLG*"))
            options["kind"] = RATE
            claim(id, lambda t: t.min(), **options)
    if algorithm == "FedSGD":
        claim(
            f"fig8{letter}-balanced",
            lambda a, b: (a[VARIANTS] - b[VARIANTS]).mean().abs().max(),
            of=["fig4", "fig8"], wide="attack", filters=place,
        )  # fmt: skip
plus = lambda t: ahead(t, "LLG+", "LLG", "LLG*")  # noqa: E731
for letters, id, statistic, algorithm in (
    ("abcd", "plus", plus, "FedSGD"), ("gh", "plus", plus, "FedAvg"),
    ("abcd", "falls", lambda t: (t.iloc[0] - t.iloc[-1])[VARIANTS].min(), "FedSGD"),
    ("abcd", "stable", lambda t: (t.loc[64] - t.loc[128])[VARIANTS].abs().max(), "FedSGD"),
    ("efgh", "random", lambda t: (t[VARIANTS].min(axis=1) - t["random guess"]).min(), "FedAvg"),
    ("efgh", "decrease", lambda t: (t.loc["FedSGD"] - t.loc["FedAvg"])[VARIANTS].mean().min(),
     list(STEPS)),
    ("ef", "star", lambda t: ahead(t, "LLG*", "LLG+"), "FedAvg"),
    ("c", "close", lambda t: ahead(t, "LLG+", "LLG"), "FedSGD"),
):  # fmt: skip
    for (_, title), letter in LETTERS.items():
        if letter in letters:
            says(f"{letter}-{id}", statistic, [title], algorithm)
        if letter == "h" and letter in letters and algorithm == "FedAvg":
            says(f"{letter}-{id}", statistic, [title], algorithm, of="fig4_faces")


def decrease(a, b):
    """Return the least of the variants' losses from FedSGD, in the first record, to FedAvg, in the second."""
    averaged = b.loc["FedAvg"] if "FedAvg" in b.index else b
    return (a.loc["FedSGD"] - averaged)[VARIANTS].mean().min()


faces = dict(wide="attack", filters={"data": PLACES["CelebA"]})
claim("fig4h-decrease", decrease, of=["fig4", "fig4_faces"], **faces)


# --- orders, and what was not tried ---
def between(t, first, second):
    """Return the ASR on one data set minus that on another, by attack."""
    means = t.groupby("data").mean().rename(TITLE)
    return means.loc[first] - means.loc[second]


def each_of(attacks):
    """The ASR of each attack: differences of them change by no more than these."""
    return [lambda t, a=attack: np.mean(t[a]) for attack in attacks]


mnist_cifar, ten = ["MNIST", "CIFAR-100"], ["MNIST", "SVHN"]
fewer = [p for name in ten for p in (("CIFAR-100", name), (name, "CelebA"))]
harm = lambda t: between(t, *mnist_cifar)[["LLG", "LLG+"]].max()  # noqa: E731
says("c-unharmed", harm, mnist_cifar, "FedSGD", each_of(["LLG", "LLG+"]))


def apart(rows):
    """Return the largest difference between the means of 1 - Hellinger distance and of the ASR."""
    means = rows.groupby(["algorithm", "attack"])[["hellinger", "asr"]].mean()
    return (1 - means["hellinger"] - means["asr"]).abs().max()


ours = having(data=PLACES["MNIST"], attack=VARIANTS)
options = dict(rows=True, kind=DIFFERENCE, note="it is LLG that is apart, under FedSGD")
claim("fig4-hellinger", apart, of="fig4", filters=ours, **options)
only = dict(attack="LLG*", batch_size=128)
says(
    "c-llgstar",
    lambda t: -between(t, *mnist_cifar)["LLG*"],
    mnist_cifar,
    "FedSGD",
    each_of(["LLG*"]),
    **only,
)
similar = lambda t: between(t, *ten)[VARIANTS].abs().max()  # noqa: E731
says("-similar", similar, ten, "FedSGD", each_of(VARIANTS))
least = lambda t: min(between(t, *pair)["LLG"] for pair in fewer)  # noqa: E731
says("-classes", least, PLACES, "FedSGD", each_of(["LLG"]))
for letter, title, algorithm, sizes, sign in (
    ("a", "MNIST", "FedSGD", SIZES, 1), ("b", "SVHN", "FedSGD", [1, 4], 1),
    ("c", "CIFAR-100", "FedSGD", [1, 4], 1), ("e", "MNIST", "FedAvg", [1], -1),
):  # fmt: skip
    claim(
        f"fig4{letter}-dlg",
        lambda ours, theirs, s=sign: s * (ours - theirs).mean(),
        of=["fig4", "dlg"],
        filters=having(
            data=PLACES[title], algorithm=algorithm, attack=["LLG+", "DLG"],
            net="cnn", composition="unbalanced", batch_size=sizes,
        ),
    )  # fmt: skip
faces = having(
    data=[*PLACES["MNIST"], *PLACES["CelebA"]], algorithm="FedSGD", iterations=2
)
lost_on_faces = lambda t: between(t, "CelebA", "MNIST")["DLG"]  # noqa: E731
claim("fig4d-dlg", lost_on_faces, of="dlg_short", wide="attack", filters=faces)
claim(
    "fig4f-dlg",
    lambda ours, theirs: (theirs - ours).mean(),
    of=["fig4", "dlg_short"],
    filters=having(
        data=PLACES["SVHN"], algorithm="FedAvg", attack=["LLG+", "DLG"],
        composition="unbalanced", batch_size=1,
    ),
)  # fmt: skip


# --- run times ---

for id, slow, fast, sizes, note in (
    ("dlg", "DLG", "LLG+", SIZES, ""), ("llg", "LLG+", "LLG", SIZES, ""),
    ("guess", "LLG", "random guess", SIZES, ""), ("dlg-llg", "DLG", "LLG", SIZES, ""),
    ("star", "LLG*", "LLG+", SIZES, "a batch of equal dummy images has the gradient of one"),
):  # fmt: skip
    options = dict(
        of="runtime", filters=dict(attack=[slow, fast], batch_size=sizes), note=note
    )
    claim(f"runtime-{id}", lambda t, a=slow, b=fast: t[a].sum() / t[b].sum(), **options)  # fmt: skip


# --- Fig. 5 ---
def beside(t, net, other):
    """Return the mean ASR on one network minus that on another, over the batch sizes."""
    return np.mean(t[net] - t[other])


for net in PLAIN:
    options = dict(of="fig5", filters={"algorithm": "FedSGD", "net": net}, kind=RATE)
    claim(f"fig5a-{net}", lambda t: t.mean(), **options)
most = dict(algorithm="FedSGD", batch_size=SIZES[2:])
for id, statistic, cell in (
    ("a-resnet", lambda t: beside(t, "resnet20", "cnn"), most),
    ("a-cause", lambda t: beside(t, *RESIDUAL[::-1]), most),
    ("b-cnn", lambda t: (t["cnn"] - np.maximum(t["lenet"], t["resnet20"])).mean(),
     dict(algorithm="FedAvg", batch_size=SIZES[:5])),
    ("b-close", lambda t: np.ptp(t[[*PLAIN, "resnet20"]], axis=1).mean(),
     dict(algorithm="FedAvg", batch_size=SIZES[5:])),
    ("b-close-pair", lambda t: beside(t, *PLAIN),
     dict(algorithm="FedAvg", net=PLAIN, batch_size=SIZES[5:])),
):  # fmt: skip
    claim(f"fig5{id}", statistic, of="fig5", wide="net", filters=cell)
same = dict(data=PLACES["MNIST"], algorithm="FedSGD", composition="unbalanced")
pair = dict(wide="net", filters=having(**same, net=PLAIN, batch_size=SIZES))
slow = ["dlg", "fig5"]
claim("fig5a-dlg", lambda t: beside(t, "lenet", "cnn"), of=slow[0], **pair)
drops = lambda a, b: beside(a, *PLAIN) - beside(b, *PLAIN)  # noqa: E731
claim("fig5a-sensitive", drops, of=slow, **pair)
cnn = having(**same, net="cnn")
single = dict(data=PLACES["MNIST"], batch_size=1)
deep = having(**single, algorithm="FedSGD", iterations=3)
drop = lambda t: beside(t, "resnet20", "cnn")  # noqa: E731
claim("fig5a-dlg-resnet", drop, of="dlg_short", wide="net", filters=deep)
NETS = ["cnn", "lenet", "resnet20"]
apart_by = lambda a, b: np.ptp(a[NETS].mean()) - np.ptp(b[NETS].mean())  # noqa: E731
averaged = having(**single, algorithm="FedAvg", net=NETS)
claim(
    "fig5b-sensitive", apart_by, of=["dlg_short", "fig5"], wide="net", filters=averaged
)
claim("fig5a-dlg-cnn", lambda t: (t > 0.8).mean(), of=slow[0], filters=cnn, kind=MEAN)


# --- Tables 2 and 3: counted ---
wide = [
    isinstance(m, nn.Conv2d) and m.out_channels == 12
    for m in models.build("cnn", (1, 28, 28), 10, seed=0)
]
claim("tab2-layers", lambda: sum(wide))
first = next(
    m
    for m in models.build("lenet", (1, 32, 32), 10, seed=0)
    if isinstance(m, nn.Linear)
)
claim("tab3-chain", lambda: first.in_features)


# --- Fig. 6 ---
def fall(t):
    """Return the loss from the first moment to the last."""
    t = t.dropna()
    return t.iloc[0] - t.iloc[-1]


def ends(t):
    """Return the values at the last moment."""
    return t["iteration"] == t["iteration"].max()


ENDS = {  # by panel, of the ASR by attack at the last moment
    "a": {
        "llg": lambda t: t["LLG"], "dlg": lambda t: t["DLG"] - t["random guess"],
        "above": lambda t: t[["LLG", "LLG+"]].min() - t["random guess"],
    },
    "b": {"llgstar": lambda t: t["LLG*"], "dlg": lambda t: t["DLG"]},
}  # fmt: skip
ALONG = {  # and of the ASR by moment and attack
    "a": {"drop": lambda t: fall(t[VARIANTS]).min(), "dlg-drop": lambda t: fall(t["DLG"])},
    "b": {
        "all": lambda t: t[VARIANTS].min().min(),
        "rise": lambda t: (t.loc[300] - t.loc[100])[["LLG*", "LLG+"]].min(),
        "peak-llgstar": lambda t: t["LLG*"][300], "peak-llgplus": lambda t: t["LLG+"][300],
        "dlg-ahead": lambda t: (t["DLG"] > t[VARIANTS].max(axis=1))[t["DLG"].notna()].mean(),
    },
}  # fmt: skip
READINGS = {"1,000 local steps": "fig6", "1,000 rounds": "fig6_rounds"}
KIND = {"dlg-ahead": MEAN}
EDGE = "a guess's expectation is 0.001 inside the band: trials do not decide it"
either = {"random": lambda t: t["random guess"], "llgplus": lambda t: t["LLG+"]}
for letter, algorithm, reading, runs in (
    ("a", "FedSGD", "", "fig6"), *(("b", "FedAvg", *read) for read in READINGS.items()),
):  # fmt: skip
    last = lambda t, a=algorithm: (t["algorithm"] == a) & ends(t)  # noqa: E731
    options, run = dict(of=runs, reading=reading), having(algorithm=algorithm)
    at_end = dict(filters=last, **options)
    accurate = dict(value="accuracy", **at_end)
    claim(f"fig6{letter}-accuracy", lambda t: t.mean(), **accurate)
    for name, statistic in (either | ENDS[letter]).items():
        note = EDGE if (letter, name) == ("a", "random") else ""
        claim(f"fig6{letter}-{name}", statistic, note=note, **at_end)
    for name, statistic in ALONG[letter].items():
        how = dict(wide="attack", filters=run, kind=KIND.get(name, NUMBER), **options)
        claim(f"fig6{letter}-{name}", statistic, **how)
for name in ("rise", "peak-llgstar", "peak-llgplus"):  # more networks
    options = dict(of="fig6_early", wide="attack", reading="1,000 local steps")
    claim(f"fig6b-{name}", ALONG["b"][name], **options)
SLOW = [*VARIANTS, "DLG"]
AGAINST = {  # FedSGD's and FedAvg's ASR by moment and attack
    "stable-llg": lambda a, b: fall(a["LLG"]) - fall(b["LLG"]),
    "stable-dlg": lambda a, b: fall(a["DLG"]) - fall(b["DLG"]),
    "start": lambda a, b: (a - b).loc[0, SLOW].min(),
}
for reading, runs in READINGS.items():
    for name, compared in AGAINST.items():
        paired = lambda a, b, f=compared: f(  # noqa: E731
            a.loc["FedSGD"], b.loc["FedAvg"] if "FedAvg" in b.index else b
        )
        options = dict(of=["fig6", runs], wide="attack", reading=reading)
        claim(f"fig6b-{name}", paired, **options)


# --- Fig. 7 ---
def under(algorithm, kind, level, sizes=SIZES):
    """Select rows of LLG+ under one defence, and of the random guess or without a defence."""
    return having(
        algorithm=algorithm, data=PLACES["MNIST"], attack="random guess",
        defence=kind, level=level, batch_size=sizes,
    )  # fmt: skip


above = dict(of=["fig7", "fig4"], wide="level")
for letter, algorithm in zip("ad", STEPS):
    noisy = under(algorithm, "noise", [0.01, 0.1, 1.0])
    worst = lambda a, b: a.sub(b, axis=0).min().min()  # noqa: E731
    claim(f"fig7{letter}-random", worst, filters=noisy, **above)
for id, algorithm, kind, level, sizes in (
    ("b-strong", "FedSGD", "dp", 1.0, [32, 64, 128]),
    ("c-80", "FedSGD", "sparse", 0.8, SIZES[2:]),
    ("e-mitigates", "FedAvg", "dp", 1.0, SIZES),
    ("f-40", "FedAvg", "sparse", 0.4, SIZES[3:]),
    ("f-80", "FedAvg", "sparse", 0.8, SIZES),
):
    best = lambda a, b: a.sub(b, axis=0).max().max()  # noqa: E731
    cell = under(algorithm, kind, level, sizes)
    claim(f"fig7{id}", best, filters=cell, **above)

blocks = dict(of="fig7_blocks", note="the interval is over blocks of 20 networks")


def above_guess(t):
    """Return how far LLG+ under clipping is above the random guess, at most over the batch sizes."""
    found = found_at(t) if "batch_size" in t.index.names else t.max()
    return np.max(found["dp"] - found["random guess"])


def found_at(t):
    """Pivot the ASR by batch size and level."""
    return t.groupby("batch_size").max()  # a level is of one defence: the rest is empty


whole = blocks | dict(of="fig7_whole")
for id, algorithm, sizes, options in (
    ("e-mitigates", "FedAvg", SIZES, blocks),
    ("b-caption", "FedSGD", [16], blocks),
    ("e-mitigates", "FedAvg", SIZES, whole),
    ("b-caption", "FedSGD", [16], whole),
    ("b-strong", "FedSGD", [32, 64, 128], whole),
):
    cell = dict(algorithm=algorithm, batch_size=sizes, defence=["dp", "random guess"])
    claim(f"fig7{id}", above_guess, filters=cell, wide="defence", **options)
largest = dict(algorithm="FedAvg", defence="dp", batch_size=128)
claim("fig7e-strong", lambda t: t.iloc[-1], filters=largest, **whole)
noisy = dict(algorithm="FedSGD", defence="noise")
spread = lambda t: np.ptp(t, axis=0).max()  # noqa: E731
claim("fig7a-stable", spread, filters=noisy, wide="level", **blocks)
at_16 = dict(of=["fig7", "fig4"], filters=under("FedSGD", "dp", 1.0, [16]))
claim("fig7b-caption", lambda a, b: a.iloc[0] - b.iloc[0], **at_16)


def lost(t):
    """Return the attack's loss of ASR by level of a defence and batch size."""
    return -found_at(t).drop(columns=0.0).sub(found_at(t)[0.0], axis=0)


for id, loss, algorithm, kind in (
    ("a-batch", lambda t: lost(t)[1.0].loc[8] - lost(t)[1.0].iloc[-1], "FedSGD", "noise"),
    ("a-order", lambda t: -found_at(t).mean().diff().max(), "FedSGD", "noise"),
    ("a-stable", lambda t: np.ptp(found_at(t)[[0.01, 0.1, 1.0]].loc[16:], axis=0).max(),
     "FedSGD", "noise"),
    ("c-20", lambda t: lost(t)[0.2].mean(), "FedSGD", "sparse"),
    ("d-flat", lambda t: lost(t).mean().abs().max(), "FedAvg", "noise"),
    ("f-20", lambda t: lost(t)[0.2].mean(), "FedAvg", "sparse"),
):  # fmt: skip
    cell = having(algorithm=algorithm, defence=["none", kind])
    claim(f"fig7{id}", loss, of="fig7", wide="level", filters=cell)
strong = dict(algorithm="FedAvg", defence="dp", level=1.0)
claim("fig7e-strong", lambda t: t.iloc[-1], of="fig7", filters=strong)


# --- the privacy budget (Sec. 6.5.1) ---
SIGMA, USERS, PARTICIPANTS = 0.1, 750, 100
SUMMED, SAMPLED = SIGMA * PARTICIPANTS**0.5, PARTICIPANTS / USERS  # the noise adds up
BUDGET = {  # noise multiplier and sampling rate, by reading
    "β = 1, noise of all 100 participants adds up": (SUMMED, SAMPLED),
    "the same, β = 5": (SUMMED / 5, SAMPLED),
    "β = 1, sensitivity β√8 of 8 tensors clipped one by one": (
        SUMMED / 8**0.5,
        SAMPLED,
    ),
    "β = 1, one user's noise alone": (SIGMA, SAMPLED),
    "β = 1, noise adds up, all users in every round": (SUMMED, 1.0),
}


def epsilon(reading):
    """Compute the privacy budget of an interpretation after 100 rounds, by the moments accountant's classic bound."""
    return privacy_budget(*BUDGET[reading], 100, classic=True)


for reading in BUDGET:
    claim("budget", lambda r=reading: epsilon(r), reading=reading)
