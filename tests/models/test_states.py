"""A model made from a state dict alone: its head under the state's name, and which layer is the last."""

import pytest
import torch
from torch import nn

from fedleak.models import head
from fedleak.models.states import bare, last_matrix


def state(**shapes):
    generator = torch.Generator().manual_seed(0)
    return {name.replace("__", "."): torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def moved(before, **changes):
    """The state after a change of some parameters: at random, or summing to 0 over the rows."""
    after, generator = {name: t.clone() for name, t in before.items()}, torch.Generator().manual_seed(1)
    for name, is_balanced in changes.items():
        t = after[name := name.replace("__", ".")]
        change = 0.1 * torch.randn(t.shape, generator=generator)
        t += change - change.mean(0) if is_balanced else change
    return after


def test_a_bare_model_computes_the_states_head():
    sent = state(body__weight=(5, 4), top__out__weight=(3, 5), top__out__bias=(3,), norm__weight=(5,))
    model, x = bare(sent), torch.rand(2, 5)
    assert head(model).weight == "top.out.weight"
    out = nn.functional.linear(x, sent["top.out.weight"], sent["top.out.bias"])
    torch.testing.assert_close(model.top.out(x), out)
    assert head(bare(sent, "body.weight")).layer.bias is None
    with pytest.raises(ValueError, match="linear layer"):
        bare({"norm.weight": torch.ones(5)})


def test_the_last_matrix_is_inferred_from_its_change():
    before = state(a__weight=(6, 4), b__weight=(3, 6), c__weight=(6, 6))
    everything = {"a__weight": False, "b__weight": True, "c__weight": False}
    assert last_matrix(before, moved(before, **everything), 3)[0] == "b.weight"
    assert last_matrix(before, moved(before, **everything | {"b__weight": False}), 3)[0] == "b.weight", "by its rows"
    assert last_matrix(before, moved(before, a__weight=False, c__weight=False), 0)[0] == "c.weight", (
        "the last that moved"
    )
    with pytest.raises(ValueError, match="not known"):
        last_matrix(before, moved(before, a__weight=False, c__weight=False), 6)
    adapted = state(fc__lora_A__weight=(2, 6), fc__weight=(3, 6))
    with pytest.raises(ValueError, match="adapter"):
        last_matrix(adapted, moved(adapted, fc__lora_A__weight=False), 3)
