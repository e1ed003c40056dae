"""LLG, label leakage from gradients (Wainakh et al., PoPETs 2022), for its three adversaries.

A class's gradient g_i (row sum of the head's weight gradient) is about ``count_i * impact + offset_i``. LLG knows
only the gradients, LLG* probes the model with dummy images, LLG+ with auxiliary data. The probes' gradients come
from one forward pass (`HeadPass.row_sums`).
"""

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import row_sums
from fedleak.attacks.registry import Attack, Need, register
from fedleak.data import Images, draw
from fedleak.federated import Update
from fedleak.models import batch_dependent, head, head_pass, input_shape

Dummy = Literal["zeros", "ones", "random"]
RUNS = 10
"""Probe batches per label: the paper's auxiliary data are 10 batches of each class (Sec. 6.1)."""


def class_gradients(update: Update, model: nn.Module) -> Tensor:
    """Return the paper's g: row sums of the head's weight gradient, SUMMED over the local steps, ``[n]``.

    Under FedAvg the scale matters: impact and offset are measured on the model before the round, and the offset is not
    scaled by the number of steps, because training removes it after the first of them.
    """
    return row_sums(update, model) * update.steps


def gradient_impact(row_sums: Tensor, samples: int) -> Tensor:
    """Estimate the impact from the shared gradients alone (Eq. 18).

    Parameters
    ----------
    row_sums
        Class gradients g, ``[..., n]``.
    samples
        Number of samples behind them, ``|D|``.

    Returns
    -------
    Tensor
        Impact, ``[...]``: never positive; 0 where no gradient is negative.
    """
    n_classes = row_sums.shape[-1]
    return row_sums.clamp(max=0).sum(dim=-1) / samples * (1 + 1 / n_classes)


def impact_and_offset(probe_row_sums: Tensor, batch_size: int, steps: int = 1) -> tuple[Tensor, Tensor]:
    """Estimate impact and offset from probes of known label (Eqs. 19 and 20).

    Parameters
    ----------
    probe_row_sums
        ``[..., run, label, class]``: class gradients of a batch full of one label, for every label and run.
    batch_size
        Samples per probe batch, the victim's B.
    steps
        Local steps of the victim, gamma: the released code divides the impact by it, Eq. 19 as printed does not.
        The offset is not scaled.

    Returns
    -------
    impact : Tensor
        ``[...]``
    offset : Tensor
        ``[..., n]``

    Raises
    ------
    ValueError
        For shapes that do not fit or counts below 1.
    """
    runs, n_labels, n_classes = probe_row_sums.shape[-3:]
    if n_labels != n_classes or n_classes < 2:
        raise ValueError(f"expected probes [..., run, n, n] with n >= 2, got {tuple(probe_row_sums.shape)}")
    if batch_size < 1 or steps < 1:
        raise ValueError(f"batch_size and steps are at least 1, got {batch_size} and {steps}")
    own = probe_row_sums.diagonal(dim1=-2, dim2=-1)
    impact = own.sum(dim=-1).mean(dim=-1) / (n_classes * batch_size) * (1 + 1 / n_classes) / steps
    others = probe_row_sums.sum(dim=(-3, -2)) - own.sum(dim=-2)
    return impact, others / (runs * (n_classes - 1))


def extract(row_sums: Tensor, impact: Tensor, offset: Tensor, samples: int, stop_at_samples: bool = False) -> Tensor:
    """Extract label counts from class gradients (Algorithm 1), for any number of updates at once.

    Parameters
    ----------
    row_sums
        Class gradients g, ``[..., n]``.
    impact
        Impact m of each update, ``[...]`` or a number.
    offset
        Offset s, ``[..., n]``, ``[n]`` or a number.
    samples
        Number of labels to extract, ``|D|``.
    stop_at_samples
        If there are more negative gradients than samples: take the most negative ones only (the released code's
        LLG+), or all of them (LLG and LLG*, and the algorithm as printed), so that more labels are named.

    Returns
    -------
    Tensor
        Counts ``[..., n]``, long; they sum to `samples`, or more as said above.

    Raises
    ------
    ValueError
        If `samples` is below 1, or a value is NaN or infinite.
    """
    if samples < 1:
        raise ValueError(f"samples is at least 1, got {samples}")
    g = row_sums.double()
    m = torch.as_tensor(impact, dtype=g.dtype, device=g.device).expand(g.shape[:-1]).unsqueeze(-1)
    s = torch.as_tensor(offset, dtype=g.dtype, device=g.device)
    if not all(torch.isfinite(t).all() for t in (g, m, s)):
        raise ValueError("class gradients, impact and offset must be finite, got NaN or infinity")
    named = g < 0
    if stop_at_samples:
        named &= g.argsort(dim=-1, stable=True).argsort(dim=-1) < samples
    counts = named.long()
    g = g - counts * m - s
    remaining = samples - counts.sum(dim=-1, keepdim=True)
    for taken in range(max(int(remaining.max()), 0)):
        smallest = g.argmin(dim=-1, keepdim=True)
        still = remaining > taken
        counts.scatter_add_(-1, smallest, still.long())
        g.scatter_add_(-1, smallest, -m * still)
    return counts


