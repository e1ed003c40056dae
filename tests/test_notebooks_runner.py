"""The papermill runner, on a miniature checkout with one tiny notebook."""

from types import SimpleNamespace

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fedleak_book import paths
from fedleak_book.pages import notebooks

PARAMETERS = """\
profile = "quick"
device = "auto"
seed = 0
trials = 0
data_root = None
record = False"""


def write_notebook(path, body="print(trials)", *later):
    cells = [
        new_markdown_cell("# Tiny", id="title"),
        new_code_cell(PARAMETERS, id="parameters", metadata={"tags": ["parameters"]}),
        new_code_cell(body, id="body"),
        *(new_code_cell(text, id=f"later-{number}") for number, text in enumerate(later)),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for folder in ("notebooks", "fedleak", "data/results/tiny", "data/published"):
        (tmp_path / folder).mkdir(parents=True)
    toc = "root: book/index\nparts:\n- chapters:\n  - file: notebooks/tiny\n  - file: book/data\n"
    (tmp_path / "_toc.yml").write_text(toc)
    (tmp_path / "fedleak" / "code.py").write_text("x = 1\n")
    (tmp_path / "requirements.lock").write_text("numpy==2\n")
    write_notebook(tmp_path / "notebooks" / "tiny.ipynb")
    monkeypatch.chdir(tmp_path)
    paths.root.cache_clear()
    yield tmp_path
    paths.root.cache_clear()


def run(**options):
    return notebooks.execute("tiny", progress=False, **options)


@pytest.mark.slow
def test_a_finished_run_is_as_new_as_its_code_and_parameters(checkout, monkeypatch):
    write_notebook(checkout / "notebooks" / "tiny.ipynb", "from pathlib import Path; print(trials, Path.cwd().name)")
    monkeypatch.chdir(checkout / "notebooks")
    assert run(parameters={"trials": 3}, out="mine.ipynb") == checkout / "notebooks" / "mine.ipynb"
    assert notebooks.is_stale("tiny", {**notebooks.QUICK, "trials": 3})
    out = run(parameters={"trials": 3})
    assert out == paths.executed_notebook("tiny")
    assert not notebooks.is_stale("tiny", {**notebooks.QUICK, "trials": 3})
    assert notebooks.is_stale("tiny", {**notebooks.QUICK, "profile": "paper", "trials": 3})
    (checkout / "fedleak" / "code.py").write_text("x = 2\n")
    assert notebooks.is_stale("tiny", {**notebooks.QUICK, "trials": 3})
    notebook = nbformat.read(out, as_version=4)
    assert notebook.cells[-1].outputs[0].text == f"3 {checkout.name}\n"  # the root, wherever the command is typed
    assert str(checkout) not in out.read_text()
    assert [path.name for path in out.parent.iterdir()] == ["tiny.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason", "later"),
    [
        ("raise KeyError('label')", "KeyError: 'label'", ("2",)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "DeadKernelError", ()),
    ],
)
@pytest.mark.parametrize("several", [False, True])
def test_a_failed_run_leaves_the_last_good_one(checkout, body, reason, later, several):
    good = paths.executed_notebook("tiny")
    good.parent.mkdir(parents=True)
    good.write_text("good")
    write_notebook(checkout / "notebooks" / "tiny.ipynb", body, *later)
    write_notebook(checkout / "notebooks" / "beside.ipynb")
    with pytest.raises(notebooks.NotebookFailed, match=r"tiny stopped in cell 'body'") as caught:
        notebooks.execute_all(["tiny", "beside"], jobs=2) if several else run()
    assert reason in str(caught.value)
    assert "_build/failed/tiny.ipynb" in str(caught.value)
    assert (checkout / "_build" / "failed" / "tiny.ipynb").is_file()
    assert good.read_text() == "good"
    assert {path.name for path in good.parent.iterdir()} == {"tiny.ipynb"} | ({"beside.ipynb"} if several else set())


@pytest.mark.usefixtures("checkout")
def test_a_mistake_is_found_out_before_anything_runs(monkeypatch):
    monkeypatch.setattr(papermill, "execute_notebook", lambda *_, **__: pytest.fail("papermill was started"))
    with pytest.raises(ValueError, match="trials"):
        notebooks.execute("tiny", {"trials": "three"})
    for out in ("_toc.yml/out.ipynb", "."):
        with pytest.raises(PermissionError, match="--out"):
            notebooks.execute("tiny", out=out)


def test_the_fingerprint_follows_what_the_result_follows_from(checkout):
    def now(parameters=None):
        return notebooks.fingerprint("tiny", parameters or {"trials": 1})

    fingerprints = [now()]
    notebook = nbformat.read(paths.source_notebook("tiny"), as_version=4)
    notebook.metadata["edited"] = "on a Monday"
    notebook.cells[0].source = "# A better title"
    nbformat.write(notebook, paths.source_notebook("tiny"))
    (checkout / "data" / "results" / "other.csv").write_text("1\n")
    assert now() == fingerprints[0]

    fingerprints.append(now({"trials": 2}))
    write_notebook(paths.source_notebook("tiny"), "print(1)")
    fingerprints.append(now())
    published, lock = "data/published/tiny/tables.toml", "requirements.lock"
    for file in ("fedleak/code.py", "fedleak/more.py", published, "data/results/tiny/fig.csv", lock):
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        (checkout / file).write_text("changed\n")
        fingerprints.append(now())
    assert len(set(fingerprints)) == len(fingerprints)


@pytest.mark.parametrize(("stale", "force", "runs"), [(False, False, 0), (True, False, 1), (False, True, 1)])
def test_the_book_executes_stale_chapters_only(checkout, monkeypatch, stale, force, runs):
    calls, codes = [], iter([0, 1])
    monkeypatch.setattr(notebooks, "is_stale", lambda *_: stale)
    monkeypatch.setattr(notebooks, "execute", lambda name, _: calls.append(name))
    monkeypatch.setattr(notebooks.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=next(codes)))
    assert notebooks.build_book(force=force) == checkout / "_build" / "html" / "index.html"
    assert calls == ["tiny"] * runs
    with pytest.raises(notebooks.BookFailed):
        notebooks.build_book()
