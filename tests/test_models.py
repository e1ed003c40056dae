"""The papers' networks, the head of any model, and last-layer gradients in closed form."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak.attacks import words
from fedleak.federated import fedsgd
from fedleak.models import batch_dependent, build, head, head_pass, input_shape, known_tokens
from fedleak.models.heads import HeadPass

ANY_SIZE = ["cnn", "lenet", "resnet20", "resnet20-relu", "fcn3"]  # the deep ones have tests of their own
SHAPES = [(1, 28, 28), (3, 28, 28), (1, 32, 32), (3, 32, 32)]


# --- the networks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ANY_SIZE)
def test_shapes_chain(name, shape):
    shape = (shape[0], 32, 32) if name.startswith("vgg") else shape  # halved five times
    model = build(name, shape, 7, seed=0)
    assert model(torch.rand(2, *shape)).shape == (2, 7)
    assert input_shape(model) == shape
    assert head(model).layer.out_features == 7


@pytest.mark.parametrize(("side", "hidden"), [(28, 588), (32, 768), (29, 768), (30, 768), (33, 972)])
def test_the_cnns_head_has_the_papers_size(side, hidden):
    # Strides 2, 2, 1: 28 -> 14 -> 7, 12 * 7 * 7 = 588; 32 -> 16 -> 8, 12 * 8 * 8 = 768; 33 -> 17 -> 9: 972.
    model = build("cnn", (1, side, side), 10, seed=0)
    assert head(model).layer.in_features == hidden
    assert model(torch.rand(1, 1, side, side)).shape == (1, 10)


def test_parameter_counts():
    # CNN: 12 * 25 + 12, then twice 12 * 12 * 25 + 12, then 588 * 10 + 10.
    assert sum(p.numel() for p in build("cnn", (1, 28, 28), 10, seed=0).parameters()) == 312 + 2 * 3612 + 5890
    # LeNet at 32: 6 * 25 + 6, 16 * 6 * 9 + 16, 576 * 120 + 120, 120 * 84 + 84, 84 * 10 + 10.
    expected = 156 + 880 + 69_240 + 10_164 + 850
    assert sum(p.numel() for p in build("lenet", (1, 32, 32), 10, seed=0).parameters()) == expected


def test_the_text_network_takes_bytes_and_shows_which():
    model = build("textcnn", (32,), 10, seed=0)
    sizes = (256 * 32, 64 * 32 * 3 + 64, 64 * 64 + 64, 64 * 10 + 10)
    assert (known_tokens(model), sum(p.numel() for p in model.parameters())) == (256, sum(sizes))
    x = torch.randint(97, 123, (16, 32), generator=torch.Generator().manual_seed(0))
    assert torch.equal(words.recover(fedsgd(model, x, torch.arange(16) % 10), model), x.unique())


def test_resnet20_has_twenty_layers_and_two_at_its_end():
    model = build("resnet20", (3, 32, 32), 10, seed=0)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == 19
    assert (model.bridge.in_features, model.bridge.out_features, model.fc.in_features) == (64, 512, 512)


@pytest.mark.parametrize(("name", "negative"), [("resnet20", True), ("resnet20-relu", False), ("cnn", False)])
def test_only_the_resnet_without_activation_has_negative_head_inputs(name, negative):
    seen = head_pass(build(name, (1, 16, 16), 5, seed=0), torch.rand(8, 1, 16, 16)).inputs
    assert bool((seen < 0).any()) is negative


def test_both_resnets_start_from_the_same_weights():
    one, other = (build(name, (1, 16, 16), 5, seed=3).state_dict() for name in ("resnet20", "resnet20-relu"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", ANY_SIZE)
def test_build_is_seeded_and_leaves_the_global_random_state_alone(name):
    state = torch.random.get_rng_state()
    side = 32 if name.startswith("vgg") else 28
    one, two, other = (build(name, (1, side, side), 10, seed=s) for s in (4, 4, 5))
    assert torch.equal(torch.random.get_rng_state(), state)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    weight = head(one).weight
    assert not torch.equal(one.get_parameter(weight), other.get_parameter(weight))


def test_initialisations():
    uniform, default = (build("cnn", (1, 28, 28), 10, seed=0, init=i) for i in (None, "default"))
    for p in uniform.parameters():
        assert p.abs().max() <= 0.5
    # 5880 draws from U(-0.5, 0.5): standard deviation 0.2887.
    assert head(uniform).layer.weight.std().item() == pytest.approx(0.2887, rel=0.03)
    assert head(default).layer.weight.abs().max() <= 588**-0.5  # PyTorch's bound
    lenet = build("lenet", (1, 28, 28), 10, seed=0, init="uniform")
    assert lenet[0].weight.abs().max() > 0.45


@pytest.mark.parametrize(
    ("name", "classes", "init", "message"),
    [
        ("vgg", 10, None, "unknown model 'vgg'; known: .*cnn, .*lenet, .*resnet20, .*resnet20-relu"),
        ("cnn", 1, None, "at least two classes, got 1"),
        ("cnn", 0, None, "at least two classes, got 0"),
        ("cnn", -3, None, "at least two classes, got -3"),
        ("cnn", 10, "xavier", "unknown initialisation 'xavier'; known: default, uniform"),
    ],
)
def test_bad_models(name, classes, init, message):
    with pytest.raises(ValueError, match=message):
        build(name, (1, 28, 28), classes, seed=0, init=init)


# --- the head ----------------------------------------------------------------------------------------------------


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU())
        self.top = nn.ModuleDict({"drop": nn.Identity(), "out": nn.Linear(5, 4, bias=False)})

    def forward(self, x):
        return self.top["out"](self.body(x))


def test_head_of_nested_and_bare_models():
    found = head(Nested())
    assert (found.name, found.weight, found.bias) == ("top.out", "top.out.weight", "top.out.bias")
    bare = nn.Linear(3, 2)
    assert head(bare).layer is bare
    assert (head(bare).weight, head(bare).bias) == ("weight", "bias")
    for model in (Nested(), bare):
        assert head(model).weight in dict(model.named_parameters())


def test_a_model_without_a_fully_connected_layer():
    with pytest.raises(ValueError, match="Sequential has no fully connected layer, so it has no head to attack"):
        head(nn.Sequential(nn.Conv2d(1, 2, 3)))


def test_golden_row_sums():
    # Softmax (1/2, 1/2) for every sample, inputs that sum to 3 and 1. Batch (0, 1) with labels (0, 1): the mean of
    # 3 * (-1/2, 1/2) and 1 * (1/2, -1/2) is (-1/2, 1/2); batch (1, 1) with labels (0, 0): 1 * (-1/2, 1/2).
    seen = HeadPass(torch.tensor([[1.0, 2.0], [4.0, -3.0]]), torch.full((2, 2), 0.5))
    found = seen.row_sums(torch.tensor([[0, 1], [1, 1]]), torch.tensor([[0, 1], [0, 0]]))
    assert found.tolist() == [[-0.5, 0.5], [-0.5, 0.5]]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["bare", "nested", "cnn", "lenet", "resnet20", "resnet20-relu"]),
    batches=st.integers(1, 3),
    batch=st.integers(1, 6),
)
def test_closed_form_row_sums_are_autograds(seed, kind, batches, batch):
    torch.manual_seed(seed)
    if kind == "bare":
        model, shape = nn.Linear(6, 4), (6,)
    elif kind == "nested":
        model, shape = Nested(), (6,)
    else:
        shape = (1, 20, 20) if kind == "lenet" else (1, 8, 8)
        model = build(kind, shape, 4, seed=seed)
    model = model.double().eval()
    x = torch.rand(10, *shape).double()
    index, labels = torch.randint(10, (batches, batch)), torch.randint(4, (batches, batch))
    found = head_pass(model, x, chunk=3).row_sums(index, labels)
    for i in range(batches):
        expected = fedsgd(model, x[index[i]], labels[i]).gradient(head(model).weight).sum(dim=1)
        torch.testing.assert_close(found[i], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 1, 3, 4)])
def test_row_sums_take_any_number_of_batches(shape):
    seen = HeadPass(torch.rand(9, 5), torch.rand(9, 3).softmax(dim=1))
    index, labels = torch.randint(9, shape), torch.randint(3, shape)
    found = seen.row_sums(index, labels)
    assert found.shape == (*shape[:-1], 3)
    flat = seen.row_sums(index.view(-1, shape[-1]), labels.view(-1, shape[-1]))
    assert torch.equal(found.view(-1, 3), flat)


def test_head_pass_in_training_mode_takes_the_whole_batch_and_leaves_the_statistics():
    model = build("resnet20", (1, 8, 8), 4, seed=0).double()
    before = {name: b.clone() for name, b in model.named_buffers()}
    x = torch.rand(6, 1, 8, 8).double()
    whole, labels = head_pass(model, x, chunk=2), torch.tensor([[0, 1, 2, 3, 0, 1]])
    expected = fedsgd(model, x, labels[0]).gradient("fc.weight").sum(dim=1)
    torch.testing.assert_close(whole.row_sums(torch.arange(6)[None], labels)[0], expected, rtol=1e-8, atol=1e-10)
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
    assert not head(model).layer._forward_pre_hooks


def test_head_pass_refuses_no_images_and_cleans_up_after_a_failure():
    model = build("cnn", (1, 8, 8), 4, seed=0)
    with pytest.raises(ValueError, match="no images to run through the model"):
        head_pass(model, torch.rand(0, 1, 8, 8))
    with pytest.raises(RuntimeError):
        head_pass(model, torch.rand(2, 1, 9, 19))
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
    assert input_shape(cnn) == (3, 32, 32)
    assert input_shape(nn.Sequential(nn.Flatten(), nn.Linear(50, 4))) == (50,)
    assert input_shape(cnn.double()) == (3, 32, 32)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 4)),
            "several usual sizes",
        ),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(7, 4)), "no usual size fits"),
    ],
)
def test_input_shape_that_cannot_be_told(model, message):
    with pytest.raises(ValueError, match=rf"cannot tell the input shape of this model \({message}.*pass shape="):
        input_shape(model)