def dummy_images(kind: Dummy, count: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Make LLG*'s dummy images: `count` of them with random pixels in [0, 1), or one of zeros or ones.

    One is enough for the constant ones, since a batch of equal images has the gradient of any one of them.
    """
    if kind == "random":
        return torch.rand(count, *shape, generator=generator)
    if kind not in ("zeros", "ones"):
        raise ValueError(f"aux is None, 'zeros', 'ones', 'random' or an Images, not {kind!r}")
    return torch.full((1, *shape), float(kind == "ones"))


def probe(model: nn.Module, images: Tensor, index: Tensor) -> Tensor:
    """Return the class gradients of probe batches, each full of one label, without a backward pass.

    Parameters
    ----------
    model
        The model before the round.
    images
        Pool of images, ``[N, C, H, W]``.
    index
        Which of them are in the batch of a run and label, ``[run, n, B]``.

    Returns
    -------
    Tensor
        ``[run, label, class]``
    """
    labels = torch.arange(index.shape[1], device=images.device)[None, :, None].expand(index.shape)
    if not batch_dependent(model):
        distinct, place = index.unique(return_inverse=True)
        return head_pass(model, images[distinct]).row_sums(place, labels)
    own = torch.arange(index.shape[2], device=images.device)
    batches = zip(index.flatten(0, 1), labels.flatten(0, 1), strict=True)
    found = [head_pass(model, images[batch]).row_sums(own, label) for batch, label in batches]
    return torch.stack(found).unflatten(0, index.shape[:2])


def recover(
    update: Update,
    model: nn.Module,
    aux: Images | Dummy | None = None,
    *,
    runs: int = RUNS,
    seed: int = 0,
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """Recover the label counts behind an update.

    Parameters
    ----------
    update
        One client's update; its head gradient is used and nothing else.
    model
        The model before the round. LLG only looks up which layer is the last.
    aux
        ``None`` is LLG; ``"zeros"``, ``"ones"`` or ``"random"`` dummy images make it LLG*; labelled images LLG+.
    runs
        Probe batches per label.
    seed
        Seed of the probes.
    shape
        Shape of one dummy image, where the model does not tell it.

    Returns
    -------
    Tensor
        Counts ``[n]``, long; see `extract` for their sum.

    Raises
    ------
    WithheldParameter
        If the head's gradient is not shared.
    ValueError
        For NaN or infinite gradients, an update of another model, or auxiliary data of other classes.
    """
    g = class_gradients(update, model)
    if aux is None:
        return extract(g, gradient_impact(g, update.samples), torch.zeros_like(g), update.samples)
    if runs < 1:
        raise ValueError(f"runs is at least 1, got {runs}")
    n_classes, batch_size = len(g), update.batch_size
    weight = head(model).layer.weight
    generator = torch.Generator().manual_seed(seed)
    if isinstance(aux, Images):
        if aux.n_classes != n_classes:
            raise ValueError(f"the auxiliary data have {aux.n_classes} classes, the model has {n_classes}")
        labels = torch.arange(n_classes)[None, :, None].expand(runs, n_classes, batch_size)
        index = draw(aux, labels, generator)
        pool = aux.x
    else:
        shape = shape or input_shape(model)
        pool = dummy_images(aux, runs * n_classes * batch_size, shape, generator)
        index = torch.arange(runs * n_classes * batch_size).view(runs, n_classes, batch_size) % len(pool)
    probes = probe(model, pool.to(weight), index.to(weight.device))
    impact, offset = impact_and_offset(probes.double(), batch_size, update.steps)
    return extract(g, impact, offset, update.samples, stop_at_samples=isinstance(aux, Images))


def _gradients_only(update: Update, model: nn.Module) -> Tensor:
    return recover(update, model)


def _dummy(update: Update, model: nn.Module, aux: Dummy = "zeros", **options: Any) -> Tensor:
    if not isinstance(aux, str):
        raise ValueError("LLG* takes 'zeros', 'ones' or 'random' dummy images; with auxiliary data it is LLG+")
    return recover(update, model, aux, **options)


def _auxiliary(update: Update, model: nn.Module, aux: Images, **options: Any) -> Tensor:
    if not isinstance(aux, Images):
        raise ValueError("LLG+ takes auxiliary data, an Images; with dummy images it is LLG*")
    return recover(update, model, aux, **options)


_GRADIENTS = frozenset({Need.HEAD_GRADIENT, Need.SAMPLE_COUNT})
_LLG = partial(Attack, goal="labels", paper="wainakh2022llg")
register(
    _LLG(
        name="LLG",
        equation="Alg. 1, Eq. 18",
        needs=_GRADIENTS,
        summary="Signs and sizes of the last layer's gradients, with the impact estimated from themselves.",
        run=_gradients_only,
    )
)
register(
    _LLG(
        name="LLG*",
        equation="Alg. 1, Eqs. 19-20",
        needs=_GRADIENTS | {Need.MODEL},
        summary="LLG with impact and offset measured on the model with dummy images.",
        run=_dummy,
    )
)
register(
    _LLG(
        name="LLG+",
        equation="Alg. 1, Eqs. 19-20",
        needs=_GRADIENTS | {Need.MODEL, Need.AUXILIARY_DATA},
        summary="LLG with impact and offset measured on the model with labelled auxiliary data.",
        run=_auxiliary,
    )
)
