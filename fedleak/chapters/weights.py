"""Trained weights on disk, so that a killed run does not train again."""

import hashlib
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from fedleak.chapters.context import Context
from fedleak.experiments.cache import key, writable


def trained_once(
    ctx: Context, train: Callable[..., Any], model: nn.Module, folder: Path, *, version: int = 1, **setting: Any
) -> nn.Module:
    """Train a model in place with ``train(ctx, model, **setting)``, or load what the same training has given before.

    The same training is one of the same code of `train`, version and setting, of the same modules and initial weights.
    What the training used (its data sets) counts as used when it is loaded.

    Parameters
    ----------
    ctx
        Context of the trial.
    train
        Trains a model in place; everything random in it must come from `setting`.
    model
        The model in its initial state.
    folder
        Where the weights are kept, a file a training.
    version
        Of the training: to be raised when what `train` calls has changed.
    setting
        Arguments of `train`.

    Returns
    -------
    nn.Module
        `model`, trained, on the device where it was.

    Raises
    ------
    PermissionError
        If `folder` cannot be written; found out before the training.
    """
    name, code = train.__name__, inspect.getsource(train)
    path = writable(Path(folder)) / f"{name}-{key(name, code, version, setting, digest(model))}.pt"
    if path.is_file():
        try:
            kept = torch.load(path, weights_only=True, map_location="cpu")
            used = json.loads(kept["used"])
            model.load_state_dict(kept["weights"])
        except Exception as error:  # torch raises a dozen kinds for a broken file
            aside = path.with_suffix(".corrupt")
            os.replace(path, aside)
            tqdm.write(f"{path.name} cannot be read ({type(error).__name__}): set aside as {aside.name}, trained again")
        else:
            ctx.use(used)
            return model
    with ctx.using() as used:
        train(ctx, model, **setting)
    part = path.with_suffix(f".{os.getpid()}.part")
    torch.save({"weights": model.state_dict(), "used": json.dumps(used)}, part)
    os.replace(part, path)
    return model


def digest(model: nn.Module) -> str:
    """Hash a model's modules, which weights do not tell (a Tanh has none), its parameters and its buffers."""
    sha = hashlib.sha256(repr(model).encode())
    for name, value in model.state_dict().items():
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()
