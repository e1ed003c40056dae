import pytest
from mnist_files import write_mnist
from torchvision.datasets.utils import calculate_md5
from typer.testing import CliRunner

from fedleak import cli
from fedleak.data import catalogue, load, readers, sources
from fedleak.errors import DataNotFound


def test_a_download_is_complete_or_leaves_nothing(tmp_path, monkeypatch):
    def break_off(staging):
        write_mnist(staging)
        raise OSError("connection reset")

    root = tmp_path / "new"
    monkeypatch.setitem(sources.DOWNLOADS, "mnist", break_off)
    with pytest.raises(DataNotFound, match="connection reset"):
        load("mnist", root=root, download=True)
    assert list(root.iterdir()) == []
    monkeypatch.setitem(sources.DOWNLOADS, "mnist", write_mnist)
    assert len(load("mnist", root=root, download=True)) == 20
    assert [path.name for path in root.iterdir()] == ["MNIST"]


def run(*arguments):
    return CliRunner().invoke(cli.app, ["data", *map(str, arguments)])


def test_the_command_lists_all_sets_and_checks_them(tmp_path):
    write_mnist(tmp_path)
    listed = run("list", "--root", tmp_path)
    assert listed.exit_code == 0
    rows = {line.split()[0]: line for line in listed.output.splitlines()}
    assert "subset" in rows["mnist"]
    assert " no " in rows["svhn"]
    assert "embedded" in rows["photos"]
    assert all(entry.name in rows for entry in catalogue())
    assert run("check", "--root", tmp_path).exit_code == 0
    (tmp_path / "svhn.npz").write_bytes(b"")
    checked = run("check", "--root", tmp_path)
    assert checked.exit_code == 1
    assert "svhn.npz is damaged" in checked.output
    rows = {line.split()[0]: line.split() for line in checked.output.splitlines()}
    states = {"mnist": "subset", "svhn": "corrupt", "imagenet": "missing", "photos": "found"}
    assert {name: rows[name][1] for name in states} == states
    assert rows["mnist"][2:4] == ["20", "20"]


def test_the_command_downloads_once(tmp_path, monkeypatch):
    model = tmp_path / "model"
    official = {path.name: calculate_md5(path) for path in write_mnist(model).iterdir()}
    monkeypatch.setattr(readers, "MNIST_MD5", official)
    monkeypatch.setitem(sources.DOWNLOADS, "mnist", lambda staging: (model / "MNIST").rename(staging / "MNIST"))
    folder = tmp_path / "here"
    (folder / "MNIST").mkdir(parents=True)
    (folder / "MNIST" / "mine").touch()
    fetched = run("download", "mnist", "--to", folder)
    assert fetched.exit_code == 0
    assert "20 train, 20 test" in fetched.output
    assert "already" in run("download", "mnist", "--to", folder).output
    # What had the same name is not lost.
    assert len(list(folder.glob("MNIST.replaced-*/MNIST/mine"))) == 1
