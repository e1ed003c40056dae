"""The arena: networks, updates and attackers, and the one trial that most experiments share."""

import copy
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import contest, entrants, view
from fedleak.attacks.labels import gdbr, learned
from fedleak.attacks.registry import Adversary, Need
from fedleak.attacks.result import Prepared
from fedleak_book import paths
from fedleak_book.experiments import Experiment, networks, spawned, trained_once
from fedleak_book.experiments.training import set_norms
from fedleak.data import compose, draw
from fedleak.federated import Scheme, Server, Softening, fedsgd
from fedleak.federated.defences import protect, protections
from fedleak_book.experiments.kinds import MEAN, NUMBER, rate
from fedleak.models import head, head_pass

STATES = ["untrained", "trained"]
SETS = {
    # what the clients hold; images of the other split, for the attacker (evenly spread over the classes) and to test on;
    # steps of 64 samples of a training, trained copies, and whether images pass them once for all attacks
    "MNIST": {
        "name": "mnist",
        "aux": 500,
        "tested": 5000,
        "steps": 600,
        "copies": 3,
        "once": False,
    },
    "CIFAR-10": {
        "name": "cifar10",
        "aux": 1000,
        "tested": 1000,
        "steps": 600,
        "copies": 3,
        "once": True,
    },
    "MNIST, 5,000": {
        "name": "mnist5k",
        "aux": 200,
        "tested": None,
        "steps": 150,
        "copies": 2,
        "once": False,
    },
    "photographs": {
        "name": "photos",
        "aux": 70,
        "tested": None,
        "steps": 150,
        "copies": 1,
        "once": True,
    },
}
_ROWS = {"tested": None, "copies": 5, "once": False, "own": True}
SETS |= {  # no images; with a seed of its own for each role ("own")
    "CLDR names": {"name": "cldr", "aux": 500, "steps": 600, **_ROWS},
    "wine": {"name": "wine", "aux": None, "steps": 50, **_ROWS},
    "breast cancer": {"name": "breast-cancer", "aux": None, "steps": 50, **_ROWS},
}
AT_ONCE = 20  # updates that are kept for the next attack: those of one setting


# --- networks ---
def images(ctx, data, use="clients"):
    """The images of the clients, of the attacker ("aux"), or to test on ("tested")."""
    dataset = SETS[data]
    if use == "clients":
        return ctx.images(dataset["name"])
    return ctx.images(dataset["name"], "test", limit=dataset[use])


def train_or_load(ctx, model, data, generator_seed):
    """The model, trained in place, or with the weights that the same training has left; a change of `networks.train` needs a version."""

    def train(ctx, model, data, steps, generator_seed):
        networks.train(model, images(ctx, data), steps, generator_seed)

    how = {"data": data, "steps": SETS[data]["steps"], "generator_seed": generator_seed}
    return trained_once(ctx, train, model, paths.units() / "arena" / "weights", **how)


def with_layers(model, kind):
    """A LeNet with batch norm after its convolutions, or with dropout of a half before its last layer."""
    layers = []
    for layer in model:
        if kind == "dropout" and layer is model[-1]:
            layers.append(nn.Dropout(0.5))
        layers.append(layer)
        if kind == "batch norm" and isinstance(layer, nn.Conv2d):
            device = layer.weight.device
            layers.append(nn.BatchNorm2d(layer.out_channels, device=device))
    changed = nn.Sequential(*layers)
    changed.input_shape = model.input_shape
    return changed


def make_network(ctx, net, data, state, s, bias=True):
    """A network in evaluation mode, trained or not."""
    pool, dataset = images(ctx, data), SETS[data]
    net, _, kind = net.partition(" with ")
    weights, training = (
        (spawned(s, role) for role in ("weights", "training"))
        if dataset.get("own")
        else (s, s)
    )
    model = ctx.build(net, pool.shape, pool.n_classes, seed=weights)
    model = with_layers(model, kind) if kind else model
    if not bias:
        head(model).layer.bias = None
    if state == "trained":
        if kind:  # dropout draws without a seed of its own
            networks.train(model, pool, dataset["steps"], training)
        else:
            train_or_load(ctx, model, data, training)
    return set_norms(model, pool.x[:200])


