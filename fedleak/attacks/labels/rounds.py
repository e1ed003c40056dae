"""Recover each client's labels from the sums of many rounds, as a passive server under secure aggregation.

The idea is PROLIN's (Kerkouche, Ács and Fritz, arXiv 2303.03908), which regresses a property of each client on the
rounds in which it participated. The mean gradient of a round's clients is that of all their samples, so that any label
attack gives the round's total counts. Over many rounds these are linear in the clients' counts, which non-negative
least squares recovers. The clients' counts have to stay the same, and their combinations have to vary between rounds.
The attack needs many aggregates, and thus is not in the registry.
"""

from collections.abc import Callable, Sequence

import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.federated import Update


def disaggregate(totals: Tensor, participation: Tensor, samples: int) -> Tensor:
    """Solve for the counts of each client, ``[U, n]``, which sum to `samples`.

    Raises `ValueError` if the shapes do not fit, or the rounds do not distinguish the clients: two always participate
    together, or there are fewer rounds than clients.

    Parameters
    ----------
    totals
        Estimated total counts of each round, ``[R, n]``.
    participation
        Whether a client participated in a round, bool ``[R, U]``.
    samples
        Number of samples of one client in one round.
    """
    if totals.ndim != 2 or participation.ndim != 2 or len(totals) != len(participation):
        raise ValueError(
            f"totals are [R, n] and participation [R, U], got {list(totals.shape)} and {list(participation.shape)}"
        )
    system = participation.double().cpu()
    rank = int(torch.linalg.matrix_rank(system))
    if rank < system.shape[1]:
        raise ValueError(f"{len(system)} rounds tell only {rank} of {system.shape[1]} clients apart")
    counts = [nnls(system.numpy(), c)[0] for c in totals.double().cpu().T.numpy()]
    return round_to_total(torch.stack([torch.from_numpy(c) for c in counts], dim=1), samples).to(totals.device)


def recover(
    aggregates: Sequence[Update],
    models: Sequence[nn.Module],
    participation: Tensor,
    attack: Callable[[Update, nn.Module], Tensor],
) -> Tensor:
    """Recover the counts of each client in one round, ``[U, n]``, from the sums of many rounds.

    Raises `ValueError` as `disaggregate` and the attack do, or if the number of samples per client varies.

    Parameters
    ----------
    aggregates
        SUM of the clients' mean gradients of one step, per round (`fedleak.federated.aggregation`); all batches have
        the same size.
    models
        The model before each round.
    participation
        Whether a client participated in a round, bool ``[R, U]``.
    attack
        Label attack on a single update, such as ``lambda update, model: rlu.recover(update, model, aux)``.
    """
    clients = participation.sum(1).tolist()
    if not len(aggregates) == len(models) == len(clients) or 0 in clients:
        raise ValueError(f"{len(aggregates)} aggregates, {len(models)} models, clients of the rounds: {clients}")
    sizes = {aggregate.samples / k for aggregate, k in zip(aggregates, clients, strict=True)}
    if len(sizes) != 1 or not (size := sizes.pop()).is_integer():
        raise ValueError("each client has the same number of samples in every round, and here it has not")
    totals = [
        attack(aggregate.replace({name: t / k for name, t in aggregate.tensors.items()}), model)
        for aggregate, model, k in zip(aggregates, models, clients, strict=True)
    ]
    return disaggregate(torch.stack(totals), participation, int(size))
