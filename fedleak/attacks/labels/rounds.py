"""A passive server under secure aggregation: each client's labels from the sums of many rounds.

After PROLIN (Kerkouche, Ács and Fritz, arXiv 2303.03908), which regresses a property of every client on the rounds that
it took part in. The reading implemented here, from what is known of its idea: the mean gradient of a round's clients is
that of all their samples, so that any label attack gives the round's total counts; over the rounds these are linear in
the clients' own, which least squares without negative counts finds. It takes clients whose counts stay the same and
rounds in which not always the same clients meet. It needs many aggregates and thus is not in the registry.
"""

from collections.abc import Callable, Sequence

import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.federated import Update


def disaggregate(totals: Tensor, participation: Tensor, samples: int) -> Tensor:
    """Solve for the counts of every client, ``[U, n]``; each client's sum to `samples`.

    Raises `ValueError` if the shapes do not fit, or the rounds do not tell the clients apart: two that always meet, or
    fewer rounds than clients.

    Parameters
    ----------
    totals
        Estimated counts of all samples of each round, ``[R, n]``.
    participation
        Which clients took part in which round, bool ``[R, U]``.
    samples
        Samples of one client in one round.
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
    """Recover the counts of every client in one round, ``[U, n]``, from the sums of many.

    Raises `ValueError` as for `disaggregate` and the attack; if the rounds' samples are not as many for each client.

    Parameters
    ----------
    aggregates, models
        Of each round the SUM of the clients' mean gradients of one step (`fedleak.federated.aggregation`), of
        batches of one size, and the model before it.
    participation
        Which clients took part in which round, bool ``[R, U]``.
    attack
        A label attack on a single update, as ``lambda update, model: rlu.recover(update, model, aux)``.
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
