"""One toy-sized cell of every experiment of the notebooks, on a pretended GPU."""

import math

import pytest
from pretended_gpu import PretendedGPU

from fedleak_book.experiments import Context, notebooks, running

EXPERIMENTS = [(name, one) for name in notebooks.chapters() for one in running.declared(name)]


def cheapest(settings):
    """The setting with the smallest numbers, without its number of trials."""
    found = min(settings, key=lambda s: math.prod(1 + v for v in s.values() if isinstance(v, int | float)))
    return {name: value for name, value in found.items() if name != "trials"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "artefact"), EXPERIMENTS)
def test_one_cell_of_every_experiment(name, artefact, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path))
    with PretendedGPU() as gpu:
        experiment, context = running.declared(name)[artefact], Context("cuda")
        seeds = [7] if experiment.vectorised else 7
        rows = list(experiment.call(context, seeds, **cheapest(experiment.settings("quick"))))
        used = context.used["device"] or {"cuda:0": True}
    assert rows
    assert set(used) == {"cuda:0"}
    own = [name for name in gpu.drawn if name != "dropout"]  # a model's dropout draws where the model is
    assert not own, "numbers that the CPU would draw otherwise: draw them with a CPU generator, and move them"
