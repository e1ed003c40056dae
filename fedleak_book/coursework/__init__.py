"""Coursework: six assignments that check themselves, and a grader for a folder of submissions."""

from typing import Any

__all__ = ["NAMES", "Result", "check", "named"]
NAMES = ("llg", "lia_sa", "rlu", "gdbr", "agic", "defences")
"""Of the assignments, in the book's order."""


def named(name: str) -> str:
    """Return an assignment's name; if there is none, a `ValueError` says which there are."""
    if name not in NAMES:
        raise ValueError(f"unknown assignment {name!r}; there are: {', '.join(NAMES)}")
    return name


def __getattr__(name: str) -> Any:
    """Import the checks, which need most of the package, only where they are used: a submission's process does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedleak_book.coursework import checking

    return getattr(checking, name)
