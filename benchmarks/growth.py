"""How processor time and memory of every label attack grow with classes, inputs of the last layer and batch size.

One gradient of an untrained network of two layers, with two auxiliary rows of each class. One of the three sizes is
changed at a time. Each answer is measured in a process of its own with one thread: processor seconds, and the peak of
its memory less what it had before. An attack may refuse beforehand; it is stopped after a minute or at 12 GiB.

    python benchmarks/growth.py [--rounds 3] [--out data/growth.csv]
"""

import csv
import os
import resource
import time
import warnings
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from fedleak.attacks.registry import WITH_AUXILIARY, Attack, Need, all_attacks
from fedleak.data import Images
from fedleak.federated import fedsgd
from fedleak_book.experiments.units import processor

WIDTH = 32
USUAL = {"classes": 1000, "inputs": 512, "batch": 8}
VALUES = {"classes": (10, 100, 1000, 10000), "inputs": (64, 512, 2048), "batch": (8, 128, 2048, 16384)}
MOST_SECONDS, MOST_BYTES = 60, 12 * 2**30


def settings() -> Iterator[dict[str, Any]]:
    """Yield the sizes to measure, with the one that is changed as ``grows``."""
    for grows, values in VALUES.items():
        for value in values:
            yield {"grows": grows, **USUAL, grows: value}


def competes(attack: Attack) -> bool:
    """Return whether an attack reads the labels of one update without training."""
    passive = attack.sees == "one update" and attack.server == "passive"
    adapted = Need.ADAPTER_GRADIENT in attack.needs
    return attack.goal == "labels" and passive and not (attack.blind or attack.trained or adapted)


def answer(pipe: Any, attack: Attack, classes: int, inputs: int, batch: int) -> None:
    """Run one attack and send ``(outcome, seconds, MiB)``."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS + 5, MOST_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, inputs), nn.ReLU(), nn.Linear(inputs, classes))
    aux = Images(torch.rand(2 * classes, WIDTH), torch.arange(classes).repeat(2), tuple(map(str, range(classes))))
    update = fedsgd(model, torch.rand(batch, WIDTH), torch.randint(classes, (batch,)))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before, start = resident("VmRSS"), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attack(update, model, adversary=WITH_AUXILIARY, **attack.inputs(WITH_AUXILIARY, {"aux": aux, "seed": 0}))
        outcome = "answered"
    except MemoryError:
        outcome = "out of memory"
    except (ValueError, RuntimeError) as error:
        outcome = "out of memory" if "allocate" in str(error) else f"refused: {error}"
    pipe.send((outcome, time.process_time() - start, resident("VmHWM") - before))


def resident(field: str) -> float:
    """Return a field of this process's memory in MiB (Linux)."""
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith(field)) / 1024


def measured(attack: Attack, sizes: dict[str, int]) -> tuple[str, float, float]:
    """Return the outcome, processor seconds and MiB of one answer in a new process."""
    ours, theirs = get_context("fork").Pipe(duplex=False)
    child = get_context("fork").Process(target=answer, args=(theirs, attack), kwargs=sizes)
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return "stopped", float("nan"), float("nan")
    finally:
        child.join()


def main(
    rounds: Annotated[int, typer.Option(help="Answers of each size; the median is written.")] = 3,
    out: Annotated[Path, typer.Option(help="Table of the medians.")] = Path("data/growth.csv"),
) -> None:
    """Measure every label attack at every size, and write the medians."""
    torch.set_num_threads(1)
    print(f"{processor()}, {os.cpu_count()} cores")
    with out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("attack", "grows", *USUAL, "outcome", "seconds", "fastest", "slowest", "mib", "processor"))
        for attack in filter(competes, all_attacks()):
            for setting in settings():
                sizes = {name: setting[name] for name in USUAL}
                runs = [measured(attack, sizes)]
                while len(runs) < rounds and runs[0][0] == "answered" and runs[0][1] < 10:
                    runs.append(measured(attack, sizes))
                seconds = sorted(run[1] for run in runs)
                outcome, middle = runs[0][0], seconds[len(seconds) // 2]
                numbers = [f"{value:.3g}" for value in (middle, seconds[0], seconds[-1], max(run[2] for run in runs))]
                table.writerow((attack.name, setting["grows"], *sizes.values(), outcome, *numbers, processor()))
                file.flush()
                print(f"{attack.name:24s} {sizes} {outcome[:80]} {middle:.2f} s {max(r[2] for r in runs):.0f} MiB")


if __name__ == "__main__":
    typer.run(main)
