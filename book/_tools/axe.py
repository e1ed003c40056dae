"""Run axe-core on built pages, light and dark, wide and narrow: `python book/_tools/axe.py [FOLDER] [--only PAGE]`.

Exits with 1 if there is a serious or critical violation, and lists all of them.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from chromium import Chromium, ChromiumMissing

VIEWS = ((1280, False), (1280, True), (420, False))
GRAVE = ("serious", "critical")
PREPARE = """for (const code of [...document.querySelectorAll('.highlight pre')].slice(5)) code.textContent += '';"""
"""Takes the colours off all code blocks but five: axe would look at every word of hundreds of them."""
RUN = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(v =>
  ({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.map(n => n.target.flat().join(' '))})))"""


def source() -> str:
    """Return axe-core's source, which `axe-core-python` ships.

    Raises
    ------
    ModuleNotFoundError
        If that is not installed.
    """
    spec = find_spec("axe_core_python")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("axe-core is not installed: pip install axe-core-python")
    return (Path(next(iter(spec.submodule_search_locations))) / "axe.min.js").read_text(encoding="utf-8")


def pages(folder: Path) -> list[Path]:
    """Return the built pages of a book.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    found = sorted(p for p in folder.rglob("*.html") if not {"_static", "_sources"} & set(p.relative_to(folder).parts))
    if not found:
        raise FileNotFoundError(f"no pages in {folder}: build the book first (make book)")
    return found


def violations(folder: Path, only: Sequence[str] = ()) -> list[dict]:
    """Return every violation on the pages (by default all), each with its ``page``, ``width`` and ``dark``."""
    script, found = source(), []
    with Chromium() as browser:
        browser.block("*mathjax*")  # its output is tens of thousands of elements a chapter, and not ours
        for page in [folder / name for name in only] or pages(folder):
            browser.open(page)
            browser.run(f"{PREPARE}\n{script}\n;undefined")
            for width, dark in VIEWS:
                browser.view(width=width, dark=dark)
                where = {"page": page.relative_to(folder).as_posix(), "width": width, "dark": dark}
                found += [where | one for one in browser.run(RUN)]
    return found


def grave(folder: Path) -> list[dict]:
    """Return the serious and the critical violations."""
    return [one for one in violations(folder) if one["impact"] in GRAVE]


def main() -> int:
    """Print the violations, the grave ones last; return how to exit."""
    parser = argparse.ArgumentParser(description="Run axe-core on the built book.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("_build/html"))
    parser.add_argument("--only", nargs="+", default=(), metavar="PAGE", help="these pages, such as book/index.html")
    chosen = parser.parse_args()
    try:
        found = violations(chosen.folder, chosen.only)
    except (ChromiumMissing, FileNotFoundError, ModuleNotFoundError) as error:
        print(f"axe: {error}", file=sys.stderr)
        return 1
    for one in sorted(found, key=lambda one: one["impact"] in GRAVE):
        view = f"{one['width']} px, {'dark' if one['dark'] else 'light'}"
        print(f"{one['impact']}: {one['page']} ({view}): {one['id']}, {one['help']}")
        print(*(f"    {node}" for node in one["nodes"][:5]), sep="\n")
        if len(one["nodes"]) > 5:
            print(f"    and {len(one['nodes']) - 5} more")
    bad = sum(one["impact"] in GRAVE for one in found)
    print(f"{bad} serious or critical violations, {len(found) - bad} lesser ones")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
