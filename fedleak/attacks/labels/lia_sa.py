"""LIA-SA (Wang et al. 2024): every client's label counts from the SUM of the clients' gradients.

A malicious server sends each client a fishing model: one layer with its weights at 0, so that the layer's output, and
with it the head's input e and logits y, depend on that layer's bias alone and no longer on the data. The sum of the
clients' head gradients is then a linear system in the clients' bias gradients (Eq. 16), which give the counts (Eq. 17).
"""

import copy
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.registry import Attack, Need, register
from fedleak.federated import Update
from fedleak.models import HeadPass, head, input_shape

Recipe = Literal["literal", "log", "vector"]
RANK_TOLERANCE = 1e-11
"""Singular values below this share of the largest count as 0: a deep network's rounding errors in double precision."""


def fished_layer(model: nn.Module) -> str:
    """Name the layer to modify: the first batch norm, or the first fully connected layer where there is none.

    Raises
    ------
    ValueError
        If the model has neither, or if the layer has no bias, or if it is the head itself.
    """
    norms = [name for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    linears = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if not norms and not linears:
        raise ValueError(f"{type(model).__name__} has neither batch norm nor a fully connected layer to modify")
    name = (norms or linears)[0]
    layer = model.get_submodule(name)
    if getattr(layer, "bias", None) is None:
        raise ValueError(f"the layer {name!r} has no bias, so that its output cannot be set")
    if not norms and name == head(model).name:
        raise ValueError("the only fully connected layer is the head: its input is the client's image")
    return name


def constants(recipe: Recipe, client: int, clients: int, size: int, seed: int) -> Tensor:
    """Return what a client's fished layer puts out, ``[size]``: the bias of its fishing model.

    ``"literal"``: one constant ``C = 0.1 (client + 1)``, equal steps, different for every client (Sec. IV-C; the paper
    gives no values). ``"log"``: one constant, log-spaced over the clients in [1e-4, 1e-1]. ``"vector"``: `size`
    independent draws from U(0, 1) a client, which the paper's "every element has a constant value C" does not allow.

    Raises
    ------
    ValueError
        For an unknown recipe, or a client that is not one of `clients`.
    """
    if recipe not in get_args(Recipe):
        raise ValueError(f"unknown recipe {recipe!r}; there are: {', '.join(get_args(Recipe))}")
    if not 0 <= client < clients:
        raise ValueError(f"clients are numbered 0 to {clients - 1}, got {client}")
    if recipe == "vector":
        mixed = torch.Generator().manual_seed((seed * 1_000_003 + client) % 2**63)
        return torch.rand(size, generator=mixed, dtype=torch.float64)
    exponent = -4 + 3 * client / max(clients - 1, 1)
    return torch.full((size,), 0.1 * (client + 1) if recipe == "literal" else 10.0**exponent, dtype=torch.float64)


def fishing_model(model: nn.Module, recipe: Recipe, client: int, clients: int, seed: int) -> nn.Module:
    """Return the model that the server sends to one client.

    Parameters
    ----------
    model
        The global model; left as it is. The copy shares all of its parameters but the fished layer's, so that the
        models of a hundred clients fit in memory, and is in the same mode (training or evaluation).
    recipe, client, clients, seed
        See `constants`.

    Raises
    ------
    ValueError
        For what `constants` and `fished_layer` refuse.
    """
    name = fished_layer(model)
    layer = model.get_submodule(name)
    own = {id(p) for p in layer.parameters()}
    shared = {id(t): t for t in (*model.parameters(), *model.buffers()) if id(t) not in own}
    fished = copy.deepcopy(model, shared)
    layer = fished.get_submodule(name)
    bias = constants(recipe, client, clients, len(layer.bias), seed)  # type: ignore[arg-type]
    with torch.no_grad():
        layer.weight.zero_()  # type: ignore[operator]
        layer.bias.copy_(bias)  # type: ignore[operator]
    return fished


def preset(
    models: Sequence[nn.Module], shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0
) -> HeadPass:
    """Return what the server presets (step 1 of the attack): the head's inputs and softmax of every fishing model.

    Two random images go through each model. They have to give the same embedding, or the model does not fish.

    Parameters
    ----------
    models
        The U fishing models.
    shape
        ``(C, H, W)`` of the random images, U(0, 1).
    dtype
        float64, or float32 for what a client computes. float32 embeddings hide a singular system.

    Returns
    -------
    HeadPass
        ``inputs [U, m]`` and ``probabilities [U, n]``.

    Raises
    ------
    ValueError
        Without models, where dropout is active, or where an embedding depends on the image.
    """
    if not models:
        raise ValueError("no fishing models")
    inputs, probabilities = [], []
    cast: dict[int, Tensor] = {}
    for u, model in enumerate(models):
        active = [n for n, m in model.named_modules() if isinstance(m, nn.Dropout) and m.training and m.p > 0]
        if active:
            raise ValueError(f"dropout is active ({', '.join(active)}): the clients' embeddings are random, not preset")
        device = head(model).layer.weight.device
        images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device)
        tensors = {}
        for name, t in (*model.named_parameters(), *model.named_buffers()):
            if t.is_floating_point():
                cast.setdefault(id(t), t.detach().to(dtype))
            tensors[name] = cast[id(t)] if t.is_floating_point() else t
        for name, _ in model.named_buffers():
            tensors[name] = tensors[name].clone()  # batch norm in training mode writes to its statistics
        seen: list[Tensor] = []
        handle = head(model).layer.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        try:
            with torch.no_grad():
                logits = functional_call(model, tensors, (images,))
        finally:
            handle.remove()
        spread = (seen[0][0] - seen[0][1]).abs().max().item() / max(seen[0].abs().max().item(), 1e-300)
        if spread > (1e-6 if dtype == torch.float64 else 1e-2):
            raise ValueError(
                f"model {u} gives different images different embeddings (by {spread:.0e} of their size): it is no "
                "fishing model, or something goes round its fished layer"
            )
        inputs.append(seen[0][0])
        probabilities.append(logits[0].softmax(0))
    return HeadPass(torch.stack(inputs), torch.stack(probabilities))


