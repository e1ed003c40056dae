"""Other people's models: the head is where the outputs come from, or the reason why nobody can tell is given."""

import dataclasses

import pytest
import torch
from networks import Behind, Text, Two, Wrapped
from torch import nn
from torchvision import models as vision

from fedleak.attacks.labels import ilrg, llg, zlg
from fedleak.federated import fedsgd
from fedleak.metrics import counts, instance_accuracy
from fedleak.models import chain, head, head_pass, input_shape, known_tokens

LABELS = torch.tensor([0, 0, 0, 3, 3, 1, 5, 5])
SEEDED = torch.Generator().manual_seed(0)


def vit():
    return vision.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=6).eval()


def small(activation):
    return nn.Sequential(nn.Linear(12, 20), activation, nn.Linear(20, 6))


@pytest.mark.parametrize(
    ("make", "name", "x"),
    [
        (Text, "fc", torch.randint(50, (8, 5), generator=SEEDED)),
        (Wrapped, "head", torch.rand(8, 20, generator=SEEDED)),
        (Two, "head", torch.rand(8, 20, generator=SEEDED)),
        (vit, "heads.head", torch.rand(8, 3, 32, 32, generator=SEEDED)),
        (lambda: Behind(lambda z: z.log_softmax(1)), "fc", torch.rand(8, 12, generator=SEEDED)),
        (lambda: small(nn.Tanh()), "2", torch.rand(8, 12, generator=SEEDED)),
    ],
)
def test_ilrg_reads_most_labels_of_any_model(make, name, x):
    model = make()
    state = torch.get_rng_state()
    assert head(model).name == name
    assert torch.equal(state, torch.get_rng_state())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    recovered = ilrg.recover(fedsgd(model, x, LABELS), model)
    assert instance_accuracy(recovered, counts(LABELS, 6)) >= 0.7
    torch.testing.assert_close(head_pass(model, x).probabilities, model(x).softmax(1))


def test_two_heads_are_told_apart_by_name_only():
    model, x = Two(two_outputs=True), torch.rand(8, 20)
    with pytest.raises(ValueError, match="tuple"):
        head(model)
    model.head_name = "head"
    assert head(model).layer is model.head
    assert head(model, "other").layer is model.other
    single = Two()
    single.load_state_dict(model.state_dict())
    update = fedsgd(single, x, LABELS)
    assert torch.equal(llg.recover(update, model), llg.recover(update, single))
    with pytest.raises(ValueError, match="body"):
        head(model, "body.0")


OTHERS = [lambda z: z.softmax(1), lambda z: z.tanh(), lambda z: z[:, :4], lambda z: z / 2]


@pytest.mark.parametrize("function", OTHERS)
def test_outputs_that_are_no_layers_are_refused_without_vain_advice(function):
    model = Behind(function)
    with pytest.raises(ValueError, match="softmax") as refused:
        head(model)
    assert "head_name" not in str(refused.value)
    for name in ("body", "fc"):
        with pytest.raises(ValueError, match="head_name"):
            head(model, name)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor


@pytest.mark.parametrize("pack", [lambda z: {"logits": z}, lambda z: (z.sum(), [z]), Output])
def test_a_name_is_of_a_layer_whose_outputs_the_model_returns(pack):
    model = Behind(pack)
    with pytest.raises(ValueError, match=r"model\.head_name = one of 'fc'$"):
        head(model)
    assert head(model, "fc").layer is model.fc
    with pytest.raises(ValueError, match=r"'body', which model\.head_name names, are not among"):
        head(model, "body")
    with pytest.raises(ValueError, match="wrap it in a module"):
        head(Behind(lambda z: {"probabilities": z.softmax(1)}))


def test_input_shapes_of_vision_transformers_and_texts():
    assert input_shape(vit()) == (3, 32, 32)
    with pytest.raises(ValueError, match="tokens"):
        input_shape(Text())
    assert [link.name for link in chain(Text()).links] == ["body", "fc"]


def test_made_up_images_are_refused_for_texts():
    model = Text()
    update = fedsgd(model, torch.randint(50, (8, 5)), LABELS)
    for recover in (lambda: llg.recover(update, model, "zeros"), lambda: zlg.recover(update, model)):
        with pytest.raises(ValueError, match="tokens"):
            recover()


class Cosine(nn.Linear):
    """A linear layer of inputs and weights of length 1."""

    def forward(self, x):
        return 10 * nn.functional.linear(nn.functional.normalize(x), nn.functional.normalize(self.weight))


def test_a_head_with_a_custom_forward_is_refused():
    layers = nn.Linear(12, 20), nn.ReLU(), Cosine(20, 6)
    named = nn.Sequential(*layers, nn.Identity())
    named.head_name = "2"
    for model in (nn.Sequential(*layers), named):
        with pytest.raises(ValueError, match="Cosine"):
            head(model)


class Rounded(nn.Linear):
    """A linear layer that rounds its weight's gradient to signs."""

    def forward(self, x):
        weight = self.weight * 1
        weight.register_hook(torch.sign)
        return nn.functional.linear(x, weight, self.bias)


def test_a_head_with_another_backward_pass_is_refused():
    with pytest.raises(ValueError, match="Rounded"):
        head(nn.Sequential(nn.Linear(12, 20), nn.ReLU(), Rounded(20, 6)))


class Bert(nn.Module):
    """Three embeddings, of which one takes the inputs, the smallest of all or neither smallest nor largest."""

    def __init__(self, vocabulary, positions, types):
        super().__init__()
        sizes = vocabulary, positions, types
        self.types, self.positions, self.words = (nn.Embedding(size, 8) for size in reversed(sizes))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        places = torch.arange(x.shape[1]).expand(len(x), -1)
        return self.fc((self.words(x) + self.positions(places) + self.types(torch.zeros_like(x))).mean(1))


@pytest.mark.parametrize("sizes", [(100, 512, 2), (30, 64, 40)])
def test_the_vocabulary_is_of_the_embedding_that_takes_inputs(sizes):
    assert known_tokens(Bert(*sizes)) == sizes[0]
