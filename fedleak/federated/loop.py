"""Record any training loop in PyTorch or Opacus; see `fedleak.federated.recording` for the folder."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.federated.gaps import note_gap
from fedleak.federated.loss_check import LossCheck, note_failure
from fedleak.federated.loss_identity import CROSS_ENTROPY
from fedleak.federated.measured import StepFactor, assign_labels_to_steps, collect_facts, compare_step_gradient
from fedleak.federated.opacus import read_opacus_privacy, read_step_noise
from fedleak.federated.recording import Contribution, write
from fedleak.federated.stated import compare_stated, parameters_differ, require_names
from fedleak.federated.step_check import StepCheck, list_declared_rules, unwrap_optimiser


@contextmanager
def record(
    folder: Path | str,
    model: nn.Module,
    optimiser: Any,
    *,
    round: int,
    node: str = "0",
    sent: Callable[[], Mapping[str, Tensor]] | None = None,
    **facts: Any,
) -> Iterator[Callable[[Tensor], None]]:
    """Record how a block of ordinary PyTorch training changes a model, as one client's part in a round.

    A round in which a GradScaler skipped every step is a warning and a gap in the folder. Raises `ValueError` if no
    gradient was computed or no labels were recorded. If the block raises, no file is written.

    Parameters
    ----------
    folder
        The run's folder.
    model
        The trained model, also one that Opacus has wrapped.
    optimiser
        An optimiser of `torch.optim`, or Opacus' ``DPOptimizer``, whose only step hook continues to work. The number of
        steps, their rate and momentum, and Opacus' noise are read from it.
    round, node, facts
        As in `Contribution`.
    sent
        Function that returns the state that leaves the client, by the model's names; by default the trained model's.

    Yields
    ------
    Callable
        Function to call with the labels of each batch, integers ``[B]``.

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

    The same with differential privacy. Opacus' accountant uses the optimiser's only hook, and continues to count:

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
    Contribution(round=round, node=node, samples=1, steps=1, lr=1.0)  # raises before the training, not after it
    if unknown := facts.keys() - {f.name for f in dataclasses.fields(Contribution)}:
        raise ValueError(f"{min(unknown)!r} is no fact of a contribution")
    inner = getattr(model, "_module", model)  # Opacus' GradSampleModule
    before = {name: tensor.detach().clone() for name, tensor in inner.state_dict().items()}
    recorder = _TrainingHooks(inner, optimiser)
    try:
        yield recorder.show
    finally:
        recorder.close()
    if why := recorder.skipped:
        note_gap(folder, round, "client", node, why)
        warnings.warn(f"nothing recorded of round {round}, node {node}: {why}", stacklevel=3)
        return
    details = recorder.facts(before)
    sent_state = trained = inner.state_dict()
    if sent is not None:
        sent_state = {**sent()}
        require_names(sent_state, trained)
        if parameters_differ(before, dict(inner.named_parameters()), sent_state):
            details["verified"] = [fact for fact in details["verified"] if fact == "labels"]
    compare_stated(details, facts)
    write(folder, Contribution(round=round, node=node, **{**details, **facts}), before, sent_state)


SKIPPED = "no step was made: the optimiser was never called, or a GradScaler met infinite gradients each time"
NO_RATE = "the learning rate was 0 in every step"


