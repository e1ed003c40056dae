"""What a trial gets from outside: where it computes, the data sets, freshly initialised networks."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import nn

from fedleak import data, models
from fedleak.data import Images

T = TypeVar("T")


class Context:
    """Device and data folder of some trials; sent to a worker, these two alone, which loads its own data there.

    Parameters
    ----------
    device
        ``"auto"`` is the GPU where there is one. `images` and `build` put what they return there.
    data_root
        Folder of the data sets; "" is ``FEDLEAK_DATA``.

    Raises
    ------
    ValueError
        For a device that is not there.
    """

    def __init__(self, device: str = "auto", data_root: str = ""):
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError):
            raise ValueError(f"PyTorch cannot use device={device!r} here: 'cpu', 'cuda' or 'auto'") from None
        self.device, self.data_root = device, data_root
        self.used: dict[str, dict[str, Any]] = {"data": {}, "device": {}}
        """Data sets and devices that the unit under way asked for: its provenance."""
        self._kept: dict[Hashable, tuple[Any, dict[str, dict[str, Any]]]] = {}

    def __reduce__(self) -> tuple[type["Context"], tuple[str, str]]:
        return Context, (self.device, self.data_root)

    def images(self, name: str, split: str = "train", **options: Any) -> Images:
        """Load a data set once, on the device."""

        def load() -> Images:
            found = data.load(name, split, root=self.data_root or None, **options).to(self.device)
            facts = {"images": len(found), "digest": found.digest, "subset": found.subset, "source": found.source}
            self.used["data"][f"{name}/{split}"] = {"name": f"{name}/{split}", **facts}
            self.used["device"][str(found.x.device)] = True
            return found

        return self.once(("images", name, split, *sorted(options.items())), load)

    def build(self, net: str, shape: tuple[int, ...], n_classes: int, **options: Any) -> nn.Module:
        """Build a freshly initialised model on the device; see `fedleak.models.build`."""
        model = models.build(net, shape, n_classes, **options).to(self.device)
        self.used["device"][str(next(model.parameters()).device)] = True
        return model

    def once(self, key: Hashable, make: Callable[[], T], most: int = 0) -> T:
        """Return what `make` returns, made once by key: what trials share, such as a data set or a trained network.

        What it used counts for every unit that asks for it. With `most`, only so many are kept of those whose keys
        begin alike, the latest: what the trials of one setting share.
        """
        if key not in self._kept:
            outer, self.used = self.used, {"data": {}, "device": {}}
            try:
                self._kept[key] = make(), self.used
            finally:
                self.used = outer
            alike = [k for k in self._kept if isinstance(k, tuple) and isinstance(key, tuple) and k[0] == key[0]]
            for old in alike[:-most] if most else []:
                del self._kept[old]
        made, used = self._kept[key]
        for kind, found in used.items():
            self.used[kind].update(found)
        return made
