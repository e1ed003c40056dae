"""`check`: what it takes, what it prints, and how it refuses bad input."""

import functools
import json
import socket
import time
from pathlib import Path
from types import ModuleType

import nbformat
import numpy as np
import pytest
import torch
from test_assignments import load

from fedleak_book import coursework, paths
from fedleak_book.coursework import check, wire

SOLUTION = paths.root() / "book" / "coursework" / "solutions" / "lia_sa.py"


def in_cells(*cells):
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return nbformat.writes(nbformat.v4.new_notebook(cells=[*code, nbformat.v4.new_markdown_cell("no code")]))


def test_modules_files_dictionaries_and_functions_are_checked(capsys):
    module = ModuleType("lia_sa")
    vars(module).update(load(SOLUTION))
    assert check("lia_sa", module).passed
    assert check("lia_sa", str(SOLUTION)).passed
    assert check("lia_sa", vars(module)).passed
    alone = check("lia_sa", module.counts, show=False)
    assert [outcome.check.name for outcome in alone.outcomes] == ["counts"]
    assert alone.passed
    assert capsys.readouterr().out.count("lia_sa: 10 of 10 points") == 3


def test_an_exception_is_named_with_its_line(tmp_path):
    file = tmp_path / "lia_sa.py"
    file.write_text("def system(e):\n    x = 1\n    return e + missing\n")
    first, second, *_ = check("lia_sa", file, show=False).outcomes
    assert first.status == "error"
    assert "NameError (line 3): name 'missing' is not defined" in str(first)
    assert second.status == "not written"
    assert "`disaggregate` is not there" in second.message


@pytest.mark.parametrize("solution", [None, 5, [len], functools.partial(len), {"a": 1}.items()], ids=str)
def test_other_than_a_solution_is_refused(solution):
    with pytest.raises(ValueError, match="a solution is a file's path"):
        check("lia_sa", solution)


def test_another_seed_than_a_number_is_refused():
    with pytest.raises(ValueError, match=r"^seed is a"):
        check("lia_sa", SOLUTION, seed="a")


FAILING = {
    "session": "get_ipython().run_line_magic('matplotlib', 'inline')",
    "inputs": "print(In[1], Out)",
    "exit": "raise SystemExit",
    "syntax": "this is not Python",
    "call": "undefined(1)",
}


@pytest.mark.parametrize("exported", [False, True], ids=["notebook", "exported"])
@pytest.mark.parametrize("cell", [*FAILING.values(), "import asyncio\nawait asyncio.sleep(0)"], ids=[*FAILING, "await"])
def test_a_cell_without_definitions_that_fails_costs_nothing(tmp_path, cell, exported):
    cells = [cell, "from __future__ import annotations", SOLUTION.read_text(), cell]
    path = tmp_path / ("lia_sa.py" if exported else "lia_sa.ipynb")
    path.write_text("".join(f"\n# In[ ]:\n\n{text}\n" for text in cells) if exported else in_cells(*cells))
    assert check("lia_sa", path, show=False).passed


def test_a_function_that_is_missing_shows_the_cell_that_failed(tmp_path):
    path = tmp_path / "lia_sa.ipynb"
    cells = ["x = 1", "y = 2\nundefined(1)\ndef system(e):\n    return e", "def disaggregate(e, w, b):\n    return e"]
    path.write_text(in_cells(*cells))
    first, second, *_ = check("lia_sa", path, show=False).outcomes
    assert "lia_sa.ipynb does not run: NameError (cell 2, line 2)" in str(first)
    assert (second.check.function, second.status) == ("disaggregate", "wrong")


def test_a_function_that_changes_its_arguments_fails():
    solved = load(SOLUTION)["disaggregate"]

    def disaggregate(embeddings, weight_sum, bias_sum):
        counts = solved(embeddings, weight_sum, bias_sum)
        bias_sum.zero_()
        return counts

    (outcome,) = check("lia_sa", disaggregate, show=False).outcomes
    assert outcome.status == "wrong"
    assert "changes its argument 3" in outcome.message


MAGICS = "%matplotlib inline\n!exit 1\nx = !ls\ndisplay(1)\nget_ipython().config"


def test_a_notebook_with_magics_is_checked(tmp_path):
    solution = SOLUTION.read_text(encoding="utf-8")
    timed = solution.replace("def counts", "#CUT\ndef counts").split("#CUT\n")
    timed[0], here = f"%cd {tmp_path}\n{timed[0]}", Path.cwd()
    notebook = tmp_path / "lia_sa.ipynb"
    notebook.write_text(in_cells(MAGICS, timed[0], "%%time\n" + timed[1]))
    assert check("lia_sa", notebook, show=False).passed
    assert Path.cwd() == here


def test_a_notebooks_error_names_cell_and_line(tmp_path):
    file = tmp_path / "lia_sa.ipynb"
    file.write_text(in_cells("x = 1\ny = 2", "\ndef system(e):\n    return e + missing"))
    first = check("lia_sa", file, show=False).outcomes[0]
    assert "`system` raised NameError (cell 2, line 3)" in first.message
    file.write_text('{"cells": 3}')
    first, *_ = check("lia_sa", file, show=False).outcomes
    assert (first.status, first.message) == ("error", "lia_sa.ipynb is not a notebook that can be read")


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(ValueError, match="lgl"):
        check("lgl", {})
    with pytest.raises(FileNotFoundError, match=r"no file"):
        check("llg", tmp_path / "llg.py")
    with pytest.raises(ValueError, match="sorted"):
        check("llg", sorted)
    with pytest.raises(AttributeError):
        _ = coursework.nothing


def test_values_survive_the_wire():
    tensors = [{"a": torch.arange(3)}, torch.zeros(2, 0), torch.tensor(True)]
    value = [1, 0.5, float("inf"), "a", None, True, [1, [2, 3.0]], *tensors]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, value)
        assert str(wire.receive(theirs)) == str(value)


def test_numpy_becomes_torch_and_the_rest_is_refused():
    assert wire.plain({"x": np.float64(2.0), "y": np.arange(2)})["y"].equal(torch.arange(2))
    nested = [0] * 10
    for _ in range(8):
        nested = [nested] * 10  # a billion entries behind eighty references
    bad = [object(), print, torch.zeros(3).to_sparse(), {1: 2}, torch.zeros(()).expand(10**7), nested]
    for value in (*bad, torch.zeros(2, dtype=torch.complex64), np.array(["a"])):
        with pytest.raises(TypeError):
            wire.plain(value)


def packed(**changes):
    return json.dumps({"tensor": "AAAAAAAA8D8=", "type": "float64", "shape": [1]} | changes).encode()


def test_bytes_that_are_no_message_are_refused():
    assert wire.decode(packed()).equal(torch.ones(1).double())
    bad = [b"", b"abc", b"[" * 10**6, b"\x80\x04]\x94.", packed(shape=[2]), packed(type="storage"), packed(tensor="?")]
    for data in (*bad, packed(shape=[10**12])):
        with pytest.raises(ValueError, match="no readable answer"):
            wire.decode(data)


def test_a_reply_has_a_deadline_and_a_largest_size():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes(7) + b"\x09" + b"[1,")
        with pytest.raises(TimeoutError):
            wire.receive(ours, time.monotonic() + 0.1)
        theirs.sendall(b"\xff" * 8)
        with pytest.raises(ValueError, match="too large"):
            wire.receive(ours, time.monotonic() + 1)
        theirs.close()
        with pytest.raises(EOFError):
            wire.receive(ours, time.monotonic() + 1)
