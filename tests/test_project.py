"""The checkout itself: its files agree with each other, and hold nothing that they should not."""

import re
import subprocess
import tomllib
from itertools import chain

import nbformat
import pytest
import yaml

from fedleak import notebooks, paths

ROOT = paths.root()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FOLDERS = {"book", "notebooks", "fedleak", "data", "tests", "benchmarks", ".ci"}
CONFIGURATION = {"environment.yml", "_config.yml", "_toc.yml", "pyproject.toml", "requirements.lock", "Makefile"}
ABOUT = {"README.md", "LICENSE", "CITATION.cff"}
CHAPTER_PARAMETERS = {"profile", "device", "seed", "trials", "data_root", "record"}


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-").replace(".", "-")


def tracked():
    """Return all files that are committed or would be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def test_top_level_is_exactly_what_it_should_be():
    found = {line.split("/")[0] for line in tracked()}
    usual = {".gitignore", ".gitattributes", ".github", ".editorconfig"}
    assert found - usual == FOLDERS | CONFIGURATION | ABOUT


def test_the_lock_covers_every_requirement():
    locked = {name_of(line) for line in LOCK.splitlines() if line and not line.startswith("#")}
    wanted = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    assert {name_of(requirement) for requirement in wanted} <= locked
    assert "setuptools" in locked  # `make` installs the package without build isolation


@pytest.mark.parametrize("pin", ["torch==2.11.0", "torchvision==0.26.0"])
def test_the_lock_pins_torch(pin):
    assert re.search(rf"^{re.escape(pin)}\s*(;|$)", LOCK, re.M)


def test_conda_users_get_the_same_environment():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert environment["name"] == PROJECT["name"]
    assert conda == ["python" + PROJECT["requires-python"], "pip"]
    extras = ",".join(PROJECT["optional-dependencies"])
    assert pip == ["--constraint requirements.lock", f"--editable .[{extras}]"]


@pytest.mark.parametrize(
    "name", ["requirements.lock", "environment.yml", "pyproject.toml", "_config.yml", "Makefile", ".ci/run"]
)
def test_no_addresses_in_what_configures_the_project(name):
    text = (ROOT / name).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|file:", text)


def test_no_file_names_this_machine():
    for line in tracked():
        assert str(ROOT).encode() not in (ROOT / line).read_bytes(), line


def test_the_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert f"version = {{{PROJECT['version']}}}" in (ROOT / "book" / "index.md").read_text()


def test_every_page_of_the_toc_exists():
    toc = (ROOT / "_toc.yml").read_text()
    pages = re.findall(r"(?:file|root): (\S+)", toc)
    assert pages
    for page in pages:
        assert any((ROOT / page).with_suffix(suffix).is_file() for suffix in (".md", ".ipynb")), page


def test_every_notebook_is_a_chapter():
    assert sorted(notebooks.chapters()) == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_committed_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert "papermill" not in notebook.metadata
    (tagged,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    values = {}
    exec(tagged.source, values)
    assert values.keys() >= CHAPTER_PARAMETERS
    assert values["profile"] == "quick"
    assert values["record"] is False
    assert not any(re.search(r"pip install|!pip|%pip", cell.source) for cell in code)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert not [name for name in ids if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f-]+)?", name)], "unreadable cell ids"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_have_captions_and_alternative_texts(path):
    notebook = nbformat.read(path, as_version=4)
    figures = [cell.metadata["mystnb"] for cell in notebook.cells if "figure" in cell.metadata.get("mystnb", {})]
    assert figures
    for figure in figures:
        caption, alt = figure["figure"]["caption"], figure["image"]["alt"]
        assert len(alt) >= 30, figure["figure"].get("name")
        assert alt != caption  # the one says what it is, the other what is to be seen
    pictures = [alt for cell in notebook.cells for alt in re.findall(r"!\[([^\]]*)\]\(", cell.source)]
    assert all(pictures)


def test_make_lists_its_targets():
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("book", "test", "lint", "lab", "paper", "bench", "pdf", "axe", "help"):
        assert re.search(rf"^make {target}\b", shown, re.M), target


def test_make_refuses_an_old_python(tmp_path):
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\necho 'fedleak needs Python 3.11 or later' >&2; exit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "lint", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    assert "3.11" in done.stderr
    assert not (tmp_path / "venv").exists()
