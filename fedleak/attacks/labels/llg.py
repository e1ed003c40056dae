"""LLG, label leakage from gradients (Wainakh et al., PoPETs 2022), with its variants LLG* and LLG+.

A class's gradient g_i (row sum of the head's weight gradient) is about ``count_i * impact + offset_i``. LLG has only
the gradients, LLG* probes the model with dummy images, LLG+ with auxiliary data, in one forward pass.

All three need a head with non-negative inputs (Property 1), such as outputs of a ReLU or sigmoid. After a tanh, a layer
norm (vision transformers) or an embedding they recover wrong labels, and warn.
"""

import math
from functools import cache, partial
from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.attacks.door import entering
from fedleak.attacks.labels.counts import apportion
from fedleak.attacks.labels.inputs import require_classes
from fedleak.attacks.plausible import has_negative_inputs
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.data import Images, draw
from fedleak.errors import whole_number
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import HeadPass, as_inputs, batch_dependent, head, head_pass, input_shape, negative_inputs

Dummy = Literal["zeros", "ones", "random"]
RUNS = 10
"""Probe batches per label: the paper's auxiliary data are 10 batches of each class (Sec. 6.1)."""
MAX_PROBE_IMAGES, MAX_PROBE_ENTRIES = 10**8, 2**29
"""Most images of all probe batches together, and most pixels of random dummy images: 2 GiB in single precision."""
MAX_SIGN_IMAGES = 256
"""Most auxiliary images on which the signs of the head's inputs are measured."""
_GRADIENTS = {Need.HEAD_GRADIENT, Need.SAMPLE_COUNT}
_LLG = partial(attack, paper="wainakh2022llg", prepares=True)


def class_gradients(update: Update, model: nn.Module) -> Tensor:
    """Return the paper's g ``[n]``: row sums of the head's weight gradient, SUMMED over the local steps.

    Impact and offset are measured on the model before the round, and the offset is not scaled by the number of steps.
    The best scale under FedAvg depends on the learning rate: see the chapter on LLG.
    """
    last = head(model)
    return fitting(update.summed(last.weight).double(), last.weight, last.layer.weight).sum(dim=1)


def gradient_impact(row_sums: Tensor, samples: int) -> Tensor:
    """Estimate the impact ``[...]`` from class gradients g ``[..., n]`` and the number of samples alone (Eq. 18).

    The impact is never positive; it is 0 if no gradient is negative.
    """
    n_classes = row_sums.shape[-1]
    return row_sums.clamp(max=0).sum(dim=-1) / samples * (1 + 1 / n_classes)


def impact_and_offset(probe_row_sums: Tensor, batch_size: float, steps: int = 1) -> tuple[Tensor, Tensor]:
    """Estimate impact ``[...]`` and offset ``[..., n]`` from probe batches of a single label each (Eqs. 19 and 20).

    Raises `ValueError` for shapes that do not fit or counts below 1.

    Parameters
    ----------
    probe_row_sums
        Class gradients of a batch with one label, for each label and run, ``[..., run, label, class]``.
    batch_size
        Samples per probe batch: the victim's B, or their mean if its batches differ.
    steps
        Local steps of the victim, gamma. The released code divides the impact by it, Eq. 19 as printed does not.
    """
    runs, n_labels, n_classes = probe_row_sums.shape[-3:]
    if n_labels != n_classes or n_classes < 2:
        raise ValueError(f"expected probes [..., run, n, n] with n >= 2, got {tuple(probe_row_sums.shape)}")
    if batch_size < 1 or steps < 1:
        raise ValueError(f"batch_size and steps are at least 1, got {batch_size} and {steps}")
    diagonal = probe_row_sums.diagonal(dim1=-2, dim2=-1)
    impact = diagonal.sum(dim=-1).mean(dim=-1) / (n_classes * batch_size) * (1 + 1 / n_classes) / steps
    others = probe_row_sums.sum(dim=(-3, -2)) - diagonal.sum(dim=-2)
    return impact, others / (runs * (n_classes - 1))


