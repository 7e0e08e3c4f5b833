"""The active segment: entries and index rows onto the disk, in order, all or nothing.

Owns the bytes; what they mean (offsets, state, durability) is left to `log`.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from crc32c import crc32c

from wal.control import Body, Checkpoint, encode_body
from wal.disk import NO_ROOM, Disk
from wal.entry import CRC_FROM, ENTRY_HEADER, HEADER_SIZE, MAX_UNSYNCED, EntryHeader, Kind
from wal.errors import DiskFullError, LogPoisonedError, WalError
from wal.index import ROW_DTYPE, IndexWriter, Rows, pack_row
from wal.lookup import Lookup
from wal.segment import FILE_HEADER_SIZE, LOG_MAGIC, FileHeader, SegmentFile, index_path, log_path, pack_file_header
from wal.segments import Segment

Buffer: TypeAlias = bytes | bytearray | memoryview


class Built(NamedTuple):
    """An entry that is ready to be written."""

    header: EntryHeader
    buffers: tuple[Buffer, ...]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def build_entry(header: EntryHeader, seed: int, position: int, synced_to: int, *body: Buffer) -> Built:
    """An entry at `position` of the segment that `seed` belongs to: length, CRC and what was synced before it."""
    length = HEADER_SIZE + sum(map(len, body))
    fields = (length, 0, position, *header[3:-1], min(position - synced_to, MAX_UNSYNCED))
    packed = bytearray(ENTRY_HEADER.pack(*fields))
    crc = crc32c(memoryview(packed)[CRC_FROM:], seed)
    for buffer in body:
        crc = crc32c(buffer, crc)
    packed[4:8] = crc.to_bytes(4, "little")
    return Built(EntryHeader._make((length, crc, *fields[2:])), (packed, *body))


def control_header(kind: Kind, **fields: int | bytes) -> EntryHeader:
    return EntryHeader(0, 0, 0, kind, append_time=now_ms(), **fields)  # type: ignore[arg-type]


class ActiveSegment:
    """The one segment that grows."""

    def __init__(self, disk: Disk, segment: Segment, index: IndexWriter, synced_to: int) -> None:
        self._disk = disk
        self.segment = segment
        self.index = index
        self.file = segment.file
        self.end = segment.end  # runs ahead of segment.end while entries are built and not yet written
        self.synced_to = synced_to
        self.checkpoint_end = segment.end

    def build(self, header: EntryHeader, *body: Buffer) -> Built:
        """Gives the entry its place behind all built so far."""
        built = build_entry(header, self.file.seed, self.end, self.synced_to, *body)
        self.end += built.header.length
        return built

    def build_control(self, kind: Kind, body: Body | None = None, **fields: int | bytes) -> Built:
        """A control entry."""
        header = control_header(kind, **fields)
        return self.build(header, encode_body(body)) if body is not None else self.build(header)

    def write(self, entries: Sequence[Built]) -> None:
        """Writes entries and publishes their rows, or leaves the files as they were and raises."""
        start = self.segment.end
        buffers = [buffer for entry in entries for buffer in entry.buffers]
        try:
            self._disk.write(self.file.fd, buffers, start)
            self.index.append([pack_row(entry.header) for entry in entries])
        except OSError as error:
            self.take_back()
            raise self._write_failed(error, start) from error
        self.segment.end = self.end
        lookup = self.segment.lookup
        assert lookup is not None
        for entry in entries:
            if entry.header.kind == Kind.DATA:
                lookup.add(entry.header)

    def take_back(self) -> None:
        """Forgets what was built and not written."""
        self.end = self.segment.end

    def _write_failed(self, error: OSError, start: int) -> WalError:
        try:
            self._disk.truncate(self.file.fd, start)
        except OSError as second:
            return _poisoned(self.file.path, start, f"{error}, and cutting it back failed too ({second})")
        if error.errno in NO_ROOM:
            return DiskFullError(
                f"no room for the append at position {start} of {self.file.path} ({error.strerror}): free some space; "
                "nothing of this append was stored, and appends work again as soon as there is room",
                path=self.file.path,
                position=start,
            )
        return _poisoned(self.file.path, start, str(error))

    def sync(self) -> None:
        """Returns when all that was written before the call is on the disk."""
        target = self.segment.end
        try:
            self._disk.sync(self.file.fd)
        except OSError as error:
            raise _poisoned(self.file.path, target, f"the sync failed: {error}") from error
        self.synced_to = max(self.synced_to, target)

    def close(self) -> None:
        self.index.close()


def _poisoned(path: Path, position: int, why: str) -> LogPoisonedError:
    return LogPoisonedError(
        f"writing {path} at position {position} failed ({why}): what is on the disk is unknown, so the log takes no "
        "more appends. Look at the disk, then start the broker again; recovery reads back what was stored",
        path=path,
        position=position,
    )


def create_segment(disk: Disk, folder: Path, header: FileHeader, checkpoint: Checkpoint) -> ActiveSegment:
    """A new segment that opens with a checkpoint. It gets its name only when all of that is on the disk.

    The index comes last: an index without a log then means that somebody removed the log.
    """
    path = log_path(folder, header.number)
    unfinished = path.with_suffix(".log.new")
    start = FILE_HEADER_SIZE
    first = build_entry(control_header(Kind.CHECKPOINT), header.seed, start, start, encode_body(checkpoint))
    fd = -1
    try:
        fd = disk.create(unfinished)
        end = disk.write(fd, [pack_file_header(LOG_MAGIC, header), *first.buffers], 0)
        disk.sync(fd)
        disk.rename(unfinished, path)
        disk.sync_folder(folder)
        rows = np.frombuffer(pack_row(first.header), ROW_DTYPE)
        index = IndexWriter.create(disk, index_path(folder, header.number), header, rows)
    except OSError as error:
        if fd >= 0:
            os.close(fd)  # a full disk is tried again and again
        if error.errno in NO_ROOM:
            raise DiskFullError(f"no room for a new segment {path}: free some space", path=path, position=0) from error
        raise _poisoned(path, 0, str(error)) from error
    return ActiveSegment(disk, Segment(SegmentFile(path, fd), Lookup(), end), index, synced_to=end)


def reopen_segment(disk: Disk, file: SegmentFile, rows: Rows, index: IndexWriter) -> ActiveSegment:
    """The last segment of a log that was opened again, with all rows that recovery found good; all of it is synced."""
    end = int(rows[-1]["position"] + rows[-1]["length"])
    return ActiveSegment(disk, Segment(file, Lookup.of(rows), end), index, synced_to=end)
