"""One toy-sized cell of every experiment of the notebooks, on a pretended GPU."""

import math

import pytest
from pretended_gpu import PretendedGPU

from fedleak_book.experiments import Context, running
from fedleak_book.pages import notebooks


def cheapest(settings):
    """The setting with the smallest numbers, without its number of trials."""
    found = min(settings, key=lambda s: math.prod(1 + v for v in s.values() if isinstance(v, int | float)))
    return {name: value for name, value in found.items() if name != "trials"}


@pytest.mark.slow
@pytest.mark.parametrize("name", notebooks.chapters())
def test_one_cell_of_every_experiment(name, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path))
    for artefact, experiment in running.declared(name).items():
        with PretendedGPU() as gpu:
            context, seeds = Context("cuda"), [7] if experiment.vectorised else 7
            rows = list(experiment.call(context, seeds, **cheapest(experiment.settings("quick"))))
            used = context.used["device"] or {"cuda:0": True}
        assert rows, artefact
        assert set(used) == {"cuda:0"}, artefact
        own = [name for name in gpu.drawn if name != "dropout"]  # a model's dropout draws where the model is
        assert not own, f"{artefact} draws otherwise than on a CPU: draw with a CPU generator, and move the numbers"
