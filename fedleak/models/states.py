"""A module made from nothing but a state dict, for those who see a model's parameters and not its code."""

from collections.abc import Mapping

from torch import Tensor, nn


def bare(state: Mapping[str, Tensor]) -> nn.Module:
    """Return a module that has nothing but a state's last linear layer, its head, at its place.

    Raises
    ------
    ValueError
        If there is no weight that is a matrix.
    """
    matrices = [name for name, t in state.items() if t.dim() == 2 and name.rpartition(".")[2] == "weight"]
    if not matrices:
        raise ValueError(f"no weight of a linear layer among {', '.join(state)}: say what the model is")
    path, _, _ = matrices[-1].rpartition(".")
    bias = state.get(f"{path}.bias".lstrip("."))
    rows, columns = state[matrices[-1]].shape
    model: nn.Module = nn.Linear(columns, rows, bias is not None)
    model.load_state_dict({"weight": state[matrices[-1]]} | ({} if bias is None else {"bias": bias}))
    for name in reversed(path.split(".") if path else []):
        inner, model = model, nn.Module()
        model.add_module(name, inner)
    model.head_name = path  # type: ignore[assignment]
    return model
