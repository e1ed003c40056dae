"""Trained weights on disk: the same training is not done twice, and never taken for another."""

import linecache

import torch
from torch import nn

from fedleak.experiments import Context, trained_once


def step(ctx, model, size, seed):
    with torch.no_grad():
        model.weight += size * torch.randn(model.weight.shape, generator=torch.Generator().manual_seed(seed))
    ctx.images("mnist5k")


def fresh(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def test_trained_weights_are_kept_and_never_taken_for_anothers(tmp_path, capsys):
    ctx = Context("cpu")
    first = trained_once(ctx, step, fresh(), tmp_path, size=0.5, seed=1)
    (kept,) = tmp_path.glob("*.pt")
    before, other = kept.stat().st_mtime_ns, Context("cpu")
    assert torch.equal(first.weight, trained_once(other, step, fresh(), tmp_path, size=0.5, seed=1).weight)
    assert kept.stat().st_mtime_ns == before
    assert ctx.used == other.used
    assert list(other.used["data"]) == ["mnist5k/train"], "what the training used counts when it is loaded"
    trained_once(ctx, step, fresh(), tmp_path, size=0.25, seed=1)
    trained_once(ctx, step, fresh(7), tmp_path, size=0.5, seed=1)
    trained_once(ctx, step, fresh(), tmp_path, version=2, size=0.5, seed=1)
    assert len(list(tmp_path.glob("*.pt"))) == 4
    kept.write_bytes(kept.read_bytes()[:100])
    assert torch.equal(first.weight, trained_once(ctx, step, fresh(), tmp_path, size=0.5, seed=1).weight)
    assert "set aside" in capsys.readouterr().out


def test_an_edited_training_is_another(tmp_path):
    def trained(code):
        names = {}
        linecache.cache["<edited>"] = (len(code), None, code.splitlines(keepends=True), "<edited>")
        exec(compile(code, "<edited>", "exec"), names)
        with torch.no_grad():
            return trained_once(Context("cpu"), names["train"], fresh(), tmp_path).weight

    more, less = (trained(f"def train(ctx, model):\n    model.weight {sign}= 1\n") for sign in "+-")
    assert torch.allclose(more - less, torch.tensor(2.0))
    assert len(list(tmp_path.glob("*.pt"))) == 2


def test_trained_weights_are_not_those_of_another_activation(tmp_path):
    """A Tanh has no weights: networks that differ in it alone begin with the same ones."""

    def nudged(activation):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 3), activation, nn.Linear(3, 2))
        return trained_once(Context("cpu"), through, model, tmp_path, seed=1)

    first, second = nudged(nn.ReLU()), nudged(nn.Tanh())
    assert len(list(tmp_path.glob("*.pt"))) == 2
    assert not torch.equal(first[2].weight, second[2].weight)


def through(ctx, model, seed):
    """One step on random inputs, whose gradient passes every layer."""
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(seed))
    model(x).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= parameter.grad
