"""Run the chapters through papermill, and build the book from the executed notebooks.

Neither papermill nor PyTorch is imported before a chapter runs: most builds follow another sentence of a page.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fedleak import files
from fedleak.errors import Failed, extra
from fedleak_book import paths
from fedleak_book.imports import imported_files
from fedleak_book.parameters import check_call

QUICK = {"profile": "quick", "device": "auto"}
"""The two parameters that every chapter has: or ``"paper"``, and ``"cpu"`` or ``"cuda"``."""
JUPYTER_BOOK = """
import gc, sys
gc.set_threshold(20_000)  # Sphinx unpickles all pages to number their figures, and none of it is garbage
sys.modules["rfc3987_syntax"] = None  # else jsonschema builds a grammar of addresses, for a second
from jupyter_book.cli.main import main
main()
"""


class NotebookFailed(Failed):
    """A chapter stopped with an error; the message names the cell and where the partial notebook is kept."""


class BookFailed(Failed):
    """The book did not build without warnings; Sphinx has printed what is wrong."""


def pages() -> list[str]:
    """Return the names of the notebooks that `_toc.yml` lists, in the book's order."""
    toc = (paths.root() / "_toc.yml").read_text(encoding="utf-8")
    return re.findall(r"^[ -]*file: notebooks/(\S+)$", toc, re.MULTILINE)


def chapters() -> list[str]:
    """Return the names of those notebooks that have experiments, in the book's order: all but the introduction."""
    return [name for name in pages() if (paths.root() / "notebooks" / name).is_dir()]


