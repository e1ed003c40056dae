"""For tests that write a chapter's modules: they are imported as they are now."""

import sys

from fedleak_book.experiments import units


def forget():
    """Import the chapter's modules anew, and hash its code anew."""
    units.code_of.cache_clear()
    for name in [name for name in sys.modules if name == "notebooks" or name.startswith("notebooks.")]:
        del sys.modules[name]
