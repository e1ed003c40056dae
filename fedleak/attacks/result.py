"""The result of a label attack, and an attack that is prepared for a model's updates."""

import inspect
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from fedleak.attacks.plausible import Examination
from fedleak.federated import Update

P = ParamSpec("P")


@dataclass(frozen=True)
class Result:
    """Label counts recovered by an attack, with intervals, proofs and violated assumptions."""

    counts: Tensor
    """Counts per class, int64 ``[n]``; ``[U, n]`` for an aggregate of U clients."""
    low: Tensor | None = None
    """Lower ends of the counts' intervals, ``[n]``; None for attacks without intervals."""
    high: Tensor | None = None
    """Upper ends, ``[n]``."""
    proven: Tensor | None = None
    """Number of labels per class that the update proves, int64 ``[n]``; None for attacks without proofs."""
    violated_assumptions: tuple[str, ...] = ()
    """Assumptions of the attack that do not hold for the update."""
    unchecked: tuple[str, ...] = ()
    """Assumptions that were not checked, with the reason: they may hold or not."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Intermediate results, such as the residual of a linear system."""
    attack: str = ""
    seconds: float = float("nan")
    """Duration of the recovery, without the preparation."""

    def counted(self) -> Tensor:
        """Return the counts alone, and warn of each violated or unchecked assumption."""
        for assumption in (*self.violated_assumptions, *self.unchecked):
            warnings.warn(f"{self.attack}: {assumption}", stacklevel=3)
        return self.counts

    def row(self) -> dict[str, Any]:
        """Return the result as a table's row of numbers, strings and lists."""
        parts = {name: getattr(self, name) for name in ("counts", "low", "high", "proven")}
        columns = {name: part.tolist() for name, part in parts.items() if part is not None}
        return {"attack": self.attack, **columns, "unmet": list(self.violated_assumptions), "seconds": self.seconds}

    def __str__(self) -> str:
        """Return counts, intervals, number of proven labels, violated and unchecked assumptions, one per line."""
        clients = self.counts.reshape(-1, self.counts.shape[-1]).tolist()
        lines = [f"{self.attack or 'label counts'}: {' | '.join(' '.join(map(str, row)) for row in clients)}"]
        if self.low is not None and self.high is not None:
            pairs = zip(self.low.tolist(), self.high.tolist(), strict=True)
            lines.append("between " + ", ".join(f"{low:.1f} and {high:.1f}" for low, high in pairs))
        if self.proven is not None:
            lines.append(f"{int(self.proven.sum())} of {int(self.counts.sum())} labels are proven")
        return "\n".join([*lines, *self.violated_assumptions, *self.unchecked])


@dataclass(frozen=True)
class Prepared:
    """An attack together with the values that it computes once, from model and auxiliary data, for all updates."""

    attack: str
    read: Callable[..., Tensor | Result]
    """``read(update, **of_the_update)`` returns counts or a `Result`."""
    check: Callable[..., Examination] | None = None
    """``check(update, scheme=...)`` returns the contradictions of an update, as `fedleak.attacks.plausible.examine`."""

    def recover(self, update: Update, **of_the_update: Any) -> Result:
        """Recover the label counts behind one client's update or, for an attack on aggregates, behind a sum.

        `of_the_update` has the inputs that belong to this update alone, such as the ``scheme``, by the names of
        `fedleak.attacks.registry.INPUTS`. Raises `WithheldParameter` or `ValueError` as the attack documents;
        `TypeError` if the attack returns no counts.
        """
        if isinstance(update, list | tuple):
            raise ValueError(f"{self.attack} reads one update: call it for each of the {len(update)}")
        started = time.perf_counter()
        recovered = self.read(update, **of_the_update)
        result = recovered if isinstance(recovered, Result) else Result(recovered)
        counts = result.counts
        if not isinstance(counts, Tensor) or counts.dtype != torch.long:
            kind = f"{counts.dtype} {list(counts.shape)}" if isinstance(counts, Tensor) else type(counts).__name__
            raise TypeError(f"a label attack returns counts, torch.int64 [n]; this one returned {kind}")
        seconds = time.perf_counter() - started
        check = self.check(update, scheme=of_the_update.get("scheme")) if self.check else Examination()
        violated = (*result.violated_assumptions, *check.contradictions)
        unchecked = (*result.unchecked, *check.unchecked)
        return replace(result, attack=self.attack, seconds=seconds, violated_assumptions=violated, unchecked=unchecked)


def once(prepare: Callable[P, Prepared], **of_the_update: Any) -> Callable[Concatenate[Update, P], Tensor]:
    """Return ``recover(update, …)``, which prepares an attack and recovers the counts of a single update.

    The function takes the parameters of `prepare`, and the keyword arguments of ``read`` with the defaults in
    `of_the_update`.
    """

    def recover(update: Update, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        update_options = {name: kwargs.pop(name) for name in of_the_update if name in kwargs}
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{prepare.__module__.rpartition('.')[2]}.recover(update, model, …): {error}") from None
        return prepare(*args, **kwargs).recover(update, **update_options).counted()

    signature = inspect.signature(prepare)
    update_parameter = inspect.Parameter("update", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Update)
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    option_parameters = [inspect.Parameter(k, keyword_only, default=v) for k, v in of_the_update.items()]
    recover.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[update_parameter, *signature.parameters.values(), *option_parameters], return_annotation=Tensor
    )
    recover.__module__, recover.__qualname__ = prepare.__module__, "recover"
    recover.__doc__ = (
        "Prepare the attack and recover the label counts behind one update; see `prepare`.\n\n"
        "    Warns of each violated assumption of the attack.\n    "
    )
    return recover
