"""The arena: claims of differential privacy, what a canary shows of them, and which labels are read all the same."""

import torch
from scipy import optimize

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import contest
from fedleak.audit.case import prepare
from fedleak.audit.setup import Setup
from fedleak.data import compose, draw
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak.federated import fedsgd
from fedleak.federated.defences import ClippedNoise, PureNoise, protect
from fedleak.privacy.claim import DELTA, DPSGD, gaussian_epsilon
from fedleak_book.experiments.kinds import MEAN, NUMBER
from notebooks.arena.updates import (
    ALL,
    SCORES,
    STATES,
    held_by,
    images,
    prepared,
    ready,
    row_of,
)

SAMPLE, CLIENT = "DP-SGD", "clipped update"
UNCLIPPED, AFTER = "no clipping", "noise after aggregation"
RIGHT, WRONG = [SAMPLE, CLIENT], [UNCLIPPED, AFTER]
EPSILONS = [1.0, 4.0, 16.0, 64.0]
SHOWN = EPSILONS[1:3]  # a canary of so few releases cannot show 64
NORM = 1.0  # of a sample's gradient
BOUND = 0.2  # of each tensor of a client's gradient, as in the arena's defences
TENSORS = 10  # of LeNet
ATTACKS = ["LLG+", "RLU, whole head", "GDBR", "after Decaf"]
GUESSES = ["prior guess", "random guess"]
USED = {"batch_size": 32, "composition": "unbalanced", "delta": DELTA}


def deviation(epsilon):
    """Noise over sensitivity for this ε at DELTA."""

    def far(mu):
        return gaussian_epsilon(mu, DELTA) - epsilon

    return 1 / optimize.brentq(far, 1e-3, 100)


def mechanism_of(mechanism, epsilon, seed):
    """What makes the claim, as arguments of a `Setup`."""
    noise = deviation(epsilon)
    sigma = noise * 2 * BOUND * TENSORS**0.5
    stated = {"claimed": (epsilon, DELTA)}
    return {
        SAMPLE: {"dp_sgd": DPSGD(noise_multiplier=noise, max_grad_norm=NORM)},
        CLIENT: {"defences": [ClippedNoise(BOUND, sigma, seed)]},
        UNCLIPPED: {"defences": [PureNoise(sigma, seed)], **stated},
        AFTER: stated,
    }[mechanism]


def sent(ctx, seed, net, data, state, mechanism, epsilon, batch_size, composition):
    """A network, one update of it under a mechanism, and its true counts."""
    pool, model = images(ctx, data), prepared(ctx, net, data, state, seed)
    generator = torch.Generator().manual_seed(spawned(seed, "batch"))
    labels = compose(composition, batch_size, pool.n_classes, 1, generator)
    index = draw(pool, labels, generator)[0]
    x, y, noise = pool.x[index], pool.y[index], spawned(seed, "noise")
    how = mechanism_of(mechanism, epsilon, noise)
    if mechanism == SAMPLE:
        update = next(how["dp_sgd"].releases(model, x, y, noise))
    else:
        update = fedsgd(model, x, y)
        for defence in how.get("defences", ()):
            update = protect(update, defence)
    return model, update, metrics.counts(labels[0], pool.n_classes)


def private(
    ctx, seed, attack, net, data, state, mechanism, epsilon, batch_size, composition
):
    """One attack on one update."""
    what = seed, net, data, state, mechanism, epsilon, batch_size, composition
    case = ctx.once(("private", *what), lambda: sent(ctx, *what), most=20)
    model, update, truth = case
    knowledge = held_by(images(ctx, data, "aux"), seed)
    preparations = ready(ctx, attack, seed, net, data, state)
    who = registry.WITH_AUXILIARY
    for attempt in contest(
        update, model, who, knowledge, attacks=[ALL[attack]], prepared=preparations
    ):
        yield row_of(attempt, truth)


def bounded(ctx, seed, net, data, state, mechanism, epsilon, batch_size):
    """What a canary shows of one network under a mechanism."""
    model, pool = prepared(ctx, net, data, state, seed), images(ctx, data)
    part = pool.split_in_two(spawned(seed, "part") % 2**32, 2000 / len(pool))[0]
    how = mechanism_of(mechanism, epsilon, spawned(seed, "noise"))
    canary_seed = spawned(seed, "canary") % 2**20
    setup = Setup(
        model=model, data=part, batch_size=batch_size, seed=canary_seed, **how
    )
    bounds = prepare(setup).canary(setup.claim(TENSORS))
    least = max(bounds.epsilon, bounds.gaussian)
    return {
        "bound": bounds.epsilon,
        "gaussian": bounds.gaussian,
        "above": float(least > epsilon * (1 + 1e-6)),
        "releases": bounds.n,
    }


def mechanism_grid(data, epsilons, after=None, **axes):
    """LeNet under every mechanism; without noise the claim, `after`, changes nothing."""
    usual = {"net": "lenet", "data": data, "state": STATES, **axes}
    noisy = [m for m in [*RIGHT, *WRONG] if m != AFTER]
    return grid(mechanism=noisy, epsilon=epsilons, **usual) + grid(
        mechanism=AFTER, epsilon=after or epsilons[0], **usual
    )


PRIVATE = Experiment(
    "private",
    private,
    quick=mechanism_grid("MNIST, 5,000", [4.0], attack=["LLG+", *GUESSES]),
    paper=mechanism_grid("MNIST", EPSILONS, attack=[*ATTACKS, *GUESSES]),
    trials=(1, 10),
    values={**SCORES, "seconds": NUMBER},
    facts="reason",
    times="seconds",
    fixed=USED,
)
CANARY = Experiment(
    "private_canary",
    bounded,
    quick=mechanism_grid("MNIST, 5,000", [4.0]),
    paper=mechanism_grid("MNIST", SHOWN, after=EPSILONS[0]),
    trials=(1, 3),
    values={"bound": NUMBER, "gaussian": NUMBER, "above": MEAN},
    facts="releases",
    fixed={"batch_size": 32, "delta": DELTA},
)
