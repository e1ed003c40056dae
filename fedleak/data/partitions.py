"""Divide a data set among clients heterogeneously."""

import numpy as np
import torch
from torch import Tensor

MAX_ATTEMPTS = 1000


def dirichlet(labels: Tensor, clients: int, concentration: float, seed: int, *, at_least: int = 1) -> list[Tensor]:
    """Give each client a Dirichlet-distributed share of every class (Yurochkin et al., ICML 2019, Sec. 4).

    Returns each client's indices into the `labels`, int64 ``[N]``, in random order. The smaller the `concentration`
    (alpha), the fewer classes a client has. Each sample belongs to exactly one client. Partitions in which a client has
    fewer than `at_least` samples are drawn again; 0 allows empty clients. Raises `ValueError` for values out of range,
    more samples than there are, or 1000 partitions without enough samples.
    """
    if clients < 1 or at_least < 0 or not (concentration > 0 and np.isfinite(concentration)):
        raise ValueError(
            "clients is at least 1, at_least not negative and the concentration a positive number; "
            f"got {clients}, {at_least} and {concentration}"
        )
    labels = torch.as_tensor(labels)
    if labels.ndim != 1 or len(labels) < clients * at_least:
        raise ValueError(
            f"{clients} clients of at least {at_least} samples need {clients * at_least} labels [N], "
            f"got {list(labels.shape)}"
        )
    rng = np.random.default_rng(seed)
    by_class = [np.flatnonzero(labels.cpu().numpy() == c) for c in labels.unique().cpu().numpy()]
    for _ in range(MAX_ATTEMPTS):
        pieces = [[np.empty(0, dtype=np.int64)] for _ in range(clients)]
        for members in by_class:
            shares = rng.dirichlet(np.full(clients, concentration))
            stops = np.floor(shares.cumsum()[:-1] * len(members) + 1e-9).astype(int)
            for piece, part in zip(pieces, np.split(rng.permutation(members), stops), strict=True):
                piece.append(part)
        parts = [rng.permutation(np.concatenate(piece)) for piece in pieces]
        if min(map(len, parts)) >= at_least:
            return [torch.from_numpy(part) for part in parts]
    raise ValueError(
        f"{MAX_ATTEMPTS} partitions with concentration {concentration:g} all left a client with fewer than {at_least} "
        f"of {len(labels)} samples: raise the concentration, or lower at_least"
    )


def local_batches(indices: Tensor, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Draw a client's local batches from its `indices`, ``[steps, batch_size]``, in successive shuffled epochs.

    Raises `ValueError` if the client has no samples, or a size is below 1.
    """
    if (least := min(len(indices), steps, batch_size)) < 1:
        raise ValueError(f"samples of the client, steps and batch_size are at least 1; got {least}")
    needed = steps * batch_size
    epochs = [torch.randperm(len(indices), generator=generator) for _ in range(-(-needed // len(indices)))]
    return indices[torch.cat(epochs)[:needed]].view(steps, batch_size)
