"""LLG: Fig. 6, attacks along a federated training."""

import dataclasses

import torch

from fedleak import metrics
from fedleak.attacks.images import dlg
from fedleak.attacks.labels import guess
from fedleak.federated import fedavg
from fedleak.models import head
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import rate
from fedleak_book.experiments.training import accuracy
from notebooks.llg.clients import BRIEF, FULL, LR, SMALL, STEPS, TRAINED, extracted
from notebooks.llg.clients import federated, probes, sets


def attack_users(federation, auxiliary, steps, seed, victims, dlg_victims):
    """Attack users of this moment's model: {attack: mean ASR}."""
    images, model = federation.images, federation.model
    index = federation.batches(federation.choose(victims), steps, 8)
    updates = federation.updates(index, lr=LR)
    truth = metrics.counts(images.y[index].flatten(1), images.n_classes).cpu()
    g = updates[head(model).weight].sum(2).double()
    dummy, real = (
        probes(model, source, [8], seed)[8] for source in ("zeros", auxiliary)
    )
    answers = extracted(g, dummy, real, 8, steps)
    generator = torch.Generator().manual_seed(seed + 1)
    answers["random guess"] = guess.uniform_counts(
        8 * steps, g.shape[1], len(g), generator
    )
    if dlg_victims:
        some = [
            fedavg(model, images.x[i], images.y[i], lr=LR) for i in index[:dlg_victims]
        ]
        answers["DLG"] = torch.stack([dlg.recover(update, model) for update in some])
    return {
        attack: metrics.attack_success_rate(c.cpu(), truth[: len(c)]).mean().item()
        for attack, c in answers.items()
    }


def training(
    ctx, seed, data, algorithm, users, participants, iterations, moments, victims, dlg_victims, unit="step",
):  # fmt: skip
    """Train, and attack at regular moments: the mean over the users attacked. An iteration is a step or a round."""
    (images, auxiliary), steps = sets(ctx, data), STEPS[algorithm]
    unit_steps = steps if unit == "step" else 1
    federation, rounds = federated(ctx, seed, images, users), iterations // unit_steps
    for done in range(rounds + 1):
        if done % (rounds // moments) == 0:
            right = accuracy(federation.model, auxiliary)
            slow = dlg_victims if done in (0, rounds // 2, rounds) else 0
            success_rates = attack_users(
                federation, auxiliary, steps, seed + done, victims, slow
            )
            for attack, asr in success_rates.items():
                row = dict(iteration=done * unit_steps, attack=attack, asr=asr)
                row |= dict(accuracy=right, images=len(images) + len(auxiliary))
                yield row
        if done < rounds:
            federation.round(participants, steps, 8, lr=LR)


FIG6 = Experiment(
    "fig6",
    training,
    quick=grid(algorithm=list(STEPS), moments=4, victims=20, dlg_victims=0, **SMALL),
    paper=grid(algorithm=list(STEPS), moments=10, victims=100, dlg_victims=2, **FULL),
    trials=(1, 6),
    by=("iteration", "attack"),
    values=dict(asr=rate("victims", "batch_size"), accuracy=rate(10_000)),
    facts="images",
    fixed=TRAINED,
)

EARLY = dict(dlg_victims=0, iterations=300)
FIG6_EARLY = dataclasses.replace(  # more networks, as far as the peak
    FIG6,
    name="fig6_early",
    quick=grid(algorithm="FedAvg", moments=2, victims=20, dlg_victims=0, **SMALL),
    paper=[FULL | dict(algorithm="FedAvg", moments=3, victims=100, **EARLY)],
    trials=(1, 40),
    tables=("fig6",),
)
FIG6_ROUNDS = dataclasses.replace(
    FIG6,
    name="fig6_rounds",
    quick=grid(algorithm="FedAvg", moments=2, victims=20, dlg_victims=0, **BRIEF),
    paper=grid(algorithm="FedAvg", moments=10, victims=100, dlg_victims=2, **FULL),
    trials=(1, 10),
    fixed=TRAINED | dict(unit="round"),
    tables=("fig6",),
)
