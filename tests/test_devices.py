"""Everything runs on a GPU, here a pretended one, where it comes to the numbers that the CPU comes to."""

import copy
import dataclasses
import inspect
import math
from functools import partial
from typing import get_args

import pytest
import torch
from pretended_gpu import CPU, GPU, REAL, PretendedGPU
from torch.utils._pytree import tree_leaves

from fedleak import metrics
from fedleak.attacks.images import agic, dlg, eluding_sa, invg, mandrake
from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Problem
from fedleak.attacks.labels import confidence, gdbr, llg, rlu
from fedleak.attacks.registry import Adversary, Need, all_attacks
from fedleak.data import COMPOSITIONS, Images, compose, draw
from fedleak.data.partitions import dirichlet, local_batches
from fedleak.federated import Scheme, Server, Update, fedavg, fedsgd
from fedleak.federated.aggregation import FixedPoint, plain_sum, secure_sum
from fedleak.federated.algorithms import SCHEMES
from fedleak.federated.defences import ClippedNoise, protect, protections
from fedleak.federated.restricted import FedVF, Withhold, last_layers, partially_encrypted
from fedleak.models import batch_dependent, build, chain, head, head_pass, names
from fedleak.models.inputs import dummy_inputs
from fedleak_book.experiments.training import Federation, accuracy, stacked_updates
from notebooks.gdbr.experiments_stand_ins import Mode, stand_in
from notebooks.llg.experiments_released import ReleasedCompression

SHAPE, CLASSES = (1, 8, 8), 4


def pool(device, per_class=10, seed=0):
    x = torch.rand(per_class * CLASSES, *SHAPE, generator=torch.Generator().manual_seed(seed))
    y = torch.arange(per_class * CLASSES) % CLASSES
    return Images(x, y, tuple("abcd"), "random", "train", False, "made here", "none").to(device)


