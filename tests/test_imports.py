"""Import rules: no circle in the package, no heavy import for help, and no extra that is not asked for."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

import fedleak
from fedleak_book import paths


def graph(folder):
    """Return which modules each module imports, anywhere in it: inside functions and for type checkers too.

    That a module's package is imported with it is left out: a package's ``__init__`` names what it offers.
    """
    files = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    edges = {}
    for module, path in files.items():
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                each = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= {name if name in files else node.module for name in each}
        edges[module] = {name for name in names if name in files and name != module}
    return edges


def test_the_package_has_no_circle_of_imports():
    edges = graph(paths.root() / "fedleak")
    assert "fedleak.audit.guard" in edges["fedleak.commands.audit"], "in a function"
    list(TopologicalSorter(edges).static_order())  # a CycleError names the circle


ROOMS = {
    "fedleak": ("data", "models", "federated", "attacks", "privacy", "recording", "platforms", "audit", "commands"),
    "fedleak_book": ("paths", "imports", "parameters", "experiments", "evidence", "pages", "coursework", "commands"),
}


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_one_another_without_a_circle(package):
    edges, rooms = graph(paths.root() / package), {}
    for module, names in edges.items():
        room = ".".join(module.split(".")[:2])
        rooms.setdefault(room, set()).update({".".join(name.split(".")[:2]) for name in names} - {room, package})
    list(TopologicalSorter(rooms).static_order())
    drawn = [f"{package}.{room}" for room in ROOMS[package]]
    assert not [(room, rooms[room] & {*drawn[k:]}) for k, room in enumerate(drawn) if rooms[room] & {*drawn[k:]}]


def test_only_the_command_line_mentions_the_book():
    names = {path: path.read_text(encoding="utf-8") for path in (paths.root() / "fedleak").rglob("*.py")}
    assert [path.name for path, text in names.items() if "fedleak_book" in text] == ["cli.py"]


EXTRA = ("flwr", "jinja2", "markdown_it", "matplotlib", "pandas", "tqdm", "typer")
SCRIPT = (
    f"""
hidden = {EXTRA}
"""
    + """
import importlib, pkgutil, sys
from importlib.machinery import PathFinder
import fedleak
from fedleak.cli import app

def loaded(names):
    return [name for name in names.split() if name in sys.modules]

def ran(words):
    try:
        app(words.split(), prog_name="fedleak")
    except SystemExit as end:
        return end.code

for words in ("--version", "--help", "audit --example", "data --help", "coursework --help", "run --help"):
    assert not ran(words), words
for words in ("run nonesuch", "run llg -p trials True", "run llg -p sed 1", "record llg nope"):
    assert ran(words) == 1, words
print(loaded("torch numpy pandas scipy matplotlib papermill nbformat distributed opacus pydantic"))
import fedleak.data, fedleak.models, fedleak.federated
fedleak.models.build("lenet", fedleak.data.load("mnist5k").shape, 10, seed=0)
print(loaded("torchvision sympy torch._dynamo pandas"))
import fedleak.audit, fedleak.attacks.labels, fedleak.attacks.images, fedleak.metrics, fedleak.recording.recorder
print(loaded("Crypto opacus IPython papermill skimage flwr nvflare"))

for name in [name for name in sys.modules if name.split(".")[0] in ("fedleak", "fedleak_book", *hidden)]:
    del sys.modules[name]  # from here on no extra is installed
installed = PathFinder.find_spec  # a finder that raises breaks torch._dynamo, which asks for pandas
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in hidden else installed(name, *rest)
sys.modules["fedleak_book"] = None
import torch, fedleak
from fedleak.attacks.contest import contest
from fedleak.attacks.labels import learned
from fedleak.attacks.registry import WHITE_BOX
from fedleak.data import Images
from fedleak.federated import fedsgd

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
aux = Images(torch.rand(60, 1, 6, 6), torch.arange(60) % 3)
update = fedsgd(model, aux.x[:4], aux.y[:4])
attempts = list(contest(update, model, WHITE_BOX, {"seed": 0}))
print([one.attack.name for one in attempts if one.unforeseen], sum(one.result is not None for one in attempts) > 5)
for package in (fedleak.attacks, fedleak.data, fedleak.models, fedleak.federated):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except fedleak.MissingExtra as error:
            assert error.name not in hidden, error
for ask in (lambda: importlib.import_module("fedleak.platforms.flower"),
            lambda: learned.recover(update, model, aux=aux, iterations=1, progress=True),
            lambda: importlib.import_module("fedleak.audit")):
    try:
        ask()
    except fedleak.MissingExtra as error:
        print(error)
sys.argv = ["fedleak", "--version"]
importlib.import_module("fedleak.__main__").main()
"""
)


@pytest.mark.usefixtures("alone")
def test_nothing_heavy_is_imported_and_missing_extras_are_named():
    """In one process, since torch takes seconds: with all extras first, then with those of the audit hidden."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert lines[0] == f"fedleak {fedleak.__version__}", done.stderr
    assert lines[-7:-3] == ["[]", "[]", "[]", "[] True"], done.stderr
    assert "flwr is not installed: pip install 'fedleak[flower]'" in lines[-3]
    assert "tqdm is not installed: pip install 'fedleak[audit]'" in lines[-2]
    assert lines[-1].split()[0] in EXTRA
    assert (done.returncode, "typer is not installed" in done.stderr) == (2, True)
