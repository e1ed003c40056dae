"""An installation without extras: the package and every attack work, the audit and the command say what to install."""

import subprocess
import sys

import pytest

EXTRA = ("jinja2", "markdown_it", "matplotlib", "pandas", "seaborn", "tqdm", "typer")
HIDE = """
import sys
from importlib.machinery import PathFinder

installed = PathFinder.find_spec  # a finder that raises breaks torch._dynamo, which asks for pandas
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in hidden else installed(name, *rest)
"""
ROUND = """
import torch, fedleak
from fedleak.attacks import images
from fedleak.attacks.contest import contest, entrants
from fedleak.attacks.labels import learned
from fedleak.attacks.registry import WITH_AUXILIARY, all_attacks
from fedleak.data import Images
from fedleak.federated import fedsgd

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
aux = Images(torch.rand(60, 1, 6, 6), torch.arange(60) % 3)
update = fedsgd(model, aux.x[:4], aux.y[:4])
attempts = list(contest(update, model, WITH_AUXILIARY, {"aux": aux, "seed": 0}))
assert len(attempts) > 10 and len(all_attacks()) > len(attempts)
print([one.attack.name for one in attempts if one.unforeseen])
print(sum(one.result is not None for one in attempts) > 5)
print(learned.recover(update, model, aux=aux, iterations=10).sum().item())
"""


def run(code, hidden=EXTRA):
    return subprocess.run([sys.executable, "-c", f"hidden = {hidden}{HIDE}{code}"], capture_output=True, text=True)


def test_every_attack_runs_without_the_extras():
    done = run(ROUND)
    assert done.stdout == "[]\nTrue\n4\n", done.stderr


def test_every_module_of_the_core_is_importable_without_the_extras():
    done = run("""
import importlib, pkgutil
import fedleak, fedleak.attacks, fedleak.data, fedleak.federated, fedleak.models
for package in (fedleak.attacks, fedleak.data, fedleak.models, fedleak.federated):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except fedleak.MissingExtra as error:
            assert error.name not in hidden, error
import fedleak.metrics, fedleak.intervals
print("done")
""")
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("name", [name for name in EXTRA if name != "typer"])
def test_an_audit_without_one_of_its_packages_says_what_to_install(name):
    code = "import fedleak\ntry:\n    import fedleak.audit\nexcept fedleak.MissingExtra as error:\n    print(error)"
    assert run(code, (name,)).stdout == f"{name} is not installed: pip install 'fedleak[audit]'\n"


@pytest.mark.parametrize("hidden", [("typer",), EXTRA], ids=["typer", "all"])
def test_the_command_without_its_package_says_what_to_install(hidden):
    done = run("from fedleak.__main__ import main\nsys.argv = ['fedleak', '--version']\nmain()", hidden)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fedleak: typer is not installed: pip install 'fedleak[audit]'\n"


def test_a_progress_bar_without_tqdm_says_what_to_install():
    code = ROUND.replace("iterations=10", "iterations=10, progress=True")
    done = run(code, ("tqdm",))
    assert "MissingExtra: tqdm is not installed: pip install 'fedleak[audit]'" in done.stderr
