"""The book: its generated tables, its executed notebooks, and the built pages with their links."""

import html.parser
import importlib.util
import json
import logging
import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml

from fedleak import notebooks, paths


def extension(name):
    spec = importlib.util.spec_from_file_location(name, paths.root() / "book" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generated, executed = extension("generated"), extension("executed")


@pytest.fixture
def warnings(monkeypatch):
    """Collect what the extensions warn about: each of these fails the book."""
    found = []
    for module in (generated, executed):
        monkeypatch.setattr(
            module, "logger", SimpleNamespace(warning=lambda text, *words, **_: found.append(text % words))
        )
    return found


# --- the generated tables -------------------------------------------------------------------------------------


def row(**changes):
    return {
        "id": "fig-4a-llg",
        "item": "Fig. 4 (a)",
        "anchor": "fig-llg-4a",
        "metric": "ASR",
        "direction": "higher",
        "published": "≥ 0.98",
        "ours": 0.97123,
        "low": 0.96,
        "high": 0.98,
        "n": 100,
        "difference": -0.0088,
        "tolerance": 0.02,
        "why": "trials | batch sizes",
        "status": "✓ match",
        "source": "this run",
        "note": "",
        **changes,
    }


def papers(*rows):
    return [{"chapter": "llg", "paper": "llg", "title": "LLG", "rows": list(rows)}]


def cells(line):
    return [cell.strip() for cell in line.replace(r"\|", "¦").strip("| ").split("|")]


def test_scoreboard_row(warnings):
    text = generated.scoreboard(papers(row(note="because\nof this")))
    (line,) = [line for line in text.splitlines() if "fig-llg-4a" in line]
    assert cells(line) == [
        "[Fig. 4 (a)](#fig-llg-4a)",
        "*ASR* ↑",
        "≥ 0.98",
        "0.971 [0.96, 0.98], n = 100",
        "−0.0088",
        "0.02",
        "✓ match",
        "this run",
    ]
    assert "- **Fig. 4 (a)** (✓ match): because of this" in text
    assert not warnings


def test_scoreboard_row_that_was_not_attempted(warnings):
    empty = dict.fromkeys(("ours", "low", "high", "difference"))
    text = generated.scoreboard(papers(row(**empty, n=0, status="— not attempted", note="no GPU")))
    (line,) = [line for line in text.splitlines() if "fig-llg-4a" in line]
    assert cells(line)[3:7] == ["–", "–", "0.02", "— not attempted"]
    assert not warnings


def test_scoreboard_in_short_counts_by_status(warnings):
    statuses = ["✓ match", "✓ match", "✗ differs", "◌ scaled down, agrees"]
    text = generated.scoreboard_in_short(papers(*(row(status=status) for status in statuses)))
    assert cells(text.splitlines()[3]) == ["[LLG](/notebooks/llg.ipynb)", "2", "·", "1", "1", "·", "4"]
    assert not warnings


def test_an_unknown_status_is_a_warning(warnings):
    generated.scoreboard(papers(row(status="fine")))
    assert "unknown status 'fine'" in warnings[0]


def test_a_chapter_without_comparison_is_a_warning(warnings, tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "chapters", lambda: ["llg", "rlu"])
    (tmp_path / "rlu.json").write_text(json.dumps({"title": "RLU", "rows": []}))
    assert [paper["chapter"] for paper in generated.comparisons(tmp_path)] == ["rlu"]
    (warning,) = warnings
    assert warning.startswith("llg has left no comparison")


def test_a_notebook_without_a_paper_needs_no_comparison(warnings, tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "chapters", lambda: ["arena"])
    assert not generated.comparisons(tmp_path)
    assert not warnings


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        ("≥ 1", "≥ 1"),
        (0.97123, "0.971"),
        (-0.5, "−0.5"),
        (1.0, "1"),
        (12345, "12,345"),
        (12345.0, "12,345"),
        (1e-5, "1e−05"),
        (True, "True"),
    ],
)
def test_numbers(value, shown):
    assert generated.number(value) == shown


def test_every_registered_attack_is_in_the_threat_models(warnings):
    from fedleak.attacks import registry

    text = generated.threat_models()
    for attack in registry.all_attacks():
        assert text.count(f"| **{attack.name}** |") == 3
    assert not warnings


def test_every_data_set_is_on_its_page(warnings):
    from fedleak import data

    text = generated.data_sets()
    for entry in data.catalogue():
        assert f"| `{entry.name}` |" in text
    assert not warnings


# --- the executed notebooks -----------------------------------------------------------------------------------


def notebook_text(*sources, injected=None):
    made = [nbformat.v4.new_code_cell(source) for source in sources]
    if injected:
        made.insert(1, nbformat.v4.new_code_cell(injected, metadata={"tags": ["injected-parameters"]}))
    return nbformat.writes(nbformat.v4.new_notebook(cells=made))


@pytest.fixture
def sphinx(tmp_path):
    env = SimpleNamespace(doc2path=lambda name: f"{name}.ipynb", note_dependency=lambda path: None)
    return SimpleNamespace(srcdir=tmp_path, env=env)


def leave(sphinx, text):
    copy = executed.executed_copy(sphinx, "notebooks/llg")
    copy.parent.mkdir(parents=True)
    copy.write_text(text)


