"""What a label attack says of an update, and an attack that is prepared to read some."""

import inspect
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from fedleak.federated import Update

P = ParamSpec("P")


@dataclass(frozen=True)
class Result:
    """Label counts, and what the attack knows about them."""

    counts: Tensor
    """int64 ``[n]``; ``[U, n]`` of the U clients behind an aggregate."""
    low: Tensor | None = None
    """Lower and upper end of each count's interval, ``[n]``, of attacks that have some."""
    high: Tensor | None = None
    proven: Tensor | None = None
    """How many labels of each class the update proves, int64 ``[n]``; None of attacks that prove none."""
    unmet: tuple[str, ...] = ()
    """What the attack assumes and has found not to hold."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else it found on the way."""
    attack: str = ""
    seconds: float = float("nan")
    """That the reading took, without the preparation."""

    def counted(self) -> Tensor:
        """Return the counts alone, and warn of every assumption that is not met."""
        for one in self.unmet:
            warnings.warn(f"{self.attack}: {one}", stacklevel=3)
        return self.counts

    def row(self) -> dict[str, Any]:
        """Return it as a row of a table, of numbers, strings and lists."""
        parts = {name: getattr(self, name) for name in ("counts", "low", "high", "proven")}
        told = {name: part.tolist() for name, part in parts.items() if part is not None}
        return {"attack": self.attack, **told, "unmet": list(self.unmet), "seconds": self.seconds}

    def __str__(self) -> str:
        """Say it in lines: counts, intervals, what is proven, what does not hold."""
        clients = self.counts.reshape(-1, self.counts.shape[-1]).tolist()
        lines = [f"{self.attack or 'label counts'}: {' | '.join(' '.join(map(str, one)) for one in clients)}"]
        if self.low is not None and self.high is not None:
            pairs = zip(self.low.tolist(), self.high.tolist(), strict=True)
            lines.append("between " + ", ".join(f"{low:.1f} and {high:.1f}" for low, high in pairs))
        if self.proven is not None:
            lines.append(f"{int(self.proven.sum())} of {int(self.counts.sum())} labels are proven")
        return "\n".join([*lines, *self.unmet])


@dataclass(frozen=True)
class Prepared:
    """An attack with what it computes from the model and auxiliary data, once for all updates."""

    attack: str
    read: Callable[..., Tensor | Result]
    """``read(update, **of_the_update)``."""
    check: Callable[..., tuple[str, ...]] | None = None
    """``check(update, scheme=...)`` says what the update cannot be, as in `fedleak.attacks.plausible`."""

    def recover(self, update: Update, **of_the_update: Any) -> Result:
        """Read an update; `of_the_update` is what is known of its client alone, such as the ``scheme``.

        Raises `WithheldParameter` or `ValueError` as the attack's own ``recover`` says; `TypeError` if the attack
        returns no counts.
        """
        started = time.perf_counter()
        found = self.read(update, **of_the_update)
        result = found if isinstance(found, Result) else Result(found)
        counts = result.counts
        if not isinstance(counts, Tensor) or counts.dtype != torch.long:
            what = f"{counts.dtype} {list(counts.shape)}" if isinstance(counts, Tensor) else type(counts).__name__
            raise TypeError(f"a label attack returns counts, torch.int64 [n]; this one returned {what}")
        seconds = time.perf_counter() - started
        contradicted = self.check(update, scheme=of_the_update.get("scheme")) if self.check else ()
        return replace(result, attack=self.attack, seconds=seconds, unmet=(*result.unmet, *contradicted))


def once(prepare: Callable[P, Prepared], **of_the_update: Any) -> Callable[Concatenate[Update, P], Tensor]:
    """Return the one-line use of an attack for a single update, ``recover(update, …)`` with what `prepare` takes.

    `of_the_update` are the keyword arguments that it reads with, and their defaults: `recover` takes them as well.
    """

    def recover(update: Update, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        known = {name: kwargs.pop(name) for name in of_the_update if name in kwargs}
        try:
            own.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{prepare.__module__.rpartition('.')[2]}.recover(update, model, …): {error}") from None
        return prepare(*args, **kwargs).recover(update, **known).counted()

    own = inspect.signature(prepare)
    first = inspect.Parameter("update", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Update)
    last = [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v) for k, v in of_the_update.items()]
    recover.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[first, *own.parameters.values(), *last], return_annotation=Tensor
    )
    recover.__module__, recover.__qualname__ = prepare.__module__, "recover"
    recover.__doc__ = (
        "Recover the label counts behind one update: `prepare`, with its parameters and errors, and read it.\n\n"
        "    Warns of every assumption of the attack that does not hold.\n    "
    )
    return recover