def tensors(value):
    """Every tensor in what a function returned."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, Update):
            yield from leaf.tensors.values()
        elif isinstance(leaf, Images):
            yield from (leaf.x, leaf.y)
        elif isinstance(leaf, torch.Tensor):
            yield leaf
        elif leaf is not None and not isinstance(leaf, float | int | str | bool):
            raise TypeError(type(leaf).__name__)


SUMS = {"rtol": 1e-2, "atol": 1e-3}
"""How far a real GPU, which adds in another order, may be from the CPU in single precision."""


def same_on_both(compute, place=GPU, refused=(), **tolerance):
    """Compute on both devices: the pretended GPU's results are at `place`, and the numbers are the CPU's.

    Returns False where the CPU raises what is `refused`.
    """
    try:
        expected = list(tensors(compute("cpu")))
    except refused:
        return False
    with PretendedGPU():
        results = list(tensors(compute("cuda")))
        assert {t.device for t in results} == {place}
        results = [t.cpu() for t in results]
    assert len(results) == len(expected)
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, reference, equal_nan=True, **(SUMS if REAL else {}) | tolerance)
    return True


# --- the pretended GPU itself ------------------------------------------------------------------------------------


@pytest.mark.skipif(REAL, reason="of the pretended one")
def test_what_a_real_gpu_refuses_is_refused():
    with PretendedGPU():
        on_cpu, on_gpu = torch.ones(3), torch.ones(3).to("cuda")
        refused = [
            lambda: on_cpu + on_gpu,
            lambda: on_cpu * on_gpu.sum(),
            lambda: on_cpu.sum().add_(on_gpu.sum()),
            lambda: torch.stack([on_cpu.sum(), on_gpu.sum()]),
            lambda: on_cpu[on_gpu.long()],
            lambda: torch.nn.Linear(3, 2).to("cuda")(on_cpu),
            lambda: torch.func.vmap(torch.dot)(on_cpu.expand(2, 3), on_gpu.expand(2, 3)),
            lambda: torch.rand(3, generator=torch.Generator(), device="cuda"),
            lambda: torch.rand(3, generator=torch.Generator("cuda")),
            lambda: on_gpu.clone().normal_(generator=torch.Generator()),
            lambda: torch.multinomial(on_gpu, 1, generator=torch.Generator()),
        ]
        for operation in refused:
            with pytest.raises(RuntimeError, match=r"same device|need a generator"):
                operation()
        with pytest.raises(TypeError, match="to numpy"):
            on_gpu.numpy()
        allowed = [on_gpu * on_cpu.sum(), on_gpu[on_cpu.long()], on_gpu.clone().copy_(on_cpu), torch.ones_like(on_gpu)]
        assert {t.device for t in allowed} == {GPU}
        assert {t.device for t in (on_cpu, on_gpu.cpu(), on_cpu.to(on_gpu.cpu()), torch.ones(1))} == {CPU}


@pytest.mark.skipif(REAL, reason="of the pretended one")
def test_gradients_are_where_their_variables_are_and_draws_differ_from_the_cpus():
    with PretendedGPU():
        model = build("cnn", SHAPE, CLASSES, seed=0).to("cuda")
        model(torch.ones(1, *SHAPE, device="cuda")).sum().backward()
        assert {p.grad.device for p in model.parameters()} == {GPU}
        draws = torch.rand(4, generator=torch.Generator("cuda").manual_seed(0), device="cuda").cpu()
        assert not torch.equal(draws, torch.rand(4, generator=torch.Generator().manual_seed(0)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            free = torch.rand(4, device="cuda").cpu()
            torch.manual_seed(0)
            assert not torch.equal(free, torch.rand(4))
    assert not torch.cuda.is_available()
    assert torch.ones(1).to("cpu").device == CPU


# --- data ----------------------------------------------------------------------------------------------------------


def test_images_and_their_parts():
    def compute(device):
        images = pool(device)
        taken = images.take([3, 1]), images.take(torch.tensor([5])), *images.split_in_two(seed=0)
        return taken, images.class_counts, images.class_order, images.of_class(2)

    same_on_both(compute)
    with PretendedGPU():
        assert pool("cuda").digest == pool("cpu").digest


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_batches(composition):
    def compute(device):
        images, generator = pool(device), torch.Generator().manual_seed(0)
        labels = compose(composition, 12, CLASSES, 3, generator, steps=2)
        index = draw(images, labels, generator)
        return index, images.x[index], images.y[index] - labels.to(images.y.device)

    same_on_both(compute)


def test_partitions_are_numbers_on_the_cpu():
    def compute(device):
        images, generator = pool(device), torch.Generator().manual_seed(0)
        parts = dirichlet(images.y, 3, 0.5, seed=0)
        batches = [local_batches(part, 2, 4, generator) for part in parts]
        assert {images.x[index].device.type for index in batches} == {device}
        return parts, batches

    same_on_both(compute, CPU)


# --- models --------------------------------------------------------------------------------------------------------


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
        assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {device}
        with torch.no_grad():
            return model(x.to(device)), *head_pass(model, x.to(device)), head(model).layer.weight

    same_on_both(compute)


# --- clients, algorithms, training -------------------------------------------------------------------------------


@pytest.mark.parametrize("share", ["gradient", "delta"])
def test_clients(share):
    def compute(device):
        model, images = build("resnet20", SHAPE, CLASSES, seed=0).to(device), pool(device)
        x, y = images.x[:12].unflatten(0, (3, 4)), images.y[:12].view(3, 4)
        update = fedavg(model, x, y, 0.1, share)
        after = update.model(model) if share == "delta" else model
        states = Update.from_states(model.state_dict(), after.state_dict(), 12, 3, 0.1)
        return update, update.gradient(head(model).weight), states, fedsgd(model, x[0], y[0])

    same_on_both(compute)


@pytest.mark.parametrize("name", SCHEMES)
def test_federated_algorithms_and_what_their_server_knows(name):
    momentum, regularisation = 0.9 * (name in ("sgdm", "nag")), 1.0 * (name in ("fedprox", "feddyn", "feddc"))
    scheme = Scheme(name, 0.05, 2, momentum, regularisation)

    def compute(device):
        images, generator = pool(device), torch.Generator().manual_seed(0)
        model = build("cnn", SHAPE, CLASSES, seed=0).to(device)
        server = Server(model, scheme, 2)
        for _ in range(3):
            index = torch.randint(len(images), (2, 2, 6), generator=generator)
            before = {k: v.clone() for k, v in model.state_dict().items()}
            updates = server.round(images.x[index], images.y[index])
        model.load_state_dict(before)
        bias = head(model).bias
        history = server.history(0, bias).to(updates[0].tensors[bias])
        counts = rlu.recover(updates[0], model, images, scheme=scheme, history=history)
        return updates, server.sent, history, counts

    same_on_both(compute)


def test_stacked_clients_and_training():
    def compute(device):
        images, model = pool(device), build("cnn", SHAPE, CLASSES, seed=0).to(device)
        federation = Federation.of(model, images, users=4, samples=6, composition="unbalanced", seed=0)
        index = federation.batches(federation.choose(2), 2, 3)
        updates = stacked_updates(model, images.x[index], images.y[index], 0.1, chunk=1)
        federation.round(2, 2, 3, 0.1, ClippedNoise(0.2, 0.01, 0))
        assert 0 <= accuracy(model, images) <= 1
        return updates, federation.users, index, dict(model.named_parameters())

    same_on_both(compute)


# --- defences and aggregation --------------------------------------------------------------------------------------


def two_clients(device, net="fcn3"):
    model, images = build(net, SHAPE, CLASSES, seed=0).to(device), pool(device)
    return model, images, [fedsgd(model, images.x[k : k + 3], images.y[k : k + 3]) for k in (0, 5)]


@pytest.mark.parametrize("name", protections())
def test_registered_defences(name):
    def compute(device):
        model, _, updates = two_clients(device)
        for strength in protections()[name].strengths:
            defence = protections()[name].make(strength, model, 2, 0)
            yield from (protect(update, defence, k) for _ in range(2) for k, update in enumerate(updates))

    same_on_both(lambda device: list(compute(device)))


def test_other_defences():
    def compute(device):
        model, _, updates = two_clients(device)
        last = last_layers(model, 2)
        defences = [Withhold(last), FedVF(last, every=2, clients=2), ReleasedCompression(0.5, head(model).weight)]
        return [protect(update, defence, k) for defence in defences for k, update in enumerate(updates)]

    same_on_both(compute)


def test_aggregation():
    def compute(device):
        model, _, updates = two_clients(device)
        encoding = FixedPoint(32, 4.0)
        sums = secure_sum(updates, encoding)[0], plain_sum(updates), plain_sum(updates, encoding)
        return *sums, partially_encrypted(updates, last_layers(model))

    same_on_both(compute)


# --- attacks -------------------------------------------------------------------------------------------------------

EVERYTHING = Adversary("everything", frozenset(Need), server="malicious")
SITUATIONS = ((1, 1), (1, 3), (3, 3))
"""Steps and samples of each."""
FEW = {"LLG+", "RLU, whole head", "ZLG, interpolated", "learned", "InvG"}
"""Attacks that the pretended GPU is tried with, which share nothing but the registry; a real one runs all."""
STRAIGHT = [
    attack
    for attack in all_attacks()
    if not attack.standalone_reason and not attack.sends and (REAL or attack.name in FEW)
]
SENDING = [attack for attack in all_attacks() if attack.sends]
ALONE = [attack for attack in all_attacks() if attack.standalone_reason and not attack.sends]


def attacked(attack, device, arguments):
    """Run a registered attack on one client's update."""
    steps, batch, aux, least = arguments
    images = pool(device)
    model = build("cnn" if attack.goal == "images" else "fcn3", SHAPE, CLASSES, seed=0).to(device)
    index = torch.arange(steps * batch).view(steps, batch) * 3 % len(images)
    x, y = images.x[index], images.y[index]
    if attack.goal == "images":  # a descent enlarges the rounding of single precision, differently on every processor
        model, x = model.double(), x.double()
    update = fedsgd(model, x[0], y[0]) if steps == 1 else fedavg(model, x, y, 0.05, "delta")
    knowledge = {"aux": pool(aux or device, seed=1), "prior": torch.full((CLASSES,), 0.25, device=device), "seed": 3}
    knowledge |= {"scheme": Scheme("fedavg", 0.05, steps)} if steps > 1 else {}
    knowledge |= {"runs": 2, "batch_size": batch, "input_shape": SHAPE}
    if least:
        knowledge = {name: knowledge[name] for name in ("aux",) if Need.AUXILIARY_DATA in attack.needs}
    options = attack.inputs(EVERYTHING, knowledge)
    parameters = inspect.signature(attack.function).parameters
    if "iterations" in parameters or (attack.trained or attack.cost != "seconds"):
        options["iterations"] = 2
    if "labels" in parameters and steps > 1:
        options["labels"] = y.flatten().to(aux or device)
    return attack(update, model, adversary=dataclasses.replace(EVERYTHING, sees=attack.sees), **options)


