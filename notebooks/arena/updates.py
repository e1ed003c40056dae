"""The arena: networks, attackers and clients' updates, and the one trial that most experiments share."""

import copy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pandas as pd
import torch
from torch import nn

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import contest, entrants, view
from fedleak.attacks.labels import gdbr, learned
from fedleak.attacks.registry import Adversary, Need
from fedleak.attacks.result import Prepared
from fedleak.data import compose, draw
from fedleak.federated import Scheme, Server, Softening
from fedleak.federated.defences import protect, protections
from fedleak.models import head, head_pass
from fedleak_book.experiments.kinds import MEAN, rate
from notebooks.filters.defences import make_filter
from notebooks.updates import SETS, TRAINED, draw_update, get_network
from notebooks.updates import load_clients_images, load_other_images

KINDS = {"CLDR names": "textcnn", "wine": "fcn3-256", "breast cancer": "fcn3-256"}
"""Kinds of data that are no images, and their networks."""


# --- attackers ---
whitened = partial(gdbr.prepare, projection="whitened")
whitened = replace(registry.get("GDBR"), name="GDBR, whitened", function=whitened)
ENTRANTS = [*entrants(), whitened]
LEARNED = [a for a in entrants(trained=True) if a.trained]
ALL = {attack.name: attack for attack in [*ENTRANTS, *LEARNED]}
FLOORS = [attack.name for attack in ENTRANTS if attack.blind]
KNOWS, ADAPTIVE = "learned, training loss", "learned, adaptive"
TOLD = {f"{name}, told": registry.get(name) for name in ("RLU", "RLU, whole head")}
FISHERS = [attack for attack in ENTRANTS if attack.sends]
_counted = frozenset({Need.SAMPLE_COUNT, Need.AUXILIARY_DATA})
PASSIVE = Adversary("passive aggregator", registry.WITH_AUXILIARY.has, "aggregate")
SHARES = Adversary("class shares alone", _counted)
ADVERSARIES = {a.name: a for a in (*registry.ADVERSARIES, SHARES, PASSIVE)}


# --- settings ---
UNDEFENDED = "none", "no last bias"


class Setting(NamedTuple):
    """The setting of one update; the defaults are those of experiments that do not vary them."""

    net: str
    data: str
    state: str
    batch_size: int = 32
    composition: str = "unbalanced"
    scheme: str = "FedSGD"
    defence: str = "none"
    strength: float = 0.0
    adversary: str = registry.WITH_AUXILIARY.name
    aux_images: int = 10_000
    """The most images that the attacker has."""
    labelling: str = "one-hot"
    client: str = "evaluation"
    """Mode of the network in the client's step."""
    attacker: str = "evaluation"
    """Mode of the network in the attacker's own passes."""

    @property
    def is_defended(self):
        """Whether the client changes its update."""
        return self.defence not in UNDEFENDED


_OWN = "labelling", "client", "attacker"  # of one experiment
USUAL = {k: v for k, v in Setting._field_defaults.items() if k not in _OWN}
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
SOFT = {
    "one-hot": lambda s: Softening(),
    "smoothed by 0.1": lambda s: Softening(smoothing=0.1),
    "mixup, α = 1": lambda s: Softening(mixup=1.0, seed=s),
}
CLIENTS = 3  # of a round with local steps; the first is attacked, in the second round
AT_ONCE = 20  # updates that are kept for the next attack: those of one setting


# --- the attackers' knowledge ---
def make_knowledge(aux, data, seed, **more):
    """Return the attackers' inputs; with the trial's seed a guess would draw the batch's own labels again."""
    iterations = SETS[data].iterations
    return {"aux": aux, "seed": seed ^ 0x5EED, "iterations": iterations, **more}


def inform_learned(ctx, name, seed, setting):
    """Inform the learned attacker of the clients' defence (not the noise drawn), or else of their training loss."""
    number = seed % SETS[setting.data].copies

    def train():
        model = get_network(ctx, setting.net, setting.data, TRAINED, number)
        pool, aux = load_clients_images(ctx, setting.data), load_aux(ctx, setting.data)
        how = {"iterations": SETS[setting.data].iterations}
        defence = setting.defence, setting.strength
        if setting.is_defended:
            how["defence"] = lambda clients, s: make_defence(
                *defence, model, s, clients
            )
        else:
            some = slice(None, None, 8)  # of all clients' images
            p = head_pass(model, pool.x[some]).probabilities.clamp(min=1e-12)
            how["train_loss"] = nn.functional.nll_loss(p.log(), pool.y[some]).item()
        return learned.train(model, aux, setting.batch_size, **how)

    def prepare(model, aux, iterations):
        key = ("informed", number, setting)
        attacker = ctx.once(key, train, most=8)
        return Prepared(name, lambda update: attacker.read(update, model))

    return replace(registry.get("learned"), name=name, function=prepare)


def inform_of_smoothing(name, smoothing):
    """Inform an attack of the label smoothing."""
    attack = TOLD[name]

    def prepare(model, aux):
        read = attack.function(model, aux).read
        return Prepared(name, partial(read, smoothing=smoothing))

    options = attack.options - {"smoothing"}
    return replace(attack, name=name, function=prepare, options=options)


