"""Metrics of an attack's success, from counts ``[..., n]`` of any number of updates at once, or from images.

Images are pixels in [0, 1], ``[B, C, H, W]``; their metrics give a value per image, ``[B]``. A reconstruction is
clamped to [0, 1], as for display. An original outside [0, 1] is not an image of pixels, and raises `ValueError`.
"""

import os
import warnings
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from fedleak.errors import extra


def _check_counts(recovered: Tensor, truth: Tensor, needs_labels: bool = True) -> tuple[Tensor, Tensor]:
    if recovered.shape[-1] != truth.shape[-1]:
        raise ValueError(f"counts over {recovered.shape[-1]} and {truth.shape[-1]} classes do not compare")
    if not (bool((recovered >= 0).all()) and bool((truth >= 0).all())):  # NaN fails both
        raise ValueError("counts are not negative, nor NaN")
    if (needs_labels and bool((recovered.sum(-1) == 0).any())) or bool((truth.sum(-1) == 0).any()):
        raise ValueError("a label list is empty, so there is nothing to compare")
    return recovered.double(), truth.double()


def as_labels(labels: Tensor) -> Tensor:
    """Return labels as int64; raise `ValueError` for other than whole numbers."""
    if (
        not isinstance(labels, Tensor)
        or labels.is_floating_point()
        or labels.is_complex()
        or labels.dtype == torch.bool
    ):
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels are a tensor of whole numbers, int64; got {kind}")
    return labels.long()


def counts(labels: Tensor, n_classes: int) -> Tensor:
    """Count labels ``[..., B]`` into ``[..., n_classes]``.

    Raises `ValueError` for a label outside the classes, or labels that are no whole numbers.
    """
    labels = as_labels(labels)
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        lowest, highest = int(labels.min()), int(labels.max())
        raise ValueError(f"labels from {lowest} to {highest} are not all of {n_classes} classes, 0 to {n_classes - 1}")
    zeros = torch.zeros(*labels.shape[:-1], n_classes, dtype=torch.long, device=labels.device)
    return zeros.scatter_add_(-1, labels, torch.ones_like(labels))


