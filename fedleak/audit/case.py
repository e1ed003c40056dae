"""A set-up made ready for its trials: model and data checked, and what one round of clients shares."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from fedleak import models
from fedleak.attacks.door import quiet
from fedleak.audit.canary import PrivacyResult, measure
from fedleak.audit.classifier import Classifier, Samples, divide, make_classifier
from fedleak.audit.measured_loss import MeasuredLoss
from fedleak.audit.setup import AS_DATA, Setup
from fedleak.data import compose, draw
from fedleak.errors import WithheldParameter
from fedleak.federated import Update, fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.federated.algorithms import Client
from fedleak.federated.defences import Defence, fit_defence, protect
from fedleak.metrics import counts
from fedleak.privacy.claim import TINY, Privacy

PROBES, RUNS = 4096, 3
"""Where batch norm makes each probe batch of LLG* and LLG+ a pass of its own: images of all of them together, and
batches per label, at most."""
DUMMIES = 256
"""Noise images of ZLG."""
TRAINING = 280
"""Iterations of an attacker that is trained once for a model and a batch size."""
AT_ONCE = 50
"""Releases of a canary that are drawn together."""
BATCHES, BATCHES_OF_MANY, FEW_CLASSES = 64, 32, 15
"""Simulated batches in each iteration, for a few classes and for more, whose batches have more rows to learn from."""


@dataclass(frozen=True, eq=False)
class Trial:
    """The clients' computation in one trial, before any defence, and the labels that the adversary wants."""

    seed: int
    updates: list[Update]
    x: Tensor
    """``[K, steps, B, ...]``"""
    y: Tensor
    """``[K, steps, B]``"""
    truth: Tensor
    """Label counts ``[K, n]``."""


