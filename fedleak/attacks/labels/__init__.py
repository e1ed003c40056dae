"""Label attacks, one module each with ``recover(update, model, ...) -> LongTensor[n]`` of counts per class.

`exact` has the attacks that prove labels, `learned` the attacker that is trained on simulated clients.
"""

import sys
from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    _path = _module.name.removeprefix(f"{__name__}.")
    _loaded = import_module(f"{__name__}.{_path}")
    _name = _path.rpartition(".")[2]
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _loaded  # former names of modules that are in folders now
