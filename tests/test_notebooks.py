"""The chapters run through papermill with few trials, and find what their attacks must find."""

import json
import re

import nbformat
import pytest

from fedleak import notebooks, paths
from fedleak.report import load_published

pytestmark = pytest.mark.slow
TRIALS = {"gdbr": 3}  # the others run one


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All notebooks, executed side by side."""
    made = tmp_path_factory.mktemp("executed")
    runs = {
        name: {
            "device": "cpu",
            "parameters": {"trials": TRIALS.get(name, 1), "seed": 1},
            "out": made / f"{name}.ipynb",
        }
        for name in notebooks.available()
    }
    notebooks.execute_all(runs, progress=False)
    return made


@pytest.fixture(params=notebooks.available())
def run(request, folder):
    comparison = None
    if paths.published(request.param).is_file():
        comparison = json.loads((folder / f"{request.param}.comparison.json").read_text(encoding="utf-8"))
    return request.param, nbformat.read(folder / f"{request.param}.ipynb", as_version=4), comparison


def test_every_published_item_has_a_row_with_a_status_and_a_reason_if_it_was_not_attempted(run):
    name, _, comparison = run
    if comparison is None:
        pytest.skip("no paper stands behind this notebook")
    assert {row["id"] for row in comparison["rows"]} == set(load_published(name)[1])
    assert comparison["this run"]
    for row in comparison["rows"] + comparison["this run"]:
        assert row["status"][0] in "✓▲✗◌—"
        assert row["status"][0] != "—" or row["note"], row["id"]


def test_every_figure_has_a_caption_an_alternative_text_and_an_image(run):
    _, executed, _ = run
    figures = [cell for cell in executed.cells if "figure" in cell.metadata.get("mystnb", {})]
    assert figures
    for cell in figures:
        assert cell.metadata["mystnb"]["figure"]["caption"]
        assert cell.metadata["mystnb"]["image"]["alt"]
        assert any("image/svg+xml" in output.get("data", {}) for output in cell.outputs), cell.id


def test_llg_finds_the_labels_of_untrained_networks(run):
    name, _, comparison = run
    if name != "llg":
        pytest.skip("LLG's own numbers")
    now = {row["id"]: row for row in comparison["this run"]}
    assert now["fig3a-negative"]["ours"] == 0  # Property 1
    assert now["fig4a-llgplus"]["ours"] >= 0.9
    assert now["budget"]["ours"] == pytest.approx(11.5, abs=0.1)


def test_gdbr_finds_the_labels_without_the_last_layer(run):
    name, _, comparison = run
    if name != "gdbr":
        pytest.skip("GDBR's own numbers")
    now = {row["id"]: row for row in comparison["this run"]}
    for scheme in ("random", "uniform", "single", "subclassed", "imbalanced"):
        assert now[f"tab1-mnist-{scheme}"]["ours"] >= 0.92
    assert now["fig5a-wins"]["ours"] > 0.2
    assert now["fig3-lenet-mnist-wins"]["ours"] == 1
    assert now["tab1-imagenet-random"]["ours"] is None


def test_the_arenas_advice_is_borne_out_by_its_data(run):
    name, executed, _ = run
    if name != "arena":
        pytest.skip("the arena's own sentences")
    (advice,) = [cell for cell in executed.cells if cell.get("id") == "advice"]
    said = "".join(output.get("text", "") for output in advice.outputs)
    holding, written = map(int, re.search(r"(\d+) of (\d+) sentences hold", said).groups())
    assert holding == written >= 8
    (text,) = [output.data["text/markdown"] for output in advice.outputs if "data" in output]
    assert text.count("{numref}") >= written


def test_agic_measures_the_one_batch_error_and_leaves_no_attack_out(run):
    name, _, comparison = run
    if name != "agic":
        pytest.skip("AGIC's own numbers")
    now = {row["id"]: row for row in comparison["this run"]}
    assert now["eq4-small"]["ours"] < 0.3 < now["eq4-large"]["ours"]
    for item in ("tab4-cifar10-1-dlg-psnr", "tab4-cifar10-1-invg-psnr", "tab4-cifar10-1-agic-psnr", "tab6-12-psnr"):
        assert now[item]["ours"] > 5
    assert now["tab2-imagenet-agic-psnr"]["ours"] is None