def prepared(ctx, net, data, state, s, bias=True):
    """A network in evaluation mode: a fresh one for every trial, or one of a few trained ones."""
    if state == "untrained":
        return make_network(ctx, net, data, state, s, bias)
    what = net, data, state, s % SETS[data]["copies"], bias
    model = ctx.once(("network", *what), lambda: make_network(ctx, *what))
    return model if SETS[data]["once"] else copy.deepcopy(model)


# --- attackers ---
whitened = partial(gdbr.prepare, projection="whitened")
whitened = replace(registry.get("GDBR"), name="GDBR, whitened", function=whitened)
ENTRANTS = [*entrants(), whitened]
LEARNED = [a for a in entrants(trained=True) if a.trained]
ALL = {attack.name: attack for attack in [*ENTRANTS, *LEARNED]}
FLOORS = [attack.name for attack in ENTRANTS if attack.blind]
LEARNING = {"MNIST": 300, "CIFAR-10": 300, "MNIST, 5,000": 30, "photographs": 30}
LEARNING |= {"CLDR names": 300, "wine": 300, "breast cancer": 300}
"""Iterations in which the learned attacker is trained."""
KNOWS, ADAPTIVE = "learned, training loss", "learned, adaptive"
TOLD = {f"{name}, told": registry.get(name) for name in ("RLU", "RLU, whole head")}
FISHERS = [attack for attack in ENTRANTS if attack.sends]
_counted = frozenset({Need.SAMPLE_COUNT, Need.AUXILIARY_DATA})
PASSIVE = Adversary("passive aggregator", registry.WITH_AUXILIARY.has, "aggregate")
SHARES = Adversary("class shares alone", _counted)
ADVERSARIES = {a.name: a for a in (*registry.ADVERSARIES, SHARES, PASSIVE)}
SCORES = {"iacc": rate("batch_size"), "cacc": rate(10), "exact": MEAN, "all": MEAN}


def scores(counts, truth):
    """iAcc, ClsAcc, the share of exact counts, and whether all are exact."""
    return {
        "iacc": metrics.braun_blanquet(counts, truth).item(),
        "cacc": metrics.class_accuracy(counts, truth).item(),
        "exact": metrics.label_number_accuracy(counts, truth).item(),
        "all": float((counts == truth).all()),
    }


def row_of(attempt, truth):
    """An attack's scores, its processor seconds, and the reason of a rejection; any other failure ends the run."""
    if attempt.unforeseen:
        raise RuntimeError(f"{attempt.attack.name}: {attempt.reason}")
    none = dict.fromkeys(SCORES)
    scored = none if attempt.counts is None else scores(attempt.counts, truth)
    return {**scored, "seconds": attempt.seconds, "reason": attempt.reason}


def held_by(aux, s, **more):
    """What the attackers hold; with s itself as its seed a guess would draw the batch's own labels again."""
    return {"aux": aux, "seed": s ^ 0x5EED, **more}


def trained_knowing(ctx, net, data, batch_size, number, defence, strength):
    """The learned attacker, given the clients' defence, or their training loss if there is none."""
    model, pool = prepared(ctx, net, data, "trained", number), images(ctx, data)
    how = {"iterations": LEARNING[data]}
    if defence == "none":
        some = slice(None, None, 8)  # of all clients' images
        log = head_pass(model, pool.x[some]).probabilities.clamp(min=1e-12).log()
        how["train_loss"] = nn.functional.nll_loss(log, pool.y[some]).item()
    else:
        how["defence"] = lambda clients, s: defence_of(
            defence, strength, model, s, clients
        )
    return learned.train(model, images(ctx, data, "aux"), batch_size, **how)


def knowing(ctx, name, *setting):
    """The learned attacker told more: the training loss, or a defence's kind and strength (not the noise drawn)."""

    def prepare(model, aux, iterations):
        key = ("told", *setting)
        attacker = ctx.once(key, lambda: trained_knowing(ctx, *setting), most=8)
        return Prepared(name, lambda update: attacker.read(update, model))

    return replace(registry.get("learned"), name=name, function=prepare)


def knowing_smoothing(name, smoothing):
    """An attack that is told the label smoothing."""
    attack = TOLD[name]

    def prepare(model, aux):
        read = attack.function(model, aux).read
        return Prepared(name, partial(read, smoothing=smoothing))

    return replace(
        attack, name=name, function=prepare, options=attack.options - {"smoothing"}
    )


