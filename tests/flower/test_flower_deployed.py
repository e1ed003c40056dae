"""LIA-SA through SecAgg+ between real processes: a SuperLink, three SuperNodes, and the apps that they start."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedleak import metrics

APP = Path(__file__).with_name("deployed")
LIMIT = 480


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def stop(process):
    """End a process that this test started, with those that it started itself."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_a_deployed_server_reads_all_labels_through_secure_aggregation(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(APP)
    from fishing_app import CLASSES, CLIENTS, batch_of

    port, out = free_port(), tmp_path / "found.json"
    (tmp_path / "config.toml").write_text(
        f'[superlink]\ndefault = "loop"\n[superlink.loop]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    bin_ = Path(sys.executable).parent
    environment = {**os.environ, "FLWR_HOME": str(tmp_path), "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    with ExitStack() as running:

        def start(name, *arguments):
            log = running.enter_context((tmp_path / "log").open("a"))
            command = [bin_ / name, "--insecure", *arguments]
            process = subprocess.Popen(
                command, env=environment, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
            )
            running.callback(stop, process)

        start("flower-superlink", "--port", str(port), "--disable-runtime-dependency-installation")
        for k in range(CLIENTS):
            told = f"partition-id={k} num-partitions={CLIENTS}"
            link = ("--superlink", f"127.0.0.1:{port}", "--port", str(free_port()))
            start("flower-supernode", *link, "--node-config", told)
        begun = time.monotonic()
        started = 1
        while started and time.monotonic() < begun + 60:  # the SuperLink takes a while to listen
            command = [bin_ / "flwr", "run", APP, "loop", "--run-config", f'out="{out}"']
            started = subprocess.run(command, env=environment, capture_output=True, check=False).returncode
        while not out.exists() and time.monotonic() < begun + LIMIT:
            time.sleep(0.5)
        assert out.exists(), (tmp_path / "log").read_text()[-3000:]
    truth = sorted(metrics.counts(batch_of(k)[1], CLASSES).tolist() for k in range(CLIENTS))
    assert json.loads(out.read_text()) == truth
