"""NVFlare's filters as defences.

The module needs the extra ``nvflare``, and no other module of fedleak imports it. A client records its training by
`fedleak.recording.record`.
"""

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedleak.errors import extra
from fedleak.federated.update import Update

with extra("nvflare"):
    from nvflare.apis.dxo import DXO, DataKind, MetaKey
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable


class Filtered:
    """A defence by an NVFlare filter of weight differences, for `fedleak.federated.defences.protect`.

    The filter is for example ``PercentilePrivacy()``, ``SVTPrivacy()`` or ``ExcludeVars(...)``; excluded variables are
    not shared. It receives the change of the weights, by the number of steps of which NVFlare's filters divide it: an
    update of kind ``"delta"`` unchanged, and a gradient ``g`` as ``-lr * g``, which is converted back. Called directly,
    it takes gradients of one step. `seed` is that of NumPy's global generator, from which these filters draw.
    """

    def __init__(self, filtering: DXOFilter, lr: float, seed: int):
        self.filtering, self.lr, self.numbers = filtering, lr, np.random.RandomState(seed % 2**32)
        self.scale, self.steps = -lr, 1

    def fit_to(self, update: Update) -> "Filtered":
        """Return the filter for updates of this kind and number of steps; it shares the random generator."""
        fitted = copy.copy(self)
        fitted.scale, fitted.steps = (1.0 if update.kind == "delta" else -self.lr), update.steps
        return fitted

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> dict[str, Tensor]:
        """Return the filtered updates ``{name: [K, ...]}``."""
        outside = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self.numbers.get_state())  # noqa: NPY002
        try:
            shared = [self._of_one({name: t[k] for name, t in updates.items()}) for k in range(len(clients))]
        finally:
            self.numbers.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(outside)  # noqa: NPY002
        return {name: torch.stack([tensors[name] for tensors in shared]) for name in shared[0]}

    def _of_one(self, update: Mapping[str, Tensor]) -> dict[str, Tensor]:
        changes = {name: (self.scale * t).cpu().numpy() for name, t in update.items()}
        dxo = DXO(DataKind.WEIGHT_DIFF, changes, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: self.steps})
        filtered = self.filtering.process_dxo(dxo, Shareable(), FLContext()) or dxo
        return {name: torch.as_tensor(value).to(update[name]) / self.scale for name, value in filtered.data.items()}
