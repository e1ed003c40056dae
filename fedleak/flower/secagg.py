"""LIA-SA through Flower's own SecAgg+: the malicious server is a strategy, everything else is unmodified."""

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
from fedleak.flower.grid import InProcess
from fedleak.models import head


class Fishing(FedAvg):
    """Federated averaging that sends each client another fishing model, and reads all label counts off the mean.

    What makes it malicious is ``configure_fit`` alone, which Flower lets return other parameters for every client.
    `models` are the fishing models, one a client (`fedleak.attacks.labels.fishing.fishing_model`), of inputs of `shape`
    ``(C, H, W)``. `lr` and `batch_size` are what the server prescribes: one step of SGD on one batch. Each client says
    that it has so many examples.
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
        self.given: dict[int, nn.Module] = {}
        self.found: dict[int, Tensor] = {}
        """Label counts ``[n]`` by node, of those that did not drop out: what the attack recovers."""
        self.mean: list[Any] = []
        """The mean of the clients' parameters, as secure aggregation gives it."""

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> list:
        """Send each client its model."""
        pairs = super().configure_fit(server_round, parameters, client_manager)
        self.given = dict(zip(sorted(proxy.node_id for proxy, _ in pairs), self.models, strict=True))
        config = {"lr": self.lr, "batch_size": self.batch_size}
        return [(p, FitIns(as_parameters(self.given[p.node_id]), {**ins.config, **config})) for p, ins in pairs]

    def aggregate_fit(self, server_round: int, results: list, failures: list) -> tuple:
        """Recover the label counts of the clients that are left, and go on as if nothing had happened."""
        nodes = [proxy.node_id for proxy, _ in results]
        models = [self.given[node] for node in nodes]
        self.mean = parameters_to_ndarrays(results[0][1].parameters)
        found = lia_sa.recover(self.aggregate(models), models, self.batch_size, self.shape, force=True)
        self.found = dict(zip(nodes, found, strict=True))
        return super().aggregate_fit(server_round, results, failures)

    def aggregate(self, models: Sequence[nn.Module]) -> Update:
        """Return the sum of the clients' head gradients: all fishing models have the same head."""
        last, before = head(models[0]), models[0].state_dict()
        mean = dict(zip(before, map(torch.from_numpy, self.mean), strict=True))
        moved = {name: before[name].double() - mean[name].to(before[name].device) for name in (last.weight, last.bias)}
        summed = {name: change * len(models) / self.lr for name, change in moved.items()}
        return Update(summed, "gradient", len(models) * self.batch_size)


def as_parameters(model: nn.Module) -> Parameters:
    """Return a model's state as Flower's legacy interface sends it: arrays without names."""
    return ndarrays_to_parameters([tensor.detach().cpu().numpy() for tensor in model.state_dict().values()])


def secure_run(grid: Grid, strategy: FedAvg, rounds: int = 1, **protocol: Any) -> None:
    """Run a legacy strategy over Flower's ``SecAggPlusWorkflow``, as a server app does; it holds what comes of the run.

    The grid is a server app's, or `InProcess`; the client app has ``mods=[secaggplus_mod]``. `protocol` are options of
    the workflow: the server's choice, ``num_shares`` and ``reconstruction_threshold`` included (by default all clients,
    and two thirds of them).
    """
    options = {"num_shares": 1.0, "reconstruction_threshold": 0.67, **protocol}
    context = LegacyContext(
        Context(run_id=grid.run.run_id, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=rounds),
        strategy=strategy,
    )
    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(**options))(grid, context)


def honest(model: nn.Module, x: Tensor, y: Tensor) -> ClientApp:
    """Return the app of honest clients under SecAgg+: one step of SGD each, with the rate that the server says.

    They have this network, with weights from the server, and by ``"partition-id"`` the batches of inputs `x`
    ``[U, B, ...]`` and labels `y` ``[U, B]``.
    """

    class Client(NumPyClient):
        def __init__(self, k: int):
            self.x, self.y = x[k], y[k]

        def fit(self, parameters: list, config: dict) -> tuple[list, int, dict]:
            own = copy.deepcopy(model)
            own.load_state_dict(dict(zip(own.state_dict(), map(torch.tensor, parameters), strict=True)))
            optimiser = torch.optim.SGD(own.parameters(), lr=config["lr"])
            optimiser.zero_grad()
            nn.functional.cross_entropy(own(self.x), self.y).backward()
            optimiser.step()
            return [tensor.numpy() for tensor in own.state_dict().values()], len(self.y), {}

    def client(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    return ClientApp(client, mods=[secaggplus_mod])


def fish(models: Sequence[nn.Module], x: Tensor, y: Tensor, lr: float, **protocol: Any) -> Tensor:
    """Return the label counts ``[U, n]`` that LIA-SA reads through SecAgg+, all stages real, in this process.

    `models` are the fishing models, one a client, as for `Fishing`; `x`, `y` the batches of `honest` clients, `lr` the
    rate of their one step, `protocol` as for `secure_run`.
    """
    strategy = Fishing(models, tuple(x.shape[2:]), lr, x.shape[1])
    clients = honest(copy.deepcopy(models[0]).cpu(), x.cpu(), y.cpu())  # theirs are processors, wherever the server is
    secure_run(InProcess(clients, len(models)), strategy, **protocol)
    return torch.stack([strategy.found[node] for node in sorted(strategy.found)])
