"""The arena: notes on defences, waiting, knowledge and predictions."""

import pandas as pd

from fedleak import models
from notebooks.show import markdown
from fedleak_book.evidence import predictions
from fedleak_book.evidence.results import Number
from fedleak_book.experiments.kinds import NUMBER, interval
from notebooks.arena.ranking import average_by_network, average_waiting
from notebooks.arena.ranking import compare_informed
from notebooks.arena.ranking import compare_noise
from notebooks.arena.ranking import load_balance
from notebooks.arena.ranking import load_networks, load_rows
from notebooks.arena.ranking import score_waiting
from notebooks.arena.ranking import select_trainings, split_cells
from notebooks.arena.notes_parts import parts


def balance(run):
    """Benefit and cost of defences"""
    trades = load_balance(run)
    table = []
    for row in trades.to_dict("records"):
        name = row["defence"] + (f", {row['who']} server" if row["who"] else "")
        lost = row["cost"] == row["cost"] and (
            f"{Number.of(row, 'cost'):+.2f ci}" if row["cost"] else "0 by construction"
        )
        table.append(
            {
                "network": row["state"],
                "defence": name,
                "strength": f"{row['strength']:g}",
                "best attack": f"{row['attack']} {row['iacc']:.2f}",
                "reduction": "–"
                if name == "none"
                else f"{Number.of(row, 'taken'):+.2f ci}",
                "accuracy lost": "–" if name == "none" or not lost else lost,
            }
        )
    informed = (
        {
            "defence": row["defence"],
            "strength": f"{row['strength']:g}",
            "informed": f"{row['told']:.2f}",
            "uninformed": f"{row['untold']:.2f}",
            "gain": f"{Number.of(row, 'gain'):+.2f ci}",
            "lead over the best other": f"{Number.of(row, 'lead'):+.2f ci} ({row['other']})",
            "prior guess": f"{row['prior']:.2f}",
        }
        for row in compare_informed(run)
    )
    rlu = load_rows(run, "defences").query(
        "defence == 'noise' and state == 'untrained' and attack == 'RLU'"
    )
    rlu = rlu.groupby("strength")["iacc"].mean()
    bare = select_trainings(run.best_rows("federations"))
    bare = bare.query("defence == 'none'")["accuracy"]
    return parts(
        f"""
        *Reduction* is the reduction in the best attack's iAcc, with a 95 % interval over the networks; *accuracy lost* has one over the trainings.
        An interval that contains 0 leaves the effect open; below 0 the attack, or the model, gained. The cost is that of a LeNet trained by federated averaging **under that defence** from
        scratch. Every user holds unbalanced data: ten of 100 users in each of 300 rounds, one step on 8 samples at a rate of 0.1. There are ten
        trainings per strength, from the same ten starts; without a defence they end at accuracies of {bare.min():.2f} to {bare.max():.2f}. (At a rate of 0.3 one
        of ten trainings without any defence learns little in 150 rounds, so such trainings cannot measure the cost of a defence.) No network was
        trained to convergence. Clipping bounds the norm of each tensor at 0.2, and its strength is the σ of the noise that follows.
        It costs the same at both strengths, so the clipping causes the cost. Encryption and secure aggregation change the model only by the
        rounding of a fixed-point encoding; we trained no network under them.
        """,
        markdown(table),
        """
        **One attacker adapts.** On trained networks *learned, adaptive* is trained for each network and each strength, on simulated
        clients with the same defence as the real ones. It is given the kind of the defence and its strength, as a server that prescribes
        them would be, but not the noise drawn. All other attacks read a protected update as if it were not protected.
        """,
        markdown(informed),
        f"""
        **RLU and noise.** Every attack that sums a row of the last layer's weights adds up the noise of all its entries. RLU reads the bias
        alone: $n$ numbers, each with the noise of one entry, which it multiplies by $B$. Each count is therefore off by about $\\sigma B$: by 3 of
        32 samples at σ = 0.1, by 10 at 0.3 and by 32 at 1. On untrained networks its iAcc is {", ".join(f"{v:.2f} at {s:g}" for s, v in rlu.items())}. Under very strong
        noise an attack does worse than the class-prior baseline. An attacker would then shrink its counts towards the shares, as the attacker
        informed of the noise learns to do.

        **Secure aggregation is not free.** In protocols like that of {{cite:t}}`bonawitz2017secagg` the clients of a round agree on pairwise keys,
        share secrets so that the masks of clients that drop out can be removed, and mask every parameter. This takes several additional
        messages per round. We measured none of these costs.
        """,
    )


def wait(run):
    """A server that waits"""
    mean = average_waiting(run)
    best = score_waiting(run)
    rounds = best.index.levels[1]
    first, last = rounds[0], rounds[-1]
    return f"""
    From an untrained model RLU is at {mean["untrained", first, "RLU"]:.2f} after {first} rounds, LLG at {mean["untrained", first, "LLG"]:.2f} (after {last}:
    {mean["untrained", last, "LLG"]:.2f}) and LLG+ at {mean["untrained", first, "LLG+"]:.2f} (after {last}: {mean["untrained", last, "LLG+"]:.2f}). On a trained model
    the best attack recovers {best["trained", first]:.2f} after {first} rounds and {best["trained", last]:.2f} after {last}. Each round brings new images of the same labels;
    whether these explain the gain was not tested. Clients whose labels change were not measured.
    """


