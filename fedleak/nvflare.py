"""NVFlare: a filter that records its runs, one that refuses crafted models, and NVFlare's own filters as defences.

`fedleak.federated.recording` says what the folder holds, `fedleak.federated.inspection` what is refused.

Needs the extra ``nvflare``. Nothing else of fedleak imports this module, so nothing else pays for it.
"""

import copy
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedleak.errors import extra
from fedleak.federated.inspection import RefusedModel, inspect_model, unreadable
from fedleak.federated.platforms import as_json, keep, never_stopping
from fedleak.federated.privacy import Privacy, find_tensors_without_noise
from fedleak.federated.update import Update
from fedleak.files import write_text

with extra("nvflare"):
    import nvflare.client as flare
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import Filter
    from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.app_constant import AppConstants

TRAINED = "fedleak.trained"  # what the recorders in front of a filter saw
FACTS = ("lr", "batch_size", "epochs", "optimiser", "momentum")
log = logging.getLogger("fedleak.nvflare")


def note(folder: Path | str, **facts: Any) -> None:
    """Tell the recorder what only the client knows; call it in the script that trains, before ``flare.send``.

    It goes through a file of the client's own, ``notes/SITE.json`` in the `Recorder`'s folder, which takes it away.
    Nothing is sent, with a recorder or without. The facts are ``labels`` of the training samples (integers ``[N]``,
    those of `torch.nn.CrossEntropyLoss`), or their number, ``examples``; ``batch_size`` and ``epochs``; ``optimiser``,
    one of `torch.optim`, or its name (``"sgd"``, ``"nag"``, ``"adam"``, …) with ``lr`` and ``momentum``; or ``steps``,
    where they do not follow from samples, batch size and epochs. What cannot be noted, or written, is a warning in the
    log. Raises `RuntimeError` before ``flare.init``.
    """
    path = _noted(folder, flare.get_site_name())
    try:
        write_text(path, as_json(facts, log))
    except OSError as error:  # a full disk ends no training
        log.warning("nothing is noted in %s: %s", path, error)


class _Filter(Filter):
    def add_to_fed_job(self, job: Any, ctx: Any, **kwargs: Any) -> None:
        """Join a job, which then takes fedleak as installed: copies of some of its modules would hide the others."""
        job.set_app_packages([*job.job.app_packages, "fedleak"])
        super().add_to_fed_job(job, ctx, **kwargs)


class Inspector(_Filter):
    """A filter of an NVFlare client that refuses a model which looks crafted; see `fedleak.federated.inspection`.

    It stands among the filters of task data, for the tasks that train and behind filters that decrypt or take back a
    quantisation: ``recipe.add_client_input_filter(Inspector(), tasks=["train"])``. It looks at the weights alone; the
    script that trains can call `inspect_model` with its module and samples.

    What it refuses, a task without weights that it can read included, is a `RefusedModel`, which NVFlare's client
    answers with ``TASK_DATA_FILTER_ERROR`` in place of a result: nothing was trained. With `warn`, findings are only
    warnings in the log.
    """

    def __init__(self, *, warn: bool = False):
        super().__init__()
        self.warn = warn

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a task's data as they are, or refuse them."""
        try:
            dxo = from_shareable(shareable)
            state = _state(dxo.data) if dxo.data_kind == DataKind.WEIGHTS and not _hidden(dxo) else {}
            findings = inspect_model(state)
        except Exception as error:  # no model, no numbers in it, or whatever a task can hold
            findings = [unreadable(error)]
        for finding in findings:
            log.warning("node %s: %s", fl_ctx.get_identity_name(), finding)
        if findings and not self.warn:
            raise RefusedModel(findings)
        return shareable


