"""A set-up made ready: the model checked and copied, the data divided, and what one round of clients shares."""

import copy
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.fishing import fishing_model
from fedleak.attacks.registry import Adversary, Attack, Need
from fedleak.audit.samples import Samples, divide, samples
from fedleak.audit.setup import AS_DATA, Setup
from fedleak.data import Images, compose, draw
from fedleak.errors import WithheldParameter
from fedleak.federated import Update, fedsgd
from fedleak.federated.algorithms import Client
from fedleak.federated.defences import ClippedNoise, Defence, PureNoise, Sparsification, protect
from fedleak.federated.restricted import FedVF
from fedleak.metrics import counts
from fedleak.models import head, input_shape


@dataclass(frozen=True, eq=False)
class Round:
    """What the clients of one trial computed, before any defence, and what the adversary wants to know."""

    updates: list[Update]
    x: Tensor
    """``[K, steps, B, ...]``"""
    y: Tensor
    """``[K, steps, B]``"""
    truth: Tensor
    """Label counts ``[K, n]``."""


@dataclass(frozen=True, eq=False)
class Case:
    """A set-up made ready.

    Parameters
    ----------
    setup
        As the user wrote it.
    model
        The clients' model: a copy, on the CPU, in the mode that it was given in.
    attacked
        The server's copy, in which dropout and the like are switched off; batch norm is in the clients' mode.
    clients, aux
        The clients' samples, and the adversary's.
    """

    setup: Setup
    model: nn.Module
    attacked: nn.Module
    shape: tuple[int, ...]
    clients: Samples
    aux: Samples

    @property
    def n_classes(self) -> int:
        """Outputs of the head."""
        return head(self.model).layer.out_features

    @property
    def prior(self) -> Tensor:
        """How often a label occurs in all batches together, ``[n]``: what an adversary may know without an update."""
        if self.setup.composition == AS_DATA:
            return self.clients.class_counts.double() / len(self.clients)
        return torch.full((self.n_classes,), 1 / self.n_classes, dtype=torch.float64)

    def sent(self) -> tuple[list[nn.Module], str]:
        """Return the models that the server sends, one a client, and why a cheating one sends no fishing models.

        A malicious server sends LIA-SA's fishing models if the model has a layer to fish with.
        """
        setup = self.setup
        honest: list[nn.Module] = [self.model] * setup.clients
        if setup.clients == 1 or setup.attacker.server == "passive":
            return honest, ""
        try:
            return [fishing_model(self.model, "vector", u, setup.clients, setup.seed) for u in range(len(honest))], ""
        except ValueError as error:
            return honest, str(error)

    def round(self, trial: int, models: list[nn.Module]) -> Round:
        """Draw every client's batches and let it train.

        Raises
        ------
        ValueError
            If an update is NaN or infinite.
        """
        setup = self.setup
        seed = (setup.seed + 1) * 1_000_003 + trial
        generator = torch.Generator().manual_seed(seed)
        size = (len(models), setup.steps, setup.batch_size)
        if setup.composition == AS_DATA:
            labels = self.clients.y[torch.randint(len(self.clients), size, generator=generator)]
        else:
            labels = compose(setup.composition, size[2], self.n_classes, size[0], generator, size[1])
        index = draw(self.clients, labels.flatten(1), generator).view(size)
        x, y = self.clients.x[index].to(head(self.model).layer.weight.dtype), labels
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            updates = [self._trained(model, *batches) for model, *batches in zip(models, x, y, strict=True)]
        return Round(updates, x, y, counts(y.flatten(1), self.n_classes))

    def _trained(self, model: nn.Module, x: Tensor, y: Tensor) -> Update:
        scheme = self.setup.scheme
        update = fedsgd(model, x[0], y[0]) if scheme is None else Client(scheme).train(model, x, y, {})
        if not all(torch.isfinite(t).all() for t in update.tensors.values()):
            raise ValueError("a client's update holds NaN or infinity: is the learning rate too high for this model?")
        return update

    def shared(self, update: Update, extra: tuple[Defence, ...] = (), client: int = 0) -> Update:
        """Return what a client shares: its update after the set-up's defences, and then the extra ones.

        Raises
        ------
        ValueError
            If a defence names a parameter that is not there.
        """
        for place, defence in enumerate((*self.setup.defences, *extra)):
            try:
                update = protect(update, fresh(defence, self.setup.seed + 7919 * client + place))
            except WithheldParameter as error:
                raise ValueError(
                    f"the defence {type(defence).__name__} names the parameter {error.name!r}; what is left is: "
                    f"{', '.join(error.args[1])}"
                ) from error
        return update

    def view(self, shared: Update, adversary: Adversary | None = None) -> Adversary:
        """Return an adversary with only those gradients that the update holds; by default the set-up's."""
        adversary = adversary or self.setup.attacker
        last = head(self.model)
        there = {
            Need.HEAD_GRADIENT: last.weight in shared.tensors,
            Need.BIAS_GRADIENT: last.bias in shared.tensors,
            Need.BELOW_HEAD_GRADIENT: bool(shared.tensors.keys() - {last.weight, last.bias}),
            Need.ALL_GRADIENTS: all(name in shared.tensors for name, _ in self.model.named_parameters()),
        }
        return replace(adversary, has=adversary.has - {need for need, is_there in there.items() if not is_there})

    def options(self, attack: Attack, view: Adversary, probes: int) -> dict[str, Any]:
        """Return what an attack is given besides update and model; auxiliary data only if the adversary has some."""
        found: dict[str, Any] = {}
        if Need.AUXILIARY_DATA in attack.needs or (attack.name == "GDBR" and Need.AUXILIARY_DATA in view.has):
            found["aux"] = self.aux
        if attack.name in ("LLG*", "LLG+"):
            found["runs"] = probes
        if attack.name.startswith("RLU"):
            found["scheme"] = self.setup.scheme
        return found


