"""How well an attack did. Counts are ``[..., n]``; each metric works on any number of updates at once.

Images are pixels ``[B, C, H, W]``, taken into [0, 1]; their metrics give a value an image, ``[B]``.
"""

import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedleak.errors import extra


def _checked(recovered: Tensor, truth: Tensor, named: bool = True) -> tuple[Tensor, Tensor]:
    if recovered.shape[-1] != truth.shape[-1]:
        raise ValueError(f"counts over {recovered.shape[-1]} and {truth.shape[-1]} classes do not compare")
    if bool((recovered < 0).any()) or bool((truth < 0).any()):
        raise ValueError("counts are not negative")
    if (named and bool((recovered.sum(-1) == 0).any())) or bool((truth.sum(-1) == 0).any()):
        raise ValueError("a label list is empty, so there is nothing to compare")
    return recovered.double(), truth.double()


def counts(labels: Tensor, n_classes: int) -> Tensor:
    """Count labels ``[..., B]`` into ``[..., n_classes]``."""
    zeros = torch.zeros(*labels.shape[:-1], n_classes, dtype=torch.long, device=labels.device)
    return zeros.scatter_add_(-1, labels, torch.ones_like(labels))


def attack_success_rate(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the extracted labels that are right, in [0, 1] (ASR; LLG, Sec. 6.1).

    The size of the multiset intersection over the number of labels that were extracted.
    """
    found, true = _checked(recovered, truth)
    return torch.minimum(found, true).sum(-1) / found.sum(-1)


def hellinger(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the Hellinger distance of the two label distributions, in [0, 1], 0 where they agree."""
    found, true = _checked(recovered, truth)
    overlap = (found / found.sum(-1, keepdim=True) * true / true.sum(-1, keepdim=True)).sqrt().sum(-1)
    return (1 - overlap).clamp(min=0).sqrt()


def label_number_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the classes whose number of labels is exactly right, in [0, 1] (LnAcc; iLRG, Sec. 4.1).

    Counts that are all zero are allowed: a rule that names nothing is right about the classes that do not occur. Raises
    `ValueError` if the counts are of different shapes, or one is negative.
    """
    if recovered.shape != truth.shape:
        raise ValueError(f"counts of shapes {tuple(recovered.shape)} and {tuple(truth.shape)} do not compare")
    if bool((recovered < 0).any()) or bool((truth < 0).any()):
        raise ValueError("counts are not negative")
    return (recovered == truth).double().mean(-1)


def instance_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the samples whose label was recovered, in [0, 1] (RLU's iAcc; GDBR, Sec. V-A: InsAcc).

    ``sum_j min(n_j, found_j) / K``: a label that is named too often is not counted, one that is missed is missing.
    Nothing named is nothing recovered.
    """
    found, true = _checked(recovered, truth, named=False)
    return torch.minimum(found, true).sum(-1) / true.sum(-1)


def braun_blanquet(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the labels in common over the length of the longer list, in [0, 1] (the Braun-Blanquet coefficient).

    ``sum_j min(n_j, found_j) / max(K, sum_j found_j)``: `instance_accuracy`, but a rule that names more labels than
    there are samples gains nothing by it. The same where K labels are named, or fewer.
    """
    found, true = _checked(recovered, truth, named=False)
    return torch.minimum(found, true).sum(-1) / torch.maximum(found.sum(-1), true.sum(-1))


def class_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the classes whose presence or absence is right, in [0, 1] (RLU's cAcc; GDBR: ClsAcc).

    Nothing named is right about the classes that do not occur.
    """
    found, true = _checked(recovered, truth, named=False)
    return ((found > 0) == (true > 0)).double().mean(-1)


def _pictures(found: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    if found.shape != truth.shape or found.dim() != 4:
        raise ValueError(f"images are [B, C, H, W] both, got {tuple(found.shape)} and {tuple(truth.shape)}")
    if not bool(torch.isfinite(found).all()):
        raise ValueError("a reconstruction holds NaN or infinite pixels")
    return found.detach().float().clamp(0, 1), truth.detach().float().clamp(0, 1)


ALEXNET_LEAST = 32


def paired(found: Tensor, truth: Tensor) -> Tensor:
    """Return the reconstructions in the order of the originals: the assignment with the least squared error in all."""
    found, truth = _pictures(found, truth)
    errors = torch.cdist(truth.flatten(1), found.flatten(1)).square()
    return found[torch.as_tensor(linear_sum_assignment(errors.cpu().numpy())[1], device=found.device)]


def psnr(found: Tensor, truth: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio in dB, ``[B]``, for a range of 1; 100 at most, for equal images."""
    found, truth = _pictures(found, truth)
    return -10 * ((found - truth) ** 2).mean((1, 2, 3)).clamp(min=1e-10).log10()


@extra("book")
def ssim(found: Tensor, truth: Tensor) -> Tensor:
    """Return the structural similarity, ``[B]``, at most 1 (Wang et al. 2004; 11 x 11 Gaussian window)."""
    from torchmetrics.functional.image import structural_similarity_index_measure

    found, truth = _pictures(found, truth)
    value: Any = structural_similarity_index_measure(found, truth, data_range=1.0, reduction="none")
    return value


def lpips(found: Tensor, truth: Tensor) -> Tensor | None:
    """Return the perceptual distance, ``[B]`` (Zhang et al. 2018; AlexNet), or None where its weights are not at hand.

    The heads come with the package `lpips`; AlexNet's features are torchvision's: from its cache of downloads, or
    ``weights/alexnet_features_torchvision.pth`` in the folder that ``FEDLEAK_DATA`` names. Images smaller than
    32 x 32, of which AlexNet leaves nothing, are enlarged to that first.
    """
    network = _perceptual()
    if network is None:
        return None
    found, truth = (x.expand(-1, 3, -1, -1) for x in _pictures(found, truth))
    if min(found.shape[2:]) < ALEXNET_LEAST:
        found, truth = (torch.nn.functional.interpolate(x, size=ALEXNET_LEAST, mode="bilinear") for x in (found, truth))
    with torch.no_grad():
        return network.to(found.device)(found, truth, normalize=True).flatten()


@cache
@extra("book")
def _perceptual() -> torch.nn.Module | None:
    places = [Path(torch.hub.get_dir()) / "checkpoints" / "alexnet-owt-7be5be79.pth"]
    if folder := os.environ.get("FEDLEAK_DATA"):
        places.insert(0, Path(folder) / "weights" / "alexnet_features_torchvision.pth")
    weights = next((place for place in places if place.is_file()), None)
    if weights is None:
        return None
    import lpips as package

    state = torch.load(weights, weights_only=True, map_location="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = package.LPIPS(net="alex", pnet_rand=True, verbose=False)
    # The package cuts AlexNet's features into slices and keeps their numbers.
    slices = {name.rsplit(".", 2)[1]: name.rsplit(".", 2)[0] for name in network.net.state_dict()}
    features = {name.removeprefix("features."): t for name, t in state.items() if name.startswith("features.")}
    network.net.load_state_dict({f"{slices[n.split('.')[0]]}.{n}": t for n, t in features.items()})
    return network.eval()
