"""What a report says of a set-up, of its model and of who attacks it."""

import copy
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from fedleak import models
from fedleak.attacks.contest import view
from fedleak.attacks.registry import Adversary
from fedleak.audit.case import Case, image_attack
from fedleak.federated import Update
from fedleak.intervals import interval

MOST = 1000
"""Samples that the accuracy is measured on."""


def describe_loss(case: Case) -> str:
    """Return the clients' loss in words: its name, and what it was measured to be."""
    loss = case.setup.loss
    if loss is None:
        return "mean cross-entropy"
    name = getattr(getattr(loss, "func", loss), "__name__", type(loss).__name__)
    return f"{name} ({case.form.describe() if case.form else 'not a cross-entropy with fixed targets'})"


def about(model: nn.Module, adversary: Adversary) -> dict[str, Any]:
    """Return what any report says of a model and who attacks it, and what the audit was run with."""
    last = models.head(model)
    return {
        "classes": last.layer.out_features,
        "head": last.name or "the model itself",
        "tied": last.tied,
        "tokens": bool(models.known_tokens(model)),
        "adversary": adversary.name,
        "versions": f"fedleak {version('fedleak')}, torch {torch.__version__}, {torch.get_num_threads()} threads",
    }


def facts(case: Case, update: Update) -> dict[str, Any]:
    """Return a report's facts about a set-up whose server sees updates like `update`."""
    setup, model, clients, synthetic = case.setup, case.model, case.clients, case.setup.data is None
    chance, accuracy, trained = (clients.class_counts.max() / len(clients)).item(), None, None
    if not synthetic:
        evaluated = copy.deepcopy(case.attacked).eval()
        some = torch.randperm(len(clients), generator=torch.Generator().manual_seed(setup.seed))[:MOST]
        passed = models.head_pass(evaluated, models.as_inputs(clients.x[some], model), chunk=200)
        right = (passed.probabilities.argmax(1) == clients.y[some]).double().numpy()
        accuracy, trained = right.mean().item(), interval(right)[0] > chance
    fields_of_setup = {
        field.name: getattr(setup, field.name) for field in fields(setup) if field.name not in ("model", "data", "loss")
    }
    return {
        **fields_of_setup,
        **about(model, setup.attacker),
        "recorded": False,
        "loss": describe_loss(case),
        "others": "",
        "name": setup.name or type(model).__name__,
        "parameters": models.count_parameters(model),
        "mode": "training" if model.training else "evaluation",
        "shape": case.shape,
        "samples": setup.steps * setup.batch_size,
        "defences": [
            repr(d) if is_dataclass(d) else getattr(d, "__name__", type(d).__name__)
            for d in (*filter(None, [setup.dp_sgd]), *setup.defences)
        ],
        "told": case.knowledge["defence"] is not None,
        "withheld": [name for name, _ in model.named_parameters() if name not in update.tensors],
        "server": setup.attacker.server,
        "synthetic": synthetic,
        "inversions_lack": image_attack(setup).lacking(view(setup.attacker, update, model)),
        "data": "synthetic data of the right shape" if synthetic else f"{clients.name}: {len(clients)} samples",
        "auxiliary": len(case.aux),
        "accuracy": accuracy,
        "chance": chance,
        "trained": trained,
    }
