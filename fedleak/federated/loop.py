"""Record a training loop of one's own, plain PyTorch or Opacus: see `fedleak.federated.recording` for the folder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.federated.privacy import of_opacus, step_of
from fedleak.federated.recording import Contribution, write


@contextmanager
def record(
    folder: Path | str, model: nn.Module, optimiser: Any, *, round: int, node: str = "0", **facts: Any
) -> Iterator[Callable[[Tensor], None]]:
    """Record what a block of ordinary PyTorch training makes of a model, as one client's part in a round.

    Raises `ValueError` if no step was made or no labels were shown. What raises in the block leaves no file.

    Parameters
    ----------
    folder
        The run's folder.
    model
        What is trained, also one that Opacus has wrapped.
    optimiser
        One of `torch.optim`, or Opacus' ``DPOptimizer``, whose only step hook goes on working. It tells the number of
        steps, their rate and their momentum, and Opacus' also its noise.
    round, node, facts
        As in `Contribution`.

    Yields
    ------
    Callable
        To be called with the labels of every batch, integers ``[B]``.

    Examples
    --------
    >>> import tempfile, torch
    >>> from fedleak.federated.loop import record
    >>> from fedleak.federated.recording import read
    >>> model, folder = torch.nn.Linear(4, 3), tempfile.mkdtemp()
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with record(folder, model, optimiser, round=1) as saw:
    ...     for x, y in [(torch.ones(5, 4), torch.tensor([0, 0, 1, 2, 2])), (torch.ones(2, 4), torch.tensor([1, 1]))]:
    ...         saw(y)
    ...         optimiser.zero_grad()
    ...         torch.nn.functional.cross_entropy(model(x), y).backward()
    ...         optimiser.step()
    >>> (one,) = read(folder)
    >>> one.samples, one.steps, one.lr, one.counts
    (7, 2, 0.1, [2, 3, 2])
    >>> one.update().tensors["weight"].shape
    torch.Size([3, 4])

    The same with differential privacy. Opacus' accountant sits in the optimiser's one hook, and counts on:

    >>> from opacus import PrivacyEngine
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> engine, data = PrivacyEngine(), TensorDataset(torch.ones(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]))
    >>> model = torch.nn.Linear(4, 3)
    >>> private, optimiser, loader = engine.make_private(
    ...     module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=DataLoader(data, 3),
    ...     noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False)
    >>> with record(folder, private, optimiser, round=2) as saw:
    ...     for x, y in loader:
    ...         saw(y)
    ...         optimiser.zero_grad()
    ...         torch.nn.functional.cross_entropy(private(x), y).backward()
    ...         optimiser.step()
    >>> one = read(folder)[1]
    >>> one.steps, engine.accountant.history[0][2], one.privacy.history
    (2, 2, ((1.0, 0.5, 2),))
    """
    inner = getattr(model, "_module", model)  # Opacus' GradSampleModule
    before = {name: tensor.detach().clone() for name, tensor in inner.state_dict().items()}
    labels: list[Tensor] = []
    steps: list[dict[str, Any]] = []
    noise: list[tuple[float, float]] = []
    private = hasattr(optimiser, "attach_step_hook")
    own = optimiser.step_hook if private else None  # the accountant's, which goes on counting

    def note(stepped: Any, *_: Any) -> None:
        if own is not None:
            own(stepped)
        steps.append(dict(optimiser.param_groups[0]))
        if private:
            noise.append(step_of(optimiser, own))

    hook = optimiser.attach_step_hook(note) if private else optimiser.register_step_post_hook(note)
    try:
        yield lambda y: labels.append(y.detach().cpu().flatten())
    finally:
        optimiser.attach_step_hook(own) if private else hook.remove()
    if not steps or not labels:
        raise ValueError(
            f"{len(steps)} optimiser steps and {len(labels)} batches of labels: call `saw(y)` in each step"
        )
    seen = torch.cat(labels)
    details = {
        **training_facts(optimiser),
        "samples": len(seen),
        "steps": len(steps),
        "lr": sum(float(step["lr"]) for step in steps) / len(steps),
        "batch_size": max(map(len, labels)),
        "counts": seen.bincount().tolist(),
        "privacy": of_opacus(noise, [len(y) for y in labels]) if noise else None,
    }
    write(folder, Contribution(round=round, node=node, **{**details, **facts}), before, inner.state_dict())


def training_facts(optimiser: Any) -> dict[str, Any]:
    """Return the name of an optimiser of `torch.optim` (or of Opacus' around it), its rate and its momentum."""
    group = optimiser.param_groups[0]
    kind = type(getattr(optimiser, "original_optimizer", optimiser)).__name__.lower()
    name = "nag" if group.get("nesterov") else kind
    return {"optimiser": name, "lr": float(group["lr"]), "momentum": float(group.get("momentum", 0))}


def told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client says of its training in plain values, as a platform's ``note`` passes them on.

    ``labels`` (integers ``[N]``, of any array) are a list, and an optimiser, as in `training_facts`, its name with
    ``lr`` and ``momentum``.
    """
    plain = dict(facts)
    if not isinstance(plain.get("optimiser", ""), str):
        plain |= training_facts(plain["optimiser"])
    if "labels" in plain:
        plain["labels"] = torch.as_tensor(plain["labels"]).flatten().tolist()
    return plain
