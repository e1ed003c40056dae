"""The fishing models of LIA-SA (Wang et al. 2024, Sec. IV-C), and their preset embeddings and logits."""

import copy
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils.weak import WeakTensorKeyDictionary

from fedleak.attacks.door import quiet
from fedleak.models import HeadPass, head, known_tokens
from fedleak.models.inputs import watched

Recipe = Literal["literal", "log", "vector"]
MODELS_AT_ONCE = 20
"""Number of models that run at once."""
SAME_NETWORK_TOLERANCE = 1e-2
"""Largest difference of embeddings between two precisions that is rounding, as a share of the largest embedding."""


def fishing_layer(model: nn.Module) -> str:
    """Name the layer to modify: the first batch norm, or without one the first fully connected layer.

    Raises `ValueError` if the model has neither, or if the layer has no bias or is the head.
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
    """Return the constant output of a client's fishing layer, ``[size]``, which is the bias of its fishing model.

    Parameters
    ----------
    recipe
        ``"literal"``: one constant ``C = 0.1 (client + 1)``, in equal steps (Sec. IV-C; the paper gives no values).
        ``"log"``: one constant, log-spaced over the clients in [1e-4, 1e-1]. ``"vector"``: `size` independent draws
        from U(0, 1) per client, which the paper's "every element has a constant value C" does not allow.
    client, clients
        Index of the client, and number of clients; `ValueError` for another index or an unknown recipe.
    """
    if recipe not in get_args(Recipe):
        raise ValueError(f"unknown recipe {recipe!r}; there are: {', '.join(get_args(Recipe))}")
    if not 0 <= client < clients:
        raise ValueError(f"clients are numbered 0 to {clients - 1}, got {client}")
    if recipe == "vector":
        generator = torch.Generator().manual_seed((seed * 1_000_003 + client) % 2**63)
        return torch.rand(size, generator=generator, dtype=torch.float64)
    exponent = -4 + 3 * client / max(clients - 1, 1)
    return torch.full((size,), 0.1 * (client + 1) if recipe == "literal" else 10.0**exponent, dtype=torch.float64)


def fishing_model(model: nn.Module, recipe: Recipe, client: int, clients: int, seed: int) -> nn.Module:
    """Return the fishing model that the server sends to one client; see `constants` for the recipe.

    The global model does not change. Only the fishing layer's bias is the copy's own (`with_constant`), so that the
    models of a hundred clients take little more memory than one, and the copy is in the same mode. Raises `ValueError`
    as `constants` and `fishing_layer` do.
    """
    name = fishing_layer(model)
    size = len(model.get_parameter(f"{name}.bias"))
    return with_constant(model, name, constants(recipe, client, clients, size, seed))


@torch.no_grad()
def with_constant(model: nn.Module, name: str, constant: Tensor) -> nn.Module:
    """Return a copy of the model in which one layer outputs a constant.

    It shares all other parameters with the model, and the layer's weight, which is 0, with the other copies.
    """
    weight, bias = model.get_parameter(f"{name}.weight"), model.get_parameter(f"{name}.bias")
    shared = {id(t): t for t in (*model.parameters(), *model.buffers()) if t is not bias}
    changed = copy.deepcopy(model, shared | {id(weight): _zeros_like(weight)})
    changed.get_parameter(f"{name}.bias").copy_(constant)
    return changed


_ZEROS = WeakTensorKeyDictionary()


def _zeros_like(weight: nn.Parameter) -> nn.Parameter:
    """Return zeros in a weight's shape, the same for each call, so that many clients' take the memory of one's."""
    zeros = _ZEROS.get(weight)
    if zeros is None or zeros.shape != weight.shape or zeros.device != weight.device or zeros.any():
        zeros = _ZEROS[weight] = nn.Parameter(torch.zeros_like(weight), weight.requires_grad)
    return zeros


