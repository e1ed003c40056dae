"""The audited setting: `Setup`, described by the user and checked before anything runs."""

import math
import runpy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, get_type_hints

from torch import Tensor, nn

from fedleak.attacks.registry import WITH_AUXILIARY, Adversary, adversary_of
from fedleak.data import COMPOSITIONS, Images
from fedleak.errors import is_of, own_code, whole_number
from fedleak.federated import Scheme
from fedleak.federated.algorithms import SCHEMES
from fedleak.federated.defences import ClippedNoise, Defence, PureNoise, Sparsification
from fedleak.federated.losses import Loss
from fedleak.federated.restricted import Withhold
from fedleak.privacy.claim import DELTA, DPSGD, Privacy

FEDSGD = "fedsgd"
AS_DATA = "data"
MOST_SEED = 2**27 - 1
"""Largest seed: those that are derived from it fit into 64 bits."""
WORDS = {
    "model": "an nn.Module or a function that makes one",
    "shape": "the sizes of one input, such as (3, 32, 32)",
    "lr": "a number",
    "momentum": "a number",
    "regularisation": "a number",
    "loss": "a function or a module, say nn.CrossEntropyLoss()",
    "defences": "a list of instances, say [PureNoise(sigma=0.01, seed=0), Withhold(['fc.weight', 'fc.bias'])]",
    "dp_sgd": "a DPSGD",
    "claimed": "a pair (ε, δ)",
    "data": "Images or a pair of tensors (x, y)",
    "adversary": "an Adversary, or the name of one",
    "name": "a string",
}
"""What the fields are whose types are compared with their annotations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """Describe your federated learning, as far as its updates depend on it.

    Raises `ValueError` for values out of their range, or unknown names; it lists the valid ones.

    Parameters
    ----------
    model
        A classifier whose outputs are those of an `nn.Linear`, or a function without arguments that makes one. It is
        copied, without wrappers such as DataParallel, and used with its weights and in its mode (training or
        evaluation); frozen parameters (``requires_grad=False``) are neither trained nor shared.
    shape
        Shape of one input, such as ``(3, 32, 32)``, or ``(L,)`` for a text. Default: that of the data, or inferred
        from the model.
    batch_size
        Samples per local step, B.
    algorithm
        ``"fedsgd"`` (a client shares the gradient of one batch), or one of `fedleak.federated.algorithms.SCHEMES`
        (it shares the change of its weights). The client's first round is audited, in which no scheme has a history.
    steps, lr, momentum, regularisation
        Local steps on new samples, their learning rate, and parameters of some algorithms; see
        `fedleak.federated.Scheme`.
    epochs
        Passes per round over the samples of these steps, each but the first in a new order.
    loss
        A module of `torch.nn`, or a function of logits ``[B, n]`` and labels ``[B]`` that returns one number; by
        default the mean cross-entropy. Modules whose targets have the logits' shape (`BCEWithLogitsLoss`, `MSELoss`,
        `MultiLabelSoftMarginLoss`) get one-hot labels. Attacks take the updates for those of the mean cross-entropy.
    defences
        Instances of the classes of `fedleak.federated.defences` and `.restricted`, applied one after the other to what
        a client shares; or functions with the same signature.
    dp_sgd
        Noise in the gradient itself, under FedSGD; before the defences.
    claimed
        ``(ε, δ)`` of a client's part in a round, as you or your platform state it. The report says whether it follows
        from `dp_sgd` or the defences, and what a canary shows of it.
    data
        Labelled samples: `fedleak.data.Images`, or a pair of tensors ``(x [N, ...], y [N])``; texts are tokens,
        int64 ``[N, L]``. Half of them are the clients', and the adversary may have some of the other half. Default:
        synthetic samples of the right shape.
    composition
        Labels of a batch: one of `fedleak.data.COMPOSITIONS`, or ``"data"``: drawn as often as they are in the data.
        The default is a client whose data are skewed: half of one class, a quarter of another, the rest of any.
    adversary
        One of `fedleak.attacks.registry.ADVERSARIES` or its name. Default: the strongest. One without the model, or
        without all that is shared, can show a leak, but keeps no limit.
    clients
        Clients under secure aggregation, of which the server sees the sum; 1: it sees every update.
    auxiliary
        Labelled samples per class of an adversary with auxiliary data.
    trials
        Number of updates to attack.
    remedy_trials
        Number of these updates that the remedies are tried on; in a recorded run they are spread over it.
    images
        Iterations of ONE image inversion; 0 for none.
    seed
        Random seed of everything, from 0 to `MOST_SEED`.
    name
        Name of the set-up in the report. Default: the model's class.
    """

    model: nn.Module | Callable[[], nn.Module]
    shape: Sequence[int] | None = None
    batch_size: int = 32
    algorithm: str = FEDSGD
    steps: int = 1
    epochs: int = 1
    loss: nn.Module | Loss | None = None
    lr: float = 0.1
    momentum: float = 0.0
    regularisation: float = 0.0
    defences: Sequence[Defence] = ()
    dp_sgd: DPSGD | None = None
    claimed: tuple[float, float] | None = None
    data: Images | tuple[Tensor, Tensor] | None = None
    composition: str = "unbalanced"
    adversary: Adversary | str | None = None
    clients: int = 1
    auxiliary: int = 20
    trials: int = 20
    remedy_trials: int = 5
    images: int = 0
    seed: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for what in ("batch_size", "steps", "epochs", "clients", "auxiliary", "trials", "remedy_trials", "images"):
            whole_number(what, getattr(self, what), 0 if what in ("remedy_trials", "images") else 1)
        whole_number("seed", self.seed, 0, MOST_SEED)
        kinds = get_type_hints(Setup)
        for what, words in WORDS.items():
            if not is_of(getattr(self, what), kinds[what]):
                raise ValueError(f"{what} is {words}; got {getattr(self, what)!r}")
        if self.algorithm == FEDSGD and (self.steps, self.epochs) != (1, 1):
            given = f"steps={self.steps}, epochs={self.epochs}"
            raise ValueError(f"FedSGD has one local step, got {given}: choose algorithm='fedavg'")
        if self.algorithm == FEDSGD and (self.momentum or self.regularisation):
            raise ValueError("FedSGD has no momentum and no regularisation: choose one of the other algorithms")
        if self.dp_sgd is not None and (self.algorithm != FEDSGD or self.loss is not None):
            raise ValueError("dp_sgd is one step's gradient of the mean cross-entropy: algorithm='fedsgd', and no loss")
        if self.claimed is not None and not (self.claimed[0] >= 0 and 0 <= self.claimed[1] < 1):
            raise ValueError(f"claimed is a pair (ε, δ), at least 0 and in [0, 1); got {self.claimed}")
        for what, value, names in (
            ("algorithm", self.algorithm, (FEDSGD, *SCHEMES)),
            ("batch composition", self.composition, (*COMPOSITIONS, AS_DATA)),
        ):
            if value not in names:
                raise ValueError(f"unknown {what} {value!r}; there are: {', '.join(names)}")
        object.__setattr__(self, "defences", tuple(self.defences))
        _ = self.scheme, self.attacker  # both refuse what does not fit

    def claim(self, tensors: int) -> Privacy | None:
        """Return the privacy claim for a client's part in a round that shares `tensors` tensors, if there is one.

        A client's own noise counts with what its clipping leaves: two updates whose tensors are each clipped to a norm
        C differ by 2 C √tensors at most, two that are clipped as a whole by 2 C. Noise directly after the clipping adds
        to its variance. A defence of an unknown kind may bound the norm, so that without a known clipping nothing is
        computed.
        """
        stated, delta = self.claimed or (None, DELTA)
        if self.dp_sgd is not None:
            return self.dp_sgd.privacy(stated, delta)
        noise = []
        for place, defence in enumerate(self.defences):
            if isinstance(defence, ClippedNoise):
                later = takewhile(lambda d: isinstance(d, PureNoise), self.defences[place + 1 :])
                sigma = math.hypot(defence.sigma, *(d.sigma for d in later if isinstance(d, PureNoise)))
                noise.append(sigma / (2 * defence.largest_norm(tensors)))
        if noise:
            history = ((max(noise), 1.0, 1),)
            return Privacy(neighbours="client", history=history, delta=delta, stated=stated)
        are_known = all(isinstance(d, PureNoise | Sparsification | Withhold) for d in self.defences)
        if are_known and any(isinstance(d, PureNoise) for d in self.defences):
            return Privacy(neighbours="client", delta=delta, clipped=False, stated=stated)
        if stated is None:
            return None
        none = all(isinstance(d, Sparsification | Withhold) for d in self.defences)
        return Privacy(neighbours="client", delta=delta, aggregated=none, stated=stated)

    @cached_property
    def scheme(self) -> Scheme | None:
        """The training scheme of a client; None for FedSGD."""
        if self.algorithm == FEDSGD:
            return None
        steps = self.steps * self.epochs
        return Scheme(self.algorithm, self.lr, steps, self.momentum, self.regularisation)  # type: ignore[arg-type]

    @cached_property
    def attacker(self) -> Adversary:
        """The adversary; under secure aggregation it sees the aggregate alone."""
        chosen = self.adversary
        if chosen is None:
            if self.clients == 1:
                return WITH_AUXILIARY
            return Adversary("malicious server with auxiliary data", WITH_AUXILIARY.has, "aggregate", "malicious")
        chosen = adversary_of(chosen)
        if chosen.sees == "aggregate" and self.clients == 1:
            raise ValueError(f"the adversary {chosen.name!r} sees an aggregate: say of how many clients, clients=10")
        return chosen if self.clients == 1 else Adversary(chosen.name, chosen.has, "aggregate", chosen.server)


def load(path: Path) -> Setup:
    """Run a file and return the set-up that it defines; files beside it can be imported, and errors name the line."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; `fedleak audit --example` prints one to start from")
    with own_code(path):
        setup: Any = runpy.run_path(str(path), run_name="fedleak_audit").get("setup")
        if not isinstance(setup, Setup) and callable(setup):
            setup = setup()
    if not isinstance(setup, Setup):
        is_what = "defines no `setup`" if setup is None else f"gives a setup of type {type(setup).__name__}"
        raise ValueError(f"{path.name} {is_what}: write `setup = fedleak.audit.Setup(...)`, or a function for it")
    return setup