def noise(run):
    """Effect of noise"""
    table = (
        {
            "participants": row["participants"],
            "rate": f"{row['lr']:g}",
            "noise per round": f"{row['noise']:.4f}",
            "accuracy without": f"{row['plain'].mean():.2f} (lowest {row['plain'].min():.2f})",
            "with σ = 0.3": f"{row['loud'].mean():.2f} (highest {row['loud'].max():.2f})",
            "cost": f"{Number(row['cost'], row['low'], row['high']):+.2f ci}"
            if row["low"] == row["low"]
            else f"{Number(row['cost']):+.2f}",
            "trainings": row["n"],
        }
        for row in compare_noise(run)
    )
    return parts(
        "150 rounds, each training also without noise, from the same start and with the same users. A cost below 0 is a gain.",
        markdown(table),
        """
        At the rate 0.1 noise makes slow trainings learn sooner here; why was not tested. On an untrained LeNet only σ = 1 stops the
        best attack. To keep the noise at 0.01 per round then takes 100 participants at $\\eta=0.1$ and, by the rule, 900 at $\\eta=0.3$. With ten participants the training fails first.
        """,
    )


def knowledge(run):
    """Value of knowledge"""
    rows = load_rows(run, "ladder").query(
        "state == 'trained' and rung == '+ many images a class'"
    )
    ((_, wide, cell),) = split_cells(rows, ["rung"])
    gap = average_by_network(wide["learned"] - wide["LLG"], cell)
    return f"""
    On trained LeNets the learned attacker's lead over LLG, which needs the gradients alone, is
    {Number(gap.mean(), *interval(gap, NUMBER)):+.2f ci} over the three networks. {{ref}}`Ten more networks <arena-anew>` show its leads over better rivals. Auxiliary data give the mean softmax of each class. On a trained network the mean over a client's few
    images can differ from the class mean; {{ref}}`the chapter on RLU <tab-rlu-own>` measures the effect.
    """


def refused(run):
    """Rejected updates"""
    tables = load_networks(run), load_rows(run, "schemes"), load_rows(run, "defences")
    out = pd.concat(tables, ignore_index=True).query("iacc.isna()")
    why = (
        out["reason"]
        .str.replace(r"\d+ samples", "K samples", regex=True)
        .str.slice(0, 110)
    )
    out = out.assign(network=out["net"].map(models.title), why=why).groupby(
        ["attack", "why"], sort=False
    )
    out = out.agg(
        networks=("network", lambda n: ", ".join(dict.fromkeys(n))),
        updates=("trial", "size"),
    )
    return parts(
        "iDLG reads a single sample, GI predicts each label at most once, RLG needs fewer directions than classes less one, and our reimplementation of SPEAR splits at most 16 samples. The registry and the attacks reject other batches. DLG, which optimises labels along with images, takes minutes for one batch of this size and is in {doc}`the chapter on LLG </notebooks/llg>`. The learned attacker takes part where the network is trained and the update is of one step.",
        markdown(out.reset_index().to_dict("records")),
    )


def of_others(run):
    """What came of them, in words."""
    depth = [run.cell("depth", hidden=n, attack="iLRG") for n in range(5)]
    least = min(run.cell("depth", hidden=n, attack="RLU") for n in range(5))
    assert least > 0.99
    assert depth == sorted(depth)
    ceilings = [f"arena-R{n}" for n in range(6, 12)]
    reached = [(run.published.items[id].printed, run[id]) for id in ceilings]
    *near, (printed, reach), _ = reached
    assert all(value <= ours.high for value, ours in reached)
    assert all(abs(value - ours) < 0.06 for value, ours in (*near, reached[-1]))
    assert reach > printed + 0.06
    over, more, given, gain = (run[f"arena-R{n}"] for n in range(12, 16))
    assert min(over.low, more.low) > 0
    assert max(given.low, gain.low) < 0
    return f"""
    **iLRG needs depth**: it recovers {depth[0]:.2f} of the counts exactly from an untrained network with one hidden layer, and {depth[-1]:.2f} with five. RLU, which
    also has 500 images, recovers {least:.4f} or more at every depth. **No printed share clearly exceeds the reach of peeling, and all but one are near it**: for batches
    of 128 from CIFAR-10 peeling can reach {reach:.2f}, and the paper prints {printed:.2f}. **Five rounds of the same images add nothing** that {over.n} federations could
    show: on trained networks they give the learned attacker {gain:+.2f ci} and LDIA (reimplemented), with a tenth of LDIA's shadow clients,
    {given:+.2f ci}. There the learned attacker is {more:.2f ci} ahead of LDIA, and on untrained ones the whole head (RLU-WH) {over:.2f ci}.
    """


def expected(run):
    """Every prediction and its outcome"""
    return parts(
        "Each was written before the rows that decide it were recorded. L1 to L3 were written after chapter 7 and after the experiment on soft labels; L4 to L8 before the attacker met the deep networks; A2 before any of the ten LeNets was trained; T1 to T3 before the version that reads rows had attacked a network here; T4 and T5 after the three networks of each kind, before any of the ten was trained; R1 to R15 after runs of seconds on other images and networks; N1 and N2 before their controls were recorded; K1 to K8 before the run, but after a timing run that showed which attacks reject updates (K5).",
        markdown(predictions.table(run, *predictions.ids(run), anchors=True)),
    )
