"""The arena: what was predicted before each run; of proofs, differential privacy and the tables of other papers here.

`claims_cells` has the predictions on attacks in a cell, which stand before these.
"""

from itertools import product

from fedleak_book.evidence.estimates import matching_rows
from fedleak_book.evidence.results import Number, Results
from notebooks.arena import ranking as r
from notebooks.arena.claims_cells import CLAIMS, find_best, find_least, predict
from notebooks.privacy import notes as private
from notebooks.proofs import notes as proofs

__all__ = ["CLAIMS"]


# --- proofs ---
def measure_least_gap(run):
    """Return the least gap between fresh and trained networks, and between double and single precision."""
    by = ["net", "precision", "state"]
    means = run.best_rows("proven").groupby(by)["proven"].mean()
    state, precision = means.unstack("state"), means.unstack("precision")
    gaps = state["untrained"] - state["trained"]
    return min(gaps.min(), (precision["double"] - precision["single"]).min())


def measure_broken(run):
    """Return the largest share of updates with a proof, over clients that break a condition."""
    table = run.best_rows("proofs")
    broken = table[table["client"].isin(proofs.BROKEN)]
    return broken.groupby("client")["shown"].mean().max()


MIDDLE = {"state": "untrained", "batch_size": 32, "precision": "single"}
NETS = proofs.WIDE, "lenet"
predict("P1", find_least, "proven", "proven", state="untrained", batch_size=8)
predict("P2", lambda run: tuple(run.cell("proven", net=net, **MIDDLE) for net in NETS))
predict("P3", lambda run: Number.most(run.cells("proven", batch_size=128), "proven"))
predict("P4", measure_least_gap)
predict("P5", find_least, "proven", "gain")
predict("P6", lambda run: run.best_rows("proofs")["wrong"].max())
predict("P7", measure_broken)
predict("P8", lambda run: run.best_rows("split_proofs")["wrong"].max())


# --- differential privacy ---
def find_best_under(run, mechanism, epsilon):
    """Return the best attack on an untrained network under a mechanism: a row of `ranking.find_best`."""
    cell = {"mechanism": mechanism, "epsilon": epsilon, "state": "untrained"}
    attacks = ["LLG+", "RLU, whole head", "GDBR", "after Decaf"]
    return find_best(run, "private", [*cell], attacks, **cell).iloc[0]


def compare_with_claim(run, mechanism):
    """Return the bound for normal noise as a share of the claimed ε, on untrained networks at ε of 4 and 16."""
    cell = {"mechanism": mechanism, "epsilon": [4, 16], "state": "untrained"}
    table = matching_rows(run.best_rows("private_canary"), cell)
    return run.mean(table["gaussian"] / table["epsilon"])


def measure_exceeded(run, mechanism, *epsilons):
    """Return the share of canaries whose bound exceeds the claimed ε."""
    cell = {"mechanism": mechanism, "epsilon": list(epsilons)}
    return matching_rows(run.best_rows("private_canary"), cell)["above"].mean()


def measure_wrong_claims(run):
    """Return the lesser share of canaries that reveal a wrong claim: without clipping, and with noise after aggregation."""
    unclipped = measure_exceeded(run, private.UNCLIPPED, 4, 16)
    return min(unclipped, measure_exceeded(run, private.AFTER, 1))


TRUE_CLAIMS = [private.SAMPLE, private.CLIENT], 1, 4, 16, 64
predict("D1", lambda run: Number.of(find_best_under(run, private.SAMPLE, 4), "iacc"))
predict("D2", lambda run: r.measure_lead(find_best_under(run, private.CLIENT, 4)))
predict("D3", measure_exceeded, *TRUE_CLAIMS)
predict("D4", compare_with_claim, private.SAMPLE)
predict("D5", compare_with_claim, private.CLIENT)
predict("D6", measure_wrong_claims)
predict("D7", lambda run: Number.of(find_best_under(run, private.AFTER, 1), "iacc"))


# --- tables of other papers ---
def compare_rounds(run, state, ours, other):
    """Return the lead in iAcc of one attack over another, each after a number of rounds, paired by federation."""
    ours, other = (
        run.by_trial("rounds", state=state, attack=attack, rounds=rounds)
        for attack, rounds in (ours, other)
    )
    return run.mean(ours - other)


PIXELS = {"inputs": "pixels", "bias": "none"}
LDIA = "after LDIA"
for n in range(5):
    predict(f"R{1 + n}", Results.cell, "depth", "lnacc", hidden=n, attack="iLRG")
for n, (data, size) in enumerate(product(("MNIST", "CIFAR-10"), (64, 128, 256))):
    cell = {"data": data, "batch_size": size, **PIXELS}
    predict(f"R{6 + n}", Results.cell, "exclusive", "peeled", **cell)
predict("R12", compare_rounds, "untrained", (r.WHOLE_HEAD, 5), (LDIA, 5))
predict("R13", compare_rounds, "trained", ("learned", 5), (LDIA, 5))
predict("R14", compare_rounds, "trained", (LDIA, 5), (LDIA, 1))
predict("R15", compare_rounds, "trained", ("learned", 5), ("learned", 1))