class Conditioning(NamedTuple):
    """How solvable the system of Eq. 16 is, in float64."""

    rank: int
    """Numerical rank of the (m + 1) x U matrix."""
    condition: float
    """Largest over smallest singular value; infinite where U > m + 1."""
    clients: int
    """U."""


def system(embeddings: Tensor) -> Tensor:
    """Return the matrix of Eq. 16, a row of ones above the embeddings: ``[m + 1, U]`` from ``[U, m]``."""
    return torch.cat([torch.ones_like(embeddings[:, :1]), embeddings], dim=1).T


def conditioning_of(embeddings: Tensor) -> Conditioning:
    """Return rank and condition number of the system with these embeddings ``[U, m]``, in float64."""
    matrix = system(embeddings.double())
    values = torch.linalg.svdvals(matrix)
    rank = int((values > values[0] * RANK_TOLERANCE).sum())
    smallest = values[-1].item() if matrix.shape[1] <= matrix.shape[0] else 0.0
    return Conditioning(rank, values[0].item() / smallest if smallest > 0 else math.inf, len(embeddings))


def conditioning(models: Sequence[nn.Module], shape: tuple[int, ...] | None = None) -> Conditioning:
    """Return rank and condition number of the system of these fishing models; `shape` where they do not tell theirs."""
    return conditioning_of(preset(models, shape or input_shape(models[0])).inputs)


def disaggregate(embeddings: Tensor, weight_gradient: Tensor, bias_gradient: Tensor) -> Tensor:
    """Solve Eq. 16 for all classes with ONE factorisation (the paper solves n systems).

    Parameters
    ----------
    embeddings
        ``[U, m]``, float64.
    weight_gradient, bias_gradient
        Of the head, summed over the clients: ``[n, m]`` and ``[n]``.

    Returns
    -------
    Tensor
        Every client's bias gradient, ``[U, n]``; of least norm where the system is singular.
    """
    right = torch.cat([bias_gradient[None], weight_gradient.T])
    return torch.linalg.lstsq(
        system(embeddings), right, driver="gelsd" if right.device.type == "cpu" else None
    ).solution


