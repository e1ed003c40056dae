"""The chapters run through papermill, and find what their attacks must find."""

import re

import nbformat
import pytest

from fedleak import paths
from fedleak.experiments import Results, notebooks, running
from fedleak.experiments.records import NOW

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def executed():
    """All notebooks, executed side by side as the book has them: the pages' tests build it from the same copies."""
    notebooks.execute_all([name for name in notebooks.available() if notebooks.is_stale(name, notebooks.QUICK)])


@pytest.fixture(params=notebooks.available())
def run(request):
    return request.param, nbformat.read(paths.executed_notebook(request.param), as_version=4)


def cells(name, artefact, trials, folder, monkeypatch):
    """The cells of an experiment with another seed, computed in this process with a cache of its own."""
    monkeypatch.setenv("FEDLEAK_CACHE", str(folder))
    found = Results(name, device="cpu", trials=trials, seed=1).both(running.declared(name)[artefact])
    return found[found["source"] == NOW]


def test_every_figure_has_a_caption_an_alternative_text_and_an_image(run):
    _, executed = run
    figures = [cell for cell in executed.cells if "figure" in cell.metadata.get("mystnb", {})]
    assert figures
    for cell in figures:
        assert cell.metadata["mystnb"]["figure"]["caption"]
        assert cell.metadata["mystnb"]["image"]["alt"]
        assert any("image/svg+xml" in output.get("data", {}) for output in cell.outputs), cell.id


def test_llg_finds_the_labels_of_untrained_networks(tmp_path, monkeypatch):
    rows = cells("llg", "fig3", 1, tmp_path, monkeypatch)
    assert (rows.loc[rows["occurrences"] == 0, "raw"] >= 0).all()  # Property 1
    found = cells("llg", "fig4", 1, tmp_path, monkeypatch)
    best = found[(found["attack"] == "LLG+") & (found["algorithm"] == "FedSGD")]
    assert best["asr"].mean() >= 0.9


def test_gdbr_finds_the_labels_without_the_last_layer(tmp_path, monkeypatch):
    found = cells("gdbr", "table1", 3, tmp_path, monkeypatch)
    lenet = found[(found["net"] == "lenet") & (found["init"] == "positive") & (found["form"] == found["form"].iloc[0])]
    assert set(lenet["scheme"]) == {"random", "uniform", "single", "subclassed", "imbalanced"}
    assert (lenet["insacc"] >= 0.92).all()


def test_the_arenas_advice_is_borne_out_by_its_data(run):
    name, executed = run
    if name != "arena":
        pytest.skip("the arena's own sentences")
    (advice,) = [cell for cell in executed.cells if cell.get("id") == "advice"]
    said = "".join(output.get("text", "") for output in advice.outputs)
    holding, written = map(int, re.search(r"(\d+) of (\d+) sentences hold", said).groups())
    assert holding == written >= 8
    (text,) = [output.data["text/markdown"] for output in advice.outputs if "data" in output]
    assert all("([data](#" in line for line in text.splitlines()), "every sentence names its data"
