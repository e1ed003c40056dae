"""How glibc's allocator treats freed memory; elsewhere nothing here has an effect."""

import contextlib
import ctypes
from collections.abc import Iterator

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, MEBIBYTE = -1, -3, 2**20


def _keep(at_most: int) -> ctypes.CDLL | None:
    """Let the process keep this much freed memory, and return the C library; None if it is not glibc."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 * MEBIBYTE)
        libc.mallopt(M_TRIM_THRESHOLD, at_most)
    except (OSError, TypeError, AttributeError):
        return None
    return libc


def keep_freed_memory() -> None:
    """Set the thresholds that glibc reaches by itself where nobody has set others: new pages are slow."""
    _keep(64 * MEBIBYTE)


@contextlib.contextmanager
def all_freed_memory_kept() -> Iterator[None]:
    """Keep all freed memory in the block, in which every iteration allocates the same; afterwards it is returned."""
    libc = _keep(2**31 - 1)
    try:
        yield
    finally:
        if libc:
            keep_freed_memory()
            libc.malloc_trim(0)
