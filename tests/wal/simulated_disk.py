"""A disk that remembers what was synced and what was not, and can show what a power loss would have left.

The files are real, so the log runs on them as on any disk. Beside that every operation is noted. `crash` then makes a
folder as it may look after the power went: what was synced is there; what was not is there, or not, or in part, in any
order. The same holds for names: a file that was made, renamed or removed counts only after its folder was synced.
"""

import random
import threading
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from wal.disk import Buffers, Disk

SECTOR = 512  # a device writes whole sectors; less than one never survives in part


class Loss(Enum):
    """What becomes of unsynced operations."""

    ALL = "all of them are lost"
    NONE = "none is lost: the power went after the last write-back"
    LAST = "the last ones are lost, the last kept one is torn"
    ANY = "any of them is lost, any kept one is whole"
    SECTORS = "any sector of any of them is lost and reads as zeros"
    GARBAGE = "any sector of any of them is lost and holds what was on the device before"
    PROCESS = "the process was killed: only the write in flight is torn"


@dataclass(frozen=True)
class Write:
    inode: int
    position: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    inode: int
    size: int


@dataclass(frozen=True)
class Synced:
    """All operations on the file before number `upto` are on the device."""

    inode: int
    upto: int


@dataclass(frozen=True)
class Name:
    """The name is the file's from now on; without an inode it is gone."""

    name: str
    inode: int | None


@dataclass(frozen=True)
class Rename:
    old: str
    new: str
    inode: int


@dataclass(frozen=True)
class FolderSynced:
    upto: int


Operation = Write | Truncate | Synced | Name | Rename | FolderSynced


@dataclass
class Inode:
    """A file's bytes as they were when the simulation began, or nothing."""

    base: bytes = b""


@dataclass
class SimulatedDisk(Disk):
    """Notes every operation below `folder`. What is in the folder when it is made counts as synced."""

    folder: Path
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._inodes: list[Inode] = []
        self._names: dict[str, int] = {}
        self._open: dict[int, int] = {}  # descriptor -> inode; a descriptor that is used again is opened again first
        for path in self.folder.iterdir() if self.folder.exists() else ():
            if path.suffix in (".log", ".oidx", ".new"):
                self._names[path.name] = self._new_inode(path.read_bytes())
        self._base_names = dict(self._names)

    def _new_inode(self, base: bytes = b"") -> int:
        self._inodes.append(Inode(base))
        return len(self._inodes) - 1

    def _note(self, operation: Operation) -> None:
        self.operations.append(operation)

    @property
    def now(self) -> int:
        """How many operations there were so far: a moment that `crash` can go back to."""
        return len(self.operations)

    # The disk's own operations

    def create(self, path: Path) -> int:
        with self._lock:
            fd = super().create(path)
            inode = self._names.get(path.name)
            if inode is None:
                inode = self._names[path.name] = self._new_inode()
                self._note(Name(path.name, inode))
            else:
                self._note(Truncate(inode, 0))
            self._open[fd] = inode
            return fd

    def open(self, path: Path) -> int:
        with self._lock:
            fd = super().open(path)
            self._open[fd] = self._names[path.name]
            return fd

    def write(self, fd: int, buffers: Buffers, position: int) -> int:
        with self._lock:
            size = super().write(fd, buffers, position)
            self._note(Write(self._open[fd], position, b"".join(buffers)))
            return size

    def sync(self, fd: int) -> None:
        with self._lock:
            inode, upto = self._open[fd], self.now
        # The device is at work here; what is written meanwhile is not covered.
        with self._lock:
            self._note(Synced(inode, upto))

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            super().truncate(fd, size)
            self._note(Truncate(self._open[fd], size))

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            super().rename(old, new)
            inode = self._names[new.name] = self._names.pop(old.name)
            self._note(Rename(old.name, new.name, inode))

    def remove(self, path: Path) -> None:
        with self._lock:
            super().remove(path)
            del self._names[path.name]
            self._note(Name(path.name, None))

    def sync_folder(self, folder: Path) -> None:
        with self._lock:
            if folder == self.folder:
                self._note(FolderSynced(self.now))

    # The crash

    def crash(self, target: Path, moment: int, loss: Loss, seed: int) -> None:
        """Makes `target` a folder as the crash after `moment` operations may have left it."""
        random_ = random.Random(seed)
        done = self.operations[:moment]
        target.mkdir()
        for name, inode in self._surviving_names(done, loss, random_).items():
            (target / name).write_bytes(self._surviving_bytes(done, inode, loss, random_))

    def _surviving_names(self, done: list[Operation], loss: Loss, random_: random.Random) -> dict[str, int]:
        synced = max((op.upto for op in done if isinstance(op, FolderSynced)), default=0)
        names = dict(self._base_names)
        changes = [(number, op) for number, op in enumerate(done) if isinstance(op, Name | Rename)]
        kept_in_order = random_.randrange(len(changes) + 1)
        for count, (number, op) in enumerate(changes):
            if number >= synced and not _name_survives(loss, count < kept_in_order, random_):
                continue
            if isinstance(op, Rename):
                names.pop(op.old, None)
                names[op.new] = op.inode
            elif op.inode is None:
                names.pop(op.name, None)
            else:
                names[op.name] = op.inode
        return names

    def _surviving_bytes(self, done: list[Operation], inode: int, loss: Loss, random_: random.Random) -> bytes:
        synced = max((op.upto for op in done if isinstance(op, Synced) and op.inode == inode), default=0)
        mine = [
            (number, op) for number, op in enumerate(done) if isinstance(op, Write | Truncate) and op.inode == inode
        ]
        data = bytearray(self._inodes[inode].base)
        for number, op in mine:
            if number < synced:
                _apply(data, op)
        return bytes(_lose(data, [op for number, op in mine if number >= synced], loss, random_, done))


