"""An installation without extras: the package and every attack work, the audit and the command say what to install."""

import subprocess
import sys

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


IMPORTS = """
import importlib, pkgutil
import fedleak.data, fedleak.metrics, fedleak.intervals, fedleak.models
for package in (fedleak.attacks, fedleak.data, fedleak.models, fedleak.federated):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except fedleak.MissingExtra as error:
            assert error.name not in hidden, error
try:
    learned.recover(update, model, aux=aux, iterations=10, progress=True)
except fedleak.MissingExtra as error:
    print(error)
for name in [name for name in hidden if name != "typer"]:
    hidden = (name,)
    for module in [m for m in sys.modules if m.split(".")[0] == name or m.startswith("fedleak.audit")]:
        del sys.modules[module]
    try:
        import fedleak.audit
    except fedleak.MissingExtra as error:
        print(error)
"""


def run(code):
    return subprocess.run([sys.executable, "-c", f"hidden = {EXTRA}{HIDE}{code}"], capture_output=True, text=True)


def test_without_the_extras_every_attack_runs_and_the_audit_says_what_to_install():
    done = run(ROUND + IMPORTS)
    missing = [f"{name} is not installed: pip install 'fedleak[audit]'" for name in ("tqdm", *EXTRA) if name != "typer"]
    assert done.stdout.splitlines() == ["[]", "True", "4", *missing], done.stderr


def test_the_command_without_its_package_says_what_to_install():
    done = run("from fedleak.__main__ import main\nsys.argv = ['fedleak', '--version']\nmain()")
    assert (done.returncode, done.stdout) == (2, "")
    assert "typer is not installed" in done.stderr
