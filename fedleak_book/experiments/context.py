"""The context of a trial: its device, data sets, and networks, untrained or trained once."""

import contextlib
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from tqdm import tqdm

from fedleak import data, files, models
from fedleak.data import Images
from fedleak_book.experiments.experiment import key

T = TypeVar("T")
Used = dict[str, dict[str, Any]]


class Context:
    """Device and data folder of some trials; sent to a worker, these two alone, which loads its own data there.

    The device ``"auto"`` is the GPU where there is one; a device that is not there is a `ValueError`. `images` and
    `build` put what they return there. The data root "" is ``FEDLEAK_DATA``.
    """

    def __init__(self, device: str = "auto", data_root: str = ""):
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError):
            raise ValueError(f"PyTorch cannot use device={device!r} here: 'cpu', 'cuda' or 'auto'") from None
        if device.startswith("cuda"):
            torch.backends.cudnn.allow_tf32 = False  # convolutions in single precision, as on a CPU
        self.device, self.data_root = device, data_root
        self.used: Used = {"data": {}, "device": {}}
        """Data sets and devices that the unit under way asked for: its provenance."""
        self._kept: dict[Hashable, tuple[Any, Used]] = {}

    def __reduce__(self) -> tuple[type["Context"], tuple[str, str]]:
        return Context, (self.device, self.data_root)

    def images(self, name: str, split: str = "train", **options: Any) -> Images:
        """Load a data set once, on the device; the options are those of `fedleak.data.load`."""

        def load() -> Images:
            images = data.load(name, split, root=self.data_root or None, **options).to(self.device)
            facts = {"images": len(images), "digest": images.digest, "subset": images.subset, "source": images.source}
            self.used["data"][f"{name}/{split}"] = {"name": f"{name}/{split}", **facts}
            self.used["device"][str(images.x.device)] = True
            return images

        return self.once(("images", name, split, *sorted(options.items())), load)

    def build(self, net: str, shape: tuple[int, ...], n_classes: int, **options: Any) -> nn.Module:
        """Build a freshly initialised model on the device; see `fedleak.models.build`."""
        model = models.build(net, shape, n_classes, **options).to(self.device)
        self.used["device"][str(next(model.parameters()).device)] = True
        return model

    def once(self, key: Hashable, make: Callable[[], T], most: int = 0) -> T:
        """Call `make` once per key and return its result, which trials share: a data set, or a trained network.

        What it used counts for every unit that asks for it. With `most`, only that number of entries whose keys
        begin alike is kept, the latest: what the trials of one setting share.
        """
        if key not in self._kept:
            with self.using() as used:
                self._kept[key] = make(), used
            alike = [k for k in self._kept if isinstance(k, tuple) and isinstance(key, tuple) and k[0] == key[0]]
            for old in alike[:-most] if most else []:
                del self._kept[old]
        value, used = self._kept[key]
        self.use(used)
        return value

    @contextlib.contextmanager
    def using(self) -> Iterator[Used]:
        """Collect the inputs used inside; they also count for the enclosing unit."""
        outer, self.used = self.used, {"data": {}, "device": {}}
        try:
            yield self.used
        finally:
            inner, self.used = self.used, outer
            self.use(inner)

    def use(self, used: Mapping[str, Mapping[str, Any]]) -> None:
        """Count the inputs of an earlier computation as used, because its result is reused."""
        for kind, entries in used.items():
            self.used[kind].update(entries)


def trained_once(
    ctx: Context, train: Callable[..., Any], model: nn.Module, folder: Path, *, version: int = 1, **setting: Any
) -> nn.Module:
    """Train a model in place with ``train(ctx, model, **setting)``, or load the result of the same earlier training.

    The same training is one of the same code of `train`, version and setting, of the same modules and initial weights;
    everything random in it comes from its setting. What it used (its data sets) counts as used when it is loaded.
    `version` is raised when what `train` calls has changed. `folder` keeps the weights, a file a training; if it cannot
    be written, nothing is trained.
    """
    name, code = train.__name__, inspect.getsource(train)
    path = Path(folder) / f"{name}-{key(name, code, version, setting, digest(model))}.pt"
    files.reserve(path).unlink()
    if path.is_file():
        try:
            saved = torch.load(path, weights_only=True, map_location="cpu")
            used = json.loads(saved["used"])
            model.load_state_dict(saved["weights"])
            ctx.use(used)
            return model
        except Exception as error:  # torch raises a dozen kinds for a broken file
            aside = path.replace(path.with_suffix(".corrupt"))
            tqdm.write(f"{path.name} cannot be read ({type(error).__name__}): set aside as {aside.name}, trained again")
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
