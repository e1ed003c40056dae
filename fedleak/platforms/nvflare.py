"""A filter for NVFlare that records its runs, and NVFlare's filters as defences.

`fedleak.recording` describes the folder. The module needs the extra ``nvflare``, and no other module of fedleak
imports it.
"""

import copy
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedleak.errors import extra
from fedleak.federated.update import Update
from fedleak.platforms.server import never_stopping
from fedleak.privacy.claim import Privacy
from fedleak.recording import write
from fedleak.recording.contribution import UNMEASURED
from fedleak.recording.folder import read_part

with extra("nvflare"):
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import Filter
    from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.app_constant import AppConstants

log = logging.getLogger("fedleak.platforms.nvflare")


class _Filter(Filter):
    def add_to_fed_job(self, job: Any, ctx: Any, **kwargs: Any) -> None:
        """Join a job that uses the installed fedleak: copies of some of its modules would hide the others."""
        job.set_app_packages([*job.job.app_packages, "fedleak"])
        super().add_to_fed_job(job, ctx, **kwargs)


class Recorder(_Filter):
    """A filter of an NVFlare client that completes the client's own record by what really comes and leaves.

    The training script records its loop by `fedleak.recording.record`, with ``round=received.current_round`` and
    ``node=flare.get_site_name()``. Add the filter twice, to those of task data and of task results:
    ``recipe.add_client_input_filter(recorder)`` and ``recipe.add_client_output_filter(recorder)``. After NVFlare's
    privacy filters it writes the model that leaves the client, before them the one without protection.

    It records weights and weight differences, of NumPy arrays or tensors. Excluded variables (`ExcludeVars`) are
    recorded unchanged, as the server has them. Encrypted or quantised results are not recorded: add the recorder before
    that filter. The record names the tensors to which a filter that adds noise adds none. What cannot be recorded is a
    warning in the log and a gap in the folder, and never stops the run.

    The run's `folder` is on the client's machine, and all clients of a simulation may share it. Pass an absolute path,
    since NVFlare's processes change the folder.
    """

    def __init__(self, folder: Path | str):
        super().__init__()
        self._key = f"fedleak.came:{folder}"
        self.folder = str(folder)  # NVFlare writes attributes with a parameter's name into the job, as JSON

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a task's data or result unchanged, and record it."""
        try:
            if fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.IN:
                self._note_task(shareable, fl_ctx)
            else:
                self._record_result(shareable, fl_ctx)
        except Exception as error:  # any error: a filter that raises ends the task
            log.warning("nothing recorded of node %s: %s", fl_ctx.get_identity_name(), error)
        return shareable

    def _note_task(self, task: Shareable, fl_ctx: FLContext) -> None:
        fl_ctx.set_prop(self._key, {}, private=True, sticky=False)
        came: dict[str, Any] = {"round": task.get_header(AppConstants.CURRENT_ROUND)}
        try:  # now: clients take the parameters out of the task
            dxo = _read_model(task)
            came["state"] = _state(dxo.data) if dxo is not None and dxo.data_kind == DataKind.WEIGHTS else {}
        except Exception as error:  # it becomes a gap once the client has trained
            came["fault"] = error
        if came.get("state") != {}:
            fl_ctx.set_prop(self._key, came, private=True, sticky=False)

    def _record_result(self, result: Shareable, fl_ctx: FLContext) -> None:
        came, node = fl_ctx.get_prop(self._key), fl_ctx.get_identity_name()
        if came == {}:  # a task without a model
            return
        if came is None or came["round"] is None:
            if _read_model(result) is not None:
                why = "no model was seen to come: the recorder has to be among the filters of task data too"
                raise ValueError(why if came is None else "the task has no round")
            return
        with never_stopping(self.folder, log, round=came["round"], node=node):
            if (dxo := _read_model(result)) is not None:  # otherwise an evaluation, or a failure
                if "fault" in came:
                    raise came["fault"]
                after = _sent_state(came["state"], dxo)
                client = read_part(self.folder, came["round"], node)
                part = replace(client, seen_by="server", privacy=client.privacy or _read_claim(dxo), failed=UNMEASURED)
                write(self.folder, part, came["state"], after)


def _read_claim(dxo: DXO) -> Privacy | None:
    """Return the claim of NVFlare's `SVTPrivacy` for a result; tensors of shape ``()`` get no noise."""
    budget = dxo.get_meta_prop("svt_privacy_budget")
    if not budget:
        return None
    bare = [name for name, value in dxo.data.items() if not np.ndim(value)] if budget["has_scalar_passthrough"] else []
    stated, delta = float(budget["epsilon_total"]), float(budget["delta"])
    return Privacy(neighbours="client", delta=delta, stated=stated, by="SVTPrivacy", unprotected=tuple(sorted(bare)))


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


def _read_model(shareable: Shareable) -> DXO | None:
    if shareable.get_return_code() != ReturnCode.OK:
        return None
    dxo = from_shareable(shareable)
    return dxo if dxo.data_kind in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF) else None


def _is_unreadable(dxo: DXO) -> bool:
    return bool(dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) or dxo.get_meta_prop("quantized_flag"))


def _state(data: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: value.detach().cpu().clone() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        for name, value in data.items()
    }


def _sent_state(before: Mapping[str, Tensor], dxo: DXO) -> dict[str, Tensor]:
    """Return the server's state after a result; raise `ValueError` if the result is of another model."""
    if _is_unreadable(dxo):
        raise ValueError("what goes out is encrypted or quantised: put the recorder before that filter")
    sent = _state(dxo.data)
    unmatched = [name for name in sent if name not in before or sent[name].shape != before[name].shape]
    if unmatched or not sent:
        names = ", ".join(unmatched) or "all of its names"
        raise ValueError(f"what goes out is no state of the model that came, by {names}")
    if dxo.data_kind == DataKind.WEIGHT_DIFF:
        sent = {name: before[name] + changes.to(before[name].dtype) for name, changes in sent.items()}
    return {name: sent.get(name, tensor) for name, tensor in before.items()}
