"""Updates from the statistics of pfl's users (pfl 0.6.0)."""

from typing import Any

from fedleak.federated import Update
from fedleak.platforms.uploads import parameter_changes, positive_weight


def update(statistics: Any, *, samples: int, steps: int, lr: float) -> Update:
    """Read the update of a user from the statistics of its local training.

    They are the weights after the local steps minus those before them. A postprocessor such as `WeightByDatapoints` has
    multiplied them by the weight that they carry; without one the weight is 1.

    Parameters
    ----------
    statistics
        A `pfl.stats.MappedVectorStatistics`, of one user.
    samples, steps
        Number of training samples over all local steps, and number of these.
    lr
        The local learning rate.

    Returns
    -------
    Update
        Of kind ``"delta"``, by the names of the model's trainable parameters.

    Raises
    ------
    ValueError
        If the statistics are of another kind, or their weight is not positive; or as for `Update`.

    Examples
    --------
    >>> import torch
    >>> from fedleak.platforms import pfl
    >>> class Statistics(dict):
    ...     weight = 8.0
    >>> sent = Statistics(weight=torch.full((2, 2), -0.8))
    >>> pfl.update(sent, samples=8, steps=1, lr=0.1).tensors["weight"][0, 0].item()
    -0.10000000149011612
    """
    if not hasattr(statistics, "weight") or not hasattr(statistics, "items"):
        raise ValueError(f"a {type(statistics).__name__} is no MappedVectorStatistics of pfl")
    changes = parameter_changes(dict(statistics.items()), 1 / positive_weight(statistics.weight))
    return Update(changes, "delta", samples, steps, lr)