class Recorder(_Filter):
    """A filter of an NVFlare client that records the model that comes in, and what goes out when the client trained.

    It stands twice, among the filters of task data and of task results: ``recipe.add_client_input_filter(recorder)``
    and ``recipe.add_client_output_filter(recorder)``, or ``job.to_clients(recorder, filter_type=...)``. It sees what
    the filters before it made of a result: behind NVFlare's own privacy filters, what really leaves the client; in
    front of them, what would leave it without them. Two recorders with a folder each see both.

    Weights and weight differences are recorded, of NumPy arrays or tensors. What a client trained and leaves out
    (`ExcludeVars`) stands unchanged in the record, as the server has it. What is encrypted or quantised is not
    recorded: stand before that filter. With a recorder in front of a filter that adds noise and another behind it, the
    record names the tensors without noise. It changes nothing and never stops a run: what cannot be recorded is a
    warning in the log and a gap in the folder.

    The run's `folder` is on the client's machine, and all clients of a simulation may share it. NVFlare's processes
    work in folders of their own: give a whole path. The rest is what holds of every round, as for `note`, whose word
    goes before this.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        lr: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        optimiser: str | None = None,
        momentum: float | None = None,
    ):
        super().__init__()
        self._key = f"fedleak.came:{folder}"
        self.folder = str(folder)  # NVFlare writes attributes with a parameter's name into the job, as JSON
        self.lr, self.batch_size, self.epochs = lr, batch_size, epochs
        self.optimiser, self.momentum = optimiser, momentum

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a task's data or its result as it is, and record it."""
        try:
            if fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.IN:
                self._came(shareable, fl_ctx)
            else:
                self._goes(shareable, fl_ctx)
        except Exception as error:  # whatever it is: a filter that raises ends the task
            log.warning("nothing recorded of node %s: %s", fl_ctx.get_identity_name(), error)
        return shareable

    def _came(self, task: Shareable, fl_ctx: FLContext) -> None:
        fl_ctx.set_prop(self._key, {}, private=True, sticky=False)
        came = {"round": task.get_header(AppConstants.CURRENT_ROUND)}
        try:  # now: clients take the parameters out of the task
            dxo = _model(task)
            came["state"] = _state(dxo.data) if dxo is not None and dxo.data_kind == DataKind.WEIGHTS else {}
        except Exception as error:  # it is a gap once the client has trained
            came["fault"] = error
        if came.get("state") != {}:
            fl_ctx.set_prop(self._key, came, private=True, sticky=False)
        _noted(self.folder, fl_ctx.get_identity_name()).unlink(missing_ok=True)  # of a round that came to nothing

    def _goes(self, result: Shareable, fl_ctx: FLContext) -> None:
        came, node = fl_ctx.get_prop(self._key), fl_ctx.get_identity_name()
        if came == {}:  # a task that brought no model
            return
        if came is None or came["round"] is None:
            if _model(result) is not None:
                why = "no model was seen to come: the recorder has to be among the filters of task data too"
                raise ValueError(why if came is None else "the task has no round")
            return
        with never_stopping(self.folder, log, round=came["round"], node=node, seen_by="client"):
            if (dxo := _model(result)) is not None:  # else an evaluation, or a failure
                self._record(came, dxo, node, fl_ctx)

    def _record(self, came: dict[str, Any], dxo: DXO, node: str, fl_ctx: FLContext) -> None:
        if "fault" in came:
            raise came["fault"]
        before, after = came["state"], _after(came["state"], dxo)
        facts = {name: getattr(self, name) for name in FACTS if getattr(self, name) is not None}
        facts |= _taken(_noted(self.folder, node))
        if "batch_size" not in facts and (steps := dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)):
            facts.setdefault("steps", int(steps))
        if claim := _claim(dxo):
            bare = {*claim.unprotected, *find_tensors_without_noise(before, fl_ctx.get_prop(TRAINED) or {}, after)}
            facts["privacy"] = replace(claim, unprotected=tuple(sorted(bare)))
        else:
            fl_ctx.set_prop(TRAINED, after, private=True, sticky=False)
        examples = facts.pop("examples", 0)
        if not examples and "labels" not in facts:
            raise ValueError("nobody told how many samples there are: note(folder, labels=...) or examples=...")
        origin: dict[str, Any] = {"round": came["round"], "node": node, "seen_by": "client"}
        keep(self.folder, facts, before, after, examples=examples, log=log, **origin)


