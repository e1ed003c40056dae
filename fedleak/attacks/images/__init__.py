"""Image attacks, one module each with ``reconstruct(updates, model, ...) -> Tensor[B, C, H, W]`` in [0, 1].

Unlike label attacks they have no `prepare`. The work that depends on the model alone, a copy with stacked weights and a
GPU's graph, takes as long as 0.5 and 4 evaluations of the gradient. A reconstruction needs at least 100 evaluations
(DLG, without a graph), 1,000 (DLG-Adam) or 10,000 (InvG and AGIC), so preparing would save less than 1 %.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
