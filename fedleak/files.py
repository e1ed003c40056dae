"""Write files atomically: complete, or not at all."""

import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a temporary file in the same folder, and rename it once all is on the disk.

    Raises `PermissionError` if the folder or the file cannot be written; `OSError` if the disk is full or fails. An
    earlier file then stays.
    """
    temporary = reserve(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode())


def reserve(path: Path, suffix: str = ".tmp") -> Path:
    """Create a file's folder, and in it an empty temporary file, readable by all, whose name ends in `suffix`.

    Raises `PermissionError` if either cannot be created.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=suffix)
    except OSError as error:
        raise PermissionError(f"cannot write {path.name} to {path.parent}: {error.strerror or error}") from error
    os.close(handle)
    os.chmod(temporary, 0o644)  # mkstemp's 0600 would outlive the rename
    return Path(temporary)