def extract(row_sums: Tensor, impact: Tensor, offset: Tensor, samples: int, stop_at_samples: bool = False) -> Tensor:
    """Extract label counts from class gradients (Algorithm 1), for any number of updates at once.

    The algorithm repeatedly adds a label of the class with the smallest gradient and subtracts the impact from that
    gradient. This fills all classes up to one level, so that the counts follow without a loop. Raises `ValueError` if
    `samples` is below 1, or a value is NaN or infinite.

    Parameters
    ----------
    row_sums, impact, offset
        Class gradients g ``[..., n]``; impact m, ``[...]`` or a number; offset s, ``[..., n]``, ``[n]`` or a number.
    samples
        Number of labels to extract, ``|D|``.
    stop_at_samples
        Whether to extract only the most negative gradients if more are negative than there are samples (the released
        code's LLG+), or all of them and thus more labels (LLG, LLG* and the algorithm as printed).

    Returns
    -------
    LongTensor
        Counts ``[..., n]``, which sum to `samples`, or to more without `stop_at_samples`.
    """
    whole_number("samples", samples)
    g = row_sums.double()
    m = torch.as_tensor(impact, dtype=g.dtype, device=g.device).expand(g.shape[:-1]).unsqueeze(-1)
    s = torch.as_tensor(offset, dtype=g.dtype, device=g.device)
    if not all(torch.isfinite(t).all() for t in (g, m, s)):
        raise ValueError("class gradients, impact and offset must be finite, got NaN or infinity")
    is_named = g < 0
    if stop_at_samples:
        is_named &= g.argsort(dim=-1, stable=True).argsort(dim=-1) < samples
    counts = is_named.long()
    g = g - counts * m - s
    remaining = (samples - counts.sum(dim=-1, keepdim=True)).clamp(min=0)
    smallest = g.argmin(dim=-1, keepdim=True)
    height = (g - g.gather(-1, smallest)) / (-m).clamp(min=1e-300)
    # A non-negative impact never lifts the smallest gradient above the others, so that class gets all labels.
    all_to_smallest = torch.zeros_like(counts).scatter_(-1, smallest, remaining)
    return counts + all_to_smallest.where(m >= 0, apportion(-height, remaining))


