"""Recover the words of a client's texts: the rows of an embedding that move are theirs."""

from torch import Tensor, nn

from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.models.inputs import embeddings, input_embedding


def word_embedding(model: nn.Module) -> str:
    """Name the weight of the embedding of the model's inputs; "" if it has none."""
    layers = embeddings(model)
    name = input_embedding(model) if layers else None
    weight = layers[name].weight if name else None
    return next((name for name, p in model.named_parameters() if p is weight), "")


@attack(
    "embedding rows",
    goal="words",
    needs={Need.BELOW_HEAD_GRADIENT, Need.MODEL},
    summary="The rows of the embedding that move are the words of the texts.",
    standalone_reason="it is for models whose inputs are tokens",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Recover the distinct words of all texts behind an update, ``[words]``, in ascending order.

    Raises `WithheldParameter` if the embedding's gradient is not shared; `ValueError` if the model's inputs are no
    tokens, or all rows move, as of a weight that is the last layer's too, or in noise.
    """
    if not (name := word_embedding(model)):
        raise ValueError("the model has no embedding that takes its inputs and is trained")
    moved = update.gradient(name).ne(0).any(1)
    if moved.all():
        raise ValueError(f"all {len(moved)} rows of {name!r} move: noise, or a weight that another layer shares")
    return moved.nonzero().flatten()
