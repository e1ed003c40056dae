"""Write the generated fragments before Sphinx reads the pages that include them.

Each module below has a function `fragments` that returns them by name, Markdown ones without its suffix. A dictionary
holds the numbers of a page's sentences, which name them as in ``{{ finding.relu.more }}``. One whose rows are not
recorded is a warning, and the book is built with warnings as errors.
"""

import hashlib
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

from fedleak_book import paths
from fedleak_book.pages import notebooks

logger = logging.getLogger(__name__)

MODULES = (
    *("generated", "cheat_sheet", "equations", "findings", "gallery", "growth", "letters", "overview", "pictures"),
    *("sliders", "stubs", "threat_models", "touch"),
    *(f"notebooks.{page}.notes" for page in ("filters", "guard", "privacy", "proofs")),
)
ROOMS = ("book", "data", "fedleak", "fedleak_book", "notebooks")
GENERATED = paths.root() / "book" / "_generated"
STAMP = GENERATED / "inputs.txt"
"""The hash of what the fragments were made of, and their files."""


def prepare(_: Sphinx, config: Config) -> None:
    """Write the fragments, and give the pages their numbers."""
    write()
    numbers = GENERATED.glob("*.json")
    config.myst_substitutions = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in numbers}


def write() -> None:
    """Write every fragment if anything that they are made of has changed; one that comes out the same keeps its date.

    Sphinx reads a page again whose fragments have another date.
    """
    digest = inputs()
    written = STAMP.read_text(encoding="utf-8").split() if STAMP.is_file() else [""]
    if written[0] == digest and all((GENERATED / name).is_file() for name in written[1:]):
        return
    GENERATED.mkdir(exist_ok=True)
    names, complete = {name for name in written[1:] if (GENERATED / name).is_file()}, True
    for module in MODULES:
        try:
            fragments = import_module(module).fragments()
        except FileNotFoundError as error:
            logger.warning("%s", error, type="fedleak")
            complete = False
            continue
        for name, content in fragments.items():
            is_text = isinstance(content, str)
            text = content if is_text else json.dumps(content, ensure_ascii=False)
            path = GENERATED / (name if "." in name else f"{name}.{'md' if is_text else 'json'}")
            names.add(path.name)
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
    STAMP.unlink(missing_ok=True)
    if complete:
        STAMP.write_text("\n".join([digest, *sorted(names)]), encoding="utf-8")


def inputs() -> str:
    """Hash what the fragments are made of: code, data, drawings and executed chapters, but no text of a page."""
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    top = paths.root()
    yield from (top / name for name in ("_toc.yml", "requirements.lock"))
    yield top / "book" / "notation.md"
    yield from filter(Path.is_file, map(paths.executed_notebook, notebooks.pages()))
    for room in ROOMS:
        texts = (".ipynb", ".md") if room == "book" else (".ipynb",)
        for path in (top / room).rglob("*"):
            made = any(part.startswith((".", "__", "_generated")) for part in path.relative_to(top).parts[:-1])
            if path.is_file() and path.suffix not in texts and not made:
                yield path


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("config-inited", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