def dummy_images(kind: Dummy, count: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Make LLG*'s dummy images: `count` images of random pixels in [0, 1), or one image of zeros or ones.

    One constant image is enough: a batch of equal images has the gradient of each of them.
    """
    if kind == "random":
        return torch.rand(count, *shape, generator=generator)
    if kind not in ("zeros", "ones"):
        raise ValueError(f"aux is None, 'zeros', 'ones', 'random' or an Images, not {kind!r}")
    return torch.full((1, *shape), float(kind == "ones"))


def probe(model: nn.Module, images: Tensor, index: Tensor) -> Tensor:
    """Return the class gradients of probe batches with a single label each, ``[run, label, class]``.

    `images` is a pool ``[N, C, H, W]``; `index` has the pool's indices of each run's batch per label, ``[run, n, B]``.
    """
    labels = torch.arange(index.shape[1], device=images.device)[None, :, None].expand(index.shape)
    if not batch_dependent(model):
        distinct, position = index.unique(return_inverse=True)
        return head_pass(model, images[distinct]).row_sums(position, labels)
    batches, position = index.flatten(0, 1).unique(dim=0, return_inverse=True)
    places, of_pairs = torch.arange(index.shape[2], device=images.device), labels.flatten(0, 1)
    sums = head(model).layer.weight.new_empty(len(of_pairs), index.shape[1])
    for number, batch in enumerate(batches):
        pairs = (position == number).nonzero().flatten()
        sums[pairs] = head_pass(model, images[batch]).row_sums(places.expand(len(pairs), -1), of_pairs[pairs])
    return sums.unflatten(0, index.shape[:2])


def impact_and_offset_of(passed: HeadPass, index: Tensor, batch_size: float, steps: int = 1) -> tuple[Tensor, Tensor]:
    """Return `impact_and_offset` of the probe batches at `index` ``[run, n, B]`` in a pass, without ``[run, n, n]``.

    A sample adds to the offset of every class but its batch's label: one sum over samples, less what each adds there.
    """
    mass, n = passed.inputs.double().sum(dim=1), index.shape[1]
    own, of_labels = mass.new_zeros(2, n)
    for batches in index:
        own += (passed.probabilities.gather(0, batches.T) * mass[batches.T]).mean(dim=0)
        of_labels += mass[batches].mean(dim=1)
    uses = index.flatten().bincount(minlength=len(mass)) / index.shape[2]
    others = (uses * mass).to(passed.probabilities.dtype) @ passed.probabilities - own
    impact = (own - of_labels).sum() / (len(index) * n * batch_size) * (1 + 1 / n) / steps
    return impact, others / (len(index) * (n - 1))


@_LLG(
    "LLG",
    equation="Alg. 1, Eq. 18",
    needs=_GRADIENTS,
    summary="Signs and sizes of the last layer's gradients, with the impact estimated from themselves.",
)
def from_gradients(model: nn.Module) -> Prepared:
    """Prepare LLG, which estimates the impact from the update and has no offset; see `prepare`."""
    return prepare(model)


@_LLG(
    "LLG*",
    equation="Alg. 1, Eqs. 19-20",
    needs=_GRADIENTS | {Need.MODEL},
    summary="LLG with impact and offset measured on the model with dummy images.",
    options={"runs"},
)
def from_dummies(
    model: nn.Module, aux: Dummy = "zeros", *, runs: int = RUNS, seed: int = 0, shape: tuple[int, ...] | None = None
) -> Prepared:
    """Prepare LLG*, which measures impact and offset with dummy images; see `prepare`."""
    if not isinstance(aux, str):
        raise ValueError("LLG* takes 'zeros', 'ones' or 'random' dummy images; with auxiliary data it is LLG+")
    return prepare(model, aux, runs=runs, seed=seed, shape=shape)


@_LLG(
    "LLG+",
    equation="Alg. 1, Eqs. 19-20",
    needs=_GRADIENTS | {Need.MODEL, Need.AUXILIARY_DATA},
    summary="LLG with impact and offset measured on the model with labelled auxiliary data.",
    options={"runs"},
)
def from_auxiliary(model: nn.Module, aux: Images, *, runs: int = RUNS, seed: int = 0) -> Prepared:
    """Prepare LLG+, which measures impact and offset with auxiliary data; see `prepare`."""
    require_classes(aux, head(model).layer.out_features)
    return prepare(model, aux, runs=runs, seed=seed)


@entering
def prepare(
    model: nn.Module,
    aux: Images | Dummy | None = None,
    *,
    runs: int = RUNS,
    seed: int = 0,
    shape: tuple[int, ...] | None = None,
) -> Prepared:
    """Prepare LLG, LLG* or LLG+, depending on the auxiliary data.

    Impact and offset are measured once for each number of samples and steps that an update has.

    Parameters
    ----------
    model
        The model before the round.
    aux
        None for LLG (`from_gradients`); ``"zeros"``, ``"ones"`` or ``"random"``, the dummy images of LLG*
        (`from_dummies`); labelled images for LLG+ (`from_auxiliary`).
    runs, seed
        Number of probe batches per label, and their random seed.
    shape
        Shape of one dummy image, ``(C, H, W)``; needed if it does not follow from the model.

    Raises
    ------
    ValueError
        The auxiliary data have other classes, or `runs` is below 1; in ``recover``: an update of another model, NaN or
        infinite gradients, or more samples than can be probed.
    WithheldParameter
        In ``recover``: the head's gradient is not shared.
    """
    layer = head(model).layer
    n = layer.out_features
    if isinstance(aux, Images):
        require_classes(aux, n)
    whole_number("runs", runs)
    share, images = negative_inputs(model, shape), "inputs made up for the model"
    if share is None and isinstance(aux, Images):
        inputs = head_pass(model, as_inputs(aux.x[:MAX_SIGN_IMAGES], model)).inputs
        share, images = float((inputs < 0).double().mean()), "the auxiliary images"
    needed = "a last layer whose inputs are not negative"

    def violations(gradient: Tensor, samples: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the assumption as violated, as unchecked, or as neither."""
        is_negative = has_negative_inputs(gradient, samples) if share is None else share > 0
        if is_negative is None:
            return (), (f"not checked: whether the model has {needed}, since it takes no input that is made up for it",)
        seen = "the rows of the update have both signs"
        if share is not None:
            seen = f"{share:.0%} of those of {head(model).name!r} are negative for {images}"
        return (f"needs {needed}, and may recover wrong labels here: {seen}",) * is_negative, ()

    @cache
    def measure_impact_and_offset(samples: int, steps: int) -> tuple[Tensor, Tensor]:
        index_shape = (runs, n, -(-samples // steps))
        if aux in ("zeros", "ones"):  # two equal images have the mean gradient of any number, also for batch norm
            index_shape = (1, n, min(2, index_shape[-1]))
        if (size := math.prod(index_shape)) > MAX_PROBE_IMAGES:
            raise ValueError(f"{runs} probe batches for each label would take {size:,} images: use LLG, or fewer runs")
        generator = torch.Generator().manual_seed(seed)
        if isinstance(aux, Images):
            pool, index = aux.x, draw(aux, torch.arange(n)[None, :, None].expand(index_shape), generator)
        else:
            assert aux is not None
            of_one = input_shape(model, shape)
            if aux == "random" and (entries := size * math.prod(of_one)) > MAX_PROBE_ENTRIES:
                gib = entries * 4 / 2**30
                raise ValueError(f"{size:,} random dummy images would take {gib:,.0f} GiB: use 'zeros', or fewer runs")
            pool = dummy_images(aux, size, of_one, generator)
            index = torch.arange(size).view(index_shape) % len(pool)
        pool, index, sizes = as_inputs(pool, model), index.to(layer.weight.device), (samples / steps, steps)
        if batch_dependent(model):
            return impact_and_offset(probe(model, pool, index).double(), *sizes)
        return impact_and_offset_of(head_pass(model, pool), index, *sizes)

    def read(update: Update) -> Result:
        g, samples = class_gradients(update, model), update.samples
        from_gradient = (gradient_impact(g, samples), torch.zeros_like(g))
        impact, offset = from_gradient if aux is None else measure_impact_and_offset(samples, update.steps)
        counts = extract(g, impact, offset, samples, stop_at_samples=isinstance(aux, Images))
        violated, unchecked = violations(update.tensors[head(model).weight], samples)
        return Result(counts, violated_assumptions=violated, unchecked=unchecked)

    return Prepared("LLG" if aux is None else "LLG*" if isinstance(aux, str) else "LLG+", read)


recover = once(prepare)
