"""A disk whose n-th operation fails, or waits. Everything else is the real thing."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from wal.disk import Buffers, Disk


class FaultyDisk(Disk):
    """Counts the operations of each kind. `fail` makes chosen ones raise; `gate` makes every sync wait."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._faults: list[tuple[str, Callable[[int, str], bool], int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self._names: dict[int, str] = {}

    def fail(self, kind: str, when: Callable[[int, str], bool], error: int = errno.EIO) -> None:
        """`when` gets the operation's number (from 1, from now on) and the file's name."""
        self.counts[kind] = 0
        self._faults.append((kind, when, error))

    def heal(self) -> None:
        self._faults.clear()

    def _count(self, kind: str, name: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        for fault, when, error in self._faults:
            if fault == kind and when(self.counts[kind], name):
                raise OSError(error, os.strerror(error))

    def create(self, path: Path) -> int:
        self._count("create", path.name)
        fd = super().create(path)
        self._names[fd] = path.name
        return fd

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._names[fd] = path.name
        return fd

    def write(self, fd: int, buffers: Buffers, position: int) -> int:
        try:
            self._count("write", self._names[fd])
        except OSError:
            data = b"".join(buffers)
            super().write(fd, [data[: len(data) // 2]], position)  # half of it got there
            raise
        return super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        self._count("sync", self._names[fd])
        self.gate.wait()

    def truncate(self, fd: int, size: int) -> None:
        self._count("truncate", self._names[fd])
        super().truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        self._count("rename", new.name)
        super().rename(old, new)
        self._names = {fd: new.name if name == old.name else name for fd, name in self._names.items()}

    def sync_folder(self, folder: Path) -> None:
        self._count("sync_folder", folder.name)
