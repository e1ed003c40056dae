"""An NVFlare job: three clients train a small network on skewed digits for two rounds, and record what leaves them."""

import sys
import tempfile
from pathlib import Path

import nvflare.client as flare
import torch
from torch import nn

from fedleak import data
from fedleak.audit import Setup
from fedleak.recording import record

SITES, ROUNDS, BATCH, LR = 3, 2, 16, 0.1
digits = data.load("mnist5k")


class Network(nn.Sequential):
    """The network that server and clients agree on; a class, since NVFlare names the model's class in the job."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        convolutions = (nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten())
        super().__init__(*convolutions, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


def train(folder: str) -> None:
    """Run in a client: one epoch of SGD a round on its own digits, of three or four classes and some others."""
    flare.init()
    k, model = int(flare.get_site_name().rpartition("-")[2]) - 1, Network()
    mine = ((digits.y % SITES == k) | (torch.arange(len(digits)) % 7 == k)).nonzero().flatten()[:: 20 + k]
    while flare.is_running():
        received = flare.receive()
        model.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        about = {"round": received.current_round, "node": flare.get_site_name()}
        with record(folder, model, optimiser, **about) as saw:  # 1. around the steps, once the weights are loaded
            for batch in mine[torch.randperm(len(mine))].split(BATCH):
                saw(digits.y[batch])  # 2. the truth, which stays with the client
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(digits.x[batch]), digits.y[batch]).backward()
                optimiser.step()
        steps = -(-len(mine) // BATCH)
        flare.send(flare.FLModel(params=model.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": steps}))


def run(folder: str) -> None:
    """Run the job in NVFlare's simulator."""
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
    from nvflare.recipe import SimEnv

    about = {"name": "digits", "model": Network(), "min_clients": SITES, "num_rounds": ROUNDS}
    recipe = FedAvgRecipe(**about, train_script=__file__, train_args=f"train {folder}")
    with tempfile.TemporaryDirectory() as workspace:
        recipe.run(SimEnv(num_clients=SITES, workspace_root=workspace))


setup = Setup(model=Network, data=digits)  # for the audit: the model, and digits that an adversary may have

if __name__ == "__main__":
    if sys.argv[1] == "train":  # in a client
        train(sys.argv[2])
    else:
        run(str(Path(sys.argv[1]).resolve()))