def _taken(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    return facts


def _claim(dxo: DXO) -> Privacy | None:
    """Return what NVFlare's `SVTPrivacy` says of a result; its noise leaves out tensors of shape ``()``."""
    budget = dxo.get_meta_prop("svt_privacy_budget")
    if not budget:
        return None
    bare = [name for name, value in dxo.data.items() if not np.ndim(value)] if budget["has_scalar_passthrough"] else []
    stated, delta = float(budget["epsilon_total"]), float(budget["delta"])
    return Privacy(neighbours="client", delta=delta, stated=stated, by="SVTPrivacy", unprotected=tuple(sorted(bare)))


class Filtered:
    """An NVFlare filter of weight differences as a defence: see `fedleak.federated.defences.protect`.

    Such as ``PercentilePrivacy()``, ``SVTPrivacy()`` or ``ExcludeVars(...)``; what it leaves out is not shared. The
    filter sees the change of the weights and the number of steps, by which NVFlare's own divide it: an update of kind
    ``"delta"`` as it is, and a gradient ``g`` as ``-lr * g``, which comes back divided again. Called by itself, it
    takes gradients of one step. `seed` is that of NumPy's global generator, from which these filters draw, while they
    run.
    """

    def __init__(self, filtering: DXOFilter, lr: float, seed: int):
        self.filtering, self.lr, self.numbers = filtering, lr, np.random.RandomState(seed % 2**32)
        self.scale, self.steps = -lr, 1

    def fit_to(self, update: Update) -> "Filtered":
        """Return the same filter, which goes on with the same numbers, for updates of this kind and number of steps."""
        fitted = copy.copy(self)
        fitted.scale, fitted.steps = (1.0 if update.kind == "delta" else -self.lr), update.steps
        return fitted

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> dict[str, Tensor]:
        """Return the updates ``{name: [K, ...]}`` as the filter leaves them."""
        outside = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self.numbers.get_state())  # noqa: NPY002
        try:
            shared = [self._of_one({name: t[k] for name, t in updates.items()}) for k in range(len(clients))]
        finally:
            self.numbers.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(outside)  # noqa: NPY002
        return {name: torch.stack([tensors[name] for tensors in shared]) for name in shared[0]}

    def _of_one(self, update: Mapping[str, Tensor]) -> dict[str, Tensor]:
        moved = {name: (self.scale * t).cpu().numpy() for name, t in update.items()}
        dxo = DXO(DataKind.WEIGHT_DIFF, moved, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: self.steps})
        filtered = self.filtering.process_dxo(dxo, Shareable(), FLContext()) or dxo
        return {name: torch.as_tensor(value).to(update[name]) / self.scale for name, value in filtered.data.items()}


def _noted(folder: Path | str, node: str) -> Path:
    return Path(folder) / "notes" / f"{node}.json"


def _model(shareable: Shareable) -> DXO | None:
    if shareable.get_return_code() != ReturnCode.OK:
        return None
    dxo = from_shareable(shareable)
    return dxo if dxo.data_kind in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF) else None


def _hidden(dxo: DXO) -> bool:
    return bool(dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) or dxo.get_meta_prop("quantized_flag"))


def _state(data: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: value.detach().cpu().clone() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        for name, value in data.items()
    }


def _after(before: Mapping[str, Tensor], dxo: DXO) -> dict[str, Tensor]:
    """Return the model as the server has it of what goes out; a `ValueError` if that is none of the model that came."""
    if _hidden(dxo):
        raise ValueError("what goes out is encrypted or quantised: put the recorder before that filter")
    sent = _state(dxo.data)
    odd = [name for name in sent if name not in before or sent[name].shape != before[name].shape]
    if odd or not sent:
        raise ValueError(f"what goes out is no state of the model that came, by {', '.join(odd) or 'all of its names'}")
    if dxo.data_kind == DataKind.WEIGHT_DIFF:
        sent = {name: before[name] + moved.to(before[name].dtype) for name, moved in sent.items()}
    return {name: sent.get(name, tensor) for name, tensor in before.items()}
