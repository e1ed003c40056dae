"""Trained weights on disk, so that a killed run does not train again: units like a sweep's, with tensors for rows."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from fedleak.experiments.cache import Changed, key, note, noting, writable
from fedleak.experiments.calls import changed, traced


def trained_once(
    train: Callable[..., Any], model: nn.Module, folder: Path, *, version: int = 1, **setting: Any
) -> nn.Module:
    """Train a model in place with ``train(model, **setting)``, or load what the same training has given before.

    The same training is one of the same function name, version and setting, of the same modules and initial weights.
    What the training noted (its data sets) is noted again when it is loaded.

    Parameters
    ----------
    train
        Trains a model in place; everything random in it must come from `setting`.
    model
        The model in its initial state.
    folder
        Where the weights are kept, a file a training.
    version
        Of the training: to be raised when `train`, or what it calls, has changed.
    setting
        Arguments of `train`.

    Returns
    -------
    nn.Module
        `model`, trained, on the device where it was.

    Raises
    ------
    Changed
        If `train`, or what it called, is another today than when the weights were made.
    PermissionError
        If `folder` cannot be written; found out before the training.
    """
    home, name = train.__globals__, train.__name__
    path = writable(Path(folder)) / f"{name}-{key(name, version, setting, digest(model))}.pt"
    if path.is_file():
        try:
            kept = torch.load(path, weights_only=True, map_location="cpu")
            facts = json.loads(kept["facts"])
            model.load_state_dict(kept["weights"])
        except Exception as error:  # torch raises a dozen kinds for a broken file
            aside = path.with_suffix(".corrupt")
            os.replace(path, aside)
            tqdm.write(f"{path.name} cannot be read ({type(error).__name__}): set aside as {aside.name}, trained again")
        else:
            if others := changed(facts["calls"], home):
                raise Changed(
                    f"{path.name} was trained before a change of {', '.join(others[:5])}: give `trained_once` "
                    f"version={version + 1}, or remove the file"
                )
            for kind, found in facts["notes"].items():
                for one, value in found.items():
                    note(kind, one, value)
            return model
    with noting() as notes:
        _, calls = traced(lambda: train(model, **setting), home)
    facts = json.dumps({"calls": calls, "notes": notes, "setting": {k: str(v) for k, v in setting.items()}})
    part = path.with_suffix(f".{os.getpid()}.part")
    torch.save({"weights": model.state_dict(), "facts": facts}, part)
    os.replace(part, path)
    return model


def digest(model: nn.Module) -> str:
    """Hash a model's modules, which weights do not tell (a Tanh has none), its parameters and its buffers."""
    sha = hashlib.sha256(repr(model).encode())
    for name, value in model.state_dict().items():
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()
