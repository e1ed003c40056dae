"""The command line: what it passes on, what it prints, and how it fails."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedleak import cli
from fedleak_book.experiments import cluster
from fedleak_book.pages import notebooks


def invoke(*words):
    return CliRunner().invoke(cli.app, list(words))


@pytest.fixture
def executed(monkeypatch):
    """Replace the execution of notebooks by a list of what would have been executed."""
    calls = []
    monkeypatch.setattr(notebooks, "execute", lambda *asked: calls.append(asked) or Path("out.ipynb"))
    return calls


def test_run_passes_everything_on(executed, monkeypatch):
    reached = []
    monkeypatch.setattr(cluster, "reach", reached.append)
    settings = ["--profile", "paper", "--device", "cpu", "--record", "--out", "here.ipynb"]
    first = ["-p", "trials", "100", "--parameter", "data_root", "None"]
    result = invoke("run", *first, "llg", *settings, "-p", "seed", "7")
    assert result.exit_code == 0, result.output
    values = {"trials": 100, "data_root": None, "seed": 7, "record": True}
    assert executed == [("llg", {"profile": "paper", "device": "cpu", **values}, Path("here.ipynb"))]
    assert "wrote out.ipynb" in result.output
    assert invoke("run", "llg", "-p", "trials=3").exit_code == 0
    assert executed[1:] == [("llg", {"profile": "quick", "device": "auto", "trials": 3}, None)]
    assert reached == []
    assert invoke("run", "llg", "--scheduler", "tcp://node7:8786").exit_code == 0
    assert executed[2][1]["scheduler"] == "tcp://node7:8786"
    assert invoke("run", "llg", "-p", "scheduler", "tcp://node7:8786").exit_code == 0
    assert reached == 2 * ["tcp://node7:8786"], "before anything runs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "llg", "-p", "trials"], "-p"),
        (["run", "../llg"], "../llg"),
        (["run", "llg", "-p", "trails", "3"], "'trials'"),
    ],
)
def test_a_mistake_is_one_clear_line(words, message):
    result = invoke(*words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("error", [notebooks.NotebookFailed, PermissionError, ZeroDivisionError])
def test_failing_chapters_are_a_message_and_bugs_keep_tracebacks(monkeypatch, error):
    def execute(*_, **__):
        raise error("cell 'x' broke")

    monkeypatch.setattr(notebooks, "execute", execute)
    result = invoke("run", "llg")
    assert result.exit_code == 1
    if error is ZeroDivisionError:
        assert isinstance(result.exception, error)
    else:
        assert result.stderr == "fedleak: cell 'x' broke\n"
