"""Where a checkout of the project keeps things: found from the working directory, never hard-wired."""

import ast
import json
import os
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def root() -> Path:
    """Return the project's root: the nearest folder upwards that holds `_toc.yml`, `notebooks/` and `fedleak/`.

    Looked for from the working directory and from this file, in that order. Raises `FileNotFoundError` if neither is
    inside a checkout: the notebooks and the recorded results are not part of the wheel.
    """
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir() and (folder / "fedleak").is_dir():
                return folder
    raise FileNotFoundError("no fedleak checkout found here or above: clone the repository and run this inside it")


def notebooks() -> list[str]:
    """Return the names of all notebooks of the checkout."""
    return sorted(path.stem for path in (root() / "notebooks").glob("*.ipynb"))


def source_notebook(name: str) -> Path:
    """Return the path of a chapter's notebook, as committed (without outputs)."""
    return root() / "notebooks" / f"{name}.ipynb"


def chapter_of(notebook: str) -> str:
    """Return the chapter whose experiments a notebook shows: ``arena-further`` continues ``arena``."""
    return notebook.partition("-")[0]


def with_experiments(chapter: str) -> Path:
    """Return the folder of a chapter's experiments; raise `ValueError` if there is no such chapter."""
    chapters = {
        path.parent.name for path in (root() / "notebooks").glob("*/experiments*") if path.stem == "experiments"
    }
    if chapter not in chapters:
        raise ValueError(f"{chapter!r} is no chapter with experiments; there are: {', '.join(sorted(chapters))}")
    return root() / "notebooks" / chapter


def modules(chapter: str, part: str = "") -> list[str]:
    """Return the names of a chapter's modules, of packages in it too: those that begin with `part`, sorted by file."""
    files = (root() / "notebooks" / chapter).rglob("*.py")
    names = (file.relative_to(root()).with_suffix("").as_posix().replace("/", ".") for file in sorted(files))
    return [name.removesuffix(".__init__") for name in names if name.startswith(f"notebooks.{chapter}.{part}")]


def experiment_names(chapter: str) -> set[str]:
    """Return the names of a chapter's experiments, read from its modules and records without importing anything.

    They are first arguments or ``name=`` of the calls that are assigned in modules, and names of records that are
    neither retired nor joined under another name.
    """
    names = {file.stem for file in recorded(chapter).glob("*.csv")}
    for file in with_experiments(chapter).rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                given = [*node.value.args[:1], *(word.value for word in node.value.keywords if word.arg == "name")]
                names |= {str(part.value) for part in given if isinstance(part, ast.Constant)}
    for name, facts in provenance(chapter).items():
        names -= {*facts.get("joins", ()), *([name] if "retired" in facts else ())}
    return {name for name in names if name.isidentifier() and name.islower()}


def require_experiment(chapter: str, name: str, declared: Collection[str]) -> None:
    """Raise `ValueError` for an experiment that a chapter does not declare, or does not declare any more."""
    if name in declared:
        return
    if code := provenance(chapter).get(name, {}).get("retired"):
        raise ValueError(f"the code of {chapter} {name} was retired; to run it again:\n{again(chapter, name, code)}")
    raise ValueError(f"{chapter} declares no {name!r}; there are: {', '.join(declared)}")


def again(chapter: str, name: str, code: Mapping[str, str]) -> str:
    """Return the commands that record again what the present code does not run; `code` is what its record says."""
    commit, folder = code["commit"], f"../fedleak-{code['commit'][:8]}"
    return f"git worktree add {folder} {commit}\ncd {folder}\nPYTHONPATH=. python -m fedleak record {chapter} {name}"


def executed_notebook(name: str) -> Path:
    """Return where papermill leaves the executed copy that the book shows."""
    return root() / "_build" / "executed" / "notebooks" / f"{name}.ipynb"


def recorded(paper: str, profile: str = "paper") -> Path:
    """Return the folder with a paper's recorded runs; those of the quick profile are for `fedleak recheck` only."""
    folder = root() / "data" / "results" / paper
    return folder if profile == "paper" else folder / profile


def provenance(chapter: str) -> dict[str, dict[str, Any]]:
    """Return what the files beside a chapter's records say, by name: where they come from, or what they join."""
    return {file.stem: facts(file) for file in sorted(recorded(chapter).glob("*.json"))}


def facts(file: Path) -> dict[str, Any]:
    """Read what one of these files says; ``{}`` if there is none; `ValueError` if it is damaged."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}
    except ValueError as error:
        raise ValueError(f"{file.relative_to(root()).as_posix()} is damaged: {error}") from error


def verdicts() -> Path:
    """Return the file with the verdict on every published value."""
    return root() / "data" / "verdicts.csv"


def digests() -> Path:
    """Return the file with the digests of what the verdicts were made with."""
    return verdicts().with_suffix(".json")


def published(paper: str) -> Path:
    """Return the folder with a paper's published tables and claims."""
    return root() / "data" / "published" / paper


def chapters_with_claims() -> list[str]:
    """Return the chapters with claims or predictions, by the folders of ``data/published/``."""
    return sorted(path.parent.name for path in (root() / "data" / "published").glob("*/claims.toml"))


def papers() -> list[str]:
    """Return the chapters that have a paper, by the folders of ``data/published/``."""
    return sorted(path.parent.name for path in (root() / "data" / "published").glob("*/tables.toml"))


def units() -> Path:
    """Return the folder of finished units, which ``FEDLEAK_CACHE`` names: by default one of this checkout's own."""
    return Path(os.environ.get("FEDLEAK_CACHE") or root() / "_build" / "cache")
