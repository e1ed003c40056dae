"""Label attacks, one module each with ``recover(update, model, ...) -> LongTensor[n]`` of counts per class.

`exact` has the attacks that prove labels, `learned` the attacker that is trained on simulated clients.
"""

from importlib import import_module
from pkgutil import walk_packages

_FOLDER = f"{__name__}."
for _module in walk_packages(__path__, _FOLDER):
    import_module(f"{__name__}.{_module.name.removeprefix(_FOLDER)}")  # a hash of code follows such a name to the files
