"""Names of the previous version: they work for one more version, with a warning."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


def _warn(old: str, new: str) -> str:
    warnings.warn(f"{old} is now {new}; the old name works in this version alone", FutureWarning, stacklevel=3)
    return new


def old_attribute(old: str, new: str) -> property:
    """Return a property that reads the attribute `new` and warns that its name was `old`."""
    return property(lambda instance: getattr(instance, _warn(old, new)), doc=f"The former name of `{new}`.")


def renamed(**names: str) -> Callable[[T], T]:
    """Decorate a function or dataclass whose keyword arguments and attributes keep their old names, ``old="new"``."""

    def decorate(target: T) -> T:
        function: Callable[..., Any] = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]

        @wraps(function)
        def accept(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                kwargs[_warn(old, names[old])] = kwargs.pop(old)
            return function(*args, **kwargs)

        if not isinstance(target, type):
            return accept  # type: ignore[return-value]
        target.__init__ = accept  # type: ignore[misc]
        for old, new in names.items():
            setattr(target, old, old_attribute(old, new))
        return target

    return decorate
