"""The README's Python runs as it stands."""

import re

import pytest

from fedleak import paths

BLOCKS = re.findall(r"```python\n(.*?)```", (paths.root() / "README.md").read_text(encoding="utf-8"), flags=re.S)


def test_the_readme_shows_some_python():
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
def test_it_runs_and_recovers_the_labels_that_are_there(block, capsys):
    namespace: dict = {}
    exec(block, namespace)
    counts = namespace["llg"].recover(namespace["update"], namespace["model"])
    assert str(counts) in capsys.readouterr().out
    assert counts.sum() >= 8
    # Property 1: what is named in the first step is there; with ReLU before the head, no absent class is negative
    g = namespace["llg"].class_gradients(namespace["update"], namespace["model"])
    assert set((g < 0).nonzero().flatten().tolist()) <= {0, 1, 3, 7}
