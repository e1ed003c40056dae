"""One toy-sized cell of every experiment of the notebooks, on a pretended GPU."""

import inspect
import math
import re
import signal

import nbformat
import pytest
from pretended_gpu import PretendedGPU

from fedleak import notebooks, paths
from fedleak.experiments.cache import noting
from fedleak.experiments.declared import declared

BUDGET = 15
"""Seconds of processor time that an experiment may take here without being marked slow."""
SLOW = {
    ("rlu", "fig3"): "three inversions by a wide ResNet",
    ("rlu", "table5"): "training to 86 %, then fifty updates",
}
"""Experiments that take longer, and what takes their time."""


def named(name):
    """The experiments that a notebook declares, read off its text; "" where it has none of this form."""
    cells = nbformat.read(paths.source_notebook(name), as_version=4).cells
    text = "\n".join(cell.source for cell in cells if "experiment" in cell.metadata.get("tags", ()))
    return re.findall(r'chapter\.experiment\(\s*"([^"]+)"', text) or [""]


EXPERIMENTS = [
    pytest.param(name, artefact, marks=[pytest.mark.slow] if (name, artefact) in SLOW else [], id=f"{name}-{artefact}")
    for name in notebooks.available()
    for artefact in named(name)
]


def cheapest(settings):
    """The setting with the smallest numbers, without its number of trials."""
    found = min(settings, key=lambda s: math.prod(1 + v for v in s.values() if isinstance(v, int | float)))
    return {name: value for name, value in found.items() if name != "trials"}


def expired(*_):
    raise TimeoutError


@pytest.mark.parametrize(("name", "artefact"), EXPERIMENTS)
def test_one_cell_of_every_experiment(name, artefact, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path))
    before = signal.signal(signal.SIGPROF, expired)
    try:
        with PretendedGPU() as gpu:
            try:
                chapter = declared(name, device="cuda")
            except Exception as reason:
                if artefact:
                    raise
                pytest.skip(f"{name} declares no experiments yet: {type(reason).__name__}: {reason}"[:200])
            assert artefact in chapter.experiments
            experiment = chapter.experiments[artefact]
            vectorised = next(iter(inspect.signature(experiment.trial).parameters)) == "seeds"
            signal.setitimer(signal.ITIMER_PROF, 0 if (name, artefact) in SLOW else BUDGET)
            with noting() as notes:
                rows = list(experiment.call([7] if vectorised else 7, **cheapest(experiment.settings("quick"))))
    except TimeoutError:
        pytest.skip(f"takes more than {BUDGET} s of processor time: name it in SLOW")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert rows
    assert set(notes.get("device", {"cuda:0": True})) == {"cuda:0"}
    own = [name for name in gpu.drawn if name != "dropout"]  # a model's dropout draws where the model is
    assert not own, "numbers that the CPU would draw otherwise: draw them with a CPU generator, and move them"
