"""Remember what depends on a model alone, in blocks in which the model does not change."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import nn

P = ParamSpec("P")
T = TypeVar("T")
_MEMORY: ContextVar[tuple[nn.Module, dict[Any, Any]] | None] = ContextVar("results for one model", default=None)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Remember the results of `remembered` functions for a model, which must not change in the block."""
    token = _MEMORY.set((model, {}))
    try:
        yield
    finally:
        _MEMORY.reset(token)


def is_unchanged(model: nn.Module) -> bool:
    """Return whether the code runs in a block of `unchanged` for this model."""
    memory = _MEMORY.get()
    return memory is not None and memory[0] is model


def remembered(function: Callable[Concatenate[nn.Module, P], T]) -> Callable[Concatenate[nn.Module, P], T]:
    """Decorate a function of a model: in a block of `unchanged` it computes each result once."""

    @wraps(function)
    def recall(model: nn.Module, *args: P.args, **kwargs: P.kwargs) -> T:
        memory = _MEMORY.get()
        if memory is None or memory[0] is not model:
            return function(model, *args, **kwargs)
        key = (function, args, *kwargs.items())
        if key not in memory[1]:
            memory[1][key] = function(model, *args, **kwargs)
        return memory[1][key]

    return recall
