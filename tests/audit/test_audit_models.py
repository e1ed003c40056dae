"""Any classifier whose last layer is linear: torchvision's, and some that are in no zoo."""

import copy

import pytest
import torch
from networks import Wrapped, mlp
from torch import nn
from torchvision import models as vision

from fedleak.audit import Setup, audit
from fedleak.audit.case import prepare
from fedleak.federated import fedsgd


def vit():
    sizes = {"image_size": 16, "patch_size": 4, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32}
    return vision.VisionTransformer(**sizes, num_classes=5, dropout=0.1)


MODELS = {
    "vit with dropout": (vit, (3, 16, 16)),
    "double precision": (lambda: mlp().double(), (3, 8, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_audited_and_left_as_it_was(name):
    make, shape = MODELS[name]
    model = make()
    before = copy.deepcopy(model.state_dict())
    report = audit(Setup(model=model, shape=shape, batch_size=4, trials=1, auxiliary=4, remedy_trials=0), fast=True)
    assert len(report.ranking()) >= 5
    assert "LLG" in report.ranking()
    assert report.table.set_index("attack").loc["RLU", "iacc"] >= 0.5  # needs no inputs of the head of one sign
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key]), key
    assert not hasattr(model, "input_shape")


def test_a_wrapped_model_is_audited_as_the_model_inside():
    model, options = mlp(), {"shape": (3, 8, 8), "batch_size": 4, "trials": 1, "remedy_trials": 0}
    reports = [audit(Setup(model=m, **options), fast=True) for m in (model, nn.DataParallel(model))]
    assert reports[0].rows["iacc"].equals(reports[1].rows["iacc"])
    assert reports[0].facts["head"] == reports[1].facts["head"]


def test_frozen_layers_are_neither_counted_nor_withheld():
    report = audit(Setup(model=Wrapped(trained=False), shape=(20,), trials=1, adversary="no access"))
    assert (report.facts["parameters"], report.facts["withheld"]) == (49 * 6, [])


def test_tanh_before_the_head_is_right_where_the_sign_does_not_matter():
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 6))
    report = audit(Setup(model=model, shape=(20,), batch_size=8, trials=3, remedy_trials=0), fast=True)
    assert "- LLG, LLG\\*, LLG+: needs a last layer whose inputs are not negative" in report.to_markdown()
    assert report.table.set_index("attack").loc["iLRG", "iacc"] > 0.8


def test_a_trained_model_is_recognised_and_an_untrained_one_too(coloured):
    x, y = coloured
    model = mlp()
    options = {"model": model, "shape": (3, 8, 8), "batch_size": 8, "trials": 1, "adversary": "no access"}
    assert audit(Setup(**options, data=(x, y))).facts["trained"] is False
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    trained = audit(Setup(**options, data=(x, y)))
    assert (trained.facts["trained"], trained.facts["accuracy"] > 0.9) == (True, True)
    assert "at least partly trained" in trained.to_markdown()
    assert "no data were given" in audit(Setup(**options)).to_markdown()


def test_channels_last_changes_no_update_and_permits_a_view():
    class Flat(nn.Module):
        forward = staticmethod(lambda x: x.view(len(x), -1))

    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), Flat(), nn.Linear(4 * 64, 3))
    trial = prepare(Setup(model=model, shape=(3, 8, 8), batch_size=4)).trial(0)
    expected = fedsgd(model, trial.x[0, 0].contiguous(), trial.y[0, 0])
    for name, tensor in trial.updates[0].tensors.items():
        assert tensor.is_contiguous()
        torch.testing.assert_close(tensor, expected.tensors[name], atol=1e-6, rtol=1e-4)