@dataclass(frozen=True, eq=False)
class Case:
    """A set-up, prepared for its trials."""

    setup: Setup
    classifier: Classifier
    """The clients' model: a copy, on the CPU, in the mode that it was given in."""
    attacked: Classifier
    """The server's copy, as attacks have it (`fedleak.attacks.door.quiet`); batch norm is in the clients' mode."""
    clients: Samples
    aux: Samples
    knowledge: dict[str, Any]
    """Inputs of attacks besides update and model, by `fedleak.attacks.registry.INPUTS`."""
    loss: MeasuredLoss
    """The clients' loss."""

    @property
    def model(self) -> nn.Module:
        """The clients' model."""
        return self.classifier.model

    def trial(self, number: int, sent: list[nn.Module] | None = None) -> Trial:
        """Draw every client's batches and let it train the model, or the one that it was sent."""
        setup = self.setup
        seed = (setup.seed + 1) * 1_000_003 + number
        generator = torch.Generator().manual_seed(seed)
        size = (setup.clients, setup.steps, setup.batch_size)
        if setup.composition == AS_DATA:
            labels = self.clients.y[torch.randint(len(self.clients), size, generator=generator)]
        else:
            labels = compose(setup.composition, size[2], self.classifier.n_classes, size[0], generator, size[1])
        return self.trained(labels, labels, seed, generator, sent)

    def trained(
        self, classes: Tensor, y: Tensor, seed: int, generator: torch.Generator, sent: list[nn.Module] | None = None
    ) -> Trial:
        """Draw samples of these classes ``[K, steps, B]`` and let the clients train on them, labelled `y`."""
        setup = self.setup
        index = draw(self.clients, classes.flatten(1), generator).view(y.shape)
        x = models.as_inputs(self.clients.x[index], self.model)
        with torch.random.fork_rng(devices=[]), self.loss.watch():
            torch.default_generator.manual_seed(seed)
            order = passes(setup.epochs, y.shape, generator)
            rounds = [
                (model, xs.flatten(0, 1)[order], ys.flatten()[order])
                for model, xs, ys in zip(sent or [self.model] * len(y), x, y, strict=True)
            ]
            if setup.dp_sgd is not None:
                noise = 100_000 * seed + 99_000  # apart from the defences'
                private = (setup.dp_sgd.releases(m, xs[0], ys[0], noise + k) for k, (m, xs, ys) in enumerate(rounds))
                updates = [next(releases) for releases in private]
            elif setup.scheme is None:
                updates = [fedsgd(model, inputs[0], labels[0], loss=self.loss) for model, inputs, labels in rounds]
            else:
                clients = [(Client(setup.scheme, loss=self.loss), batches) for batches in rounds]
                updates = [client.train(*batches, {}) for client, batches in clients]
        updates = [update.replace({k: t.contiguous() for k, t in update.tensors.items()}) for update in updates]
        if not all(torch.isfinite(t).all() for update in updates for t in update.tensors.values()):
            raise ValueError("a client's update holds NaN or infinity: is the learning rate too high for this model?")
        return Trial(seed, updates, x, y, counts(y.flatten(1), self.classifier.n_classes))

    def observe(self, trial: Trial, remedy: Defence | None = None) -> Update:
        """Return what the server sees: the one client's update after all defences, or the sum of all clients'."""
        shared, clients = list(trial.updates), len(trial.updates)
        for place, defence in enumerate((*self.setup.defences, *([remedy] if remedy else []))):
            seed = 100_000 * trial.seed + 1000 * place
            try:
                shared = [protect(u, fresh(defence, seed + k, clients), client=k) for k, u in enumerate(shared)]
            except WithheldParameter as error:
                raise ValueError(
                    f"the defence {type(defence).__name__} names the parameter {error.name!r}; what is left is: "
                    f"{', '.join(error.args[1])}"
                ) from error
        if len(shared) == 1:
            return shared[0]
        if any(update.steps != 1 for update in shared):
            raise ValueError("secure aggregation is audited with one local step (LIA-SA works under FedSGD alone)")
        return plain_sum([Update({k: u.gradient(k) for k in u.tensors}, "gradient", u.samples) for u in shared])

    def canary(self, privacy: Privacy) -> PrivacyResult:
        """Return a claim with the bound that a canary shows, on the mechanism as the clients run it.

        A sample's canary has the label that the model finds least likely. A client's two inputs are samples of one
        class, labelled as another, and the other way round.
        """
        setup, seed = self.setup, (self.setup.seed + 1) * 1_000_003
        if setup.dp_sgd is not None:
            first = self.trial(0)
            releases = setup.dp_sgd.release_neighbours(self.model, first.x[0, 0], first.y[0, 0], seed)
        else:
            two = self.clients.class_counts.topk(2).indices.view(2, 1, 1).expand(2, setup.steps, setup.batch_size)
            updates = self.trained(two, two.flip(0), seed, torch.Generator().manual_seed(seed)).updates
            defences = [fit_defence(defence, updates[0]) for defence in setup.defences]
            silent = [replace(d, sigma=TINY) if hasattr(d, "sigma") and is_dataclass(d) else d for d in defences]
            means = [next(_share(silent, update.tensors, seed)) for update in updates]
            releases = means, [_share(defences, update.tensors, seed + k) for k, update in enumerate(updates)]
        is_sampled = setup.dp_sgd is not None and setup.dp_sgd.poisson_sampling and setup.dp_sgd.sample_rate < 1
        return measure(privacy, *releases, is_normal=not is_sampled)


