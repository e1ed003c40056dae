"""When, where and by which code something was computed."""

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedleak import paths

PACKAGES = ("fedleak", "torch", "torchvision", "numpy", "scipy", "pandas")


def stamp(devices: Iterable[str] = ()) -> dict[str, Any]:
    """Return the facts of a computation that ends now: date, commit, machine, versions, and where its tensors were."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": ", ".join(sorted({device_name(device) for device in devices})) or "cpu",
        "threads": torch.get_num_threads(),
        **machine(),
    }


def device_name(device: str) -> str:
    """Return a GPU's model for its device; another device's own name."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") and torch.cuda.is_available() else device


@cache
def machine() -> dict[str, Any]:
    """Return what does not change while a process runs: commit, versions, processor and memory."""
    return {
        "commit": commit(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "memory": memory(),
    }


def processor() -> str:
    """Return the processor's model as the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory() -> str:
    """Return the machine's memory in GiB."""
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):
        return "unknown"


def commit() -> str:
    """Return the checkout's commit, with ``+changes`` where something but the recorded results differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=paths.root(), capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changes = git("status", "--porcelain", "--", ".", ":!data/results")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def merged(stamps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return several stamps as one: what differs between them is listed."""
    found: dict[str, list[Any]] = {}
    for one in stamps:
        for name, value in one.items():
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return {name: values[0] if len(values) == 1 else sorted(values, key=str) for name, values in found.items()}
