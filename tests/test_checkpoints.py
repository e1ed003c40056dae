"""Trained weights are kept, found again, and never taken for another training's."""

import torch
from torch import nn

from fedleak.checkpoints import trained_once


def train(model, step, seed):
    with torch.no_grad():
        model.weight += step * torch.randn(model.weight.shape, generator=torch.Generator().manual_seed(seed))


def fresh(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def test_the_same_training_happens_once(tmp_path):
    first = trained_once(train, fresh(), tmp_path, step=0.5, seed=1)
    (kept,) = tmp_path.glob("*.pt")
    before = kept.stat().st_mtime_ns
    again = trained_once(train, fresh(), tmp_path, step=0.5, seed=1)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, fresh().weight)
    assert kept.stat().st_mtime_ns == before
    assert list(tmp_path.iterdir()) == [kept]


def test_another_setting_start_or_code_is_another_training(tmp_path):
    trained_once(train, fresh(), tmp_path, step=0.5, seed=1)
    trained_once(train, fresh(), tmp_path, step=0.25, seed=1)
    trained_once(train, fresh(7), tmp_path, step=0.5, seed=1)
    trained_once(lambda model, step, seed: None, fresh(), tmp_path, step=0.5, seed=1)
    assert len(list(tmp_path.glob("*.pt"))) == 4


def test_a_broken_file_is_set_aside_and_trained_again(tmp_path, capsys):
    first = trained_once(train, fresh(), tmp_path, step=0.5, seed=1)
    (kept,) = tmp_path.glob("*.pt")
    kept.write_bytes(kept.read_bytes()[:100])
    again = trained_once(train, fresh(), tmp_path, step=0.5, seed=1)
    assert torch.equal(first.weight, again.weight)
    assert "set aside" in capsys.readouterr().out
    assert kept.is_file()
    assert kept.with_suffix(".corrupt").is_file()
