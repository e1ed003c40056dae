"""The door of all attacks: names, precision, frozen layers, modes, random state and ranges."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from fedleak import Update
from fedleak.attacks import registry
from fedleak.attacks.door import admit
from fedleak.attacks.images import dlg, invg
from fedleak.attacks.images.objective import View
from fedleak.attacks.labels import gdbr, ilrg, llg, rlu, zlg
from fedleak.attacks.registry import all_attacks, attack
from fedleak.data import Images
from fedleak.federated import fedsgd
from fedleak.models.wrappers import inner_model

SHAPE, CLASSES = (1, 8, 8), 4


def network(*, dropout=0.0, norm=False):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4) if norm else nn.Identity(), nn.Sigmoid(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(64, CLASSES))
    model.input_shape = SHAPE
    return model


def sample(model, n=1):
    x = torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(1))
    return fedsgd(model.eval(), x.to(next(model.parameters())), torch.arange(n) % CLASSES)


def test_names_that_wrappers_make_are_read_by_labels_and_images():
    model, prefix = network(), "module._orig_mod."
    update = sample(model)
    wrapped = update.replace({prefix + name: tensor for name, tensor in update.tensors.items()})
    for given, net in ((wrapped, model), (update, nn.DataParallel(model)), (wrapped, nn.DataParallel(model))):
        assert ilrg.recover(given, net).equal(ilrg.recover(update, model))
    image = dlg.reconstruct(update, model, iterations=1)
    assert dlg.reconstruct(wrapped, nn.DataParallel(model), iterations=1).equal(image)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, True, 0.5])
def test_what_is_no_seed_is_refused_by_every_attack(seed):
    model = network()
    for recover in (llg.recover, zlg.recover, dlg.reconstruct):
        with pytest.raises(ValueError, match="seed is a whole number"):
            recover(sample(model), model, seed=seed)


def test_only_library_wrappers_are_taken_off():
    model = network()
    wrapper = nn.DataParallel(nn.DataParallel(model))
    wrapper.head_name = "module.module.5"
    assert inner_model(wrapper) is model
    assert model.head_name == "5"
    own = type("Own", (nn.Module,), {})()
    own.module = model
    assert inner_model(own) is own


def test_a_shared_weight_is_read_by_either_of_its_names():
    model = nn.Sequential(OrderedDict(first=nn.Linear(4, 4), last=nn.Linear(4, 4)))
    model.last.weight = model.first.weight
    tensors = {"last.weight": torch.ones(4, 4), "last.bias": torch.ones(4)}
    assert admit(Update(tensors, "gradient", 1), model).tensors.keys() == {"first.weight", "last.bias"}


def test_dropout_is_off_and_nothing_of_the_callers_changes():
    model, aux = network(dropout=0.5, norm=True), Images(torch.rand(8, *SHAPE), torch.arange(8) % CLASSES)
    update = sample(model, 8)
    inverted = lambda u, m: invg.reconstruct(u, m, labels=torch.arange(8) % 4, iterations=2)
    reads = [lambda u, m: zlg.recover(u, m, aux), inverted]
    model.train()
    statistics, state = model[1].running_mean.clone(), torch.get_rng_state()
    for read in reads:
        assert read(update, model).equal(read(update, model))
    assert all(module.training for module in model.modules())
    assert torch.get_rng_state().equal(state)
    assert model[1].running_mean.equal(statistics)
    assert not torch.equal(reads[1](update, model), reads[1](update, model.eval()))  # batch norm is in its mode


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_are_recovered_in_the_updates_precision(dtype):
    model = network()
    update = sample(model)
    other = update.replace({name: tensor.to(dtype) for name, tensor in update.tensors.items()})
    for net in (model, network().to(dtype)):
        images = dlg.reconstruct(other, net, iterations=1)
        assert images.dtype == torch.promote_types(dtype, torch.float32)
        assert llg.recover(other, net).tolist() == [1, 0, 0, 0]


def test_frozen_and_withheld_parameters_are_constants():
    model = network()
    model[0].requires_grad_(False)
    trained, labels = sample(model), torch.zeros(1, 1).long()
    whole = trained.replace({**{n: torch.zeros_like(p) for n, p in model.named_parameters()}, **trained.tensors})
    for update in (trained, whole):
        view = View([update], model, labels)
        assert view.matched == ["5.weight", "5.bias"]
        assert len(view.gradients(torch.rand(1, 1, *SHAPE), torch.eye(4)[None, :1], slice(None))) == 2
    assert View([trained.without("5.bias")], model, labels).matched == ["5.weight"]


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 16)
        self.fc, self.other = nn.Linear(8, CLASSES), nn.Linear(8, 2)
        self.input_shape = (5, 8)

    def forward(self, x):
        return self.fc(self.attention(x).mean(1))


def test_attention_and_unused_heads_are_inverted_without_a_box():
    torch.manual_seed(0)
    model, x, y = TwoHeads().eval(), 3 * torch.randn(1, 5, 8), torch.tensor([2])
    sequences = invg.reconstruct(fedsgd(model, x, y), model, labels=y, iterations=40)
    assert sequences.shape == x.shape
    assert sequences.min() < -0.5


def test_a_box_says_the_range():
    model, options = network(), {"labels": torch.tensor([0]), "iterations": 20}
    update = sample(model)
    low, high = invg.reconstruct(update, model, box=(-1, 0.5), **options).aminmax()
    assert -1 <= low < 0 < high <= 0.5
    assert invg.reconstruct(update, model, box=None, **options).max() > 1
    with pytest.raises(ValueError, match="box"):
        invg.reconstruct(update, model, box=(1, 0), **options)


def test_a_cell_runs_twice_and_another_function_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "_ATTACKS", dict(registry._ATTACKS))

    def cell(summary):
        @attack("mine", needs=(), summary=summary)
        def recover(update, model):
            return None

    cell("first.")
    cell("the second.")
    assert next(a for a in all_attacks() if a.name == "mine").summary == "the second."
    with pytest.raises(ValueError, match="mine"):
        attack("mine", needs=(), summary="Another.")(lambda update, model: None)


class HeadFirst(nn.Module):
    """A network whose head is declared first, and whose inputs have no usual size."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(6, CLASSES), nn.Linear(35, 6)

    def forward(self, x):
        return self.head(self.body(x.flatten(1)).relu())


