"""Files are there whole or not at all."""

import os

import pytest

from fedleak import files


def test_files_are_on_disk_and_readable_before_they_are_renamed(tmp_path, monkeypatch):
    done, path = [], tmp_path / "deep" / "a.txt"
    for name in ("fsync", "replace"):
        act = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, act=act: (done.append(name), act(*given)))
    files.write_text(path, "δ\n")
    assert path.read_bytes() == "δ\n".encode()
    files.write_bytes(path, b"\x00\r\n")
    assert path.read_bytes() == b"\x00\r\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert done == ["fsync", "replace"] * 2


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch, function):
    path = tmp_path / "a.txt"
    files.write_text(path, "before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