def _share(defences: Sequence[Defence], update: Mapping[str, Tensor], seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield what a client shares of one update, each time for the first time; what remembers goes on drawing."""
    stateful = [defence if is_dataclass(defence) else copy.deepcopy(defence) for defence in defences]
    stacked = {name: t.expand(AT_ONCE, *t.shape) for name, t in update.items()}
    for number in count():
        used = [
            fresh(d, seed + 1000 * number + 10 * k, AT_ONCE) if is_dataclass(d) else d for k, d in enumerate(stateful)
        ]
        sent = reduce(lambda tensors, defence: defence(tensors, torch.arange(AT_ONCE)), used, stacked)
        yield from ({name: t[k] for name, t in sent.items()} for k in range(AT_ONCE))


def passes(epochs: int, size: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return which of a client's samples are in each local batch, ``[epochs * steps, B]``, of ``[K, steps, B]``."""
    _, steps, batch_size = size
    later = [torch.randperm(steps * batch_size, generator=generator) for _ in range(epochs - 1)]
    return torch.cat([torch.arange(steps * batch_size), *later]).view(-1, batch_size)


def fresh(defence: Defence, seed: int, clients: int | None = None) -> Any:
    """Return a defence as clients have it that take part for the first time: without memory, with its own noise.

    With `clients`, a defence with a memory per client has one for each of them.
    """
    if not is_dataclass(defence):
        return copy.deepcopy(defence)
    given = {"seed": seed} if clients is None else {"seed": seed, "clients": clients}
    return replace(defence, **{field.name: given[field.name] for field in fields(defence) if field.name in given})


def _simulated_defence(setup: Setup, classifier: Classifier) -> Callable[[int, int], Defence] | None:
    """Return the clients' defences as an attacker simulates them on the head; None where there are none or it cannot.

    It cannot behind local steps, whose change is defended and not the gradient, nor where a defence works on other
    layers alone, fails on the head's, or changes the head by what the other layers have, as clipping of a whole update.
    """
    if not setup.defences or setup.scheme is not None or setup.clients > 1:
        return None

    def make(clients: int, seed: int) -> Defence:
        defences = [fresh(defence, seed + place, clients) for place, defence in enumerate(setup.defences)]
        return lambda updates, who: reduce(lambda shared, defence: defence(shared, who), defences, updates)

    last, named = classifier.head, dict(classifier.model.named_parameters())
    names = [name for name in (last.weight, last.bias) if name in classifier.trained]
    pair = {name: torch.stack([named[name].detach()] * 2) for name in names}
    try:
        beside = {**pair, "another layer": next(iter(pair.values())).new_full((2, 100), 1e3)}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            alone = make(2, 0)(pair, torch.arange(2))
            torch.manual_seed(0)
            together = make(2, 0)(beside, torch.arange(2))
    except Exception:  # a defence of somebody's own may raise anything
        return None
    same = all(torch.allclose(alone[name], together[name]) for name in {*alone} & {*together})
    return make if last.weight in alone and same else None


def prepare(setup: Setup, progress: bool = False) -> Case:
    """Make a set-up ready; a `ValueError` says why model, shape and data do not fit each other."""
    classifier, pool, logits = make_classifier(setup)
    model, n = classifier.model, classifier.n_classes
    clients, aux = divide(pool, setup.auxiliary, setup.seed)
    # How often a label occurs in all batches together: what an adversary may know without an update.
    prior = torch.full((n,), 1 / n, dtype=torch.float64)
    if setup.composition == AS_DATA:
        prior = clients.class_counts.double() / len(clients)
    elif not clients.class_counts.all():
        empty = clients.classes[int((clients.class_counts == 0).nonzero()[0])]
        raise ValueError(
            f"the clients' half of the data holds no sample of {empty!r}: give more data, or composition='data', which "
            "draws labels as often as the data hold them"
        )
    with quiet(model):
        attacked = Classifier.of(copy.deepcopy(model), classifier.shape)
    runs = min(RUNS, max(1, PROBES // (n * setup.batch_size))) if models.batch_dependent(attacked.model) else None
    knowledge = {
        "aux": aux,
        "prior": prior,
        "scheme": setup.scheme,
        "runs": runs,
        "batch_size": setup.batch_size,
        "input_shape": classifier.shape,
        "dummies": DUMMIES,
        "iterations": TRAINING,
        "batches": BATCHES if n <= FEW_CLASSES else BATCHES_OF_MANY,
        "progress": progress,
        "defence": _simulated_defence(setup, classifier),
    }
    loss = MeasuredLoss(setup.loss, classifier, logits, setup.batch_size)
    return Case(setup, classifier, attacked, clients, aux, knowledge, loss)
