"""Updates from declearn's training replies (declearn 2.9.1)."""

from typing import Any

from fedleak.federated import Update
from fedleak.platforms.uploads import parameter_changes, positive_weight


def update(reply: Any, *, samples: int, lr: float) -> Update:
    """Read the update of a client from its reply to a training request.

    A declearn client sends the weights before its local steps minus those after them. `AveragingAggregator` multiplies
    this by the number of steps, which it sends as the weight, unless it was made with ``steps_weighted=False``.

    Parameters
    ----------
    reply
        A `declearn.messaging.TrainReply`, as the server receives it without secure aggregation.
    samples
        Number of training samples over all local steps.
    lr
        The client's learning rate (``lrate`` of its optimizer).

    Returns
    -------
    Update
        Of kind ``"delta"``, by the names of the model without declearn's prefix ``module.``.

    Raises
    ------
    ValueError
        If the reply is of another kind, such as one encrypted by secure aggregation, or as for `Update`.

    Examples
    --------
    >>> from types import SimpleNamespace as Fields
    >>> import torch
    >>> from fedleak.platforms import declearn
    >>> sent = Fields(updates=Fields(coefs={"module.weight": torch.full((2, 2), 0.4)}), weights=4)
    >>> declearn.update(Fields(updates=sent, n_steps=4), samples=32, lr=0.1).tensors["weight"][0, 0].item()
    -0.10000000149011612
    """
    sent: Any = getattr(reply, "updates", None)
    coefs = getattr(getattr(sent, "updates", None), "coefs", None)
    if coefs is None or not hasattr(reply, "n_steps"):
        raise ValueError(
            f"a {type(reply).__name__} is no TrainReply with readable updates: under secure aggregation a single "
            "client's update cannot be read"
        )
    changes = parameter_changes(coefs, -1 / positive_weight(sent.weights))
    return Update(changes, "delta", samples, reply.n_steps, lr)