def choose_attack(ctx, name, seed, setting):
    """Return the attack of this name; None in a setting where it does not take part."""
    is_trained = setting.state == TRAINED and setting.scheme == "FedSGD"
    if name in (KNOWS, ADAPTIVE):
        takes_part = is_trained and setting.is_defended == (name == ADAPTIVE)
        return inform_learned(ctx, name, seed, setting) if takes_part else None
    if name in TOLD:
        smoothing = SOFT[setting.labelling](seed).smoothing
        return inform_of_smoothing(name, smoothing) if smoothing else None
    return ALL[name] if is_trained or ALL[name] not in LEARNED else None


def get_preparations(ctx, attack, seed, net, data, state, *more):
    """Return the cache of an attack that is prepared for a trained network, for one trial after the other."""
    if state != TRAINED or attack not in ALL:
        return {}
    key = ("ready", attack, net, data, seed % SETS[data].copies, *more)
    return ctx.once(key, dict, most=5)  # as many as there are copies


# --- updates ---
def load_aux(ctx, data):
    """Return the attacker's images."""
    return load_other_images(ctx, data, SETS[data].aux)


def run_second_round(model, scheme, x, y):
    """Run two rounds of a scheme; return the second's model, the client's update, the same as plain SGD's, and the history.

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


def make_defence(defence, strength, model, seed, clients=1):
    """Make a defence on the updates of some clients, or None."""
    if defence in UNDEFENDED:
        return None
    if defence in protections():
        return protections()[defence].make(strength, model, clients, seed)
    return make_filter(defence, strength, model, seed)


def make_case(ctx, seed, setting):
    """Make one update; return the arguments of `contest` with the adversary, and the true counts."""
    net, data, state = setting[:3]
    pool, aux = load_clients_images(ctx, data), load_aux(ctx, data)
    generator = torch.Generator().manual_seed(seed)
    model = get_network(ctx, net, data, state, seed, setting.defence != "no last bias")
    if setting.aux_images < len(aux):
        aux = aux.split_in_two(seed % 1000, setting.aux_images / len(aux))[0]
    knowledge, plain = make_knowledge(aux, data, seed), None
    who, size = ADVERSARIES[setting.adversary], setting.batch_size
    if setting.scheme == "FedSGD":
        softening = SOFT[setting.labelling](seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # of the dropout
            model.train(setting.client == "training")
            drawn = pool, setting.composition, size, generator
            update, truth = draw_update(model, *drawn, softening)
        model.train(setting.attacker == "training")
    else:
        scheme = SCHEMES[setting.scheme]
        shape = (CLIENTS, generator, 2 * scheme.steps)
        labels = compose(setting.composition, size, pool.n_classes, *shape)
        index = draw(pool, labels, generator)
        rounds = run_second_round(model, scheme, pool.x[index], pool.y[index])
        model, update, plain, history = rounds
        knowledge |= {"scheme": scheme, "history": history}
        truth = metrics.counts(labels[0, scheme.steps :].flatten(), pool.n_classes)
    if (
        protection := make_defence(setting.defence, setting.strength, model, seed)
    ) is not None:
        assert plain is None, "defences are measured under FedSGD"
        update = protect(update, protection)
        who = view(who, update, model)  # who lacks what the defence does not send
    case = {"update": update, "model": model, "adversary": who}
    return {**case, "knowledge": knowledge, "plain": plain}, truth


# --- the trial ---
SCORES = {"iacc": rate("batch_size"), "cacc": rate(10), "exact": MEAN, "all": MEAN}


def score(counts, truth):
    """Return iAcc, ClsAcc, the share of exact counts, and whether all are exact."""
    return {
        "iacc": metrics.braun_blanquet(counts, truth).item(),
        "cacc": metrics.class_accuracy(counts, truth).item(),
        "exact": metrics.label_number_accuracy(counts, truth).item(),
        "all": float((counts == truth).all()),
    }


def make_row(attempt, counts, truth):
    """Return scores, means over the clients, processor seconds, and why an attack rejects; other failures end the run."""
    if attempt.unforeseen:
        raise RuntimeError(f"{attempt.attack.name}: {attempt.reason}")
    scores = dict.fromkeys(SCORES)
    if counts is not None:
        clients = zip(*map(torch.atleast_2d, (counts, truth)), strict=True)
        scores = dict(pd.DataFrame([score(*client) for client in clients]).mean())
    return {**scores, "seconds": attempt.seconds, "reason": attempt.reason}


def one_update(ctx, seed, attack, **settings):
    """One attack on one update; no row if the adversary cannot run it."""
    setting = Setting(**settings)
    if chosen := choose_attack(ctx, attack, seed, setting):
        make = partial(make_case, ctx, seed, setting)
        case, truth = ctx.once(("update", seed, setting), make, most=AT_ONCE)
        preparations, usual = {}, (USUAL["scheme"], USUAL["aux_images"])
        if (setting.scheme, setting.aux_images) == usual:
            what = *setting[:3], setting.adversary, setting.attacker
            has_bias = setting.defence != "no last bias"
            preparations = get_preparations(ctx, attack, seed, *what, has_bias)
        for attempt in contest(**case, attacks=[chosen], prepared=preparations):
            yield make_row(attempt, attempt.counts, truth)