def attack_success_rate(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of correct labels among the extracted ones, in [0, 1] (ASR; LLG, Sec. 6.1).

    It is the size of the multiset intersection divided by the number of extracted labels.
    """
    counts, true = _check_counts(recovered, truth)
    return torch.minimum(counts, true).sum(-1) / counts.sum(-1)


def hellinger(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the Hellinger distance of two label distributions, in [0, 1]; 0 if they are equal."""
    counts, true = _check_counts(recovered, truth)
    overlap = (counts / counts.sum(-1, keepdim=True) * true / true.sum(-1, keepdim=True)).sqrt().sum(-1)
    return (1 - overlap).clamp(min=0).sqrt()


def label_number_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of classes whose count is exact, in [0, 1] (LnAcc; iLRG, Sec. 4.1).

    All counts may be zero, which is exact for classes that do not occur. Raises `ValueError` if the counts have
    different shapes, or one is negative or NaN.
    """
    if recovered.shape != truth.shape:
        raise ValueError(f"counts of shapes {tuple(recovered.shape)} and {tuple(truth.shape)} do not compare")
    if not (bool((recovered >= 0).all()) and bool((truth >= 0).all())):  # NaN fails both
        raise ValueError("counts are not negative, nor NaN")
    return (recovered == truth).double().mean(-1)


def instance_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of samples whose label was recovered, in [0, 1] (RLU's iAcc; GDBR, Sec. V-A: InsAcc).

    It is ``sum_j min(n_j, recovered_j) / K``, which is 0 for counts that are all zero.
    """
    counts, true = _check_counts(recovered, truth, needs_labels=False)
    return torch.minimum(counts, true).sum(-1) / true.sum(-1)


def braun_blanquet(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the number of common labels divided by the longer list's length, in [0, 1] (Braun-Blanquet coefficient).

    It is ``sum_j min(n_j, recovered_j) / max(K, sum_j recovered_j)``. With K or fewer recovered labels it is the
    `instance_accuracy`; more labels than samples do not increase it.
    """
    counts, true = _check_counts(recovered, truth, needs_labels=False)
    return torch.minimum(counts, true).sum(-1) / torch.maximum(counts.sum(-1), true.sum(-1))


def class_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of classes whose presence or absence is correct, in [0, 1] (RLU's cAcc; GDBR: ClsAcc).

    All counts may be zero, which is correct for classes that do not occur.
    """
    counts, true = _check_counts(recovered, truth, needs_labels=False)
    return ((counts > 0) == (true > 0)).double().mean(-1)


ROUNDING = 1e-4
"""Tolerance of an original outside [0, 1], for rounding in an undone normalisation."""
MAX_OUTSIDE = 0.25
"""Share of a reconstruction's pixels that may lie outside [0, 1] without a warning."""


def _check_images(recovered: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return reconstructions and originals as single-precision pixels in [0, 1]; raise `ValueError` for no pixels."""
    if recovered.shape != truth.shape or recovered.dim() != 4:
        raise ValueError(f"images are [B, C, H, W] both, got {tuple(recovered.shape)} and {tuple(truth.shape)}")
    if not bool(torch.isfinite(recovered).all()):
        raise ValueError("a reconstruction holds NaN or infinite pixels")
    if recovered.numel() == 0:
        return recovered.float(), truth.float()
    low, high = (end.item() for end in truth.detach().float().aminmax())
    in_range = low >= -ROUNDING and high <= 1 + ROUNDING  # NaN fails both
    if not (in_range and truth.is_floating_point() and recovered.is_floating_point()):
        raise ValueError(
            f"an original holds {truth.dtype} from {low:.3g} to {high:.3g}, and pixels lie in [0, 1]: undo the "
            "normalisation of both images first (x * std + mean; x / 255 for bytes)"
        )
    outside = ((recovered < -ROUNDING) | (recovered > 1 + ROUNDING)).double().mean().item()
    if outside > MAX_OUTSIDE:
        warnings.warn(
            f"{outside:.0%} of a reconstruction's pixels lie outside [0, 1] and are clamped: if it is normalised, undo "
            "that first",
            stacklevel=4,
        )
    return recovered.detach().float().clamp(0, 1), truth.detach().float().clamp(0, 1)


MIN_ALEXNET_SIZE = 32


def paired(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the reconstructions in the order of the originals, assigned with the smallest total squared error.

    Raises `ValueError` for images of different shapes, NaN, or originals outside [0, 1].
    """
    from scipy.optimize import linear_sum_assignment  # half a second to import

    recovered, truth = _check_images(recovered, truth)
    errors = torch.cdist(truth.flatten(1), recovered.flatten(1)).square()
    return recovered[torch.as_tensor(linear_sum_assignment(errors.cpu().numpy())[1], device=recovered.device)]


def psnr(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio in dB, ``[B]``, for a range of 1; at most 100, for equal images.

    Raises `ValueError` for images of different shapes, NaN, or originals outside [0, 1].
    """
    recovered, truth = _check_images(recovered, truth)
    return -10 * ((recovered - truth) ** 2).mean((1, 2, 3)).clamp(min=1e-10).log10()


SSIM_WINDOW, SSIM_SIGMA = 11, 1.5
SSIM_CONSTANTS = 0.01**2, 0.03**2
"""C_1 and C_2 of Wang et al. 2004, Eq. 13, for a range of 1."""


def ssim(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the structural similarity, ``[B]``, at most 1 (Wang et al. 2004, Eqs. 13 to 17).

    It is the mean over channels and the 11 x 11 Gaussian windows (standard deviation 1.5) inside the image, as in
    scikit-image with ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False``. torchmetrics also averages over
    windows across the border, which it pads by reflection.

    Raises `ValueError` for images below 11 x 11 pixels, of different shapes, with NaN, or originals outside [0, 1].
    """
    recovered, truth = _check_images(recovered, truth)
    if min(recovered.shape[2:]) < SSIM_WINDOW:
        raise ValueError(f"SSIM needs images of at least 11 x 11 pixels, got {truth.shape[2]} x {truth.shape[3]}")
    x, y = (image.double().flatten(0, 1)[:, None] for image in (recovered, truth))
    offsets = torch.arange(SSIM_WINDOW, dtype=torch.double, device=x.device) - SSIM_WINDOW // 2
    window = (-(offsets**2) / (2 * SSIM_SIGMA**2)).softmax(0)

    def smooth(image: Tensor) -> Tensor:
        rows = nn.functional.conv2d(image, window.view(1, 1, -1, 1))
        return nn.functional.conv2d(rows, window.view(1, 1, 1, -1))

    mean_x, mean_y = smooth(x), smooth(y)
    variances = smooth(x * x) - mean_x**2 + smooth(y * y) - mean_y**2
    covariance = smooth(x * y) - mean_x * mean_y
    first, second = SSIM_CONSTANTS
    luminance = (2 * mean_x * mean_y + first) / (mean_x**2 + mean_y**2 + first)
    structure = (2 * covariance + second) / (variances + second)
    return (luminance * structure).mean((1, 2, 3)).view(recovered.shape[:2]).mean(1).float()


def lpips(recovered: Tensor, truth: Tensor) -> Tensor | None:
    """Return the perceptual distance, ``[B]`` (Zhang et al. 2018; AlexNet), or None if its weights are not available.

    The linear layers are from the package `lpips`; AlexNet's features are torchvision's, from its download cache or
    ``weights/alexnet_features_torchvision.pth`` in the folder that ``FEDLEAK_DATA`` names. Sides below 32
    pixels are enlarged to 32, which AlexNet needs.

    Raises `ValueError` for images of different shapes, of neither one nor three channels, NaN, or originals outside
    [0, 1].
    """
    recovered, truth = _check_images(recovered, truth)
    if recovered.shape[1] not in (1, 3):
        raise ValueError(f"AlexNet takes images of one or three channels, got {recovered.shape[1]}")
    recovered, truth = (x.expand(-1, 3, -1, -1) for x in (recovered, truth))
    network = _perceptual()
    if network is None:
        return None
    if min(recovered.shape[2:]) < MIN_ALEXNET_SIZE:
        size = [max(side, MIN_ALEXNET_SIZE) for side in recovered.shape[2:]]
        recovered, truth = (nn.functional.interpolate(x, size, mode="bilinear") for x in (recovered, truth))
    with torch.no_grad():
        return network.to(recovered.device)(recovered, truth, normalize=True).flatten()


@cache
@extra("book")
def _perceptual() -> torch.nn.Module | None:
    candidates = [Path(torch.hub.get_dir()) / "checkpoints" / "alexnet-owt-7be5be79.pth"]
    if folder := os.environ.get("FEDLEAK_DATA"):
        candidates.insert(0, Path(folder) / "weights" / "alexnet_features_torchvision.pth")
    weights = next((path for path in candidates if path.is_file()), None)
    if weights is None:
        return None
    import lpips as lpips_package

    state = torch.load(weights, weights_only=True, map_location="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = lpips_package.LPIPS(net="alex", pnet_rand=True, verbose=False)
    # The package divides AlexNet's features into slices and keeps their indices.
    slices = {name.rsplit(".", 2)[1]: name.rsplit(".", 2)[0] for name in network.net.state_dict()}
    features = {name.removeprefix("features."): t for name, t in state.items() if name.startswith("features.")}
    network.net.load_state_dict({f"{slices[n.split('.')[0]]}.{n}": t for n, t in features.items()})
    return network.eval()
