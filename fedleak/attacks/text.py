"""DAGER: recover texts and their order exactly, from the span of a gradient (Petrov et al., NeurIPS 2024).

The gradient of a layer that maps tokens is a sum of outer products, one per token: its rows lie in the span of the
layer's inputs. As long as a batch has fewer tokens than the layer has inputs, few vectors lie in that span. A word at a
place belongs to the batch if the input that it would give to the first layer does, and a text if the inputs that it
gives to the second do, where attention has mixed its words.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models.inputs import Enough, forward, known_tokens, watched

TOLERANCE = 1e-4
"""Largest share of an input that lies outside the span: rounding leaves 1e-6, a wrong word far back in a text 3e-4."""
SPARE = 2
"""Directions that the span has to leave out, so that the test has power."""
AT_ONCE = 2**22
"""Entries of inputs in memory at once."""
MAX_TEXTS = 2**14
"""Most texts that are tried."""


class Reading(NamedTuple):
    """A layer that maps each token of a text, with what it gets."""

    weight: str
    inputs: Tensor
    """``[texts, places, features]``."""


def readings(model: nn.Module, x: Tensor, most: int | None = None) -> list[Reading]:
    """Return the inputs that texts ``[texts, places]`` give to the first `most` of the model's layers of tokens."""
    calls: list[Reading] = []
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.MultiheadAttention | nn.Linear)}

    def note(name: str, inputs: Tensor, _: Tensor) -> None:
        layer = layers[name]
        tokens = inputs.detach() if getattr(layer, "batch_first", True) else inputs.detach().transpose(0, 1)
        weight = f"{name}.in_proj_weight" if isinstance(layer, nn.MultiheadAttention) else f"{name}.weight"
        is_shared = getattr(layer, "in_proj_weight", layer) is not None  # by queries, keys and values
        if is_shared and tokens.dim() == 3 and tokens.shape[:2] == x.shape:
            calls.append(Reading(weight, tokens))
            if len(calls) == most:
                raise Enough

    # PyTorch's encoder layers call no hook without gradients.
    with watched(layers, note), torch.enable_grad():
        forward(model, x)
    return calls


class Span:
    """The space that the rows of a layer's gradient span.

    Raises `ValueError` if it leaves out less than `SPARE` directions.
    """

    def __init__(self, update: Update, model: nn.Module, weight: str):
        gradient = fitting(update.gradient(weight), weight, model.get_parameter(weight)).double()
        precision = torch.finfo(update.tensors[weight].dtype).eps
        _, sizes, rows = torch.linalg.svd(gradient, full_matrices=False)
        self.rank = int((sizes > precision * sizes.max()).sum())
        self.basis = rows[: self.rank]
        if not 0 < self.rank <= gradient.shape[1] - SPARE:
            raise ValueError(
                f"the gradient of {weight!r} has rank {self.rank} of {gradient.shape[1]}: DAGER needs a batch with "
                "fewer tokens than the layer has inputs, and a gradient without noise"
            )

    def misses(self, inputs: Tensor) -> Tensor:
        """Return the share of the length of inputs ``[..., features]`` that lies outside, ``[...]``."""
        inputs = inputs.double()
        outside = inputs - inputs @ self.basis.T @ self.basis
        return outside.norm(dim=-1) / inputs.norm(dim=-1).clamp(min=1e-300)