@singledispatch
def fresh(defence: Any, seed: int) -> Defence:
    """Return a defence as a client has it that takes part for the first time: without memory, with its own noise."""
    return defence


@fresh.register
def _(defence: PureNoise, seed: int) -> Defence:
    return PureNoise(defence.sigma, seed)


@fresh.register
def _(defence: ClippedNoise, seed: int) -> Defence:
    return ClippedNoise(defence.bound, defence.noise.sigma, seed)


@fresh.register
def _(defence: Sparsification, seed: int) -> Defence:
    return Sparsification(defence.discard)


@fresh.register
def _(defence: FedVF, seed: int) -> Defence:
    return FedVF(defence.names, defence.every)


def prepare(setup: Setup) -> Case:
    """Make a set-up ready.

    Raises
    ------
    ValueError
        If the model does not take the inputs, its outputs are not those of its last linear layer, nothing of it is
        trained, or the data do not fit.
    """
    model = _copied(setup)
    shape = _shape(setup, model)
    check(model, shape, setup.batch_size)
    model.input_shape = shape  # type: ignore[assignment]
    pool = samples(setup.data, shape, head(model).layer.out_features, setup.seed)
    clients, aux = divide(pool, setup.auxiliary, setup.seed)
    if setup.composition != AS_DATA and not clients.class_counts.all():
        empty = clients.classes[int((clients.class_counts == 0).nonzero()[0])]
        raise ValueError(
            f"the clients' half of the data holds no sample of {empty!r}: give more data, or composition='data', which "
            "draws labels as often as the data hold them"
        )
    attacked = copy.deepcopy(model)
    for module in attacked.modules():
        if not isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.training = False
    return Case(setup, model, attacked, shape, clients, aux)


def _shape(setup: Setup, model: nn.Module) -> tuple[int, ...]:
    """Return the shape of one input: as said, or the data's, or what the model tells."""
    if setup.shape is not None:
        return tuple(setup.shape)
    if isinstance(setup.data, Images):
        return setup.data.shape
    if isinstance(setup.data, tuple | list) and setup.data and isinstance(setup.data[0], Tensor):
        return tuple(setup.data[0].shape[1:])
    return input_shape(model)


def _copied(setup: Setup) -> nn.Module:
    """Copy or make the model; frozen parameters become constants, which are neither trained nor shared."""
    made = setup.model
    if not isinstance(made, nn.Module):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(setup.seed)
            made = made()
        if not isinstance(made, nn.Module):
            raise ValueError(f"the function that makes the model gives a {type(made).__name__}, not an nn.Module")
    model = copy.deepcopy(made).cpu()
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and not parameter.requires_grad:
                del module._parameters[name]
                module.register_buffer(name, parameter.detach())
    if not list(model.parameters()):
        raise ValueError("the model has no parameter that is trained: all are frozen, or there is none")
    return model


@torch.no_grad()
def check(model: nn.Module, shape: tuple[int, ...], batch_size: int) -> None:
    """Refuse a model that does not take such inputs, or whose outputs are not those of its last linear layer.

    Raises
    ------
    ValueError
        If so, with what is wrong.
    """
    last = head(model)
    outputs: list[Tensor] = []
    handle = last.layer.register_forward_hook(lambda _, __, y: outputs.append(y))
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    x = torch.rand(min(batch_size, 2), *shape, generator=torch.Generator().manual_seed(0))
    try:
        with torch.random.fork_rng(devices=[]):
            logits = torch.func.functional_call(model, buffers, (x.to(last.layer.weight.dtype),))
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"the model does not take {len(x)} inputs of shape {shape} in "
            f"{'training' if model.training else 'evaluation'} mode: {reason}"
        ) from error
    finally:
        handle.remove()
    name = last.name or "the model itself"
    if not isinstance(logits, Tensor) or logits.shape != (len(x), last.layer.out_features):
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"the last layer has to be linear: the model's last nn.Linear, {name!r}, has {last.layer.out_features} "
            f"outputs, and the model gives {found} for {len(x)} inputs"
        )
    if len(outputs) != 1 or outputs[0].shape != logits.shape or not torch.allclose(outputs[0], logits, equal_nan=True):
        raise ValueError(
            f"the last layer has to be linear: the model's outputs are not those of its last nn.Linear, {name!r}. "
            "Return logits, without a softmax; and make the classifier the last nn.Linear that the model creates"
        )
    if last.layer.out_features < 2:
        raise ValueError("a classifier has at least two outputs; one with a sigmoid is not covered")
