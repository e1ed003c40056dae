"""LLG: the claims in the paper's text as statistics of rows, by the id in ``data/published/llg/claims.toml``.

Those on defences stand in ``claims_defences.py``.
"""

import itertools

import numpy as np
from torch import nn

from fedleak import models
from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.estimates import having
from fedleak_book.experiments.kinds import DIFFERENCE, MEAN, NUMBER, RATE
from notebooks.llg.claims_defences import DEFENCES
from notebooks.llg.clients import PLACES, PLAIN, RESIDUAL, SIZES, STEPS, TITLE, VARIANTS

CLAIMS = Claims()
claim = CLAIMS.add
LETTERS = dict(zip([(a, t) for a in STEPS for t in PLACES], "abcdefgh"))
NAMED = {"LLG": "llg", "LLG*": "llgstar", "LLG+": "llgplus"}


# --- statistics that several figures share: of cells by batch size, a column per attack, network or level ---
def mean_lead(name, *others):
    """Return a statistic: the mean lead of one column over the best of others."""
    return lambda t: np.mean(t[name] - t[list(others)].T.max())


def by_algorithm(statistic):
    """Return a statistic of FedSGD's cells and FedAvg's, which a record of FedAvg alone does not name."""
    return lambda a, b: statistic(
        a.loc["FedSGD"], b.loc["FedAvg"] if "FedAvg" in b.index else b
    )


# --- Fig. 3 ---
def correlation(rows):
    """Return the least correlation of calibrated gradients with occurrences, over the batch sizes."""
    pairs = rows.groupby("batch_size")[["occurrences", "calibrated"]]
    return pairs.apply(lambda t: np.corrcoef(t.T.to_numpy())[0, 1]).abs().min()


present = lambda t: (t["init"] == "fresh") & (t["occurrences"] > 0)  # noqa: E731
for id, statistic, cell in (
    ("a-negative", lambda t: (t["raw"] < 0).mean(), dict(init="fresh", occurrences=0)),
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


RECORDS = {key: ["fig4"] for key in "abcdefg"} | {"h": ["fig4", "fig4_faces"]}
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
decrease = by_algorithm(lambda a, b: (a - b)[VARIANTS].mean().min())
for letters, id, statistic in (
    ("abcdgh", "plus", mean_lead("LLG+", "LLG", "LLG*")),
    ("abcd", "falls", lambda t: (t.iloc[0] - t.iloc[-1])[VARIANTS].min()),
    ("abcd", "stable", lambda t: (t.loc[64] - t.loc[128])[VARIANTS].abs().max()),
    ("efgh", "random", lambda t: (t[VARIANTS].min(axis=1) - t["random guess"]).min()),
    ("efgh", "decrease", lambda t: decrease(t, t)),
    ("ef", "star", mean_lead("LLG*", "LLG+")),
    ("c", "close", mean_lead("LLG+", "LLG")),
):
    for (algorithm, title), letter in LETTERS.items():
        algorithms, records = algorithm, RECORDS[letter]
        if id == "decrease":
            algorithms, records = list(STEPS), ["fig4"]
        for of in records if letter in letters else ():
            says(f"{letter}-{id}", statistic, [title], algorithms, of=of)
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


ahead = lambda llg, dlg: (llg - dlg).mean()  # noqa: E731
behind = lambda llg, dlg: (dlg - llg).mean()  # noqa: E731
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
THREE = [*PLAIN, "resnet20"]
spread, of_plain = lambda t: np.ptp(t[THREE].mean()), mean_lead(*PLAIN)
most = dict(algorithm="FedSGD", batch_size=SIZES[2:])
small, large = (dict(algorithm="FedAvg", batch_size=s) for s in (SIZES[:5], SIZES[5:]))
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
    ("b-cnn", mean_lead("cnn", "lenet", "resnet20"), "fig5", small),
    ("b-close", lambda t: np.ptp(t[THREE], axis=1).mean(), "fig5", large),
    ("b-close-pair", of_plain, "fig5", large | dict(net=PLAIN)),
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
    options = dict(of=["fig6", runs], wide="attack", reading=reading)
    claim(f"fig6b-{name}", by_algorithm(AGAINST[name]), **options)
CLAIMS += DEFENCES
