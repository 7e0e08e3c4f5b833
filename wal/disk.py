"""The file operations that durability rests on, in one place so that tests can make each of them fail or forget.

Reads are not here: they go straight to `os.pread`, since a read that fails raises and changes nothing.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

# Linux takes at most this many buffers in one call (IOV_MAX).
MAX_BUFFERS = 1024
# These mean "no room", not "broken": the log takes its bytes back and goes on when there is room again.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Buffers = Sequence[bytes | bytearray | memoryview]


class Disk:
    """The real thing."""

    def create(self, path: Path) -> int:
        """A new empty file, open for reading and writing; an older file of that name is emptied."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def open(self, path: Path) -> int:
        """An existing file, open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, fd: int, buffers: Buffers, position: int) -> int:
        """Writes all buffers at `position`, whatever the kernel cuts them into; returns their size."""
        if len(buffers) <= MAX_BUFFERS:
            total = sum(map(len, buffers))
            written = os.pwritev(fd, buffers, position)
            if written == total:
                return total
            buffers = [memoryview(b"".join(buffers))[written:]]
            self.write(fd, buffers, position + written)
            return total
        total = 0
        for first in range(0, len(buffers), MAX_BUFFERS):
            total += self.write(fd, buffers[first : first + MAX_BUFFERS], position + total)
        return total

    def sync(self, fd: int) -> None:
        """Returns when the file's bytes and size are on the disk."""
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cuts the file to `size`."""
        os.ftruncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        """Gives a file its final name, in one step."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Removes a file's name; who has it open goes on reading."""
        os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        """Makes created, renamed and removed names durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def boot_id() -> str:
    """Names this run of the machine: unchanged means that no power loss can have happened; "" where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
