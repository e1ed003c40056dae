"""The README's Python runs as it stands, and the container runs its two commands."""

import re
import tomllib

from fedleak_book import paths

TEXT = (paths.root() / "README.md").read_text(encoding="utf-8")


def test_its_python_runs_and_recovers_the_labels_that_are_there(capsys):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert blocks
    for block in blocks:
        namespace: dict = {}
        exec(block, namespace)
        counts = namespace["llg"].recover(namespace["update"], namespace["model"])
        assert str(counts) in capsys.readouterr().out
        assert counts.sum() >= 8
        # Property 1: what is named in the first step is there; with ReLU before the head, no absent class is negative
        g = namespace["llg"].class_gradients(namespace["update"], namespace["model"])
        assert set((g < 0).nonzero().flatten().tolist()) <= {0, 1, 3, 7}


def test_the_container_runs_both_commands_on_the_oldest_supported_python():
    container = (paths.root() / "Containerfile").read_text(encoding="utf-8")
    commands = re.findall(r"^make \S+", TEXT.split("## Two commands")[1].split("##")[0], re.M)
    assert len(commands) == 2
    assert re.findall(r"^RUN (make .+)", container, re.M) == commands
    project = tomllib.loads((paths.root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^FROM python:([\d.]+)", container, re.M) == [project["requires-python"].removeprefix(">=")]
    for ignored in (paths.root() / ".dockerignore").read_text(encoding="utf-8").split():
        assert f"{ignored}/" in (paths.root() / ".gitignore").read_text(encoding="utf-8").split()
