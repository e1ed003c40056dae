"""One letter per thing: the formulas of a chapter keep to the notation page's table."""

import json
import re

import letters
import pytest

from fedleak_book import paths

FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.S)
BOLD = r"\\mathbf ?(?:\{(\w)\}|(\w))"
LETTER = re.compile(rf"{BOLD}|(?<=\\)([a-zA-Z]+)|(?<![a-zA-Z\\])([a-zA-Z])(?![a-zA-Z])")
WORDS = re.compile(
    r"\\(?:operatorname|text|mathrm|label|begin|end)\{[^}]*\}|\\(?:mathcal|mathbb) ?\w"
    r"|\\(?:boldsymbol|nabla|hat|bar|tilde|lvert|rvert)\b"
)


def letters_of(text):
    """Letters of a text's formulas: bold ones as **a**, Greek ones by name; a superscript T is a transpose's."""
    formulas = " ".join(WORDS.sub(" ", a or b) for a, b in FORMULA.findall(text))
    found = LETTER.findall(formulas.replace("_", " ").replace("^", " "))
    return {f"**{braced or bold}**" if braced or bold else greek or plain for braced, bold, greek, plain in found}


def first(cell):
    """The letter that a cell of the table is about."""
    match = LETTER.search(WORDS.sub(" ", cell))
    bold = match and (match[1] or match[2])
    return match and (f"**{bold}**" if bold else match[3] or match[4])


@pytest.mark.parametrize("chapter", letters.COLUMNS)
def test_chapters_use_a_letter_for_one_thing(chapter):
    table = letters.letters()
    in_use = table[table[letters.COLUMNS[chapter]] != letters.NONE]
    ours = set(table["Letter"].map(first))
    theirs = set(in_use[letters.COLUMNS[chapter]].map(first).dropna())
    cells = json.loads((paths.root() / "notebooks" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    used = set(in_use["Letter"].map(first)) | letters_of(" ".join(in_use["Meaning"]))
    assert not letters_of(text) & (ours | theirs) - used - {letter.strip("*") for letter in used}
