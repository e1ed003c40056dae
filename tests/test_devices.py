"""Everything runs on a GPU, here a pretended one, where it comes to the numbers that the CPU comes to."""

import copy
import dataclasses
import inspect

import pytest
import torch
from pretended_gpu import GPU, REAL, PretendedGPU
from torch import nn
from torch.utils._pytree import tree_leaves

from fedleak.attacks.images import agic, dlg, invg
from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Problem
from fedleak.attacks.labels import rlu
from fedleak.attacks.registry import Adversary, Need, all_attacks
from fedleak.data import Images
from fedleak.federated import Scheme, Server, Update, fedavg, fedsgd
from fedleak.federated.aggregation import FixedPoint, plain_sum, secure_sum
from fedleak.federated.defences import protect, protections
from fedleak.federated.restricted import FedVF, Withhold, last_layers, partially_encrypted
from fedleak.models import build, head, head_pass, names
from fedleak.models.inputs import dummy_inputs

SHAPE, CLASSES = (1, 8, 8), 4


def pool(device, seed=0):
    x = torch.rand(10 * CLASSES, *SHAPE, generator=torch.Generator().manual_seed(seed))
    return Images(x, torch.arange(10 * CLASSES) % CLASSES).to(device)


def tensors(value):
    """Every tensor in what a function returned."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, Update):
            yield from leaf.tensors.values()
        elif isinstance(leaf, Images):
            yield from (leaf.x, leaf.y)
        elif isinstance(leaf, torch.Tensor):
            yield leaf


SUMS = {"rtol": 1e-2, "atol": 1e-3}
"""How far a real GPU, which adds in another order, may be from the CPU in single precision."""


def same_on_both(compute, place=GPU, **tolerance):
    """Compute on both devices: the pretended GPU's results are at `place`, and the numbers are the CPU's."""
    expected = list(tensors(compute("cpu")))
    with PretendedGPU() as gpu:
        results = list(tensors(compute("cuda")))
        assert {t.device for t in results} == {place}
        assert set(gpu.drawn) <= {"dropout"}, "draw with a CPU generator, and move the numbers"
        results = [t.cpu() for t in results]
    assert len(results) == len(expected) > 0
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, reference, equal_nan=True, **(SUMS if REAL else {}) | tolerance)


@pytest.mark.parametrize("name", names() if REAL else ("lenet", "resnet20", "textcnn"))
def test_models(name):
    small = name in ("cnn", "lenet", "fcn3", "mlp6")
    shape = (1, 8, 8) if name in ("cnn", "fcn3", "mlp6") else (1, 28, 28) if small else (3, 32, 32)
    built = build(name, (32,) if name == "textcnn" else shape, CLASSES, seed=0).eval()
    x = next(dummy_inputs(built))
    if REAL and x.is_floating_point():  # a hundred layers make much of a last digit
        built, x = built.double(), x.double()

    def compute(device):
        model = copy.deepcopy(built).to(device)
        with torch.no_grad():
            return model(x.to(device)), *head_pass(model, x.to(device)), head(model).layer.weight

    same_on_both(compute)


def test_clients():
    def compute(device):
        model, images = build("resnet20-1", SHAPE, CLASSES, seed=0).to(device), pool(device)
        x, y = images.x[:12].unflatten(0, (3, 4)), images.y[:12].view(3, 4)
        update = fedavg(model, x, y, 0.1, "delta")
        states = Update.from_states(model.state_dict(), update.model(model).state_dict(), 12, 3, 0.1)
        return update, update.gradient(head(model).weight), states, fedsgd(model, x[0], y[0])

    same_on_both(compute)


def test_federated_algorithms_and_what_their_server_knows():
    scheme = Scheme("feddc", 0.05, 2, 0.0, 1.0)

    def compute(device):
        images, generator = pool(device), torch.Generator().manual_seed(0)
        model = build("cnn", SHAPE, CLASSES, seed=0).to(device)
        server = Server(model, scheme, 2)
        for _ in range(2):
            index = torch.randint(len(images), (2, 2, 6), generator=generator)
            before = {k: v.clone() for k, v in model.state_dict().items()}
            updates = server.round(images.x[index], images.y[index])
        model.load_state_dict(before)
        bias = head(model).bias
        history = server.history(0, bias).to(updates[0].tensors[bias])
        counts = rlu.recover(updates[0], model, images, scheme=scheme, history=history)
        return updates, server.sent, history, counts

    same_on_both(compute)


def test_defences_and_aggregation():
    def compute(device):
        model, images = build("fcn3", SHAPE, CLASSES, seed=0).to(device), pool(device)
        updates, last = [fedsgd(model, images.x[k : k + 3], images.y[k : k + 3]) for k in (0, 5)], last_layers(model, 2)
        defences = [kind.make(kind.strengths[0], model, 2, 0) for kind in protections().values()]
        for defence in (*defences, Withhold(last), FedVF(last, every=2, clients=2)):
            yield from (protect(update, defence, k) for _ in range(2) for k, update in enumerate(updates))
        encoding = FixedPoint(32, 4.0)
        yield from (secure_sum(updates, encoding)[0], plain_sum(updates), plain_sum(updates, encoding))
        yield from partially_encrypted(updates, last_layers(model))

    same_on_both(lambda device: list(compute(device)))


EVERYTHING = Adversary("everything", frozenset(Need), server="malicious")
FEW = ("LLG+", "RLU, whole head", "ZLG, interpolated", "learned", "InvG")
"""Attacks that the pretended GPU is tried with, which share nothing but the registry; a real one runs all."""
STRAIGHT = [a for a in all_attacks() if not a.standalone_reason and not a.sends and (REAL or a.name in FEW)]


@pytest.mark.parametrize("attack", STRAIGHT, ids=lambda attack: attack.name)
def test_a_registered_attack(attack):
    batch = 1 if attack.name in ("iDLG", "RLG") else 3

    def compute(device):
        model, images = build("cnn" if attack.goal == "images" else "fcn3", SHAPE, CLASSES, seed=0), pool(device)
        model = (model.double() if attack.goal == "images" else model).to(device)  # a descent enlarges rounding
        x = images.x[:batch].to(next(model.parameters()).dtype)
        knowledge = {"aux": pool("cpu", seed=1), "prior": torch.full((CLASSES,), 0.25, device=device), "seed": 3}
        options = attack.inputs(EVERYTHING, knowledge | {"runs": 2, "batch_size": batch, "input_shape": SHAPE})
        if attack.trained or attack.cost != "seconds" or "iterations" in inspect.signature(attack.function).parameters:
            options["iterations"] = 2
        adversary = dataclasses.replace(EVERYTHING, sees=attack.sees)
        return attack(fedsgd(model, x, images.y[:batch]), model, adversary=adversary, **options)

    same_on_both(compute)


@pytest.mark.parametrize(("descent", "simulate"), [(invg.INVG, True), (dlg.DLG_ADAM, False)], ids=["InvG", "DLG"])
def test_objectives_of_stacked_inversions(descent, simulate):
    def compute(device):
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten()
        images, model = pool(device), nn.Sequential(*layers, nn.Linear(64, CLASSES)).to(device).eval()
        index = torch.arange(8).view(2, 2, 2)
        updates = [fedavg(model, images.x[i], images.y[i], 0.05, "delta") for i in index]
        labels = images.y[index].flatten(1)
        options = {"simulate": simulate, "layer_weights": agic.layer_weights()}
        problem = Problem([View(updates, model, labels.to(at), **options) for at in (device, "cpu")], descent, SHAPE)
        return problem.evaluate(problem.start(0))

    same_on_both(compute, rtol=1e-3, atol=1e-5)