@pytest.mark.filterwarnings("ignore:.*local steps with learning rate")
@pytest.mark.parametrize("attack", STRAIGHT, ids=lambda attack: attack.name)
def test_every_registered_attack(attack):
    ran = 0
    for steps, batch in ((1, 3),) if attack.trained else SITUATIONS:
        for aux, least in ((None, False),) if attack.trained else ((None, False), ("cpu", False), (None, True)):
            arguments = steps, batch, aux, least
            ran += same_on_both(partial(attacked, attack, arguments=arguments), refused=ValueError)
    assert ran


@pytest.mark.parametrize("attack", SENDING, ids=lambda attack: attack.name)
def test_every_attack_of_a_server_that_sends_models(attack):
    def compute(device):
        images, model = pool(device), build("fcn3", SHAPE, CLASSES, seed=0).to(device)
        models = attack.sends(model, 3, 0)
        clients = [fedsgd(m, images.x[k : k + 4], images.y[k : k + 4]) for k, m in enumerate(models)]
        total = secure_sum(clients, FixedPoint(48, 16.0))[0]
        options = attack.inputs(EVERYTHING, {"batch_size": 4, "input_shape": SHAPE, "aux": images, "seed": 0})
        return attack(total, models, adversary=dataclasses.replace(EVERYTHING, sees="aggregate"), **options)

    same_on_both(compute)


