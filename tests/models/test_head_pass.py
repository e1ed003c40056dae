"""Last-layer gradients in closed form, and the shape of a model's inputs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak.federated import fedsgd
from fedleak.models import batch_dependent, build, head, head_pass, input_shape


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU())
        self.top = nn.ModuleDict({"drop": nn.Identity(), "out": nn.Linear(5, 4, bias=False)})

    def forward(self, x):
        return self.top["out"](self.body(x))


def test_head_of_nested_and_bare_models():
    layer = head(Nested())
    assert (layer.name, layer.weight, layer.bias) == ("top.out", "top.out.weight", "top.out.bias")
    bare = nn.Linear(3, 2)
    assert head(bare).layer is bare
    assert (head(bare).weight, head(bare).bias) == ("weight", "bias")
    for model in (Nested(), bare):
        assert head(model).weight in dict(model.named_parameters())
    with pytest.raises(ValueError, match="no head"):
        head(nn.Sequential(nn.Conv2d(1, 2, 3)))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["bare", "nested", "cnn", "lenet", "resnet20", "resnet20-relu"]),
    batches=st.integers(1, 3),
    batch=st.integers(1, 6),
)
def test_closed_form_row_sums_are_autograds(seed, kind, batches, batch):
    torch.manual_seed(seed)
    shape = {"bare": (6,), "nested": (6,), "lenet": (1, 20, 20)}.get(kind, (1, 8, 8))
    own = {"bare": lambda: nn.Linear(6, 4), "nested": Nested}
    model = own.get(kind, lambda: build(kind, shape, 4, seed=seed))().double().eval()
    x = torch.rand(10, *shape).double()
    index, labels = torch.randint(10, (batches, batch)), torch.randint(4, (batches, batch))
    found = head_pass(model, x, chunk=3).row_sums(index, labels)
    for i in range(batches):
        expected = fedsgd(model, x[index[i]], labels[i]).gradient(head(model).weight).sum(dim=1)
        torch.testing.assert_close(found[i], expected, rtol=1e-10, atol=1e-10)


def test_head_pass_in_training_mode_has_no_side_effects():
    model = build("resnet20", (1, 8, 8), 4, seed=0).double()
    before = {name: b.clone() for name, b in model.named_buffers()}
    x = torch.rand(6, 1, 8, 8).double()
    whole, labels = head_pass(model, x, chunk=2), torch.tensor([[0, 1, 2, 3, 0, 1]])
    expected = fedsgd(model, x, labels[0]).gradient("fc.weight").sum(dim=1)
    torch.testing.assert_close(whole.row_sums(torch.arange(6)[None], labels)[0], expected, rtol=1e-8, atol=1e-10)
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
    assert not head(model).layer._forward_pre_hooks


def test_batch_dependence():
    model = build("resnet20", (1, 8, 8), 4, seed=0)
    assert batch_dependent(model)
    assert not batch_dependent(model.eval())
    assert not batch_dependent(build("cnn", (1, 8, 8), 4, seed=0))
    assert batch_dependent(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False)).eval())
    model.stem[1].train()  # one layer is enough
    assert batch_dependent(model)


def test_input_shape_of_foreign_models():
    cnn = nn.Sequential(nn.Conv2d(3, 2, 5), nn.Flatten(), nn.Linear(2 * 28 * 28, 4))
    assert input_shape(cnn) == input_shape(cnn.double()) == (3, 32, 32)
    assert input_shape(nn.Sequential(nn.Flatten(), nn.Linear(50, 4))) == (50,)
    for pooling, inputs, message in ((nn.AdaptiveAvgPool2d(1), 2, "several usual"), (nn.Identity(), 7, "no usual")):
        model = nn.Sequential(nn.Conv2d(1, 2, 3), pooling, nn.Flatten(), nn.Linear(inputs, 4))
        with pytest.raises(ValueError, match=message):
            input_shape(model)
