"""Label attacks, one module each with ``recover(update, model, ...) -> LongTensor[n]`` of counts per class.

`exact` has the attacks that prove labels, `learned` the attacker that is trained on simulated clients.
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
