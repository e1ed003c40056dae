"""fedleak: what a federated-learning update gives away, in executable notebooks and a thin package."""

from importlib.metadata import version

from fedleak.errors import DataNotFound, WithheldParameter
from fedleak.experiments.sweep import sweep
from fedleak.federated import Update

__version__ = version("fedleak")
__all__ = ["DataNotFound", "Update", "WithheldParameter", "__version__", "sweep"]
