"""Processor time and findings of whole audits, with this code and with that of an earlier commit, in one run.

Three set-ups: the file that `fedleak audit --example` prints (ResNet-18, synthetic images, batches of 32), a GRU of 60
words whose last layer is tied to its embedding (six updates), and ResNet-20 with CIFAR-10's shape and classes (batches
of 32). The commit is checked out into a temporary folder. Both versions audit each set-up in a process of their own,
with one thread, in rounds that alternate. Printed are the processor seconds, the ratio of each round, the paired
difference of every attack's label accuracy with its 95 % interval, and whether the guard's verdicts agree.
The exit code is 1 if they do not, or an attack's accuracy is off by more than 0.02 in the mean.

    python benchmarks/audit.py [--commit d63edb7] [--rounds 3] [--only example,gru,resnet20]
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

    torch.set_num_threads(1)
    torch.manual_seed(0)
    setup = setups()[name]()
    started = time.process_time()
    report = audit(setup)
    seconds = time.process_time() - started
    judged = [[verdict.status for verdict in verdicts(report, Limits(*limits))] for limits in LIMITS]
    rows = report.rows[["scenario", "attack", "trial", "iacc"]]
    return {"seconds": seconds, "verdicts": judged, "rows": rows.to_dict("records")}


def run(root: Path, name: str) -> dict[str, Any]:
    """Measure a set-up in a process that imports fedleak from a folder."""
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
    measured: Annotated[str, typer.Option("--measure", hidden=True)] = "",
) -> None:
    """Compare audits of this code with those of an earlier commit."""
    if measured:
        print(json.dumps(measure(measured)))
        return
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", earlier, commit], check=True)
        try:
            agree = [compare(name, earlier, rounds) for name in only.split(",")]
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", earlier], check=True)
    raise typer.Exit(0 if all(agree) else 1)


if __name__ == "__main__":
    typer.run(main)
