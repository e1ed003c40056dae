"""Processor time and findings of whole audits, with this code and with that of an earlier commit, in one run.

Three set-ups: the file that `fedleak audit --example` prints (ResNet-18, synthetic images, batches of 32), a GRU of 60
words whose last layer is tied to its embedding (six updates), and ResNet-20 with CIFAR-10's shape and classes (batches
of 32). The commit is checked out into a temporary folder. Both versions audit each set-up in a process of their own,
with one thread, in rounds that alternate. Printed are the processor seconds, the ratio of each round, the paired
difference of every attack's label accuracy with its 95 % interval, and whether the guard's verdicts agree.
The exit code is 1 if they do not, or an attack's accuracy is off by more than 0.02 in the mean.

With `--networks` the learned attackers that both versions train for ten networks read the same updates; the exit code
is 1 if the present one recovers more than 0.01 fewer of the labels in the mean over the networks.

    python benchmarks/audit.py [--commit d63edb7] [--rounds 3] [--only example,gru,resnet20] [--networks]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
OFF = 0.02
"""Difference of label accuracy from which findings count as changed."""
LESS = 0.01
"""Loss of label accuracy, in the mean over the networks, from which the learned attacker counts as worse."""
NETWORKS = [
    ("resnet20", "", 32, 0),
    ("resnet20-relu", "", 8, 0),
    ("resnet20", "", 32, 60),
    ("resnet18", "", 32, 0),
    ("vgg11_bn", "", 64, 0),
    ("lenet", "mnist5k", 32, 0),
    ("lenet", "mnist5k", 64, 200),
    ("cnn", "mnist5k", 16, 0),
    ("fcn3", "mnist5k", 128, 200),
    ("gru", "", 8, 0),
]
"""Networks for the learned attacker: architecture, data (synthetic by default), batch size, steps of training."""
UPDATES = 60
"""Updates that the learned attacker reads of each network."""
LIMITS = [(0.3, None), (0.5, None), (0.7, None), (0.9, None), (None, 0.1), (None, 0.3)]
"""Limits of the guard: label accuracy, and lead over the best guess."""


class TiedGRU(nn.Module):
    """A GRU that predicts the next word, with one matrix for embedding and last layer."""

    def __init__(self, words: int = 60, width: int = 32):
        super().__init__()
        self.embedding, self.decoder = nn.Embedding(words, width), nn.Linear(width, words)
        self.gru, self.decoder.weight = nn.GRU(width, width, batch_first=True), self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return the next word's logits ``[N, words]`` for words ``[N, L]``."""
        return self.decoder(self.gru(self.embedding(x))[0][:, -1])


def setups() -> dict[str, Any]:
    """Return a function that makes each set-up, by its name."""
    from fedleak.audit import Setup, example
    from fedleak.models import build

    def gru() -> Any:
        torch.manual_seed(0)
        x = torch.randint(60, (2400, 8), generator=torch.Generator().manual_seed(0))
        return Setup(model=TiedGRU(), data=(x, (7 * x[:, -1] + 3) % 60), batch_size=8, trials=6)

    def resnet20() -> Any:
        return Setup(model=build("resnet20", (3, 32, 32), 10, seed=0), shape=(3, 32, 32), batch_size=32, trials=20)

    return {"example": lambda: example.setup, "gru": gru, "resnet20": resnet20}


def measure(name: str) -> dict[str, Any]:
    """Audit a set-up with the version of fedleak that is imported; return seconds, rows and verdicts."""
    from fedleak.audit import audit
    from fedleak.audit.guard import Limits, verdicts

    setup = setups()[name]()
    started = time.process_time()
    report = audit(setup)
    seconds = time.process_time() - started
    judged = [[verdict.status for verdict in verdicts(report, Limits(*limits))] for limits in LIMITS]
    rows = report.rows[["scenario", "attack", "trial", "iacc"]]
    return {"seconds": seconds, "verdicts": judged, "rows": rows.to_dict("records")}


def read_updates(number: int) -> list[float]:
    """Return the label accuracies of the learned attacker, as an audit trains it, on updates of one of `NETWORKS`."""
    from fedleak.attacks.registry import WITH_AUXILIARY, get
    from fedleak.audit import Setup
    from fedleak.audit.case import prepare
    from fedleak.data import load
    from fedleak.metrics import instance_accuracy
    from fedleak.models import build

    name, data, batch_size, steps = NETWORKS[number]
    images = load(data) if data else None
    setup = setups()["gru"]()
    if name != "gru":
        shape = (3, 32, 32) if images is None else images.shape
        model = build(name, shape, 10, seed=number)
        setup = Setup(model=model, data=images, shape=shape, batch_size=batch_size, seed=number)
    case = prepare(setup)
    if steps:
        train(model, case.clients, steps, number)
        case = prepare(setup)
    attack = get("learned")
    options, _ = attack.split(attack.inputs(WITH_AUXILIARY, case.knowledge))
    prepared, accuracies = attack.prepare(case.attacked, adversary=WITH_AUXILIARY, **options), []
    for trial in map(case.trial, range(UPDATES)):
        counts = prepared.recover(trial.updates[0]).counts
        accuracies.append(instance_accuracy(counts, trial.truth[0]).item())
    return accuracies