def counts(probabilities: Tensor, bias_gradients: Tensor, batch_size: int) -> Tensor:
    """Return Eq. 17's ``B (p - grad b)`` ``[U, n]``, not rounded; exact if it is within 0.5 of the integers."""
    return batch_size * (probabilities - bias_gradients)


def recover(
    aggregate: Update,
    models: Sequence[nn.Module],
    batch_size: int,
    input_shape: tuple[int, ...],
    *,
    force: bool = False,
    seed: int = 0,
) -> Tensor:
    """Recover every client's label counts ``[U, n]`` from the sum of their mean gradients (Eqs. 16 and 17).

    Parameters
    ----------
    aggregate
        Of kind ``"gradient"``: the SUM of the U clients' mean gradients, ``samples`` = U B.
    models
        The fishing models in the order of the clients.
    batch_size
        B, which the server prescribes.
    input_shape
        ``(C, H, W)`` of the random images with which the server presets embeddings and logits.
    force
        Go on although the system is singular, with the solution of least norm.
    seed
        Seed of the random images.

    Returns
    -------
    LongTensor
        ``[U, n]``, not negative; a client's counts need not sum to B.

    Raises
    ------
    WithheldParameter
        If the gradient of the head's weights or bias is not there.
    ValueError
        If the aggregate is not what is said above, the head has no bias, dropout is active, there are more than m + 1
        clients, or the system is singular and `force` is not set.
    """
    if batch_size < 1 or not models:
        raise ValueError(f"one client and one sample at least, got {len(models)} and {batch_size}")
    if aggregate.kind != "gradient" or aggregate.steps != 1:
        raise ValueError("LIA-SA works under FedSGD: a gradient of one step, not a delta or several steps")
    if aggregate.samples != len(models) * batch_size:
        raise ValueError(
            f"the aggregate is of {aggregate.samples} samples, but {len(models)} models with batches of {batch_size} "
            f"make {len(models) * batch_size}"
        )
    last = head(models[0])
    if last.layer.bias is None:
        raise ValueError("the last layer has no bias: without its gradient there is nothing to disaggregate")
    if any(head(m).layer.weight.shape != last.layer.weight.shape for m in models):
        raise ValueError("the fishing models differ in more than one layer: their heads are of different shapes")
    weight_gradient = head_gradient(aggregate, models[0])
    bias_gradient = aggregate.gradient(last.bias).detach().double()
    if bias_gradient.shape != last.layer.bias.shape or not torch.isfinite(bias_gradient).all():
        raise ValueError(f"the aggregate's {last.bias!r} is not of the model's shape, or not finite")
    if len(models) > last.layer.in_features + 1:
        raise ValueError(
            f"{len(models)} clients are more than the {last.layer.in_features} + 1 equations of a class can tell apart"
        )
    server = preset(models, input_shape, seed=seed)
    found = conditioning_of(server.inputs)
    if found.rank < found.clients and not force:
        raise ValueError(
            f"the system is singular: rank {found.rank} for U = {found.clients} clients, so that their gradients "
            "cannot be told apart; choose another recipe, or pass force=True for the solution of least norm"
        )
    solution = disaggregate(server.inputs, weight_gradient, bias_gradient)
    return counts(server.probabilities, solution, batch_size).round().clamp(min=0).long()


register(
    Attack(
        name="LIA-SA",
        goal="labels",
        paper="wang2024liasa",
        equation="Eqs. 16, 17",
        needs=frozenset({Need.HEAD_GRADIENT, Need.BIAS_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL}),
        summary="Every client's head sees constants of its own, which makes the sum a linear system.",
        run=recover,
        sees="aggregate",
        server="malicious",
    )
)