def by_dead_models(device):
    model, images = build("cnn", SHAPE, CLASSES, seed=0).to(device).double(), pool(device)  # as in `attacked`
    models = eluding_sa.clients_models(model, 1, 3, layer=chain(model).links[0].name)
    return plain_sum([fedsgd(m, images.x[:1].double(), images.y[:1]) for m in models]), model, {"iterations": 2}


def by_fronts(device):
    model, images = build("fcn3", SHAPE, CLASSES, seed=0).to(device), pool(device)
    levels = mandrake.thresholds(images.x.mean((1, 2, 3)), bins=8)
    models = [mandrake.fronted_model(model, SHAPE, u, 2, levels).to(device) for u in range(2)]
    clients = [fedsgd(m, images.x[k : k + 2], images.y[k : k + 2]) for k, m in enumerate(models)]
    return plain_sum(clients), models[0], {"client": 1}


def by_samples(device):
    model, images = build("fcn3", SHAPE, CLASSES, seed=0).to(device), pool(device)
    return fedsgd(model, images.x[:4], images.y[:4]), model, {"aux": images}


def by_many_classes(device):
    model, images = build("fcn3", SHAPE, 12, seed=0).double().to(device), pool(device)
    return fedsgd(model, images.x[:4].double(), images.y[:4]), model, {}


def by_words(device):
    torch.manual_seed(0)
    layers = torch.nn.Embedding(30, 6), torch.nn.Flatten(), torch.nn.Linear(48, CLASSES)
    model = torch.nn.Sequential(*layers).to(device)
    tokens = torch.arange(16, device=device).view(2, 8)
    return fedsgd(model, tokens, torch.arange(2, device=device)), model, {}


APART = {
    "EludingSA": by_dead_models,
    "MANDRAKE": by_fronts,
    "adapter fit": by_samples,
    "embedding rows": by_words,
    "head splitting": by_many_classes,
    "least squares, any scale": by_samples,
    "peeling": by_samples,
}


@pytest.mark.parametrize("attack", ALONE, ids=lambda attack: attack.name)
def test_every_attack_that_runs_apart(attack):
    def compute(device):
        aggregate, model, options = APART[attack.name](device)
        return attack(aggregate, model, adversary=dataclasses.replace(EVERYTHING, sees=attack.sees), **options)

    same_on_both(compute)


