"""Draw a client's batches: the labels by a composition, and an image for each label.

Both are vectorised over trials. Another composition is one more function in `COMPOSITIONS`.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from fedleak import metrics
from fedleak.data.images import Images
from fedleak.errors import whole_number

Composition = Callable[[int, int, int, int, Generator], Tensor]
"""``(batch_size, n_classes, trials, steps, generator)`` gives int64 labels [trials, steps, batch_size]."""


def balanced(batch_size: int, n_classes: int, trials: int, steps: int, generator: Generator) -> Tensor:
    """Draw LLG's balanced batches: each label independently and uniformly, thus balanced only in expectation."""
    return _randint(n_classes, (trials, steps, batch_size), generator)


def unbalanced(batch_size: int, n_classes: int, trials: int, steps: int, generator: Generator) -> Tensor:
    """Draw LLG's unbalanced batches: half of one class, a quarter of another, the rest uniform.

    B // 2 labels are of a random class and B // 4 of a different one, both the same in all steps of a trial.
    """
    if n_classes < 2:
        raise ValueError(f"an unbalanced batch needs two classes, not {n_classes}")
    labels = balanced(batch_size, n_classes, trials, steps, generator)
    major = _randint(n_classes, (trials, 1, 1), generator)
    minor = (major + 1 + _randint(n_classes - 1, (trials, 1, 1), generator)) % n_classes
    half, quarter = batch_size // 2, batch_size // 4
    labels[..., :half] = major
    labels[..., half : half + quarter] = minor
    return labels


def single(batch_size: int, n_classes: int, trials: int, steps: int, generator: Generator) -> Tensor:
    """Draw batches of one random class, the same in all steps of a trial."""
    return _randint(n_classes, (trials, 1, 1), generator).expand(trials, steps, batch_size).clone()


def permuted(batch_size: int, n_classes: int, trials: int, steps: int, generator: Generator) -> Tensor:
    """Draw the most even batches: no class occurs twice before all have occurred, in random order."""
    rounds = -(-batch_size // n_classes)
    keys = torch.rand((trials, steps, rounds, n_classes), generator=generator, device=generator.device)
    return keys.argsort(dim=-1).flatten(-2)[..., :batch_size]


def subclassed(batch_size: int, n_classes: int, trials: int, steps: int, generator: Generator) -> Tensor:
    """Draw labels uniformly from half of the classes (rounded up), the same half in all steps of a trial."""
    order = torch.rand((trials, n_classes), generator=generator, device=generator.device).argsort(dim=-1)
    chosen = _randint((n_classes + 1) // 2, (trials, steps * batch_size), generator)
    return order.gather(1, chosen).view(trials, steps, batch_size)


COMPOSITIONS: dict[str, Composition] = {
    function.__name__: function for function in (balanced, unbalanced, single, permuted, subclassed)
}


def compose(
    composition: str, batch_size: int, n_classes: int, trials: int, generator: Generator, steps: int | None = None
) -> Tensor:
    """Draw the labels of the batches of many trials by one of `COMPOSITIONS`, int64 [trials, batch_size].

    With `steps`, the local steps of FedAvg, they are [trials, steps, batch_size]; a composition's random choice for a
    client holds in all of its steps. The generator also determines the device. Raises `ValueError` if the
    composition is unknown, or a size is below 1.
    """
    if composition not in COMPOSITIONS:
        raise ValueError(f"unknown batch composition {composition!r}; there are: {', '.join(COMPOSITIONS)}")
    sizes = {"batch_size": batch_size, "n_classes": n_classes, "trials": trials, "steps": 1 if steps is None else steps}
    for what, size in sizes.items():
        whole_number(what, size)
    labels = COMPOSITIONS[composition](batch_size, n_classes, trials, sizes["steps"], generator)
    return labels[:, 0] if steps is None else labels


def draw(images: Images, labels: Tensor, generator: Generator) -> Tensor:
    """Draw a random image for each label, int64 [..., batch_size]; return indices into `images`, on its device.

    The last axis is one batch, in which no image occurs twice, unless a class has fewer images than the batch needs:
    that class is drawn with replacement. Batches are independent. Raises `ValueError` if a label is out of range, or of
    a class without any image.
    """
    if labels.numel() == 0:
        return torch.empty_like(labels, device=images.y.device)
    wanted = metrics.as_labels(labels).to(generator.device)
    if wanted.min() < 0 or wanted.max() >= images.n_classes:
        raise ValueError(
            f"{images.name} has the labels 0 to {images.n_classes - 1}; "
            f"asked for {wanted.min().item()} to {wanted.max().item()}"
        )
    counts = images.class_counts.to(generator.device)
    available = counts[wanted]
    if not available.all():
        empty = images.classes[int(wanted[available == 0][0])]
        raise ValueError(f"{images.name}/{images.split} holds no image of class {empty!r}")

    rows = wanted.reshape(-1, wanted.shape[-1])
    available = available.reshape(rows.shape)
    first = (counts.cumsum(0) - counts)[rows]
    # Classes take up separate ranges of `class_order`, so equal places in a row are equal images.
    places = first + _below(available, generator)
    multiplicity = _multiplicity(rows)
    repeatable = available < multiplicity

    # Where a row takes more than half of a class, shuffle the class: it has fewer than 2 * batch_size images.
    crowded = ~repeatable & (multiplicity > 1) & (2 * multiplicity > available)
    for label in rows[crowded].unique().tolist():
        chosen = crowded & (rows == label)
        row, column = chosen.nonzero(as_tuple=True)
        _, shuffle = row.unique_consecutive(return_inverse=True)
        turn = chosen.cumsum(dim=-1)[row, column] - 1
        size = (int(shuffle[-1]) + 1, int(counts[label]))
        shuffled = torch.rand(size, generator=generator, device=generator.device).argsort(dim=-1)
        places[row, column] = first[row, column] + shuffled[shuffle, turn]

    # Elsewhere redraw what repeats an earlier place of its row until nothing does: at least every second time
    # it works. By symmetry the outcome is uniform over all draws without repetition.
    active = torch.arange(len(rows), device=rows.device)
    while len(active):
        repeats = _repeats(places[active]) & ~repeatable[active]
        unsettled = repeats.any(dim=-1)
        active, repeats = active[unsettled], repeats[unsettled]
        row, column = repeats.nonzero(as_tuple=True)
        row = active[row]
        places[row, column] = first[row, column] + _below(available[row, column], generator)
    return images.class_order[places.reshape(labels.shape).to(images.y.device)]


def _multiplicity(rows: Tensor) -> Tensor:
    """Return how often each label occurs in its own row, without counts ``[rows, classes]``."""
    parts = []
    for part in rows.contiguous().split(max(1, 2**22 // rows.shape[1])):
        in_order = part.sort(dim=-1).values
        parts.append(torch.searchsorted(in_order, part, right=True) - torch.searchsorted(in_order, part))
    return torch.cat(parts)


def _randint(high: int, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.randint(high, shape, generator=generator, device=generator.device)


def _below(bounds: Tensor, generator: Generator) -> Tensor:
    uniform = torch.rand(bounds.shape, generator=generator, device=generator.device, dtype=torch.float64)
    return (uniform * bounds).long()


def _repeats(places: Tensor) -> Tensor:
    """Return whether each entry equals an earlier one of its row, [rows, batch]."""
    ordered, order = places.sort(dim=-1, stable=True)
    equal = torch.zeros_like(ordered, dtype=torch.bool)
    equal[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(equal).scatter_(1, order, equal)
