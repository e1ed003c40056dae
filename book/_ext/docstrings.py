"""Sphinx extension: docstrings as they are written, where napoleon would take them for something else."""

import re
from typing import Any

from sphinx.application import Sphinx

NAMES = re.compile(r"\*{0,2}\w+(, \*{0,2}\w+)+$")
"""The line that names several parameters of one description."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx, before napoleon (500)."""
    app.connect("autodoc-process-docstring", process, priority=300)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Give each parameter its own description, and keep a colon in an attribute's from being read as a type's end."""
    if what in ("attribute", "data", "property"):
        lines.insert(0, "")  # napoleon looks for a type in the first line alone
    else:
        lines[:] = described(lines)


def described(lines: list[str]) -> list[str]:
    """Divide the description of several parameters: at its semicolons, or else the further ones refer to the first."""
    divided: list[str] = []
    while lines:
        header, lines = lines[0], lines[1:]
        if not NAMES.match(header) or not (lines and lines[0].startswith("    ")):
            divided.append(header)
            continue
        end = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("    ")), len(lines))
        text, lines = " ".join(line.strip() for line in lines[:end]).strip(), lines[end:]
        names, parts = header.split(", "), text.split("; ")
        if len(parts) != len(names):
            parts = [text, *[f"See ``{names[0].lstrip('*')}``."] * (len(names) - 1)]
        for name, part in zip(names, parts, strict=True):
            sentence = part[0].upper() + part[1:] if part[0].isalpha() else part
            divided += [name, f"    {sentence.rstrip('.')}.", ""]
    return divided