def preset(
    models: Sequence[nn.Module], shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0
) -> HeadPass:
    """Compute each fishing model's head inputs ``[U, m]`` and softmax ``[U, n]`` (step 1 of the attack).

    Two random images of this shape, U(0, 1), pass through each of the U models and have to give the same embedding. Use
    float64, or float32 for the clients' own arithmetic (which hides a singular system). Dropout is off; where it is on
    in a client, its embeddings are random instead. Raises `ValueError` without models, or if an embedding depends on
    the image.
    """
    if not models:
        raise ValueError("no fishing models")
    if known_tokens(models[0]):
        raise ValueError("the embeddings are preset with random pixels, and this model's inputs are integer tokens")
    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    first = models[0]
    flags = [[(type(m), m.training) for m in model.modules()] for model in models]
    if any(f != flags[0] for f in flags):
        raise ValueError("the fishing models are of different architectures or in different modes")
    images = images.to(head(first).layer.weight.device)
    parts = [models[k : k + MODELS_AT_ONCE] for k in range(0, len(models), MODELS_AT_ONCE)]
    with quiet(*models):
        pieces = [_pass_models(part, images) for part in parts]
    inputs, logits = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    size = inputs.abs().amax(dim=(1, 2)).clamp(min=1e-300)
    spread = (inputs[:, 0] - inputs[:, 1]).abs().amax(dim=1) / size
    if spread.max() > (1e-6 if dtype == torch.float64 else 1e-2):
        raise ValueError(
            f"model {int(spread.argmax())} gives different images different embeddings (by {spread.max():.0e} of their "
            "size): it is no fishing model, or something goes round its fishing layer"
        )
    return HeadPass(inputs[:, 0], logits[:, 0].softmax(1))


def foresee(
    models: Sequence[nn.Module], shape: tuple[int, ...], seed: int = 0, exact: HeadPass | None = None
) -> HeadPass:
    """Return the preset with which the server solves: exact, or with the clients' rounding where this decides it.

    Batch norm divides a channel without variance by ``sqrt(eps)``, which multiplies its rounding errors by 300. In
    networks with many such layers (ResNet-50 and deeper) these errors decide the embedding, so that the server has to
    compute in the clients' precision. The result is float64 in both cases. `exact` is the preset in double precision,
    if it is already computed.
    """
    exact = preset(models, shape, seed=seed) if exact is None else exact
    clients = preset(models, shape, head(models[0]).layer.weight.dtype, seed=seed)
    if (exact.inputs - clients.inputs).abs().max() <= SAME_NETWORK_TOLERANCE * exact.inputs.abs().max():
        return exact
    return HeadPass(clients.inputs.double(), clients.probabilities.double())


def _pass_models(models: Sequence[nn.Module], images: Tensor) -> tuple[Tensor, Tensor]:
    """Run the same images through several models at once: head inputs ``[U, 2, m]`` and logits ``[U, 2, n]``.

    Parameters that the models share are used once; the others, and the running statistics, are stacked.
    """
    first, stacked, shared = models[0], {}, {}
    layer = head(first).layer  # outside of vmap: it may take a forward pass to find

    def cast(t: Tensor) -> Tensor:
        return t.detach().to(images.dtype) if t.is_floating_point() else t

    for name, parameter in first.named_parameters():
        copies = [model.get_parameter(name) for model in models]
        if all(p is parameter for p in copies):
            shared[name] = cast(parameter)
        else:
            stacked[name] = torch.stack([cast(p) for p in copies])
    for name, _ in first.named_buffers():
        stacked[name] = torch.stack([cast(model.get_buffer(name)) for model in models])

    def pass_head(parameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        head_inputs: list[Tensor] = []
        with watched({"head": layer}, lambda _, inputs, __: head_inputs.append(inputs)):
            logits = functional_call(first, {**shared, **parameters}, (images,))
        return head_inputs[0], logits

    with torch.no_grad():
        if stacked:
            return vmap(pass_head)(stacked)
        inputs, logits = pass_head({})
        return inputs.expand(len(models), -1, -1), logits.expand(len(models), -1, -1)
