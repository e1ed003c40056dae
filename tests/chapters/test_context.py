"""What a context keeps for the trials that share it; and trained weights on disk, never taken for another's."""

import linecache

import torch
from torch import nn

from fedleak_book.experiments import Context, trained_once


def test_the_latest_that_trials_share_is_kept():
    ctx, made = Context("cpu"), []

    def get(kind, i, most=0):
        return ctx.once((kind, i), lambda: made.append((kind, i)) or i, most)

    assert [get("net", i, most=2) for i in (0, 1, 1, 2, 1, 0)] == [0, 1, 1, 2, 1, 0]
    assert made == [("net", 0), ("net", 1), ("net", 2), ("net", 0)]
    get("other", 0)
    get("net", 3, most=2)
    get("other", 0)
    assert made[4:] == [("other", 0), ("net", 3)]


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
    (weights_file,) = tmp_path.glob("*.pt")
    before, other = weights_file.stat().st_mtime_ns, Context("cpu")
    assert torch.equal(first.weight, trained_once(other, step, fresh(), tmp_path, size=0.5, seed=1).weight)
    assert weights_file.stat().st_mtime_ns == before
    assert ctx.used == other.used
    assert list(other.used["data"]) == ["mnist5k/train"], "what the training used counts when it is loaded"
    trained_once(ctx, step, fresh(), tmp_path, size=0.25, seed=1)
    trained_once(ctx, step, fresh(7), tmp_path, size=0.5, seed=1)
    trained_once(ctx, step, fresh(), tmp_path, version=2, size=0.5, seed=1)
    assert len(list(tmp_path.glob("*.pt"))) == 4
    weights_file.write_bytes(weights_file.read_bytes()[:100])
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
