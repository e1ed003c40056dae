"""Files are there whole or not at all."""

import os

import pytest

from fedleak import files


def test_what_is_written_is_read_and_readable_by_others(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    files.write_text(path, "δ\n")
    assert path.read_bytes() == "δ\n".encode()
    files.write_bytes(path, b"\x00\r\n")
    assert path.read_bytes() == b"\x00\r\n"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch, function):
    path = tmp_path / "a.txt"
    files.write_text(path, "before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    files.write_text(tmp_path / "a.txt", "text")
    assert done == ["fsync", "replace"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match=r"cannot write a\.csv to .*file"):
        files.write_text(tmp_path / "file" / "a.csv", "text")
    with pytest.raises(PermissionError, match=r"cannot write .* it is a folder"):
        files.write_text(tmp_path, "text")


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder(tmp_path):
    (tmp_path / "out").mkdir(mode=0o555)
    with pytest.raises(PermissionError, match=r"cannot write a\.csv to .*Permission denied"):
        files.write_text(tmp_path / "out" / "a.csv", "text")
