"""Which code a trial runs: what its experiments import, and no other file."""

import re

import pytest

from fedleak_book import paths
from fedleak_book.experiments import running, units
from fedleak_book.pages import notebooks

FILES = {
    "notebooks/one/experiments.py": """
import fedleak.metrics
from fedleak import data
from fedleak.models import build, head as last_layer
from fedleak_book.experiments import Experiment, spawned
from notebooks.one.experiments_more import MORE
def trial(ctx, seed):
    from notebooks.two.experiments_shared import draw
""",
    "notebooks/one/experiments_more.py": "from fedleak.registry import all_attacks\nMORE = 1",
    "notebooks/one/figures.py": "from fedleak.drawing import draw",
    "notebooks/two/experiments_shared.py": "from scipy import stats",
    "fedleak_book/experiments/__init__.py": "from fedleak_book.experiments.runner import run\n"
    "from fedleak_book.experiments.experiment import Experiment, spawned",
    "fedleak_book/experiments/context.py": "from fedleak_book.experiments.training import train_once",
    "fedleak_book/experiments/experiment.py": "",
    "fedleak_book/experiments/training.py": "",
    "fedleak_book/experiments/runner.py": "",
    "fedleak/metrics.py": "",
    "fedleak/data/__init__.py": "from fedleak.data.readers import read",
    "fedleak/data/readers.py": "",
    "fedleak/models/__init__.py": "from fedleak.models.zoo import build\nfrom fedleak.models.heads import head",
    "fedleak/models/zoo.py": "",
    "fedleak/models/heads.py": "",
    "fedleak/models/states.py": "",
    "fedleak/registry.py": "from importlib import import_module\n"
    "def all_attacks():\n    for room in ('labels', 'images'):\n        import_module(f'fedleak.attacks.{room}')",
    "fedleak/attacks/labels/__init__.py": "for m in names:\n    import_module(f'{__name__}.{m}')",
    "fedleak/attacks/labels/llg.py": "from fedleak.counts import whole",
    "fedleak/counts.py": "",
    "fedleak/drawing.py": "",
}
UNUSED = {
    "notebooks/one/figures.py",
    "fedleak_book/experiments/runner.py",
    "fedleak_book/experiments/__init__.py",
    "fedleak/models/__init__.py",
    "fedleak/models/states.py",
    "fedleak/drawing.py",
}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_hash_follows_what_is_imported_and_nothing_else(checkout):
    code = units.code_of.__wrapped__
    before = code("one")
    for name, text in FILES.items():
        (checkout / name).write_text(text + "\nX = 1\n")
        assert (code("one") == before) == (name in UNUSED), name
        (checkout / name).write_text(text)
    assert code("one") == before


def test_a_new_attack_counts_and_a_module_elsewhere_does_not(checkout):
    before = units.code_of.__wrapped__("one")
    (checkout / "fedleak" / "more.py").write_text("")
    assert units.code_of.__wrapped__("one") == before
    (checkout / "fedleak" / "attacks" / "labels" / "new.py").write_text("")
    assert units.code_of.__wrapped__("one") != before


PAGES = {"privacy", "proofs", "guard", "filters"}  # whose experiments are the arena's


def test_no_chapter_imports_anothers_experiments():
    for chapter in notebooks.chapters():
        pattern = re.compile(r"from notebooks\.(\w+)[. ]")
        folder = paths.root() / "notebooks" / chapter
        sources = [*folder.rglob("*.py"), *folder.parent.glob(f"{chapter}*.ipynb")]
        used = {name for path in sources for name in pattern.findall(path.read_text(encoding="utf-8"))}
        known = {chapter, "notes", "plots", "show", "updates"} | (PAGES if chapter == "arena" else set())
        assert used - known == set(), chapter


def test_names_of_experiments_are_known_without_importing_them():
    for chapter in ("llg", "rlu", "lia_sa", "gdbr", "agic", "arena", "learned"):
        assert set(running.declared(chapter)) == paths.experiment_names(chapter), chapter
