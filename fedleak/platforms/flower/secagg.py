"""Run LIA-SA through Flower's SecAgg+: the malicious server is a strategy, all else is unmodified."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from flwr.app import Context, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import FitIns, Parameters, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerConfig
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid
from torch import Tensor, nn

from fedleak.attacks.labels import lia_sa
from fedleak.federated import Update
from fedleak.models import head
from fedleak.platforms.flower.grid import InProcess


class Fishing(FedAvg):
    """Federated averaging whose ``configure_fit`` sends each client its own fishing model, to recover all label counts.

    Parameters
    ----------
    models
        Fishing models, one per client (`fedleak.attacks.labels.fishing.fishing_model`).
    shape
        Shape of one input, ``(C, H, W)``.
    lr, batch_size
        Learning rate and batch size that the server prescribes: one step of SGD on one batch.
    """

    def __init__(self, models: Sequence[nn.Module], shape: tuple[int, ...], lr: float, batch_size: int):
        clients = len(models)
        super().__init__(
            min_fit_clients=clients,
            min_available_clients=clients,
            fraction_evaluate=0,
            initial_parameters=as_parameters(models[0]),
        )
        self.models, self.shape, self.lr, self.batch_size = list(models), shape, lr, batch_size
        self.fishing: dict[int, nn.Module] = {}
        self.counts: dict[int, Tensor] = {}
        """Label counts ``[n]`` that the attack recovers, by node, of the clients that did not drop out."""
        self.mean: list[Any] = []
        """Mean of the clients' parameters, the result of secure aggregation."""

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> list:
        """Send each client its fishing model."""
        pairs = super().configure_fit(server_round, parameters, client_manager)
        self.fishing = dict(zip(sorted(proxy.node_id for proxy, _ in pairs), self.models, strict=True))
        config = {"lr": self.lr, "batch_size": self.batch_size}
        return [(p, FitIns(as_parameters(self.fishing[p.node_id]), {**ins.config, **config})) for p, ins in pairs]

    def aggregate_fit(self, server_round: int, results: list, failures: list) -> tuple:
        """Recover the label counts of the clients that did not drop out, and aggregate as usual."""
        nodes = [proxy.node_id for proxy, _ in results]
        models = [self.fishing[node] for node in nodes]
        self.mean = parameters_to_ndarrays(results[0][1].parameters)
        counts = lia_sa.recover(self.aggregate(models), models, self.batch_size, self.shape, force=True)
        self.counts = dict(zip(nodes, counts, strict=True))
        return super().aggregate_fit(server_round, results, failures)

    def aggregate(self, models: Sequence[nn.Module]) -> Update:
        """Return the sum of the clients' head gradients, as all fishing models have the same head."""
        last, before = head(models[0]), models[0].state_dict()
        mean = dict(zip(before, map(torch.from_numpy, self.mean), strict=True))
        moved = {name: before[name].double() - mean[name].to(before[name].device) for name in (last.weight, last.bias)}
        summed = {name: change * len(models) / self.lr for name, change in moved.items()}
        return Update(summed, "gradient", len(models) * self.batch_size)


def as_parameters(model: nn.Module) -> Parameters:
    """Return a model's state as parameters of Flower's legacy interface, arrays without names."""
    return ndarrays_to_parameters([tensor.detach().cpu().numpy() for tensor in model.state_dict().values()])


def secure_run(grid: Grid, strategy: FedAvg, rounds: int = 1, **protocol: Any) -> None:
    """Run a legacy strategy over Flower's ``SecAggPlusWorkflow``, as a server app does; it stores the results.

    The grid is a server app's, or `InProcess`; the client app has ``mods=[secaggplus_mod]``. `protocol` are options of
    the workflow, such as ``num_shares`` (default 1.0) and ``reconstruction_threshold`` (default 0.67).
    """
    options = {"num_shares": 1.0, "reconstruction_threshold": 0.67, **protocol}
    context = LegacyContext(
        Context(run_id=grid.run.run_id, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=rounds),
        strategy=strategy,
    )
    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(**options))(grid, context)


def honest(model: nn.Module, x: Tensor, y: Tensor) -> ClientApp:
    """Return the app of honest clients under SecAgg+, each with one step of SGD at the server's learning rate.

    They train the network, with weights from the server, on the batches of inputs `x` ``[U, B, ...]`` and labels `y`
    ``[U, B]`` that ``"partition-id"`` selects.
    """

    class Client(NumPyClient):
        def __init__(self, k: int):
            self.x, self.y = x[k], y[k]

        def fit(self, parameters: list, config: dict) -> tuple[list, int, dict]:
            network = copy.deepcopy(model)
            network.load_state_dict(dict(zip(network.state_dict(), map(torch.tensor, parameters), strict=True)))
            optimiser = torch.optim.SGD(network.parameters(), lr=config["lr"])
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(self.x), self.y).backward()
            optimiser.step()
            return [tensor.numpy() for tensor in network.state_dict().values()], len(self.y), {}

    def client(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    return ClientApp(client, mods=[secaggplus_mod])


def fish(models: Sequence[nn.Module], x: Tensor, y: Tensor, lr: float, **protocol: Any) -> Tensor:
    """Recover label counts ``[U, n]`` by LIA-SA through SecAgg+, with all stages in this process.

    `models` are the fishing models, one per client, as for `Fishing`; `x`, `y` the batches of `honest` clients, `lr`
    the rate of their one step, `protocol` as for `secure_run`.
    """
    strategy = Fishing(models, tuple(x.shape[2:]), lr, x.shape[1])
    clients = honest(copy.deepcopy(models[0]).cpu(), x.cpu(), y.cpu())  # clients run on the CPU
    secure_run(InProcess(clients, len(models)), strategy, **protocol)
    return torch.stack([strategy.counts[node] for node in sorted(strategy.counts)])
