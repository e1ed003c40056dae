"""Record any training loop in PyTorch or Opacus; see `fedleak.recording.folder` for the folder."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedleak.privacy.claim import Privacy
from fedleak.privacy.opacus import read_opacus_privacy, read_step_noise
from fedleak.recording.comparison import NotMeasurable, compare
from fedleak.recording.contribution import Contribution
from fedleak.recording.folder import write
from fedleak.recording.gaps import note_gap
from fedleak.recording.measurement import IGNORED, Measurement

OPACUS = "Opacus clips the samples' gradients and adds noise: judge the round by its ε"


@contextmanager
def record(
    folder: Path | str,
    model: torch.nn.Module,
    optimiser: Any,
    *,
    round: int,
    node: str = "0",
    sent: Callable[[], Mapping[str, Tensor]] | None = None,
    privacy: Privacy | None = None,
) -> Iterator[Callable[[Any], None]]:
    """Record how a block of ordinary PyTorch training changes a model, as one client's part in a round.

    Once the block has begun, nothing is raised by the recorder: what cannot be recorded is a warning and a gap in the
    folder, with the reason. If the block itself raises, no file is written.

    Parameters
    ----------
    folder
        The run's folder.
    model
        The trained model, also one that Opacus has wrapped.
    optimiser
        An optimiser of `torch.optim`, or Opacus' ``DPOptimizer``, whose only step hook continues to work. If gradients
        are computed in the block and no step is made, the gradient is recorded as what leaves the client (FedSGD).
    round, node
        As in `Contribution`.
    sent
        Function that returns the state that leaves the client, by the model's names, or a part of it; by default the
        trained model's. A difference that a client sends is added to the state that it has received.
    privacy
        The claim of a mechanism that the client applies; Opacus' noise is read from its optimiser.

    Yields
    ------
    Callable
        Function to call with the labels of each batch, integers ``[B]``, before or after its step.

    Raises
    ------
    ValueError
        Before the block, for a wrong round or node, or an optimiser of another kind.

    Examples
    --------
    >>> import tempfile, torch
    >>> from fedleak.recording import read, record
    >>> model, folder = torch.nn.Linear(4, 3), tempfile.mkdtemp()
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with record(folder, model, optimiser, round=1) as saw:
    ...     for x, y in [(torch.rand(5, 4), torch.tensor([0, 0, 1, 2, 2])), (torch.rand(2, 4), torch.tensor([1, 1]))]:
    ...         saw(y)
    ...         optimiser.zero_grad()
    ...         torch.nn.functional.cross_entropy(model(x), y).backward()
    ...         optimiser.step()
    >>> (part,) = read(folder)
    >>> part.failed, part.samples, part.steps, round(part.lr, 4), part.counts
    ('', 7, 2, 0.1, [2, 3, 2])
    >>> part.update().tensors["weight"].shape
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
    >>> part = read(folder)[1]
    >>> part.steps, engine.accountant.history[0][2], part.privacy.history
    (2, 2, ((1.0, 0.5, 2),))
    """
    Contribution(round=round, node=node, samples=1, steps=1, lr=1.0)  # raises before the training, not after it
    recorder = _Recorder(model, optimiser)
    try:
        yield recorder.show
    finally:
        recorder.close()
    try:
        facts, after = recorder.finish(sent)
        facts["privacy"] = facts["privacy"] or privacy
        write(folder, Contribution(round=round, node=node, **facts), recorder.before, after)
    except Exception as error:  # the client's training has ended, and its round goes on
        warnings.warn(f"nothing recorded of round {round}, node {node}: {error}", stacklevel=3)
        try:
            note_gap(folder, round, "client", node, error)
        except OSError as full:
            warnings.warn(f"that is not noted in {folder} either: {full}", stacklevel=3)


class _Recorder:
    """The labels, states and privacy of a block of training, and the measurement of its steps."""

    def __init__(self, model: Any, optimiser: Any):
        self.model = getattr(model, "_module", model)  # Opacus' GradSampleModule
        self.optimiser, self.private = optimiser, hasattr(optimiser, "attach_step_hook")
        inner = unwrap_optimiser(optimiser)
        if not hasattr(inner, "register_step_pre_hook"):
            raise ValueError(f"a {type(optimiser).__name__} is no optimiser of torch.optim, nor Opacus' DPOptimizer")
        self.kind = type(inner).__name__.lower()
        self.before = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self.labels: list[Tensor] = []
        self.refused = ""
        """Why labels cannot be recorded, if they cannot."""
        self.noise: list[tuple[float, float]] = []
        self.measurement = Measurement(self.model, inner, OPACUS if self.private else "")
        self._accountant = optimiser.step_hook if self.private else None
        if self.private:
            optimiser.attach_step_hook(self._note_noise)

    def show(self, labels: Any) -> None:
        """Record the labels of a batch."""
        try:
            self.labels.append(class_labels(labels))
        except Exception as error:  # whatever a loop has for labels
            self.refused = self.refused or str(error)

    def close(self) -> None:
        """Remove all hooks from model and optimiser."""
        self.measurement.close()
        if self.private:
            self.optimiser.attach_step_hook(self._accountant)

    def _note_noise(self, optimiser: Any) -> None:
        if self._accountant is not None:
            self._accountant(optimiser)
        self.noise.append(read_step_noise(optimiser, self._accountant))

    def finish(self, sent: Callable[[], Mapping[str, Tensor]] | None) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
        """Return fields of `Contribution`, and the state that leaves the client; keep that part of `before`.

        Raises `ValueError` if nothing can be recorded.
        """
        m = self.measurement
        if self.refused:
            raise ValueError(self.refused)
        if not self.labels or not any(map(len, self.labels)):
            raise ValueError("no labels were shown: call `saw(y)` with each batch's")
        after = self.model.state_dict()
        if not m.steps:
            gradients = m.gradients()
            if not any(bool(gradient.any()) for gradient in gradients.values()):
                raise ValueError(NO_STEP)
            if all(torch.equal(p, self.before[name]) for name, p in m.parameters.items()):
                after = {n: t - gradients[n] if n in gradients else t for n, t in after.items()}
            m.make_gradient_step()
        if sent is not None:
            after = dict(sent())
            if unknown := sorted(after.keys() - self.before.keys()):
                raise ValueError(f"sent() returns a state by the model's names, and {unknown[0]!r} is none of them")
            self.before = {name: tensor for name, tensor in self.before.items() if name in after}
        labels = torch.cat(self.labels)
        try:
            result = compare(m, labels, self.before, after)
        except NotMeasurable as reason:
            failed, rule, measured = str(reason), m.rule, {}
            batches: Sequence[Tensor] = self.labels
            name, steps = self.kind, m.steps
            if not rule.lr:
                raise ValueError("the learning rate was 0 in every step") from reason
        else:
            failed, rule, batches = "", result.rule, result.batches
            measured = {"scales": result.scales, "decays": result.decays}
            name, steps = "nag" if rule.nesterov else "sgd", len(batches)
        labels, sizes = torch.cat(list(batches)), [len(batch) for batch in batches]
        privacy = None
        if self.noise:
            privacy = read_opacus_privacy(self.noise, sizes, self.model, self.optimiser, self.before)
        settings = {"lr": rule.lr, "momentum": rule.momentum, "optimiser": name, "batch_size": max(sizes)}
        facts = {"samples": len(labels), "steps": steps, "counts": labels.bincount().tolist(), "failed": failed}
        facts["by_batch"] = None if m.by_batch is None else sorted(m.by_batch)
        return {**facts, **settings, **measured, "privacy": privacy}, after


NO_STEP = (
    "no step was made and no gradient is left: call the optimiser, or leave the gradients (a GradScaler skips steps)"
)


def unwrap_optimiser(optimiser: Any) -> Any:
    """Return the optimiser of `torch.optim` inside wrappers such as Opacus' and Accelerate's."""
    for name in ("original_optimizer", "optimizer", "base_optimizer"):
        inner = getattr(optimiser, name, None)
        if inner is not None and hasattr(inner, "param_groups"):
            return unwrap_optimiser(inner)
    return optimiser


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
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < MAX_CLASSES:
        raise ValueError(f"labels are 0 to {MAX_CLASSES - 1}, got {int(y.min())} to {int(y.max())}")
    return y


MAX_CLASSES = 1_000_000
