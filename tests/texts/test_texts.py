"""What the chapters' texts and captions say in numbers is what the recorded rows give."""

import re

import pytest
import said_gdbr  # noqa: F401
from saying import SAID, text

from fedleak import paths


@pytest.mark.parametrize(("chapter", "says"), SAID)
def test_the_text_says_what_is_recorded(chapter, says):
    for words in says():
        assert words in text(chapter)


def test_pages_promise_no_more_than_the_chapters_do():
    pages = [paths.root() / "README.md", *(paths.root() / "book").glob("*.md")]
    promise = re.compile(
        r"every equation|says? which (defence )?works?|each (chapter )?measures defences", re.IGNORECASE
    )
    assert [page.name for page in pages if promise.search(" ".join(page.read_text(encoding="utf-8").split()))] == []
