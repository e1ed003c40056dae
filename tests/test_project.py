"""The checkout itself: its files agree with each other, and hold nothing that they should not."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import date
from itertools import chain

import nbformat
import pytest
import yaml

from fedleak_book import parameters, paths
from fedleak_book.evidence import published
from fedleak_book.experiments import records
from fedleak_book.pages import notebooks

ROOT = paths.root()
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIG["project"]
LOCK = (ROOT / "requirements.lock").read_text()
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WITH_EXAMPLE = [*NOTEBOOKS, ROOT / "tests/examples/paper/notebooks/example.ipynb"]


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-").replace(".", "-")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def tracked():
    """Return all files that are committed or would be."""
    done = git("ls-files", "--cached", "--others", "--exclude-standard")
    if done.returncode:
        pytest.skip("not a git checkout")
    return [line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


EXTRAS = {key: value for key, value in PROJECT["optional-dependencies"].items() if key != "bench"}
"""Without the benchmarks' peer, which nobody needs for the book or the tests."""


def test_the_lock_covers_every_requirement():
    locked = {name_of(line) for line in LOCK.splitlines() if line and not line.startswith("#")}
    wanted = {name_of(requirement) for requirement in (*PROJECT["dependencies"], *chain(*EXTRAS.values()))} - {
        PROJECT["name"]
    }
    assert wanted <= locked
    assert "setuptools" in locked  # `make` installs the package without build isolation
    for pin in ("torch==2.14.1", "torchvision==0.29.1"):
        assert re.search(rf"^{re.escape(pin)}\s*(;|$)", LOCK, re.M)


