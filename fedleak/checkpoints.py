"""Trained weights on disk, so that a killed run does not train again."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from fedleak.sweep import described, fingerprint


def trained_once(train: Callable[..., Any], model: nn.Module, folder: Path, **setting: Any) -> nn.Module:
    """Train a model in place with ``train(model, **setting)``, or load what the same training has given before.

    The same training is one of the same code, setting and initial weights, on the same package. A file that cannot be
    read is set aside, and the model trained again.

    Parameters
    ----------
    train
        Trains a model in place; everything random in it must come from `setting`.
    model
        The model in its initial state.
    folder
        Where the weights are kept, a file a training.
    setting
        Arguments of `train`.

    Returns
    -------
    nn.Module
        `model`, trained.
    """
    text = f"{fingerprint(train)} {described(setting)} {described(model)}"
    path = Path(folder) / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.pt"
    if path.is_file():
        try:
            model.load_state_dict(torch.load(path, weights_only=True))
            return model
        except Exception as error:  # torch raises a dozen kinds for a broken file
            aside = path.with_suffix(".corrupt")
            os.replace(path, aside)
            tqdm.write(f"{path.name} cannot be read ({type(error).__name__}): set aside as {aside.name}, trained again")
    train(model, **setting)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        torch.save(model.state_dict(), file)
    os.replace(file.name, path)
    return model
