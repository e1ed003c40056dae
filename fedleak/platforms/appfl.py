"""Updates from appfl's clients (appfl 1.12.0)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedleak.federated import Update
from fedleak.platforms.uploads import parameter_changes, plain_names

MASKED = "masked_update_flat"
"""Value of ``type`` in an upload that appfl's secure aggregation has masked."""


def update(
    upload: Any, before: Mapping[str, Tensor], *, samples: int, lr: float, send_gradient: bool, steps: int | None = None
) -> Update:
    """Read the update of a client from what its trainer's ``get_parameters()`` returns.

    An appfl client sends its whole state dict. With ``send_gradient: true`` in its configuration the parameters in it
    are the weights before the local steps minus those after them, not divided by the learning rate, and buffers are
    those at the end, under the same names.

    Parameters
    ----------
    upload
        The client's state dict, or the pair of it and the training results.
    before
        The state dict that the client received.
    samples
        Number of training samples over all local steps.
    lr
        The client's learning rate.
    send_gradient
        The value in the client's configuration. The upload does not show it.
    steps
        Number of local steps; by default ``current_local_steps`` of the training results.

    Returns
    -------
    Update
        Of kind ``"delta"``, by the names of the model without Opacus' prefix ``_module.``.

    Raises
    ------
    ValueError
        If the upload is masked by secure aggregation, names no number of steps, or has other names or shapes than
        `before`; or as for `Update`.

    Examples
    --------
    >>> import torch
    >>> from fedleak.platforms import appfl
    >>> before = {"weight": torch.ones(2, 2)}
    >>> upload = {"weight": torch.full((2, 2), 0.5)}, {"current_local_steps": 4}
    >>> appfl.update(upload, before, samples=32, lr=0.1, send_gradient=False).tensors["weight"][0, 0].item()
    -0.5
    """
    state, results = upload if isinstance(upload, tuple) and len(upload) == 2 else (upload, {})
    if not isinstance(state, Mapping):
        raise ValueError(f"an upload is a state dict, or a pair of it and results, not a {type(state).__name__}")
    if state.get("type") == MASKED:
        raise ValueError("the upload is masked by secure aggregation: a single client's update cannot be read")
    steps = results.get("current_local_steps") if steps is None else steps
    if steps is None:
        raise ValueError("the upload does not name the number of local steps: pass steps")
    state, before = plain_names(state), plain_names(before)
    if not send_gradient:
        return Update.from_states(before, state, samples, steps, lr)
    changes = parameter_changes(state, -1.0)
    for name, change in changes.items():
        if name not in before or before[name].shape != change.shape:
            raise ValueError(f"the upload's {name!r} is of another model than the state that the client received")
    return Update(changes, "delta", samples, steps, lr)