def train(model: nn.Module, images: Any, steps: int, seed: int) -> None:
    """Train a model by SGD with momentum on batches of 64 images."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(steps):
        index = torch.randint(len(images), (64,), generator=generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images.x[index]), images.y[index]).backward()
        optimiser.step()


def compare_learned(earlier: Path) -> bool:
    """Print the paired differences of the learned attackers, and return whether the present one is as good."""
    means = []
    for number, (name, _, batch_size, steps) in enumerate(NETWORKS):
        before, after = (torch.tensor(run(root, str(number))) for root in (earlier, ROOT))
        change = after - before
        half = 1.96 * change.std() / len(change) ** 0.5
        means.append(float(change.mean()))
        about = f"{name}, batches of {batch_size}" + f", {steps} steps of training" * bool(steps)
        print(f"{about}: {before.mean():.3f}, now {after.mean():.3f}: {change.mean():+.3f} ± {half:.3f}", flush=True)
    mean, half = statistics.mean(means), 2.262 * statistics.stdev(means) / len(means) ** 0.5
    print(f"learned, mean over {len(means)} networks: {mean:+.4f} ± {half:.4f} (95 %, t)")
    return mean >= -LESS


def run(root: Path, name: str) -> Any:
    """Measure a set-up, or a network by its number, in a process that imports fedleak from a folder."""
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    words = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--measure", name]
    done = subprocess.run(words, env=environment, cwd=root, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def differences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> pd.DataFrame:
    """Return each attack's paired difference of label accuracy: mean, half of the 95 % interval, and updates."""
    key = ["scenario", "attack", "trial"]
    paired = pd.DataFrame(before).merge(pd.DataFrame(after), on=key, how="outer", suffixes=("_before", "_after"))
    paired = paired[paired["scenario"] == "as it is"]
    if missing := set(paired.loc[paired["iacc_before"].isna() != paired["iacc_after"].isna(), "attack"]):
        raise ValueError(f"only one version reads with: {', '.join(sorted(missing))}")
    paired["difference"] = paired["iacc_after"] - paired["iacc_before"]
    table = paired.dropna().groupby("attack")["difference"].agg(["mean", "std", "count"])
    return table.assign(half=1.96 * table["std"] / table["count"] ** 0.5)


def compare(name: str, earlier: Path, rounds: int) -> bool:
    """Measure one set-up with both versions, print what differs, and return whether their findings agree."""
    done = [(run(earlier, name), run(ROOT, name)) for _ in range(rounds)]
    before, after = done[0]
    ratios = [old["seconds"] / new["seconds"] for old, new in done]
    old, new = (statistics.median(pair[k]["seconds"] for pair in done) for k in (0, 1))
    spread = f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f}, {rounds} rounds)"
    print(f"{name}: {old:.1f} s, now {new:.1f} s of processor time: {spread}")
    changes = differences(before["rows"], after["rows"])
    for attack, row in changes[changes["mean"].abs() + changes["half"] > 0].iterrows():
        print(f"  {attack}: label accuracy {row['mean']:+.3f} ± {row['half']:.3f} (n = {row['count']:.0f})")
    same = before["verdicts"] == after["verdicts"]
    print(f"  {len(changes)} attacks; verdicts {'agree' if same else 'differ'}", flush=True)
    return same and bool((changes["mean"].abs() <= OFF).all())


def main(
    commit: Annotated[str, typer.Option(help="Earlier commit.")] = "d63edb7",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of both versions.")] = 3,
    only: Annotated[str, typer.Option(help="Set-ups, with commas between them.")] = "example,gru,resnet20",
    networks: Annotated[bool, typer.Option(help="Compare the learned attackers of ten networks instead.")] = False,
    measured: Annotated[str, typer.Option("--measure", hidden=True)] = "",
) -> None:
    """Compare audits of this code with those of an earlier commit."""
    if measured:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        print(json.dumps(read_updates(int(measured)) if measured.isdigit() else measure(measured)))
        return
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", earlier, commit], check=True)
        try:
            agree = [compare_learned(earlier)] if networks else [compare(n, earlier, rounds) for n in only.split(",")]
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", earlier], check=True)
    raise typer.Exit(0 if all(agree) else 1)


if __name__ == "__main__":
    typer.run(main)
