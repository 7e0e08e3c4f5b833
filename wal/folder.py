"""A log's folder: made so that it lasts, and held by one writer at a time."""

import fcntl
import os
from pathlib import Path

from wal.disk import Disk
from wal.errors import LogLockedError, LogUnwritableError

LOCK_FILE = "lock"


def make_folder(folder: Path, disk: Disk) -> None:
    """Makes the folder and those above it, each with a name that a power loss cannot take away."""
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        make_folder(folder.parent, disk)
    folder.mkdir(exist_ok=True)
    disk.sync_folder(folder.parent)


def lock_for_writing(folder: Path) -> int:
    """The descriptor that holds the lock until it is closed; one process at a time has it."""
    fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise LogLockedError(
            f"the log in {folder} is open for writing in process {owner or 'unknown'}: stop that one first, "
            "or choose another folder",
            path=folder,
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def unwritable(folder: Path, error: OSError) -> LogUnwritableError:
    return LogUnwritableError(
        f"the log folder {folder} cannot be used ({error.strerror}): choose one that you may write to", path=folder
    )


class KeepClosed:
    """Keeps a broker from opening the log while it is copied, and refuses if one has it open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        path = self._folder / LOCK_FILE
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else -1
        if self._fd >= 0:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._fd)
                raise LogLockedError(f"a broker has the log in {self._folder} open: stop it first") from None

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