def ready(ctx, attack, seed, net, data, state, *more):
    """Where an attack is kept that is prepared for a trained network, from one trial to the next."""
    if state != "trained" or attack not in ALL:
        return {}
    key = ("ready", attack, net, data, seed % SETS[data]["copies"], *more)
    return ctx.once(key, dict, most=5)  # as many as there are copies


# --- updates ---
LOCAL = {"lr": 0.01, "steps": 5}
SCHEMES = {
    "FedAvg": Scheme("fedavg", **LOCAL),
    "FedAvg, 20 steps": Scheme("fedavg", 0.01, 20),
    "SGDm": Scheme("sgdm", momentum=0.9, **LOCAL),
    "NAG": Scheme("nag", momentum=0.9, **LOCAL),
    "Scaffold": Scheme("scaffold", **LOCAL),
    "FedProx": Scheme("fedprox", regularisation=1.0, **LOCAL),
    "FedDyn": Scheme("feddyn", regularisation=1.0, **LOCAL),
    "FedDC": Scheme("feddc", regularisation=1.0, **LOCAL),
}
CLIENTS = 3  # of a round with local steps; the first is attacked, in the second round
SOFT = {
    "one-hot": lambda s: Softening(),
    "smoothed by 0.1": lambda s: Softening(smoothing=0.1),
    "mixup, α = 1": lambda s: Softening(mixup=1.0, seed=s),
}
USUAL = {
    "batch_size": 32,
    "composition": "unbalanced",
    "scheme": "FedSGD",
    "defence": "none",
    "strength": 0.0,
    "adversary": registry.WITH_AUXILIARY.name,
    "aux_images": 10_000,  # at most
}
EVALUATED = {"client": "evaluation", "attacker": "evaluation"}
STEP = {"labelling": None, **EVALUATED}
"""The client's step where an experiment does not vary it: hard labels, networks in evaluation mode."""


def second_round(model, scheme, x, y):
    """Run two rounds of a scheme and return the second: its model, and the client's update, original and as plain SGD's.

    The server knows scheme and history: it takes the history off and divides by the mean weight of a step, after which the
    update reads like that of plain SGD. Attacks that know the schemes themselves get the update as it is, and the history.
    """
    server = Server(copy.deepcopy(model), scheme, CLIENTS)
    server.round(list(x[:, : scheme.steps]), list(y[:, : scheme.steps]))
    before = copy.deepcopy(server.model)
    update = server.round(list(x[:, scheme.steps :]), list(y[:, scheme.steps :]))[0]
    history = {name: server.history(0, name) for name in update.tensors}
    weight = float(scheme.weights().mean())
    plain = {n: (t - history[n]) / weight for n, t in update.tensors.items()}
    return before, update, update.replace(plain), history[head(model).bias]


def defence_of(defence, strength, model, s, clients=1):
    """A defence on the updates of some clients, or None."""
    if defence in ("none", "no last bias"):
        return None
    if defence in protections():
        return protections()[defence].make(strength, model, clients, s)
    from notebooks.filters.experiments import filtered  # NVFlare is an extra

    return filtered(defence, strength, model, s)


