"""The arena: who refuses updates is not ranked by the others, and who adapts is told of the defence alone."""

from dataclasses import replace

import nbformat
import pandas as pd
import pytest
import torch
from fedleak.experiments.declared import declared

from fedleak import paths
from fedleak.attacks import registry
from fedleak.attacks.labels import learned, posterior
from fedleak.experiments import RECORDED, seeds_of

FOUND = {  # iAcc of four updates in an easy and a hard cell; None: refused
    "prior guess": ([0.5] * 4, [0.5] * 4),
    "steady": ([0.75] * 4, [0.6] * 4),
    "picky": ([1.0, 1.0, None, 1.0], [1.0] * 4),
    "absent": ([1.0] * 4, None),
}


@pytest.fixture(scope="module")
def arena():
    """What the page's cells know once its winners are defined, without running an experiment."""
    known = dict(declared("arena", device="cpu").experiments["models"].trial.__globals__)
    cells = {cell.id: cell.source for cell in nbformat.read(paths.source_notebook("arena"), as_version=4).cells}
    exec(cells["answered"], known)
    exec(cells["winners-of"], known)
    return known


@pytest.fixture
def table():
    return pd.DataFrame(
        [
            {"row": "LeNet", "column": column, "state": "untrained", "trial": trial, "attack": attack, "iacc": iacc}
            for attack, both in FOUND.items()
            for column, each in zip(("easy", "hard"), both, strict=True)
            for trial, iacc in enumerate(each or [])
        ]
    )


def test_an_attack_that_refused_an_update_wins_no_cell(arena, table):
    won = arena["winners"](table, ["row", "column"]).set_index("column")
    assert won["attack"].to_dict() == {"easy": "absent", "hard": "picky"}
    won = arena["winners"](table, ["row", "column"], ["steady", "picky"]).set_index("column")
    assert won["attack"].to_dict() == {"easy": "steady", "hard": "picky"}
    assert won["iacc"].to_dict() == {"easy": 0.75, "hard": 1.0}


def test_a_mean_is_shown_only_for_who_answered_every_update(arena, table):
    mean = arena["means"](table, "row", "column").set_index("attack")
    assert list(mean.index[:2]) == ["steady", "prior guess"]
    assert mean.loc["steady", ["LeNet", "mean"]].tolist() == pytest.approx([0.675, 0.675])
    assert mean.loc[["picky", "absent"], ["LeNet", "mean"]].isna().all(axis=None)
    assert mean["cells"].to_dict() == {"steady": 2, "prior guess": 2, "picky": 1, "absent": 1}


def test_intervals_are_over_the_networks(arena):
    cell = pd.DataFrame({"trial": range(20), "data": "MNIST", "source": RECORDED})
    copies = [s % 3 for s in seeds_of(0, 20)]
    assert arena["by_network"](copies, cell.assign(state="trained")).tolist() == [0, 1, 2]
    assert arena["by_network"](copies, cell.assign(state="untrained")).tolist() == copies


def test_an_attack_that_is_added_is_computed_alone(monkeypatch):
    def units():
        experiments = declared("arena", device="cpu").experiments.values()
        return [(e.artefact, e.version, p, s) for e in experiments for p in ("quick", "paper") for s in e.settings(p)]

    before = units()
    monkeypatch.setitem(registry._ATTACKS, "mine", replace(registry.get("LLG"), name="mine"))
    after = units()
    assert [unit for unit in after if unit[-1].get("attack") != "mine"] == before
    assert len({artefact for artefact, *_, setting in after if setting.get("attack") == "mine"}) == 12


@pytest.mark.parametrize(
    ("state", "defence", "told"), [("trained", "noise", 1), ("trained", "none", 0), ("untrained", "noise", 0)]
)
def test_one_attacker_of_a_trained_network_simulates_the_clients_defence(state, defence, told, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path))
    experiment = declared("arena", device="cpu").experiments["defences"]
    monkeypatch.setitem(experiment.trial.__globals__, "LEARNING", {"MNIST, 5,000": 2})
    monkeypatch.setattr(posterior, "CALIBRATION", 64)
    train, defences = learned.train, []

    def watched(*arguments, **how):
        defences.append(how.get("defence"))
        return train(*arguments, **how)

    monkeypatch.setattr(learned, "train", watched)
    setting = {"net": "lenet", "data": "MNIST, 5,000", "state": state, "defence": defence}
    setting["strength"] = 0.25 if defence == "noise" else 0.0
    assert len(list(experiment.call(5, attack="learned, adaptive", **setting))) == told
    assert len(list(experiment.call(5, attack="learned", **setting))) == (state == "trained")
    assert len([d for d in defences if d is not None]) == told
    for make in filter(None, defences):
        noisy = make(2, 1)({"w": torch.zeros(2, 5000)}, torch.arange(2))["w"]
        assert noisy.std().item() == pytest.approx(0.25, rel=0.05)
