"""Restricted sharing: clients do not send the last layers in the clear, because these reveal the labels."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from fedleak.errors import WithheldParameter, whole_number
from fedleak.federated.aggregation import FixedPoint, secure_sum
from fedleak.federated.update import Stacked, Update
from fedleak.models import chain


def last_layers(model: nn.Module, layers: int = 1) -> tuple[str, ...]:
    """Name the trained parameters of the model's last fully connected layers, weights and biases.

    Raises `ValueError` if `layers` is below 1 or above the number of layers in the chain that the model ends with.
    """
    links = chain(model).links
    if not 1 <= layers <= len(links):
        raise ValueError(
            f"the model ends with a chain of {len(links)} layers, so layers is 1 to {len(links)}, not {layers}"
        )
    modules = {link.name for link in links[-layers:]}
    trained = (name for name, p in model.named_parameters() if p.requires_grad)
    return tuple(name for name in trained if name.rpartition(".")[0] in modules)


@dataclass
class Withhold:
    """Withhold some parameters, as clients do that encrypt them or keep them local.

    `names` are the parameters, such as `last_layers` of the model. A call raises `WithheldParameter` if the updates
    lack one of them.
    """

    names: Collection[str]

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the updates without these parameters."""
        for name in self.names:
            if name not in updates:
                raise WithheldParameter(name, sorted(updates))
        return {name: t for name, t in updates.items() if name not in self.names}


@dataclass
class FedVF(Withhold):
    """Classifier layers that clients update locally and share rarely (Mei et al., IPCCC 2021).

    The client accumulates the classifier's updates and sends the sum in every `every`-th round; all other layers are
    sent in each round. The server's classifier thus differs from the one of the client's gradients.
    """

    every: int
    """Number of rounds between two classifiers that are sent, at least 1."""
    clients: int = field(default=1, repr=False)
    """Number of clients whose sums are stored, at least 1."""

    def __post_init__(self) -> None:
        whole_number("every", self.every), whole_number("clients", self.clients)
        self.names = tuple(sorted(set(self.names)))
        self.round = 0
        self.local: Stacked = {}

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return this round's updates, in every `every`-th round with the classifier's sums."""
        sent = super().__call__(updates, clients)
        self.round += 1
        for name in self.names:
            tensor = updates[name]
            total = self.local.setdefault(name, tensor.new_zeros(self.clients, *tensor.shape[1:]))
            total[clients] += tensor
            if self.round % self.every == 0:
                sent[name] = total[clients].clone()
                total[clients] = 0
        return sent


def partially_encrypted(
    updates: Sequence[Update], names: Collection[str], encoding: FixedPoint | None = None
) -> tuple[list[Update], Update]:
    """Share some layers through secure aggregation only (PE-MPC; Sotthiwat et al., CCGrid 2021).

    Parameters
    ----------
    updates
        The clients' complete updates.
    names
        Parameters that are shared in the sum alone, such as `last_layers` of the model.
    encoding
        Fixed-point encoding of the secure sum.

    Returns
    -------
    clear, aggregate : list of Update, Update
        The clients' updates without these parameters; the sum of these parameters over the clients.
    """
    clear = [update.without(*names) for update in updates]
    hidden = [u.replace({name: u.tensors[name] for name in names}) for u in updates]
    return clear, secure_sum(hidden, encoding or FixedPoint(bound=1.0))[0]
