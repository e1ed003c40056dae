"""Write the coursework's stubs, which the assignments' pages show and offer, from its solutions."""

from fedleak_book import paths
from fedleak_book.coursework.students import SOLUTIONS, stub


def fragments() -> dict[str, str]:
    """Return the stubs by file name."""
    return {path.name: stub(path.read_text(encoding="utf-8")) for path in (paths.root() / SOLUTIONS).glob("*.py")}
