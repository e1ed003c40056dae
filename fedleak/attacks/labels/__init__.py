"""Label attacks, one module each with ``recover(update, model, ...) -> LongTensor[n]`` of counts per class."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