@pytest.mark.parametrize(("kind", "training"), [("zeros", True), ("random", False)])
def test_probes(kind, training):
    def compute(device):
        model = build("resnet20", SHAPE, CLASSES, seed=0).to(device).train(training)
        images = pool(device)
        update = fedsgd(model, images.x[:6], images.y[:6])
        assert batch_dependent(model) == training
        return llg.recover(update, model, kind, runs=2), llg.recover(update, model, images, runs=2)

    same_on_both(compute)


@pytest.mark.parametrize("projection", ["paper", "one vector", "whitened"])
def test_bridges(projection):
    def compute(device):
        model, images = build("mlp6", SHAPE, CLASSES, seed=0, init="positive").to(device), pool(device)
        update = fedsgd(model, images.x[:6], images.y[:6])
        attack = gdbr.prepare(model, images, projection=projection, layer=chain(model).links[2].name)
        result = attack.recover(update)
        return result.counts, result.facts["estimates"]

    same_on_both(compute)


def test_confidence_and_stand_ins():
    logits = torch.randn(20, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def compute(device):
        labels = (torch.arange(20) % CLASSES).to(device)
        confidences = [confidence.erroneous_confidence(logits.to(device), labels, m) for m in ("average", "gaussian")]
        stands = [stand_in(logits.to(device), mode, torch.Generator().manual_seed(0)) for mode in get_args(Mode)]
        return confidences, stands

    same_on_both(compute)


def many(device, net="resnet20-1", steps=2):
    """Two updates of a network in evaluation mode, and their labels."""
    images, model = pool(device), build(net, SHAPE, CLASSES, seed=0).to(device).eval()
    index = torch.arange(4 * steps).view(2, steps, 2)
    updates = [fedavg(model, images.x[i], images.y[i], 0.05, "delta") for i in index]
    return updates, model, images.y[index].flatten(1)


@pytest.mark.parametrize(("descent", "simulate"), [(invg.INVG, True), (dlg.DLG_ADAM, False)], ids=["InvG", "DLG"])
def test_objectives_of_stacked_inversions(descent, simulate):
    def compute(device):
        updates, model, labels = many(device)
        weights = agic.layer_weights()
        views = [
            View(updates, model, labels.to(at), simulate=simulate, layer_weights=weights) for at in (device, "cpu")
        ]
        problem = Problem(views, descent, SHAPE)
        return problem.evaluate(problem.start(0))

    same_on_both(compute, rtol=1e-3, atol=1e-5)


def test_inversions_over_rounds():
    """Two updates of a network in evaluation mode, twice."""

    def compute(device):
        images, model = pool(device), build("resnet20-1", SHAPE, CLASSES, seed=0).to(device).eval()
        index = torch.arange(8).view(2, 2, 2)
        updates = [fedavg(model, images.x[i], images.y[i], 0.05, "delta") for i in index]
        options = {"iterations": 3, "snapshots": [1], "seed": 2, "index": [[0, 1, 2, 3], [3, 2, 1, 0]]}
        result = agic.invert_many([updates] * 2, [model] * 2, [images.y[index].flatten(1)] * 2, **options)
        assert result.diverged.tolist() == [-1, -1]
        assert {result.images.device.type, result.snapshots[1].device.type} == {device}
        return result.values

    same_on_both(compute, rtol=0.05, atol=0)  # signs of tiny gradients may differ


# --- metrics -------------------------------------------------------------------------------------------------------

METRICS = [f for _, f in inspect.getmembers(metrics, inspect.isfunction) if f.__module__ == metrics.__name__]
METRICS = [f for f in METRICS if f not in (metrics.counts, metrics.as_labels) and not f.__name__.startswith("_")]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_metrics(metric, request):
    if metric is metrics.lpips:
        request.getfixturevalue("perceptual")

    def compute(device):
        if metric.__name__ in ("psnr", "ssim", "paired", "lpips"):
            truth = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
            return metric(truth.flip(0).to(device), truth.to(device) / math.e)
        labels = torch.tensor([[0, 1, 1, 3], [2, 2, 2, 0]], device=device)
        return metric(metrics.counts(labels, CLASSES), metrics.counts(labels.roll(1, 0), CLASSES))

    same_on_both(compute)
