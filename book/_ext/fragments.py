"""Write the generated fragments before Sphinx reads the pages that include them.

Each module below has a function `fragments` that returns them by name, Markdown ones without its suffix. One whose rows
are not recorded is a warning, and the book is built with warnings as errors.
"""

from importlib import import_module

import generated
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

MODULES = (
    *("generated", "cheat_sheet", "equations", "findings", "gallery", "growth", "letters", "overview", "pictures"),
    *("sliders", "stubs", "threat_models", "touch"),
    *(f"notebooks.{page}.notes" for page in ("filters", "guard", "privacy", "proofs")),
)


def write(_: Sphinx) -> None:
    """Write every fragment; an unchanged one keeps its date, so that Sphinx does not read its page again."""
    generated.comparisons.cache_clear()
    generated.GENERATED.mkdir(exist_ok=True)
    for module in MODULES:
        try:
            fragments = import_module(module).fragments()
        except FileNotFoundError as error:
            logger.warning("%s", error, type="fedleak")
            continue
        for name, text in fragments.items():
            path = generated.GENERATED / (name if "." in name else f"{name}.md")
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
