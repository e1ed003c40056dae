"""What a report says of a set-up before it comes to the attacks: the model, its data, and whether it is trained."""

import copy
from importlib.metadata import version
from typing import Any

import torch

from fedleak.attacks.registry import get
from fedleak.audit.case import Case, Round
from fedleak.audit.untried import image_attack
from fedleak.federated import Update
from fedleak.models import count_parameters, head, head_pass
from fedleak.report import interval

MOST = 1000
"""Samples that the accuracy is measured on."""


def describe(defence: Any) -> str:
    """Write a defence as it was made, as far as its attributes tell: ``PureNoise(sigma=0.01)``."""
    if not type(defence).__module__.startswith("fedleak."):
        return getattr(defence, "__name__", type(defence).__name__)
    parts = []
    for name, value in vars(defence).items():
        if isinstance(value, frozenset):
            parts.append(", ".join(sorted(value)))
        elif isinstance(value, int | float) and name not in ("clients", "round"):
            parts.append(f"{name}={value:g}")
        elif type(value).__module__ == type(defence).__module__:
            parts.append(describe(value))
    return f"{type(defence).__name__}({', '.join(parts)})"


def accuracy(case: Case) -> tuple[float, float]:
    """Return the model's accuracy on the clients' data in evaluation mode, and the lower end of its interval."""
    model = copy.deepcopy(case.attacked).eval()
    some = torch.randperm(len(case.clients), generator=torch.Generator().manual_seed(case.setup.seed))[:MOST]
    x = case.clients.x[some].to(head(model).layer.weight)
    right = (head_pass(model, x, chunk=200).probabilities.argmax(1) == case.clients.y[some]).double().numpy()
    return float(right.mean()), interval(right)[0]


def facts(case: Case, seen: Update, done: Round) -> dict[str, Any]:
    """Return what a report says of the set-up.

    Parameters
    ----------
    case
        The set-up, made ready.
    seen, done
        The first trial: what the server saw, and what the clients computed.
    """
    setup, synthetic = case.setup, case.setup.data is None
    commonest = (case.clients.class_counts.max() / len(case.clients)).item()
    measured = None if synthetic else accuracy(case)
    names = [name for name, _ in case.model.named_parameters()]
    return {
        "name": setup.name or type(case.model).__name__,
        "parameters": count_parameters(case.model),
        "mode": "training" if case.model.training else "evaluation",
        "shape": case.shape,
        "classes": case.n_classes,
        "head": head(case.model).name or "the model itself",
        "algorithm": setup.algorithm,
        "batch_size": setup.batch_size,
        "steps": setup.steps,
        "samples": done.updates[0].samples,
        "lr": None if setup.scheme is None else setup.lr,
        "defences": [describe(defence) for defence in setup.defences],
        "withheld": [name for name in names if name not in seen.tensors],
        "clients": setup.clients,
        "adversary": setup.attacker.name,
        "server": setup.attacker.server,
        "composition": setup.composition,
        "synthetic": synthetic,
        "inversions_lack": get(image_attack(setup)).lacking(case.view(seen)),
        "data": "synthetic data of the right shape"
        if synthetic
        else f"{case.clients.name}: {len(case.clients)} samples",
        "auxiliary": len(case.aux),
        "accuracy": None if measured is None else measured[0],
        "chance": commonest,
        "trained": None if measured is None else bool(measured[1] > commonest),
        "trials": setup.trials,
        "limit": setup.seconds,
        "seed": setup.seed,
        "versions": f"fedleak {version('fedleak')}, torch {torch.__version__}, {torch.get_num_threads()} threads",
    }
