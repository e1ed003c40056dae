"""Record clients of appfl and declearn in the files that `fedleak audit RUN` reads.

Each recorder wraps one client's training and measures its steps, loss and labels as `fedleak.federated.loop.record`
does. It never ends a round: an upload that it cannot record is a warning in the log and a gap in the folder.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedleak.federated.gaps import file_name
from fedleak.federated.loop import record
from fedleak.federated.platforms import never_stopping
from fedleak.platforms import appfl, declearn
from fedleak.platforms.uploads import plain_names

log = logging.getLogger("fedleak.platforms")
C = TypeVar("C")


class _Round:
    def __init__(
        self, folder: Path | str, number: int, node: str, sent: Callable[[], Mapping[str, Tensor]], facts: Any
    ):
        self.folder, self.number, self.sent, self.facts = folder, number, sent, facts
        self.node = file_name(node) or "0"
        self.recording: Any = None
        self.is_failed = False

    def saw(self, model: nn.Module, optimiser: Any, labels: Any) -> None:
        """Take the labels of a step that is about to be made."""
        if self.is_failed:
            return
        self.is_failed = True
        with self.guarded():
            if self.recording is None:
                self.recording = record(
                    self.folder, model, optimiser, round=self.number, node=self.node, sent=self.sent, **self.facts
                )
                self.see = self.recording.__enter__()
            self.see(labels)
            self.is_failed = False

    def close(self, error: BaseException | None = None) -> None:
        """Write the record; after an error, in training or before, only take the hooks off."""
        if self.recording is None:
            return
        error = error or (RuntimeError("nothing is written") if self.is_failed else None)
        if error is None:
            with self.guarded():
                self.recording.__exit__(None, None, None)
        else:
            self.recording.__exit__(type(error), error, error.__traceback__)

    def guarded(self) -> Any:
        """Turn what a block raises into a warning and a gap."""
        return never_stopping(self.folder, log, round=self.number, node=self.node, seen_by="client")


def record_appfl(trainer: C, folder: Path | str, **facts: Any) -> C:
    """Make a trainer of appfl record what it sends in every round; return the same trainer.

    Parameters
    ----------
    trainer
        A `VanillaTrainer` or one derived from it, such as `FedProxTrainer`.
    folder
        The run's folder, which all clients may share.
    facts
        Fields of `fedleak.federated.recording.Contribution`; one that differs from its measurement is a doubt.

    Raises
    ------
    ValueError
        If the trainer has no training step of its own that takes an optimiser and a batch.

    Notes
    -----
    The record holds what leaves the client: noise that appfl adds at the end is in it, and then only the labels count
    as verified. What secure aggregation has masked is not recorded.
    """
    client: Any = trainer
    if not hasattr(client, "_train_batch") or not hasattr(client, "train_configs"):
        raise ValueError(f"a {type(trainer).__name__} is not derived from appfl's VanillaTrainer")
    train, train_batch = client.train, client._train_batch
    current: list[_Round] = []

    def sent_from(before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        state, results = client.get_parameters()
        send_gradient = bool(client.train_configs.get("send_gradient", False))
        steps = results["current_local_steps"]
        changes = appfl.update((state, results), before, samples=steps, lr=1.0, send_gradient=send_gradient).tensors
        end = plain_names(state)
        return {name: before[name] + changes[name] if name in changes else end[name] for name in before}

    def recorded_batch(optimizer: Any, data: Any, target: Any) -> Any:
        current[0].saw(client.model, optimizer, target)
        return train_batch(optimizer, data, target)

    def recorded_train(*args: Any, **kwargs: Any) -> Any:
        before = {name: tensor.detach().clone() for name, tensor in plain_names(client.model.state_dict()).items()}
        number, node = client.round + 1, str(getattr(client, "client_id", None) or 0)
        current[:] = [_Round(folder, number, node, lambda: sent_from(before), facts)]
        return _closing(current[0], lambda: train(*args, **kwargs))

    client.train, client._train_batch = recorded_train, recorded_batch
    return trainer


class _Declearn(torch.optim.Optimizer):
    """declearn's optimizer in the place of one of torch's: its step is what declearn makes of the gradients."""

    def __init__(self, model: nn.Module, optimizer: Any):
        self.optimizer, names = optimizer, [module.name for module in optimizer.modules]
        self.modules = optimizer.modules if names == ["momentum"] else []
        momentum = self.modules[0] if self.modules else None
        rate = float(optimizer.lrate)
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        super().__init__(
            self.named.values(),
            {
                "lr": rate,
                "momentum": momentum.beta if momentum else 0.0,
                "nesterov": bool(momentum and momentum.nesterov),
                "weight_decay": float(optimizer.w_decay or 0.0) / rate,
            },
        )

    def prepare(self, gradients: Mapping[str, Tensor]) -> None:
        """Set the rate, the gradients and the velocity that the step is made of."""
        self.param_groups[0]["lr"] = float(self.optimizer.lrate)
        velocity = getattr(self.modules[0], "velocity", None) if self.modules else None
        velocities = plain_names(getattr(velocity, "coefs", {}))
        for name, gradient in plain_names(gradients).items():
            parameter = self.named[name]
            parameter.grad = gradient
            if name in velocities:
                self.state[parameter]["momentum_buffer"] = velocities[name]

    def step(self, closure: Any = None) -> Any:
        """Let declearn apply its update, which the closure does."""
        closure()


def record_declearn(manager: C, folder: Path | str, *, node: str = "0", **facts: Any) -> C:
    """Make a training manager of declearn record what it sends in every round; return the same manager.

    Parameters
    ----------
    manager
        A `declearn.training.TrainingManager` of a torch model.
    folder
        The run's folder, which all clients may share.
    node
        The client's name.
    facts
        Fields of `fedleak.federated.recording.Contribution`; one that differs from its measurement is a doubt.

    Raises
    ------
    ValueError
        If the manager's model is not one of torch.

    Notes
    -----
    The record holds what would leave the client without secure aggregation, which declearn applies later.
    """
    client: Any = manager
    network = getattr(client.model, "get_wrapped_model", lambda: None)()
    network = getattr(network, "module", network)  # of declearn's AutoDeviceModule
    if not isinstance(network, nn.Module):
        raise ValueError("only training of declearn's torch models can be recorded")
    training_round, run_train_step, optim = client.training_round, client.optim.run_train_step, client.optim
    apply_gradients = optim.apply_gradients
    current: list[tuple[_Round, _Declearn]] = []

    def recorded_step(model: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
        if current:
            current[0][0].saw(network, current[0][1], batch[1])
        run_train_step(model, batch, *args, **kwargs)

    def recorded_gradients(model: Any, gradients: Any) -> None:
        if not current:
            apply_gradients(model, gradients)
            return
        part, stand_in = current[0]
        with part.guarded():
            stand_in.prepare(gradients.coefs)
        stand_in.step(lambda: apply_gradients(model, gradients))

    def recorded_round(message: Any) -> Any:
        if message.weights is not None:
            client.model.set_weights(message.weights, trainable=True)
        before = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        replies: list[Any] = []

        def sent() -> Mapping[str, Tensor]:
            update = declearn.update(replies[0], samples=replies[0].n_steps, lr=1.0)
            return {**network.state_dict(), **{name: before[name] + t for name, t in update.tensors.items()}}

        current[:] = [(_Round(folder, message.round_i, node, sent, facts), _Declearn(network, optim))]
        part, _ = current[0]

        def train() -> Any:
            replies.append(training_round(message))
            return replies[0]

        try:
            return _closing(part, train)
        finally:
            current.clear()

    client.training_round, optim.run_train_step, optim.apply_gradients = (
        recorded_round,
        recorded_step,
        recorded_gradients,
    )
    return manager


def _closing(part: _Round, train: Callable[[], Any]) -> Any:
    try:
        result = train()
    except BaseException as error:
        part.close(error)
        raise
    part.close()
    return result
