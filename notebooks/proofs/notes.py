"""The page on audits: how many labels are proven, and how often a proof was wrong, from the arena's rows."""

from collections.abc import Mapping

import pandas as pd
from scipy.stats import binomtest

from fedleak.models import title
from fedleak_book.evidence import predictions
from fedleak_book.evidence.results import Number, Recorded
from notebooks.show import markdown, table

WIDE = "FC 784-1000-10"
HONEST = ["single precision", "double precision"]
SLIGHT = [
    "noise of 1e-5 of its size",
    "16 bits",
    "difference of weights",
    "two steps that are said to be one",
]
BROKEN = [
    "noise of 0.01 of its size",
    "noise of its size",
    "clipping and noise, 0.003",
    "clipping and noise, 0.03",
    "sparsification, 0.9",
    "8 bits",
    "half precision, not told",
    "scaled by a half",
    "one sample more is told",
    "half of the samples are told",
    "dropout",
    "leaky activations",
    "smoothed labels",
    "weight decay",
]
KEEPS, BREAKS = "keeps the conditions", "breaks one"
KINDS = {KEEPS: HONEST, "nearly keeps them": SLIGHT, BREAKS: BROKEN}
BELOW = ["dropout", "leaky activations"]
"""Clients whose change is below the head, of which head splitting asks nothing."""
OF_THE_HEAD = KINDS | {KEEPS: [*HONEST, *BELOW]}
OF_THE_HEAD[BREAKS] = [client for client in BROKEN if client not in BELOW]


def at_most(wrong: int, of: int) -> str:
    """Return the upper end of Clopper and Pearson's 95 % interval of a share, in percent."""
    return f"{100 * binomtest(wrong, of).proportion_ci(method='exact').high:.2g} %"


def shares(cells: pd.DataFrame) -> str:
    """Return the share of proven labels with its interval: one row per network, one column per batch size."""
    lines, by = [], ["net", "state", "precision"]
    for (net, state, precision), group in cells.groupby(by, sort=False):
        line = {"Network": f"{title(net)}, {state}, {precision} precision"}
        for cell in group.to_dict("records"):
            line[f"B = {cell['batch_size']}"] = f"{Number.of(cell, 'proven'):.2f ci}"
        lines.append(line)
    return table(pd.DataFrame(lines).fillna("–"))


def counted(rows: pd.DataFrame, column: str) -> int:
    """Return a share of each row's updates as a number of updates."""
    return round(float((rows[column] * rows["updates"]).sum()))


def clients(rows: pd.DataFrame, kinds: Mapping[str, list[str]] = KINDS) -> str:
    """Count each client's updates that have a proven label, and those that have a wrong proof."""
    lines = []
    for kind, client in ((k, client) for k, group in kinds.items() for client in group):
        of_client = rows[rows["client"] == client]
        line = {"Client": client, "Conditions of the proof": kind}
        line |= {"Updates": int(of_client["updates"].sum())}
        line |= {"with a proven label": counted(of_client, "shown")}
        lines.append(line | {"with a wrong proof": counted(of_client, "wrong")})
    return table(pd.DataFrame(lines))


def in_short(
    rows: pd.DataFrame, proof_rows: pd.DataFrame, kinds: Mapping[str, list[str]] = KINDS
) -> str:
    """Return the sentence on wrong proofs."""
    every = pd.concat([rows, proof_rows.assign(updates=1)])
    wrong, of = counted(every, "wrong"), int(every["updates"].sum())
    broken = rows[rows["client"].isin(kinds[BREAKS])]
    return (
        f"**{wrong} of {of:,} updates have a wrong proof** (at most {at_most(wrong, of)}, by Clopper and Pearson's "
        "95 % interval, as if every update had a network of its own; several share one). Among the "
        f"{int(broken['updates'].sum()):,} whose client breaks a condition, {counted(broken, 'shown')} have any proof."
    )


def fragments() -> dict[str, str]:
    """Return the tables and sentences."""
    run = Recorded("arena", device="cpu")
    proofs, proven, split = map(run.best_rows, ("proofs", "proven", "split_proofs"))
    expected = predictions.table(run, *predictions.ids(run, "P"))
    texts = {
        "clients": clients(proofs),
        "shares": shares(run.best("proven")),
        "in_short": in_short(proofs, proven),
        "split_clients": clients(split, OF_THE_HEAD),
        "split_in_short": in_short(split, proven.iloc[:0], OF_THE_HEAD),
        "expected": markdown(expected),
    }
    return {f"proven_{name}": text for name, text in texts.items()}
