"""What a report says of a set-up before it comes to the attacks: the model, its data, and whether it is trained."""

import copy
from dataclasses import is_dataclass
from importlib.metadata import version
from typing import Any

import torch

from fedleak.attacks.contest import view
from fedleak.audit.case import Case, Trial
from fedleak.audit.untried import image_attack
from fedleak.federated import Update
from fedleak.intervals import interval
from fedleak.models import as_inputs, count_parameters, head, head_pass

MOST = 1000
"""Samples that the accuracy is measured on."""


def describe(defence: Any) -> str:
    """Write a defence as it was made: ``PureNoise(sigma=0.01)``; a function, or what has no such form, by its name."""
    return repr(defence) if is_dataclass(defence) else getattr(defence, "__name__", type(defence).__name__)


def accuracy(case: Case) -> tuple[float, float]:
    """Return the model's accuracy on the clients' data in evaluation mode, and the lower end of its interval."""
    model = copy.deepcopy(case.attacked).eval()
    some = torch.randperm(len(case.clients), generator=torch.Generator().manual_seed(case.setup.seed))[:MOST]
    x = as_inputs(case.clients.x[some], model)
    right = (head_pass(model, x, chunk=200).probabilities.argmax(1) == case.clients.y[some]).double().numpy()
    return float(right.mean()), interval(right)[0]


def facts(case: Case, seen: Update, done: Trial) -> dict[str, Any]:
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
        "inversions_lack": image_attack(setup).lacking(view(setup.attacker, seen, case.model)),
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
