"""The repository for students: everything but the solutions."""

import re

import pytest

from fedleak_book import paths
from fedleak_book.coursework import NAMES
from fedleak_book.coursework.students import copy, stub

COURSEWORK = paths.root() / "book" / "coursework"


def test_the_copy_has_no_solutions(tmp_path):
    if not (paths.root() / ".git").exists():
        pytest.skip("git lists the files of a checkout")
    assert copy(tmp_path / "course") > 100
    pages = tmp_path / "course" / "book" / "coursework"
    assert {path.name for path in pages.iterdir()} == {path.name for path in COURSEWORK.iterdir()} - {"teachers.md"}
    for name in NAMES:
        (page,) = pages.glob(f"*_{name}.md")
        text = page.read_text(encoding="utf-8")
        original = (COURSEWORK / page.name).read_text(encoding="utf-8")
        assert "Solution of C" in original
        assert not re.search("Solution of|What a good answer|solutions/|% measured", text)
        assert text.count("## ") == original.count("## ")
        solution = (COURSEWORK / "solutions" / f"{name}.py").read_text(encoding="utf-8")
        copied = (pages / "solutions" / f"{name}.py").read_text(encoding="utf-8")
        assert copied == stub(solution) == stub(copied) != solution
        assert f"/book/_generated/{name}.py" in text
        assert len(re.findall(r"^:{3,}$", text, re.M)) == len(re.findall(r"^:{3,}\{", text, re.M))
    for page in ("_toc.yml", "README.md", "book/index.md", "book/coursework/index.md"):
        assert not re.search("coursework/teachers|<teachers>", (tmp_path / "course" / page).read_text(encoding="utf-8"))
    with pytest.raises(FileExistsError):
        copy(tmp_path / "course")
