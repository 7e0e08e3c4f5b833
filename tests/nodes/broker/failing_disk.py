"""A broker on a disk that fails.

`eio:3` fails the third sync and all later ones, `slow:0.3` takes that many seconds for each, `full:FILE` has no room
while the file is there. The other arguments are the broker's.
"""

import errno
import itertools
import os
import sys
import time
from pathlib import Path

from nodes.broker.program import run
from wal.disk import Buffers, Disk

kind, _, value = sys.argv[1].partition(":")
real_sync, real_write = Disk.sync, Disk.write
syncs = itertools.count(1)


def sync(self: Disk, fd: int) -> None:
    number = next(syncs)
    if kind == "eio" and number >= int(value):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    if kind == "slow" and number > 2:
        time.sleep(float(value))
    real_sync(self, fd)


def write(self: Disk, fd: int, buffers: Buffers, position: int) -> int:
    if kind == "full" and Path(value).exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real_write(self, fd, buffers, position)


Disk.sync, Disk.write = sync, write  # type: ignore[method-assign]
run(sys.argv[2:])