def test_the_wheel_has_the_package_alone(tmp_path):
    for name in ("fedleak", "fedleak_book"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert [path.name for path in (tmp_path / "built").iterdir()] == ["fedleak"]
    assert (tmp_path / "built" / "fedleak" / "attacks" / "labels" / "llg.py").is_file()


def imported(path):
    """Return what a file of the package imports outside functions and outside blocks that name an extra."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


def test_the_package_asks_for_what_its_modules_import():
    """The extras are imported in blocks `with extra(...)`, or in functions."""
    files = [path for path in (ROOT / "fedleak").rglob("*.py") if path.parts[-2] != "flower" and path.stem != "suite"]
    audit = [path for path in files if path.parts[-2] in ("audit", "commands") or path.stem == "cli"]
    core = required([path for path in files if path not in audit]) | {"torchvision"}  # in functions: it takes seconds
    assert core == {name_of(requirement) for requirement in PROJECT["dependencies"]}
    late = {"markdown-it-py", "matplotlib"}  # in functions: a report as JSON needs neither
    assert (required(audit) | late) - core == {name_of(requirement) for requirement in EXTRAS["audit"]}


def required(files):
    """Return the packages that these files import, by the names of their distributions."""
    names = {"markdown_it": "markdown-it-py", "PIL": "pillow"}
    modules = set(chain(*map(imported, files))) - set(sys.stdlib_module_names) - {"fedleak"}
    return {names.get(module, module) for module in modules}


CONFIGURING = {"requirements.lock", "environment.yml", "pyproject.toml", "_config.yml", "Makefile"}
CONFIGURING |= {"Containerfile", ".ci/run"}


def test_no_file_names_this_machine_nor_a_registry():
    for line in tracked():
        text = (ROOT / line).read_bytes()
        assert str(ROOT).encode() not in text, line
        assert line not in CONFIGURING or not re.search(rb"https?://|index-url|--find-links|file:", text), line


def test_the_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == PROJECT["version"]
    assert f"version = {{{PROJECT['version']}}}" in (ROOT / "book" / "index.md").read_text()
    assert citation["license"] == PROJECT["license"]
    released = f"{PROJECT['version']} ({citation['date-released']})"
    assert f"\n## {released}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_every_notebook_is_a_page_of_the_toc():
    pages = re.findall(r"(?:file|root): (\S+)", (ROOT / "_toc.yml").read_text())
    assert pages
    for page in pages:
        assert any((ROOT / page).with_suffix(suffix).is_file() for suffix in (".md", ".ipynb")), page
    assert sorted(notebooks.pages()) == sorted(path.stem for path in NOTEBOOKS)


@pytest.fixture(params=WITH_EXAMPLE, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_notebooks_are_committed_clean(notebook):
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert "papermill" not in notebook.metadata
    (tagged,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    values = {}
    exec(tagged.source, values)
    assert values.keys() >= parameters.KINDS.keys()
    assert values["profile"] == "quick"
    assert values["record"] is False
    assert values["scheduler"] == ""
    assert any(re.search(r"record,\s*scheduler\b", cell.source) for cell in code), "it must reach the chapter"
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert not [name for name in ids if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f-]+)?", name)], "unreadable cell ids"
    lines = [sum(bool(line.strip()) for line in cell.source.split("\n")) for cell in code]
    assert sum(lines) <= 300, "chapters are short and shown"
    assert max(lines) <= 40


def test_figures_have_captions_and_alternative_texts(notebook):
    figures = [cell.metadata["mystnb"] for cell in notebook.cells if "figure" in cell.metadata.get("mystnb", {})]
    assert figures
    for figure in figures:
        caption, alt = figure["figure"]["caption"], figure["image"]["alt"]
        assert len(alt) >= 30, figure["figure"].get("name")
        assert alt != caption  # the one says what it is, the other what is to be seen
    pictures = [alt for cell in notebook.cells for alt in re.findall(r"!\[([^\]]*)\]\(", cell.source)]
    assert all(pictures)


PROVENANCE = {"date", "commit", "fedleak", "torch", "python", "processor", "profile", "seed", "trials", "device"}
PROVENANCE |= {"threads", "seconds", "datasets", "sha256"}
RESULTS = ROOT / "data" / "results"
PLACE = re.compile(r"\b(Abstract|Sec|App|Figs?|Tables?|Eqs?|Alg|Prop|Theorem|Assumption)\b")
OURS = re.compile(r"pre-registered here|not in the paper")


def listed(fact):
    """A fact of all units, or those of several."""
    return fact if isinstance(fact, list) else [fact]


def recorded_tables():
    return sorted(RESULTS.rglob("*.csv"))


@pytest.mark.slow
def test_every_recorded_result_says_where_it_comes_from():
    assert len(recorded_tables()) > 40
    for path in recorded_tables():
        profile = "quick" if path.parent.name == "quick" else "paper"
        facts = records.recorded(path.relative_to(RESULTS).parts[0], path.stem, profile).facts  # refuses other rows
        assert facts.keys() >= PROVENANCE, path
        assert all(map(date.fromisoformat, listed(facts["date"]))), path
        assert facts["profile"] == profile, path
        assert all(re.fullmatch(r"[0-9a-f]{12}", commit) for commit in listed(facts["commit"])), path
        assert all({"name", "images", "digest", "subset", "source"} <= used.keys() for used in facts["datasets"]), path
    alone = [p for p in RESULTS.rglob("*.json") if not p.with_suffix(".csv").exists()]
    assert [p for p in alone if "joins" not in json.loads(p.read_text())] == [], "provenance without its table"
    for path in RESULTS.rglob("*"):
        assert path.is_dir() or path.suffix in (".csv", ".json", ".svg"), path


def test_every_recorded_result_comes_from_a_commit_of_this_history():
    """Or from one that was joined with others into a commit of it, which the record names."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("not a git checkout, or a shallow one: the commits are not here")
    history = set(git("log", "--format=%H").stdout.split())
    facts = [json.loads(path.with_suffix(".json").read_text()) for path in recorded_tables()]
    commits = {commit for fact in facts for commit in listed(fact.get("joined", fact["commit"]))}
    assert sorted(c for c in commits if not any(ancestor.startswith(c) for ancestor in history)) == []


@pytest.mark.parametrize("paper", paths.papers())
def test_published_values_cite_their_place_and_immaterial_settings_their_evidence(paper):
    paper_values = published.load(paper)  # refuses two values of one id, and missing or unknown fields
    assert paper_values.title
    assert f"{{{paper_values.key}," in (ROOT / "book" / "references.bib").read_text()
    for item in paper_values.items.values():
        assert PLACE.search(item.where) or OURS.search(item.where), f"{item.id}: {item.where!r} is no place"
        assert item.why, f"{item.id}: no reason for its tolerance"
        assert item.beyond or not OURS.search(item.where), f"{item.id} is ours, and counted as the paper's"
    assert any(PLACE.search(item.where) for item in paper_values.items.values())
    notebook = (ROOT / "notebooks" / f"{paper}.ipynb").read_text(encoding="utf-8")
    for table in paper_values.tables.values():
        for evidence in (rule["evidence"] for rule in table.head.get("immaterial", ())):
            recorded = (RESULTS / paper / f"{evidence}.csv").exists()
            assert recorded or f"({evidence})" in notebook or f":label: {evidence}" in notebook, (table.name, evidence)