def _name_survives(loss: Loss, in_order: bool, random_: random.Random) -> bool:
    match loss:
        case Loss.ALL:
            return False
        case Loss.NONE | Loss.PROCESS:
            return True
        case Loss.LAST:
            return in_order
    return random_.random() < 0.5


def _apply(data: bytearray, op: Write | Truncate) -> None:
    if isinstance(op, Truncate):
        _resize(data, op.size)
    else:
        if len(data) < op.position:
            _resize(data, op.position)
        data[op.position : op.position + len(op.data)] = op.data


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data += bytes(size - len(data))


def _lose(
    data: bytearray, pending: list[Write | Truncate], loss: Loss, random_: random.Random, done: list[Operation]
) -> bytearray:
    match loss:
        case Loss.ALL:
            return data
        case Loss.NONE:
            kept = pending
        case Loss.PROCESS:
            kept = list(pending)
            if kept and kept[-1] is done[-1] and isinstance(kept[-1], Write):
                kept[-1] = _torn(kept[-1], random_)
        case Loss.LAST:
            kept = pending[: random_.randrange(len(pending) + 1)]
            if kept and isinstance(kept[-1], Write):
                kept[-1] = _torn(kept[-1], random_)
        case Loss.ANY:
            kept = [op for op in pending if isinstance(op, Truncate) or random_.random() < 0.5]
        case Loss.SECTORS | Loss.GARBAGE:
            return _lose_sectors(data, pending, random_, garbage=loss is Loss.GARBAGE)
    for op in kept:
        _apply(data, op)
    return data


def _torn(write: Write, random_: random.Random) -> Write:
    return Write(write.inode, write.position, write.data[: random_.randrange(len(write.data) + 1)])


def _lose_sectors(
    data: bytearray, pending: list[Write | Truncate], random_: random.Random, *, garbage: bool
) -> bytearray:
    """The file has its full size or a part of it, and any sector that the writes touched may be as it was before."""
    before = bytes(data)
    for op in pending:
        _apply(data, op)
    share = random_.choice([0.02, 0.2, 0.5, 0.9])
    for op in pending:
        if isinstance(op, Truncate):
            continue
        first = op.position // SECTOR * SECTOR
        for start in range(first, min(op.position + len(op.data), len(data)), SECTOR):
            if random_.random() < share:
                stop = min(start + SECTOR, len(data))
                old = before[start:stop]
                lost = stop - start - len(old)
                data[start:stop] = old + (random_.randbytes(lost) if garbage else bytes(lost))
    if len(data) > len(before) and random_.random() < 0.5:
        _resize(data, random_.randint(len(before), len(data)))  # the new size was lost too
    return data