def words_by_place(update: Update, model: nn.Module) -> Tensor:
    """Return which words the texts of an update may have at which place, bool ``[places, vocabulary]``.

    No word is missing. A few may be too many: where a model adds a word's vector and a place's, differences of the
    batch's own words move others to places at which no text has them. Errors as for `recover`.
    """
    vocabulary = known_tokens(model)
    if not vocabulary:
        raise ValueError("the model's inputs are no tokens")
    shape = tuple(getattr(model, "input_shape", ()))
    if len(shape) != 1:
        raise ValueError("the length of a text is not known: note it, model.input_shape = (L,)")
    (places,) = shape
    device = next(model.parameters()).device
    first = readings(model, torch.zeros(1, places, dtype=torch.long, device=device), 1)
    if not first:
        raise ValueError(f"no layer of the model maps the {places} tokens of a text one by one")
    span, width = Span(update, model, first[0].weight), first[0].inputs.shape[2]
    # Before attention a place's input depends on its own word alone: one text per word shows all.
    pieces = torch.arange(vocabulary, device=device).split(max(1, AT_ONCE // (places * width)))
    inputs = (readings(model, words[:, None].expand(-1, places), 1)[0].inputs for words in pieces)
    return torch.cat([span.misses(tokens) for tokens in inputs]).T <= TOLERANCE


@attack(
    "DAGER",
    goal="words",
    paper="petrov2024dager",
    equation="Theorems 3.1 and 5.1, with PyTorch's layers",
    needs={Need.BELOW_HEAD_GRADIENT, Need.MODEL},
    summary="Words, and then texts, whose inputs lie in the span of a layer's gradient are those of the batch.",
    standalone_reason="it is for models whose inputs are tokens",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Recover the distinct texts behind an update of one step, ``[texts, places]``.

    Where a place's layer inputs depend on the words before it alone, as behind a causal mask, texts grow word by word;
    else all combinations of the words by place are tried.

    The length of a text in tokens, padding included, is ``model.input_shape``. Raises `WithheldParameter` if the
    gradient of the layers is not shared; `ValueError` if the model's inputs are no tokens or of unknown length, the
    batch has too many tokens, or more than `MAX_TEXTS` texts would have to be tried.
    """
    words = [at.nonzero().flatten().tolist() for at in words_by_place(update, model)]
    if not all(words):
        raise ValueError(f"no word fits at place {[bool(at) for at in words].index(False)} of {len(words)}")
    first = torch.tensor([[at[0] for at in words]], device=next(model.parameters()).device)
    mixing = _mixing_layer(model, first)
    if mixing is None:
        if any(len(at) > 1 for at in words):
            raise ValueError("no layer's inputs depend on other places: the words are known, and not their texts")
        return first
    span = Span(update, model, mixing.weight)
    texts = list[list[int]]([[]])
    parts = [words[i : i + 1] for i in range(len(words))] if mixing.causal else [words]
    for part in parts:
        grown = ([*text, *more] for text in texts for more in itertools.product(*part))
        texts = list(_fitting(model, span, mixing, _limited(grown), first))
    return torch.tensor(texts, device=first.device)


def _limited(texts: Iterator[list[int]]) -> list[list[int]]:
    tried = list(itertools.islice(texts, MAX_TEXTS + 1))
    if len(tried) > MAX_TEXTS:
        raise ValueError(f"more than {MAX_TEXTS:,} texts would have to be tried: the batch is too large for DAGER")
    return tried


class Mixing(NamedTuple):
    """The first layer whose inputs depend on other places' words."""

    number: int
    """Its place among the `readings`."""
    weight: str
    causal: bool
    """Whether they depend on those before alone."""


def _mixing_layer(model: nn.Module, text: Tensor) -> Mixing | None:
    """Return the layer behind the first attention; None if every layer's inputs depend on one place's word alone."""
    vocabulary, (first, last) = known_tokens(model), (text.clone(), text.clone())
    first[0, 0], last[0, -1] = (first[0, 0] + 1) % vocabulary, (last[0, -1] + 1) % vocabulary
    calls = zip(*(readings(model, changed) for changed in (text, first, last)), strict=True)
    for number, (before, after_first, after_last) in enumerate(calls):
        forwards = not torch.equal(before.inputs[:, 1:], after_first.inputs[:, 1:])
        backwards = not torch.equal(before.inputs[:, :-1], after_last.inputs[:, :-1])
        if forwards or backwards:
            return Mixing(number, before.weight, forwards and not backwards)
    return None


def _fitting(
    model: nn.Module, span: Span, mixing: Mixing, texts: list[list[int]], first: Tensor
) -> Iterator[list[int]]:
    """Yield the texts whose inputs to a layer lie in the span of its gradient: at their last place, or at all places.

    Beginnings of texts go on as the text `first` does.
    """
    if not texts:
        raise ValueError("no text fits: the update is not one step of such a batch, or it is noisy")
    tried, length = first.repeat(len(texts), 1), len(texts[0])
    tried[:, :length] = torch.tensor(texts, device=first.device)
    inputs = (readings(model, piece, mixing.number + 1)[-1].inputs for piece in tried.split(256))
    checked = (tokens[:, length - 1 : length] if mixing.causal else tokens for tokens in inputs)
    fits = torch.cat([(span.misses(tokens) <= TOLERANCE).all(1) for tokens in checked])
    yield from itertools.compress(texts, fits.tolist())
