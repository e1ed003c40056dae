"""The repository for students: everything but the solutions; and what the texts of submissions tell."""

import re

import pytest

from fedleak_book import paths
from fedleak_book.coursework import ASSIGNMENTS, similarity
from fedleak_book.coursework.students import copy

COURSEWORK = paths.root() / "book" / "coursework"


def test_the_copy_has_no_solutions(tmp_path):
    if not (paths.root() / ".git").exists():
        pytest.skip("git lists the files of a checkout")
    assert copy(tmp_path / "course") > 100
    pages = tmp_path / "course" / "book" / "coursework"
    assert {path.name for path in pages.iterdir()} == {path.name for path in COURSEWORK.iterdir()} - {
        "solutions",
        "teachers.md",
    }
    for name in ASSIGNMENTS:
        (page,) = pages.glob(f"*_{name}.md")
        text = page.read_text(encoding="utf-8")
        original = (COURSEWORK / page.name).read_text(encoding="utf-8")
        assert "Solution of C" in original
        assert not re.search("Solution of|What a good answer|solutions/|% measured", text)
        assert text.count("## ") == original.count("## ")
        assert f"stubs/{name}.py" in text
        assert len(re.findall(r"^:{3,}$", text, re.M)) == len(re.findall(r"^:{3,}\{", text, re.M))
    for page in ("_toc.yml", "book/index.md", "book/coursework/index.md"):
        assert not re.search("coursework/teachers|<teachers>", (tmp_path / "course" / page).read_text(encoding="utf-8"))
    with pytest.raises(FileExistsError):
        copy(tmp_path / "course")


def source(kind, name):
    return (COURSEWORK / kind / f"{name}.py").read_bytes()


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_a_renamed_copy_is_alike_and_a_stub_is_not(name):
    solution, stub = source("solutions", name), source("stubs", name)
    renamed = re.sub(rb"\b(rows|found|right)\b", rb"my_\1", solution).replace(b'"""Coursework', b'"""My own')
    other = source("solutions", "defences" if name != "defences" else "rlu")
    nearest = similarity.nearest(
        {"ada": renamed, "(solution)": solution, "bob": stub, "eve": other, "cut": b"def f("}, stub
    )
    assert nearest["ada"] == (1.0, "(solution)")
    assert nearest["bob"][0] == nearest["cut"][0] == 0.0
    assert nearest["eve"][0] < 0.3
