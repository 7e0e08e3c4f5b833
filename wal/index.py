"""The `.oidx` file beside each segment: one fixed-width row an entry, appended after the entry's own bytes.

It can be rebuilt from the log, and holds what an analysis needs without touching the log. A row is visible to other
processes once the file is long enough to hold it. Checkpoints in the log carry a CRC of all rows before them.
"""

import os
import struct
from pathlib import Path
from typing import TypeAlias

import numpy as np
from crc32c import crc32c

from wal.disk import Disk
from wal.entry import EntryHeader
from wal.errors import LogDamagedError, WalError
from wal.segment import FILE_HEADER_SIZE, INDEX_MAGIC, FileHeader, SegmentFile, pack_file_header, parse_file_header

# The topic is two little-endian halves, since numpy compares numbers faster than it compares strings of bytes.
ROW_DTYPE = np.dtype(
    [
        ("position", "<u8"),
        ("length", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("attributes", "<u2"),
        ("org_id", "<u8"),
        ("topic", "<u8", (2,)),
        ("partition", "<i4"),
        ("record_count", "<u4"),
        ("base_offset", "<i8"),
        ("base_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("append_time", "<i8"),
        ("producer_id", "<i8"),
        ("base_sequence", "<i4"),
        ("producer_epoch", "<i2"),
        ("reserved", "<u2"),
        ("trace", "u1", (16,)),
    ]
)
ROW_SIZE = ROW_DTYPE.itemsize
_ROW = struct.Struct("<QIBBHQ16siIqqqqqihH16s")
assert _ROW.size == ROW_SIZE
# Rows gathered in memory while an index is rebuilt, before they are written in one go.
_REBUILD_ROWS = 16_384

Rows: TypeAlias = np.ndarray


def pack_row(entry: EntryHeader) -> bytes:
    """The index row of an entry."""
    return _ROW.pack(
        entry.position,
        entry.length,
        entry.kind,
        entry.flags,
        entry.attributes,
        entry.org_id,
        entry.topic_id,
        entry.partition,
        entry.record_count,
        entry.base_offset,
        entry.base_timestamp,
        entry.max_timestamp,
        entry.append_time,
        entry.producer_id,
        entry.base_sequence,
        entry.producer_epoch,
        0,
        entry.trace_id,
    )


def _bytes_of(rows: Rows) -> memoryview:
    return np.ascontiguousarray(rows).view(np.uint8).data


def rows_crc(rows: Rows) -> int:
    """The CRC that checkpoints carry of the rows before them."""
    return crc32c(_bytes_of(rows)) if len(rows) else 0


def row_times(rows: Rows) -> Rows:
    """The largest timestamp of each row; its append time where the records have none (old message formats)."""
    return np.where(rows["max_timestamp"] >= 0, rows["max_timestamp"], rows["append_time"])


def topic_words(topic_id: bytes) -> Rows:
    """A topic id as the index has it."""
    return np.frombuffer(topic_id, "<u8")


def read_rows(path: Path, header: FileHeader, log_size: int) -> Rows | None:
    """The rows of an index that fit the log, mapped from the file; None if it is missing or not this segment's.

    Only the leading rows that follow each other without a gap and end inside the log are given: what lies behind
    was not published in order, as after a crash.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if parse_file_header(file.read(FILE_HEADER_SIZE), INDEX_MAGIC, path)[:2] != header[:2]:
                return None
            count = (size - FILE_HEADER_SIZE) // ROW_SIZE
            if count <= 0:
                return np.empty(0, ROW_DTYPE)
            rows = np.memmap(file, ROW_DTYPE, "r", FILE_HEADER_SIZE, (count,))
    except (OSError, WalError):
        return None
    return rows[: _leading(rows, log_size)]


def _leading(rows: Rows, log_size: int) -> int:
    ends = rows["position"] + rows["length"]
    good = (rows["length"] > 0) & (ends <= log_size)
    good[0] &= rows["position"][0] == FILE_HEADER_SIZE
    good[1:] &= rows["position"][1:] == ends[:-1]
    return len(rows) if good.all() else int(np.argmin(good))


def scan_rows(file: SegmentFile, end: int) -> Rows:
    """The rows of a segment, read from its log alone; raises at the first bad entry."""
    parts: list[Rows] = []
    packed: list[bytes] = []
    for entry, _ in file.scan(FILE_HEADER_SIZE, end):
        packed.append(pack_row(entry))
        if len(packed) >= _REBUILD_ROWS:
            parts.append(np.frombuffer(b"".join(packed), ROW_DTYPE))
            packed.clear()
    parts.append(np.frombuffer(b"".join(packed), ROW_DTYPE))
    return np.concatenate(parts)


def load_rows(file: SegmentFile, path: Path, end: int, count: int, crc: int) -> tuple[Rows, bool]:
    """A sealed segment's rows and whether they had to be read from the log, since the index is missing or wrong."""
    rows = read_rows(path, file.header, end)
    if rows is not None and len(rows) == count and rows_crc(rows) == crc:
        return rows, False
    rows = scan_rows(file, end)
    if len(rows) != count or rows_crc(rows) != crc:
        raise LogDamagedError(
            f"{file.path} holds {len(rows)} entries that are not the {count} of its seal: run `rafka-lab wal repair`",
            path=file.path,
            position=end,
        )
    return rows, True


class IndexWriter:
    """Appends rows to a segment's index and keeps their running CRC."""

    def __init__(self, disk: Disk, fd: int, path: Path, count: int = 0, crc: int = 0) -> None:
        self._disk = disk
        self.fd = fd
        self.path = path
        self.count = count
        self.crc = crc

    @classmethod
    def create(cls, disk: Disk, path: Path, header: FileHeader, rows: Rows | None = None) -> "IndexWriter":
        """A new index with these rows; it gets its name only when it is whole."""
        unfinished = path.with_suffix(".oidx.new")
        fd = disk.create(unfinished)
        buffers: list[bytes | memoryview] = [pack_file_header(INDEX_MAGIC, header)]
        count = 0 if rows is None else len(rows)
        if rows is not None and count:
            buffers.append(_bytes_of(rows))
        try:
            disk.write(fd, buffers, 0)
            disk.rename(unfinished, path)
        except OSError:
            os.close(fd)
            raise
        return cls(disk, fd, path, count, 0 if rows is None else rows_crc(rows))

    @classmethod
    def reopen(cls, disk: Disk, path: Path, rows: Rows) -> "IndexWriter":
        """An existing index, cut to these leading rows."""
        fd = disk.open(path)
        disk.truncate(fd, FILE_HEADER_SIZE + len(rows) * ROW_SIZE)
        return cls(disk, fd, path, len(rows), rows_crc(rows))

    def append(self, rows: list[bytes]) -> None:
        """Publishes rows; on an error the file is as before, or the error says so."""
        position = FILE_HEADER_SIZE + self.count * ROW_SIZE
        data = rows[0] if len(rows) == 1 else b"".join(rows)
        try:
            self._disk.write(self.fd, [data], position)
        except OSError:
            self._disk.truncate(self.fd, position)
            raise
        self.count += len(rows)
        self.crc = crc32c(data, self.crc)

    def close(self) -> None:
        os.close(self.fd)
