"""A copy of the repository for students: without the coursework's solutions, on the pages and as files."""

import ast
import re
import shutil
import subprocess
from pathlib import Path

from fedleak_book import paths

SOLUTIONS = "book/coursework/solutions/"
LEFT_OUT = ("book/coursework/teachers.md", "tests/coursework/")
FOLDED = re.compile(r"^(:{3,})\{dropdown\} (?:Solution of|What a good answer).*?^\1\n+", re.M | re.S)
"""A solution on a page."""
FOR_TEACHERS = re.compile(r"^.*(?:coursework/teachers$|<teachers>|coursework/teachers\.md).*\n", re.M)
"""A line that leads to the page for teachers."""

REPLACED = {
    "{doc}`coursework/teachers`": "The teachers' copy",
    " Solutions are folded: look at them after you have passed.": "",
    "coursework with solutions": "coursework with stubs",
}
"""What the copy says elsewhere."""


def stub(solution: str) -> str:
    """Return a solution's functions with their docstrings alone: what a student starts from."""
    title, *lines = solution.splitlines()
    functions = [node for node in ast.parse(solution).body if isinstance(node, ast.FunctionDef)]
    heads = ("\n".join(lines[f.lineno - 2 : (f.body[0].end_lineno or 0) - 1]) for f in functions)
    unwritten = (f"{head}\n    raise NotImplementedError\n" for head in heads)
    return "\n\n".join([f"{title}\n\nfrom torch import Tensor\n", *unwritten])


def copy(folder: Path) -> int:
    """Copy what git knows of the checkout to a new folder, stubs for solutions, and return how many files that is.

    The package's own attacks stay: they are what the book is about. Raises `FileExistsError` if the folder is there;
    `FileNotFoundError` outside a checkout; `ValueError` if git does not list the checkout's files.
    """
    top = paths.root()
    if folder.exists():
        raise FileExistsError(f"{str(folder)!r} is there already")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=top, capture_output=True, text=True, check=False)
    names = [name for name in done.stdout.split("\0") if name and not name.startswith(LEFT_OUT)]
    if not names:
        raise ValueError(f"git lists no files of {top}: {done.stderr.strip()}")
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(top / name, target)
        if name.startswith(SOLUTIONS):
            target.write_text(stub(target.read_text(encoding="utf-8")), encoding="utf-8")
        elif name in ("_toc.yml", "README.md", "book/index.md") or re.fullmatch(r"book/coursework/.*\.md", name):
            text = FOR_TEACHERS.sub("", FOLDED.sub("", target.read_text(encoding="utf-8")))
            for before, after in REPLACED.items():
                text = text.replace(before, after)
            target.write_text(text, encoding="utf-8")
    return len(names)