def test_a_shape_or_auxiliary_data_that_an_attack_is_given_find_the_head():
    torch.manual_seed(0)
    x, y = torch.rand(8, 1, 5, 7), torch.arange(8) % CLASSES
    aux = Images(x, y, list("abcd"), "made up")
    for prepare in (lambda m: zlg.prepare(m, shape=(1, 5, 7)), lambda m: llg.prepare(m, aux)):
        model = HeadFirst()
        assert prepare(model).recover(fedsgd(model, x[:2], y[:2])).counts.sum() == 2
        assert "input_shape" not in vars(model)
    model = HeadFirst()
    assert dlg.reconstruct(fedsgd(model, x[:1], y[:1]), model, shape=(1, 5, 7), iterations=1).shape == (1, 1, 5, 7)


def test_auxiliary_data_of_another_shape_are_named():
    torch.manual_seed(0)
    model, y = network(), torch.arange(8) % CLASSES
    aux = Images(torch.rand(8, 3, 9, 9), y, list("abcd"), "made up")
    for prepare in (llg.prepare, gdbr.prepare, rlu.prepare):
        with pytest.raises(ValueError, match=r"auxiliary data.*\(3, 9, 9\)"):
            prepare(model, aux).recover(sample(model))


def test_an_update_that_is_zero_everywhere_is_refused():
    model = network()
    update = sample(model)
    zero = update.replace({name: torch.zeros_like(tensor) for name, tensor in update.tensors.items()})
    for attack_it in (llg.recover, ilrg.recover, dlg.reconstruct):
        with pytest.raises(ValueError, match="zero"):
            attack_it(zero, model)


def test_several_models_or_updates_are_refused_where_one_is_read():
    model = network()
    update = sample(model)
    with pytest.raises(ValueError, match="one model"):
        llg.recover(update, [model])
    with pytest.raises(ValueError, match="one update"):
        llg.recover([update, update], model)
    with pytest.raises(ValueError, match="labels"):
        invg.reconstruct(update, model, labels="ab")
    with pytest.raises(ValueError, match="snapshots"):
        invg.reconstruct(update, model, labels=torch.zeros(update.samples).long(), snapshots=5)
