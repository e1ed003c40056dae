"""One toy-sized cell of every experiment of the notebooks, on a pretended GPU."""

import inspect
import math
import re

import nbformat
import pytest
from pretended_gpu import PretendedGPU

from fedleak import notebooks, paths
from fedleak.chapters import Context, running
from fedleak.experiments.cache import noting
from fedleak.experiments.declared import declared


def named(name):
    """The experiments that a notebook declares, read off its text: declaring them takes seconds a notebook."""
    if running.modular(name):
        return list(running.declared(name))
    cells = nbformat.read(paths.source_notebook(name), as_version=4).cells
    text = "\n".join(cell.source for cell in cells if "experiment" in cell.metadata.get("tags", ()))
    return re.findall(r'chapter\.experiment\(\s*"([^"]+)"', text)


EXPERIMENTS = [(name, artefact) for name in notebooks.available() for artefact in named(name)]


def cheapest(settings):
    """The setting with the smallest numbers, without its number of trials."""
    found = min(settings, key=lambda s: math.prod(1 + v for v in s.values() if isinstance(v, int | float)))
    return {name: value for name, value in found.items() if name != "trials"}


@pytest.mark.parametrize("name", [name for name in notebooks.available() if not running.modular(name)])
def test_declaring_runs_nothing(name, monkeypatch):
    """Else whoever asks for one experiment waits for others, or lacks their data."""

    def ran(trial, *args, **options):
        raise AssertionError(
            f"declaring {name} runs {trial.__name__}: what is shown of it goes into a cell without a tag"
        )

    monkeypatch.setattr("fedleak.experiments.experiment.sweep", ran)
    assert declared(name, profile="paper").experiments


@pytest.mark.parametrize(("name", "artefact"), EXPERIMENTS)
def test_one_cell_of_every_experiment(name, artefact, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path))
    with PretendedGPU() as gpu:
        if running.modular(name):
            experiment, context = running.declared(name)[artefact], Context("cuda")
            seeds = [7] if experiment.vectorised else 7
            rows = list(experiment.call(context, seeds, **cheapest(experiment.settings("quick"))))
            used = context.used["device"] or {"cuda:0": True}
        else:
            experiment = declared(name, device="cuda").experiments[artefact]
            vectorised = next(iter(inspect.signature(experiment.trial).parameters)) == "seeds"
            with noting() as notes:
                rows = list(experiment.call([7] if vectorised else 7, **cheapest(experiment.settings("quick"))))
            used = notes.get("device", {"cuda:0": True})
    assert rows
    assert set(used) == {"cuda:0"}
    own = [name for name in gpu.drawn if name != "dropout"]  # a model's dropout draws where the model is
    assert not own, "numbers that the CPU would draw otherwise: draw them with a CPU generator, and move them"