def sent(
    ctx,
    seed,
    net,
    data,
    state,
    batch_size,
    composition,
    scheme,
    defence,
    strength,
    adversary,
    aux_images,
    labelling,
    client,
    attacker,
):
    """Make one update: return what `contest` takes, its adversary included, and the true counts.

    `client` and `attacker` are the modes of the network, "training" or "evaluation", in the client's step and in the
    attacker's own passes.
    """
    soft = SOFT[labelling](seed) if labelling else Softening()
    pool, aux = images(ctx, data), images(ctx, data, "aux")
    generator = torch.Generator().manual_seed(seed)
    model = prepared(ctx, net, data, state, seed, bias=defence != "no last bias")
    if aux_images < len(aux):
        aux = aux.split_in_two(seed % 1000, aux_images / len(aux))[0]
    knowledge = held_by(aux, seed, iterations=LEARNING[data])
    plain, who = None, ADVERSARIES[adversary]
    if scheme == "FedSGD":
        labels = compose(composition, batch_size, pool.n_classes, 1, generator)
        index = draw(pool, labels, generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # of the dropout
            x, y = pool.x[index[0]], pool.y[index[0]]
            update = fedsgd(model.train(client == "training"), x, y, soft)
        model.train(attacker == "training")
        truth = labels[0]
    else:
        schedule = SCHEMES[scheme]
        size = (CLIENTS, generator, 2 * schedule.steps)
        labels = compose(composition, batch_size, pool.n_classes, *size)
        index = draw(pool, labels, generator)
        rounds = second_round(model, schedule, pool.x[index], pool.y[index])
        model, update, plain, history = rounds
        knowledge |= {"scheme": schedule, "history": history}
        truth = labels[0, schedule.steps :].flatten()
    if (protection := defence_of(defence, strength, model, seed)) is not None:
        assert plain is None, "defences are measured under FedSGD"
        update = protect(update, protection)
        who = view(who, update, model)  # who lacks what the defence does not send
    truth = metrics.counts(truth, pool.n_classes)
    return {
        "update": update,
        "model": model,
        "adversary": who,
        "knowledge": knowledge,
        "plain": plain,
    }, truth


# --- the trial ---
def entrant(
    ctx,
    name,
    seed,
    net,
    data,
    state,
    batch_size,
    scheme,
    defence,
    strength,
    labelling,
    **_,
):
    """The attack of this name; None in a setting where it does not take part."""
    trained = state == "trained" and scheme == "FedSGD"
    if name in (KNOWS, ADAPTIVE):
        defended = defence not in ("none", "no last bias")
        setting = net, data, batch_size, seed % SETS[data]["copies"], defence, strength
        takes_part = trained and defended == (name == ADAPTIVE)
        return knowing(ctx, name, *setting) if takes_part else None
    if name in TOLD:
        smoothing = SOFT[labelling](seed).smoothing
        return knowing_smoothing(name, smoothing) if smoothing else None
    return ALL[name] if trained or ALL[name] not in LEARNED else None


def one_update(ctx, seed, attack, **setting):
    """One attack on one update; no row if the adversary cannot run it."""
    setting = {**USUAL, **STEP, **setting}
    if chosen := entrant(ctx, attack, seed, **setting):
        key = ("update", seed, *sorted(setting.items()))
        make_case = partial(sent, ctx, seed, **setting)
        case, truth = ctx.once(key, make_case, most=AT_ONCE)
        preparations = {}
        if (setting["scheme"], setting["aux_images"]) == (
            "FedSGD",
            USUAL["aux_images"],
        ):
            names = "net", "data", "state", "adversary", "attacker"
            what = [setting[name] for name in names]
            preparations = ready(
                ctx, attack, seed, *what, setting["defence"] == "no last bias"
            )
        for attempt in contest(**case, attacks=[chosen], prepared=preparations):
            yield row_of(attempt, truth)


def contested(name, quick, paper, trials, also=(), trial=one_update, **more):
    """Declare a contest: its settings, each for every attack by itself (or its own ``attack``), and `USUAL` for the rest.

    So an attack that is added is a new value of an axis, and the finished trials of the others stay.
    """
    axes, attacks = set().union(*quick, *paper), [*ALL, *also]
    fixed = {name: value for name, value in USUAL.items() if name not in axes}
    how = {"facts": "reason", "times": "seconds", "fixed": fixed, **more}
    profiles = {
        profile: [
            {**s, "attack": a}
            for s in settings
            for a in ([s["attack"]] if "attack" in s else attacks)
        ]
        for profile, settings in (("quick", quick), ("paper", paper))
    }
    values = {**SCORES, "seconds": NUMBER}
    return Experiment(name, trial, **profiles, trials=trials, values=values, **how)


KINDS = {"CLDR names": "textcnn", "wine": "fcn3-256", "breast cancer": "fcn3-256"}


def costly(kind):
    """Whether a defence changes what the server learns from."""
    return kind.changes_training


NOISE_ROUNDS = [20, 150]  # of the trainings that compare noise, quick and on MNIST
PATIENT = ["prior guess", "LLG", "LLG+", "RLU", "RLU, whole head"]
_USUALLY, _MANY = USUAL["adversary"], USUAL["aux_images"]
RUNGS = {
    "nothing": (registry.NOBODY.name, _MANY, "none"),
    "class shares": (SHARES.name, _MANY, "none"),
    "gradients": (registry.EAVESDROPPER.name, _MANY, "none"),
    "+ model": (registry.WHITE_BOX.name, _MANY, "none"),
    "+ 2 images a class": (_USUALLY, 20, "none"),
    "+ many images a class": (_USUALLY, _MANY, "none"),
    "last layer withheld": (_USUALLY, _MANY, "last layer encrypted"),
}
LDIA = "after LDIA"