def test_the_executed_copy_is_swapped_in(sphinx, warnings):
    ran = notebook_text("a = 1", "a", injected="a = 2")
    leave(sphinx, ran)
    source = [notebook_text("a = 1", "a")]
    executed.swap_in(sphinx, "notebooks/llg", source)
    assert source == [ran]
    assert not warnings


def test_a_missing_copy_is_a_warning(sphinx, warnings):
    executed.swap_in(sphinx, "notebooks/llg", [notebook_text("a")])
    assert "has not been executed" in warnings[0]


def test_a_copy_of_other_cells_is_a_warning(sphinx, warnings):
    leave(sphinx, notebook_text("a = 1", "a"))
    executed.swap_in(sphinx, "notebooks/llg", [notebook_text("a = 1", "b")])
    assert "has changed since it was executed" in warnings[0]


# --- the built pages ------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """The ids, links and loaded files of one page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads, self.unnamed = set(), set(), set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.update(filter(None, [found.get("id"), found.get("name") if tag == "a" else None]))
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.loads.add(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.add(found["href"])
        if tag == "img" and not found.get("alt"):
            self.unnamed.append(found.get("src"))


def is_outside(link):
    return bool(urlsplit(link).scheme) or link.startswith("//")


@pytest.fixture(scope="module")
def pages():
    """Build the book as `fedleak book` does, and read its pages."""
    logging.getLogger("papermill").setLevel(logging.WARNING)
    front = notebooks.build_book(progress=False)
    found = [path for path in front.parent.rglob("*.html") if "_static" not in path.parts]
    return {path.resolve(): Page(path) for path in found}


@pytest.mark.slow
def test_every_page_of_the_toc_is_built(pages):
    def files(node):
        if isinstance(node, dict):
            yield from (node[key] for key in ("root", "file") if key in node)
            node = node.values()
        if isinstance(node, list) or not isinstance(node, str | bool | None):
            for value in node:
                yield from files(value)

    top = paths.root() / "_build" / "html"
    toc = yaml.safe_load((paths.root() / "_toc.yml").read_text())
    assert {(top / f"{name}.html").resolve() for name in files(toc)} <= pages.keys()


@pytest.mark.slow
def test_internal_links_lead_somewhere(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if is_outside(link):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = pages[target].ids if target in pages else {parts.fragment}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in there):
                broken.append((path.name, link))
    assert not broken


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(pages):
    for path, page in pages.items():
        assert not [load for load in page.loads if is_outside(load) and not load.startswith("data:")], path
        for load in page.loads:
            if not is_outside(load):
                assert (path.parent / urlsplit(load).path).exists(), (path, load)


@pytest.mark.slow
def test_pictures_say_what_they_show(pages):
    assert not {path.name: page.unnamed for path, page in pages.items() if page.unnamed}


@pytest.mark.slow
def test_pages_do_not_name_this_machine(pages):
    assert not [path.name for path in pages if str(paths.root()) in path.read_text(encoding="utf-8")]


@pytest.mark.slow
def test_pages_do_not_offer_to_launch_somebody_elses_repository(pages):
    own = yaml.safe_load((paths.root() / "_config.yml").read_text())["repository"]["url"]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert "executablebooks/jupyter-book" not in text  # what Jupyter Book puts there by itself
        assert own or "fa-rocket" not in text


@pytest.mark.slow
def test_downloads_have_their_outputs(pages):
    assert pages
    for name in notebooks.chapters():
        offered = paths.root() / "_build" / "html" / "_sources" / "notebooks" / f"{name}.ipynb"
        notebook = nbformat.read(offered, as_version=4)
        assert any(cell.get("outputs") for cell in notebook.cells)
        assert str(paths.root()) not in offered.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_second_build_executes_nothing(pages):
    assert pages
    for name in notebooks.chapters():
        assert not notebooks.is_stale(name, {"profile": "quick", "device": "auto"})


@pytest.mark.slow
def test_the_search_finds_attacks_and_equations(pages):
    assert pages
    text = (paths.root() / "_build" / "html" / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    for word in ("llg", "idlg", "ilrg", "zlg", "rlu", "gdbr", "agic", "eludingsa"):
        assert word in index["terms"], word
    chapters = {number for number, name in enumerate(index["docnames"]) if name.startswith("notebooks/")}
    assert {page for page, _, _ in index["indexentries"]["eq. 4"]} <= chapters
    ((page, target, _),) = index["indexentries"]["llg, eq. 18"]
    assert (index["docnames"][page], target) == ("notebooks/llg", "equation-eq-llg-18")


@pytest.mark.slow
def test_axe_finds_no_serious_violation(pages):
    """On pages of every kind but the chapters, which take it minutes each: `make axe` looks at those too."""
    pytest.importorskip("axe_core_python", reason="axe-core is not installed: pip install axe-core-python")
    assert pages
    check = paths.root() / "book" / "_tools" / "axe.py"
    kinds = [f"book/{name}.html" for name in ("index", "threat_models", "audit", "glossary", "coursework/05_agic")]
    command = [sys.executable, check, "_build/html", "--only", *kinds]
    done = subprocess.run(command, cwd=paths.root(), capture_output=True, text=True, check=False)
    if "no Chromium found" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
