"""Updates from the tensors of openfl's collaborators (openfl 1.9)."""

from collections.abc import Mapping
from typing import Any

from fedleak.federated import Update
from fedleak.platforms.uploads import parameter_changes

DELTA, TRAINED, COMPRESSED = "delta", "trained", ("compressed", "lossy_compressed")


def update(
    tensors: Mapping[Any, Any], *, samples: int, steps: int, lr: float, before: Mapping[str, Any] | None = None
) -> Update:
    """Read the update of a collaborator from the tensors that the aggregator has of it.

    With ``use_delta_updates: true`` a collaborator sends the new weights minus the old ones, and otherwise the new
    weights; counters come back as floats. What a lossy pipeline has changed stays changed: ternary compression (STC)
    makes an update several times too small, which attacks that use its scale misread.

    Parameters
    ----------
    tensors
        Arrays by `openfl.utilities.TensorKey`, after decompression, of one collaborator's one training task. Keys
        without the tag ``trained`` (metrics) are left out.
    samples, steps
        Number of training samples over all local steps, and number of these.
    lr
        The collaborator's learning rate.
    before
        The state that the collaborator received, by name; needed where it sends new weights.

    Returns
    -------
    Update
        Of kind ``"delta"``.

    Raises
    ------
    ValueError
        If tensors are still compressed, if new weights come without `before`, or if some are differences and some are
        not; or as for `Update`.

    Examples
    --------
    >>> from collections import namedtuple
    >>> import numpy as np
    >>> from fedleak.platforms import openfl
    >>> Key = namedtuple("Key", "tensor_name origin round_number report tags")
    >>> sent = {Key("weight", "hospital", 0, False, ("trained", "delta")): np.full((2, 2), -0.1, np.float32)}
    >>> openfl.update(sent, samples=8, steps=1, lr=0.1).tensors["weight"][0, 0].item()
    -0.10000000149011612
    """
    if not isinstance(tensors, Mapping) or not all(hasattr(key, "tags") for key in tensors):
        raise ValueError("tensors map openfl's TensorKey to arrays")
    trained = {key: value for key, value in tensors.items() if TRAINED in key.tags}
    if any(tag in COMPRESSED for key in trained for tag in key.tags):
        raise ValueError("some tensors are still compressed: decompress them with the collaborator's TensorCodec")
    deltas = {DELTA in key.tags for key in trained}
    if len(deltas) != 1:
        raise ValueError("pass the trained tensors of one task, all of them new weights or all of them differences")
    changes = parameter_changes({key.tensor_name: value for key, value in trained.items()})
    if deltas == {False}:
        if before is None or not changes.keys() <= before.keys():
            raise ValueError("these are new weights: pass before, the state that the collaborator received")
        return Update.from_states(parameter_changes({n: before[n] for n in changes}), changes, samples, steps, lr)
    return Update(changes, "delta", samples, steps, lr)
