"""What a report says of a set-up before it comes to the attacks: the model, its data, and whether it is trained."""

import copy
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

import torch

from fedleak.attacks.contest import view
from fedleak.audit.case import Case
from fedleak.audit.images import image_attack
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


def facts(case: Case, seen: Update) -> dict[str, Any]:
    """Return what a report says of a set-up, of which the server sees updates like `seen`: its fields and more."""
    setup, model, synthetic = case.setup, case.model, case.setup.data is None
    chance = (case.clients.class_counts.max() / len(case.clients)).item()
    right, low = (None, None) if synthetic else accuracy(case)
    data = "synthetic data of the right shape" if synthetic else f"{case.clients.name}: {len(case.clients)} samples"
    return {
        field.name: getattr(setup, field.name) for field in fields(setup) if field.name not in ("model", "data")
    } | {
        "name": setup.name or type(model).__name__,
        "parameters": count_parameters(model),
        "mode": "training" if model.training else "evaluation",
        "shape": case.shape,
        "classes": case.n_classes,
        "head": head(model).name or "the model itself",
        "samples": setup.steps * setup.batch_size,
        "defences": [describe(defence) for defence in setup.defences],
        "withheld": [name for name, _ in model.named_parameters() if name not in seen.tensors],
        "adversary": setup.attacker.name,
        "server": setup.attacker.server,
        "synthetic": synthetic,
        "inversions_lack": image_attack(setup).lacking(view(setup.attacker, seen, model)),
        "data": data,
        "auxiliary": len(case.aux),
        "accuracy": right,
        "chance": chance,
        "trained": None if low is None else low > chance,
        "versions": f"fedleak {version('fedleak')}, torch {torch.__version__}, {torch.get_num_threads()} threads",
    }
