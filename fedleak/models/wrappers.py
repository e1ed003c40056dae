"""The model inside of wrappers such as DataParallel."""

from torch import nn

from fedleak.errors import WRAPPERS

NOTES = ("input_shape", "head_name", "example_inputs")
"""Attributes by which a caller describes a model."""
_LIBRARIES = ("torch", "opacus")


def inner_model(model: nn.Module) -> nn.Module:
    """Return the model inside of wrappers such as DataParallel, torch.compile's and Opacus' `GradSampleModule`.

    What a caller has noted on the wrapper (`NOTES`) is noted on the model.
    """
    names = list(model._modules)
    is_wrapper = type(model).__module__.partition(".")[0] in _LIBRARIES and not model._parameters
    if not is_wrapper or len(names) != 1 or f"{names[0]}." not in WRAPPERS:
        return model
    inner = model.get_submodule(names[0])
    for note in NOTES:
        if note in vars(model) and note not in vars(inner):
            value = vars(model)[note]
            setattr(inner, note, value.removeprefix(f"{names[0]}.") if isinstance(value, str) else value)
    return inner_model(inner)
