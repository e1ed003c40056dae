"""A module made from nothing but a state dict, for those who see a model's parameters and not its code."""

from collections.abc import Mapping

from torch import Tensor, nn


def bare(state: Mapping[str, Tensor]) -> nn.Module:
    """Return a module with a state's names and values, which computes nothing; its head is the last matrix.

    Raises
    ------
    ValueError
        If there is no weight that is a matrix.
    """
    matrices = [name for name, t in state.items() if t.dim() == 2 and name.rpartition(".")[2] == "weight"]
    if not matrices:
        raise ValueError(f"no weight of a linear layer among {', '.join(state)}: audit the run with a set-up's model")
    last = matrices[-1].rpartition(".")[0]
    rows, columns = state[matrices[-1]].shape
    linear = nn.Linear(columns, rows, bias=f"{last}.bias".lstrip(".") in state)
    model = nn.Module() if last else linear
    for name, tensor in state.items():
        *path, leaf = name.split(".")
        place = model
        for depth, part in enumerate(path):
            if part not in dict(place.named_children()):
                place.add_module(part, linear if ".".join(path[: depth + 1]) == last else nn.Module())
            place = place.get_submodule(part)
        if tensor.is_floating_point() and not leaf.startswith("running_"):
            setattr(place, leaf, nn.Parameter(tensor.clone()))
        else:
            place.register_buffer(leaf, tensor.clone())
    model.head_name = last  # type: ignore[assignment]
    return model