class _TrainingHooks:
    """Hooks on a model and its optimiser that measure a client's part in a round."""

    def __init__(self, model: nn.Module, optimiser: Any):
        self.model, self.optimiser, self.inner = model, optimiser, unwrap_optimiser(optimiser)
        self.private = hasattr(optimiser, "attach_step_hook")
        self.failure = ""
        self.steps = StepCheck(model, self.inner)
        note = (lambda: None) if self.private else self.steps.note_gradients
        self.loss = LossCheck(model, accumulates=self.private, after_backward=note)
        self._summed: Tensor | None = None
        self.labels: list[Tensor] = []
        self.nested = ""
        """Shape of labels that are not ``[B]``; "" if there are none."""
        self.noise: list[tuple[float, float]] = []
        self.factors: list[StepFactor] = []
        self.declared: dict[str, Any] = {}
        """What the optimiser declared at the latest step that had a rate."""
        self._divisor = 1.0
        self._depth = 0
        if not hasattr(self.inner, "register_step_pre_hook"):
            raise ValueError(f"a {type(optimiser).__name__} is no optimiser of torch.optim, nor Opacus' DPOptimizer")
        self._handles = [
            self.inner.register_step_pre_hook(self._before),
            self.inner.register_step_post_hook(self._after),
        ]
        self._accountant = optimiser.step_hook if self.private else None
        if self.private:
            optimiser.attach_step_hook(self._noisy)

    def show(self, labels: Tensor) -> None:
        """Record the labels of a batch."""
        self.labels.append(class_labels(labels))
        shape = list(torch.as_tensor(labels).shape)
        if len(shape) > 1 and shape[-1] > 1:
            self.nested = str(shape)

    def close(self) -> None:
        """Remove all hooks from model and optimiser."""
        self.loss.close()
        for handle in self._handles:
            handle.remove()
        if self.private:
            self.optimiser.attach_step_hook(self._accountant)

    def _noisy(self, optimiser: Any) -> None:
        if self._accountant is not None:
            self._accountant(optimiser)
        self.noise.append(read_step_noise(optimiser, self._accountant))
        # Opacus undoes the division by the batch of a mean loss, and divides by its own number instead.
        summed = getattr(self.loss.parameter, "summed_grad", None)
        self._summed = summed.detach().clone() if isinstance(summed, Tensor) else None
        mean = optimiser.loss_reduction == "mean"
        self._divisor = optimiser.expected_batch_size * optimiser.accumulated_iterations if mean else math.inf

    @note_failure
    def _before(self, *_: Any) -> None:
        self._depth += 1  # hooks run for a subclass' step and again for the inherited one
        if self._depth > 1:
            return
        # A schedule may have brought the rate to 0 once the last step is made.
        declared = training_facts(self.optimiser)
        self.declared = declared if declared["lr"] or not self.declared else self.declared
        self.steps.predict_step()
        self._gradient = self._head_gradient()

    def _head_gradient(self) -> Tensor | None:
        p = self.loss.last if self.loss.parameter is None else self.loss.parameter
        return None if p is None or p.grad is None else p.grad.detach().clone()

    @note_failure
    def _after(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth and self.steps.compare_step():
            backwards = self.loss.take(self.steps.steps - 1)
            if self.private and self.loss.head and not backwards:  # Poisson sampling drew no sample: noise alone
                self.factors.append(StepFactor(CROSS_ENTROPY))
                return
            divisor = self._divisor if self.private else None
            scale = float(getattr(self.inner, "grad_scale", None) or 1.0)
            if self.steps.inside:
                self._gradient = self._head_gradient()
            elif self.private and self._summed is not None:
                self._gradient = self._summed
            self.factors.append(compare_step_gradient(backwards, self._gradient, scale, divisor))

    @property
    def skipped(self) -> str:
        """Why there is no update: gradients were computed, but no step used them; "" if there is one."""
        if self.steps.steps:
            return NO_RATE if self.declared.get("lr") == 0 else ""
        return SKIPPED if self.loss.backwards and self.labels else ""

    def facts(self, before: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the measured fields of `Contribution`."""
        labels = self.labels
        self.steps.note_outside_changes()
        if not self.steps.steps or not labels:
            raise ValueError(
                f"{self.steps.steps} optimiser steps and {len(labels)} batches of labels: call `saw(y)` in each step"
            )
        batches, visible = assign_labels_to_steps(labels, self.loss, self.factors, self.steps.changed_outside)
        batches = self._passed_once(batches)
        samples = torch.cat(batches)
        sizes = [len(batch) for batch in batches]
        privacy = read_opacus_privacy(self.noise, sizes, self.model, self.optimiser, before) if self.noise else None
        facts = {
            **(self.declared or training_facts(self.optimiser)),
            "samples": len(samples),
            "steps": self.steps.steps,
            "batch_size": max(sizes),
            "counts": samples.bincount().tolist(),
            "privacy": privacy,
            **collect_facts(self.steps, self.loss, self.factors, self.failure or self.loss.failure),
        }
        shown_counts = torch.cat(labels).bincount(minlength=len(facts["counts"]))
        used_counts = torch.tensor(facts["counts"])
        used_counts = nn.functional.pad(used_counts, (0, len(shown_counts) - len(used_counts)))
        if visible and (missing := int((used_counts - shown_counts).clamp(min=0).sum())):
            facts["doubts"].append(
                f"{missing} of the {len(samples)} labels that the loss used were not shown (pseudo-labels, or others)"
            )
        if self.nested and not visible:
            facts["doubts"].append(
                f"labels of shape {self.nested} were shown, and no gradient shows one class for each"
            )
        return {**facts, "verified": [*facts["verified"], *["labels"] * visible]}

    def _passed_once(self, batches: list[Tensor]) -> list[Tensor]:
        """Return each step's labels once if all samples passed the model several times, as in R-Drop."""
        shown_labels = torch.cat(self.labels)
        times = sum(map(len, batches)) // max(len(shown_labels), 1)
        passes = sum(len(item.passes) for item in self.loss.backwards if item.step in range(len(batches)))
        if times < 2 or passes < times * len(batches) or any(bool((b.bincount() % times).any()) for b in batches):
            return batches
        once = [batch.sort().values[::times] for batch in batches]
        return once if torch.equal(torch.cat(once).sort().values, shown_labels.sort().values) else batches


def class_labels(labels: Any) -> Tensor:
    """Return class labels as int64 ``[N]`` on the CPU, without those that a cross-entropy ignores (-100).

    Raises `ValueError` for labels of another kind: floats, several labels per sample, probabilities of classes.
    """
    y = torch.as_tensor(labels).detach().cpu()
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(
            f"labels are whole numbers, a class per sample, not {y.dtype}: one-hot, multi-label and soft labels cannot "
            "be recorded as counts of classes"
        )
    if y.dim() > 1 and y.shape[-1] > 1 and bool(((y == 0) | (y == 1)).all()):
        raise ValueError(
            f"labels of shape {list(y.shape)} with entries 0 and 1 are one-hot, multi-label or masks: show one class "
            "per sample, such as y.argmax(1)"
        )
    y = y.flatten().long()
    y = y[y != IGNORED]
    if len(y) and int(y.min()) < 0:
        raise ValueError(f"labels are 0 or larger, got {int(y.min())} (a cross-entropy ignores {IGNORED} alone)")
    return y


IGNORED = -100
"""Label of samples that PyTorch's cross-entropy ignores."""


def training_facts(optimiser: Any) -> dict[str, Any]:
    """Return an optimiser's name, rate, momentum and weight decay, as its parameter groups declare them.

    The name is the class' in lower case, ``"nag"`` with Nesterov's momentum. The name also states groups that differ,
    dampening and maximization, so that the optimiser does not count as plain SGD.
    """
    inner = unwrap_optimiser(optimiser)
    rules = list_declared_rules(inner)
    rule = rules[-1]
    name = "nag" if rule.nesterov else type(inner).__name__.lower()
    other = {"parameter groups that differ": len(rules) > 1, "dampening": rule.gain != 1, "maximize": rule.sign < 0}
    name += "".join(f" with {deviation}" for deviation, holds in other.items() if holds)
    return {"optimiser": name, "lr": rule.lr, "momentum": rule.momentum, "weight_decay": rule.weight_decay}
