"""Make a module from a state dict alone, for a server that has a model's parameters and not its code."""

from collections.abc import Mapping

from torch import Tensor, nn


def bare(state: Mapping[str, Tensor], weight: str = "") -> nn.Module:
    """Return a module that consists of a state's head alone, under its name in the state.

    The head is the linear layer with this `weight`, by default the last one. Raises `ValueError` if no weight is a
    matrix.
    """
    matrices = [name for name, t in state.items() if t.dim() == 2 and name.rpartition(".")[2] == "weight"]
    if not matrices:
        raise ValueError(f"no weight of a linear layer among {', '.join(state)}: say what the model is")
    chosen = weight or matrices[-1]
    path, _, _ = chosen.rpartition(".")
    bias = state.get(f"{path}.bias".lstrip("."))
    rows, columns = state[chosen].shape
    model: nn.Module = nn.Linear(columns, rows, bias is not None)
    model.load_state_dict({"weight": state[chosen]} | ({} if bias is None else {"bias": bias}))
    for name in reversed(path.split(".") if path else []):
        inner, model = model, nn.Module()
        model.add_module(name, inner)
    model.head_name = path  # type: ignore[assignment]
    return model


def last_matrix(before: Mapping[str, Tensor], after: Mapping[str, Tensor], classes: int) -> tuple[str, str]:
    """Return the name of the last layer's weight, inferred from its change, and the reason.

    With the cross-entropy, a last layer's gradient sums to 0 over the classes, and so does its change by any kind of
    SGD. If noise or another optimiser hides that, the number of rows may equal that of the classes. Raises `ValueError`
    if no or several weights qualify, or adapters (LoRA) have changed: then the model has to be known.

    Parameters
    ----------
    before, after
        A client's states before and after training.
    classes
        Lower bound of the number of classes, from the recorded labels; 0 without labels.
    """
    changes = {k: (after[k] - t).double() for k, t in before.items() if t.is_floating_point() and not t.equal(after[k])}
    adapters = [k for k, t in changes.items() if t.dim() == 2 and ("lora_" in k or k.rpartition(".")[2] in ("A", "B"))]
    if adapters:
        raise ValueError(f"{adapters[0]!r} is an adapter's, whose gradient is read with the model alone: pass --setup")
    matrices = [k for k, t in changes.items() if t.dim() == 2 and k.endswith("weight") and len(t) >= max(classes, 2)]
    matrices = [k for place, k in enumerate(matrices) if not any(_same(before, k, o) for o in matrices[:place])]
    balanced = [k for k in matrices if changes[k].sum(0).norm() < 1e-3 * changes[k].norm()]
    with_class_rows = [k for k in matrices if len(before[k]) == classes]
    if len(balanced) == 1:
        return balanced[0], "whose change sums to 0 over its rows, as a last layer's does"
    if len(with_class_rows) == 1:
        return with_class_rows[0], f"the only matrix of {classes} rows, as many as the recorded labels have classes"
    if not classes and matrices:
        return matrices[-1], "the last that moved; nothing else tells"
    raise ValueError(
        f"which layer is the last is not known: {', '.join(map(repr, changes)) or 'nothing'} moved, and the recorded "
        f"labels are of {classes or 'unknown'} classes: pass --setup, whose model tells"
    )


def _same(state: Mapping[str, Tensor], first: str, other: str) -> bool:
    return state[first].shape == state[other].shape and state[first].equal(state[other])