def execute(
    name: str, parameters: Mapping[str, Any] = QUICK, out: Path | None = None, *, progress: bool = True, **engine: Any
) -> Path:
    """Execute a chapter from the project's root and return the executed copy.

    Papermill writes to a temporary name beside `out` (by default where the book looks for the chapter), which is
    renamed once every cell has run: an `out` that exists is always complete. `engine` are further options of papermill.
    Raises `ValueError` as `fedleak_book.parameters.check_call`; `PermissionError`, before anything runs, if `out`
    cannot be written or is a folder; `NotebookFailed` if a cell raises, and keeps the partial notebook in
    `_build/failed/`.
    """
    with extra("book"):
        import nbformat
        import papermill

    source = paths.source_notebook(name)
    values = {**QUICK, **parameters}
    check_call(name, values)
    out = Path(out or paths.executed_notebook(name)).resolve()
    try:
        partial = files.reserve(out, ".ipynb")
    except PermissionError as error:
        raise PermissionError(f"{error}: nothing was run; name another file with --out") from error
    stamp = fingerprint(name, {key: value for key, value in values.items() if key != "scheduler"})  # same rows
    try:
        papermill.execute_notebook(
            str(source),
            str(partial),
            parameters=values,
            kernel_name="python3",
            cwd=str(paths.root()),
            progress_bar=progress,
            extra_arguments=["--IPKernelApp.log_level=50"],  # else each kernel warns that it talks over TCP
            **engine,
        )
        notebook = nbformat.read(partial, as_version=4)
        notebook.metadata.papermill.update(input_path=source.name, output_path=out.name)  # no folder of this machine
        notebook.metadata["fedleak"] = {"fingerprint": stamp}
        nbformat.write(notebook, partial)
        os.replace(partial, out)
    except papermill.PapermillExecutionError as error:
        raise _failure(name, partial, f"{error.ename}: {error.evalue}") from error
    except Exception as error:  # a dead kernel, a time-out: they, too, end the run at some cell
        raise _failure(name, partial, f"{type(error).__name__}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return out


def fingerprint(name: str, parameters: Mapping[str, Any]) -> str:
    """Hash the inputs of a chapter's outputs: its code, not its text; no data sets, whose checksums it prints."""
    codes = ["".join(cell["source"]) for cell in _code_cells(_read(paths.source_notebook(name)))]
    content: list[Any] = [codes, dict(parameters)]
    top, chapter = paths.root(), paths.chapter_of(name)
    sources = [top / "requirements.lock", *paths.published(chapter).glob("*"), *paths.recorded(chapter).glob("*")]
    sources += [*(top / "fedleak").rglob("*.py"), *(top / "fedleak_book" / "experiments").glob("*.py")]
    sources += (top / "notebooks").glob("*.py")  # the look of all chapters
    sources += imported_files(paths.modules(chapter))  # other chapters' parts, too
    for path in sorted({path for path in sources if path.is_file()}):
        content.append([path.relative_to(top), hashlib.sha256(path.read_bytes()).hexdigest()])
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def is_stale(name: str, parameters: Mapping[str, Any]) -> bool:
    """Return whether the book's copy of a chapter is missing or out of date."""
    executed = paths.executed_notebook(name)
    run = _read(executed)["metadata"].get("fedleak", {}) if executed.is_file() else {}
    return run.get("fingerprint") != fingerprint(name, parameters)


def execute_all(names: Sequence[str], parameters: Mapping[str, Any] = QUICK, jobs: int | None = None) -> None:
    """Execute notebooks, some at once: each in a process, with its share of the cores.

    By default as many run at once as there are cores, and on a GPU one after the other. Where one fails
    (`NotebookFailed`), those beside it are finished before, the others are not begun.
    """
    if jobs != 1 and len(names) > 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        at_once = min(jobs or cores, len(names))
        threads = max(cores // at_once, 1)
        with ProcessPoolExecutor(1, get_context("spawn"), _use_threads, (threads,)) as first:
            on_gpu = first.submit(_is_gpu, parameters["device"]).result()
            if sys.platform == "linux" and not on_gpu:  # no other system forks safely, and CUDA does not either
                return first.submit(_execute_forked, names, parameters, at_once).result()
        if jobs or not on_gpu:
            with ProcessPoolExecutor(at_once, get_context("spawn"), _use_threads, (threads,)) as pool:
                return _execute_in(pool, names, parameters)
    for name in names:
        execute(name, parameters)


def _is_gpu(device: str) -> bool:
    """Return whether a device is a GPU; asked in a process of its own, whose memory the chapters then have."""
    import torch

    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def _execute_forked(names: Sequence[str], parameters: Mapping[str, Any], jobs: int) -> None:
    """Execute notebooks in kernels that are forks of this process, which has no threads yet."""
    with extra("book"):
        from fedleak_book.pages import kernels

    kernels.warm_up(
        "".join(cell["source"]) for name in names for cell in _code_cells(_read(paths.source_notebook(name)))
    )
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        _execute_in(pool, names, parameters, kernel_manager_class=kernels.ForkedKernelManager)


def _execute_in(pool: ProcessPoolExecutor, names: Sequence[str], parameters: Mapping[str, Any], **engine: Any) -> None:
    try:
        begun = [pool.submit(execute, name, parameters, progress=False, **engine) for name in names]
        for done in tqdm(as_completed(begun), "notebooks", len(begun)):
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _use_threads(count: int) -> None:
    """Let the kernels that this process starts compute with this number of threads."""
    os.environ["OMP_NUM_THREADS"] = str(count)


def build_book(parameters: Mapping[str, Any] = QUICK, force: bool = False, jobs: int | None = None) -> Path:
    """Execute the stale chapters (all of them with `force`), build the HTML, and return its front page.

    Raises `NotebookFailed` if a chapter stops with an error; `BookFailed` if Sphinx warns about anything: a broken
    link, a missing citation, a chapter without its executed copy.
    """
    execute_all([name for name in pages() if force or is_stale(name, parameters)], parameters, jobs)
    top = paths.root()
    jupyter_book = [sys.executable, "-c", JUPYTER_BOOK]
    if subprocess.run([*jupyter_book, "build", ".", "-W", "-n", "--keep-going"], cwd=top).returncode:
        raise BookFailed("the book has errors or warnings; they are printed above")
    return top / "_build" / "html" / "index.html"


def _failure(name: str, partial: Path, reason: str) -> NotebookFailed:
    """Set the partial notebook aside and name the cell that ended it."""
    place, partial_copy = "", ""
    if partial.stat().st_size:
        cells = _code_cells(_read(partial))
        # Once the kernel is dead papermill calls every cell completed; those that never began have no start.
        begun = [cell["id"] for cell in cells if cell["metadata"].get("papermill", {}).get("start_time")]
        place = f" in cell {begun[-1]!r}" if begun else ""
        keep = paths.root() / "_build" / "failed" / f"{name}.ipynb"
        files.write_bytes(keep, partial.read_bytes())
        partial_copy = f" (as far as it got: {keep.relative_to(paths.root()).as_posix()})"
    return NotebookFailed(f"{name} stopped{place} with {reason}{partial_copy}")


def _read(notebook: Path) -> dict[str, Any]:
    """Return a notebook's JSON, without nbformat, whose import takes a second."""
    read: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return read


def _code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
