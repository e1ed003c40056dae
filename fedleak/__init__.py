"""fedleak: what a federated-learning update gives away, in executable notebooks and a thin package."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedleak.errors import DataNotFound, MissingExtra, WithheldParameter

if TYPE_CHECKING:
    from fedleak.federated import Update

__version__ = version("fedleak")
__all__ = ["DataNotFound", "MissingExtra", "Update", "WithheldParameter", "__version__"]


def __getattr__(name: str) -> Any:
    """Import `Update` where it is used first: PyTorch takes seconds, and a command's help needs none of it."""
    if name != "Update":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedleak.federated import Update

    return Update
