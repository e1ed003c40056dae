"""`fedleak audit`: from a file to a report, and one clear line for every mistake."""

import pytest

from fedleak.audit import Setup
from fedleak.audit.case import prepare
from fedleak.audit.setup import load
from fedleak.commands.audit import EXAMPLE

GOOD = """
from torch.nn import Linear, ReLU, Sequential
from fedleak.audit import Setup
setup = Setup(model=Sequential(Linear(6, 8), ReLU(), Linear(8, 3)), shape=(6,), batch_size=4, trials=5, remedy_trials=1)
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="my_setup.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_reports_are_printed_or_written(invoke, written, tmp_path, monkeypatch):
    threads = []
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    result = invoke(written(GOOD), "--trials", 3, "--fast")
    assert "**What leaks.**" in result.stdout
    assert "| 3 |" in result.stdout
    outs = [tmp_path / f"report.{ending}" for ending in ("html", "md")]
    words = "--out", outs[0], "--out", outs[1], "--trials", 3, "--seed", 7, "--fast", "--threads", 2
    result = invoke(written(GOOD), *words)
    assert threads == [1, 2]
    assert result.stdout.startswith("What leaks. ")
    for out in outs:
        assert f"wrote {out}" in result.stdout.replace("\n", "")
        assert "seed 7" in out.read_text()


def test_a_function_and_a_file_beside_it_will_do(written):
    written("from torch import nn\ndef net():\n    return nn.Linear(6, 3)\n", "own_net_beside.py")
    text = "def setup():\n    from own_net_beside import net\n    return Setup(model=net)\n"
    text = "from fedleak.audit import Setup\n" + text
    assert load(written(text)).batch_size == 32


def test_the_example_is_a_file_that_works(invoke, written):
    result = invoke("--example")
    assert result.stdout == EXAMPLE.read_text()
    setup = load(written(result.stdout))
    assert isinstance(setup, Setup)
    assert prepare(setup).classifier.n_classes == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "my_setup.py defines no `setup`"),
        ("setup = 3\n", "gives a setup of type int"),
        ("\n\nimport nothing_like_this\n", "my_setup.py, line 3: ModuleNotFoundError: No module named"),
        ("def setup():\n    x = 1\n    return x.y\n", "my_setup.py, line 3: AttributeError"),
        ("x = (\n", "my_setup.py, line 1: SyntaxError"),
        (GOOD.replace("batch_size=4", "batch_size=0"), "my_setup.py, line 4: batch_size is a whole number"),
    ],
)
def test_a_mistake_in_the_file_is_one_clear_line(invoke, written, text, message):
    result = invoke(written(text), ends=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_mistake_in_the_call_is_one_clear_line(invoke, written, tmp_path):
    assert "name the file" in invoke(ends=2).stderr
    assert "no file" in invoke(tmp_path / "none.py", ends=2).stderr
    assert "ends in .html, .md, .json" in invoke(written(GOOD), "--out", tmp_path / "r.pdf", ends=2).stderr
    assert "trials is a whole number" in invoke(written(GOOD), "--trials", 0, ends=2).stderr
