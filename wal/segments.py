"""All segments of a log, and every kind of reading: by offset, by timestamp, by position. Never writes.

The writer's process and readers in other processes share this file; they differ in how they learn of new entries.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import numpy as np

from wal.control import PartitionSummary, SegmentRecord, SegmentSealed, decode_body
from wal.entry import HEADER_SIZE, EntryHeader, Kind, unpack_header
from wal.errors import LogDamagedError
from wal.index import Rows, load_rows, read_rows, scan_rows, topic_words
from wal.lookup import Lookup, PartitionRows
from wal.records import Record, decode_records
from wal.segment import FILE_HEADER_SIZE, SegmentFile, index_path, log_path
from wal.settings import KIB, MIB
from wal.state import Key

# Entries that lie this near to each other are read with one call; what lies between is thrown away.
READ_GAP_BYTES = 4 * KIB
# One call into the kernel reads at most this much (a single larger entry aside).
READ_BYTES = 8 * MIB


class Position(NamedTuple):
    """A place in the log; positions of one log sort by age."""

    segment: int
    position: int


class Entry(NamedTuple):
    """An entry as it lies in the log. `body` of a data entry is one record batch."""

    segment: int
    header: EntryHeader
    body: memoryview


class Segment:
    """One segment. A sealed one never changes; the active one grows through `lookup` and `end`."""

    def __init__(self, file: SegmentFile, lookup: Lookup | None, end: int) -> None:
        self.file = file
        self.end = end  # of the file, as far as it counts
        self.sealed: SegmentSealed | None = None
        self.sealed_at = 0
        self.lookup = lookup
        self.index_path = index_path(file.path.parent, file.number)
        self._summaries: dict[Key, PartitionSummary] = {}

    @property
    def number(self) -> int:
        return self.file.number

    @property
    def summaries(self) -> dict[Key, PartitionSummary]:
        """What it holds of each partition."""
        if self.sealed is not None:
            return self._summaries
        assert self.lookup is not None
        return self.lookup.summaries()

    def rows(self) -> Rows:
        """Its index rows, from the log itself where the index is missing or wrong."""
        return self.checked_rows()[0]

    def checked_rows(self) -> tuple[Rows, bool]:
        """The rows, and whether they had to be read from the log."""
        if self.sealed is not None:
            return load_rows(self.file, self.index_path, self.sealed_at, self.sealed.entries, self.sealed.index_crc)
        rows = read_rows(self.index_path, self.file.header, self.end)
        return (scan_rows(self.file, self.end), True) if rows is None else (rows, False)

    def seal(self, sealed: SegmentSealed, at: int) -> None:
        """From here on it does not change; `at` is where the seal stands, behind all data."""
        self.sealed = sealed
        self.sealed_at = at
        self._summaries = {(s.topic_id.bytes, s.partition): s for s in sealed.partitions}


def open_sealed(folder: Path, record: SegmentRecord, log_id: bytes) -> Segment:
    """A sealed segment that a checkpoint names; its size, header and seal are checked, its data when it is read."""
    path = log_path(folder, record.number)
    try:
        file = SegmentFile(path)
    except FileNotFoundError:
        raise LogDamagedError(
            f"{path} is missing, and the log needs it: put it back, or run `rafka-lab wal repair {folder}`",
            path=path,
            position=0,
        ) from None
    check_log_id(file, log_id)
    if file.size() != record.size:
        raise LogDamagedError(
            f"{path} has {file.size()} bytes, and {record.size} were sealed: run `rafka-lab wal repair {folder}`",
            path=path,
            position=min(file.size(), record.size),
        )
    entry = file.entry(record.sealed_at, record.size - record.sealed_at)
    segment = Segment(file, None, record.size)
    segment.seal(decode_body(SegmentSealed, entry[HEADER_SIZE:]), record.sealed_at)
    return segment


def check_log_id(file: SegmentFile, log_id: bytes) -> None:
    if file.header.log_id != log_id:
        raise LogDamagedError(
            f"{file.path} belongs to log {UUID(bytes=file.header.log_id)}, the others to {UUID(bytes=log_id)}: "
            "move it back where it came from",
            path=file.path,
            position=0,
        )


class Segments:
    """The segments in order, with lookups of sealed ones kept as long as they fit the cache."""

    def __init__(self, cache_bytes: int, on_wrong_index: Callable[[Segment], None] | None = None) -> None:
        self._cache_bytes = cache_bytes
        self._on_wrong_index = on_wrong_index  # a reader must not write, so it has none
        self._by_number: dict[int, Segment] = {}
        self._cached: dict[int, int] = {}  # segment -> bytes of its lookup, oldest use first

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    def __getitem__(self, number: int) -> Segment:
        return self._by_number[number]

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    @property
    def last(self) -> Segment:
        return next(reversed(self._by_number.values()))

    def add(self, segment: Segment) -> None:
        assert segment.number not in self._by_number
        late = bool(self._by_number) and segment.number < self.last.number
        self._by_number[segment.number] = segment
        if late:
            self._by_number = dict(sorted(self._by_number.items()))

    def drop(self, number: int) -> None:
        """Forgets a segment. Whoever reads it right now still can."""
        self._by_number.pop(number, None)
        self._cached.pop(number, None)

    def lookup(self, segment: Segment) -> Lookup:
        """The segment's lookup, built from the index at the first use."""
        if segment.sealed is None:
            assert segment.lookup is not None
            return segment.lookup
        lookup = segment.lookup
        if lookup is None:
            rows, from_log = segment.checked_rows()
            lookup = segment.lookup = Lookup.of(rows)
            if from_log and self._on_wrong_index is not None:
                self._on_wrong_index(segment)
        self._cached.pop(segment.number, None)
        self._cached[segment.number] = lookup.size
        self._trim()
        return lookup

    def _trim(self) -> None:
        total = sum(self._cached.values())
        for number in list(self._cached)[:-1]:
            if total <= self._cache_bytes:
                return
            total -= self._cached.pop(number)
            self._by_number[number].lookup = None

    def read(self, key: Key, offset: int, max_bytes: int, high_watermark: int) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on, at least one if there is any, up to `max_bytes`."""
        batches: list[memoryview] = []
        left = max_bytes
        for segment in self._holding(key, offset):
            rows = self.lookup(segment).partitions[key]
            at = rows.find(offset)
            found = _read_rows(segment.file, key, rows, at, left, high_watermark, not batches)
            if found and found[0][0].next_offset <= offset:  # the offset lies in a gap, as a repaired log may have
                found = _read_rows(segment.file, key, rows, at + 1, left, high_watermark, not batches)
                at += 1
            batches += [batch for _, batch in found]
            left -= sum(len(batch) for _, batch in found)
            if left <= 0 or at + len(found) < len(rows.offsets):  # a later segment would leave a gap
                break
        return batches

    def _holding(self, key: Key, offset: int) -> list[Segment]:
        """The segments with entries of the partition at `offset` or behind it, oldest first."""
        newest = self.last
        if newest.sealed is None:  # most reads are near the end
            rows = self.lookup(newest).partitions.get(key)
            if rows is not None and rows.offsets[0] <= offset:
                return [newest]
        found = []
        for segment in self:
            if segment.sealed is None:
                if key in self.lookup(segment).partitions:
                    found.append(segment)
            elif (summary := segment.summaries.get(key)) is not None and summary.next_offset > offset:
                found.append(segment)
        return found

    def first_at(self, key: Key, timestamp: int, log_start: int, high_watermark: int) -> Record | None:
        """The first record whose timestamp is `timestamp` or later."""
        for segment in self:
            summary = segment.summaries.get(key)
            if summary is None or summary.max_timestamp < timestamp or summary.next_offset <= log_start:
                continue
            for row in partition_index(segment.rows(), key, timestamp):
                for record in self._records(segment, row):
                    if record.timestamp >= timestamp and log_start <= record.offset < high_watermark:
                        return record
        return None

    def latest(self, key: Key, log_start: int) -> Record | None:
        """The first of the records with the largest timestamp."""
        best: Record | None = None
        for segment in self:
            summary = segment.summaries.get(key)
            if summary is None or summary.next_offset <= log_start:
                continue
            if best is not None and summary.max_timestamp <= best.timestamp:
                continue
            rows = partition_index(segment.rows(), key)
            rows = rows[rows["base_offset"] + rows["record_count"] > log_start]
            if not len(rows):
                continue
            # The first batch may reach back behind the log start, and its largest time may lie there.
            for row in (rows[0], rows[int(np.argmax(rows["max_timestamp"][1:])) + 1]) if len(rows) > 1 else rows:
                records = [record for record in self._records(segment, row) if record.offset >= log_start]
                newest = max(records, key=lambda record: record.timestamp, default=None)
                if newest is not None and (best is None or newest.timestamp > best.timestamp):
                    best = newest
        return best

    def _records(self, segment: Segment, row: np.void) -> list[Record]:
        entry = segment.file.entry(int(row["position"]), int(row["length"]))
        return decode_records(entry[HEADER_SIZE:])

    def entries(self, start: Position | None = None) -> Iterator[Entry]:
        """Every entry from `start` on, checked; the end is where the log ended when a segment was reached."""
        for segment in self:
            if start is not None and segment.number < start.segment:
                continue
            first = start.position if start is not None and segment.number == start.segment else 0
            for header, body in segment.file.scan(max(first, FILE_HEADER_SIZE), segment.end):
                yield Entry(segment.number, header, body)


def partition_index(rows: Rows, key: Key, timestamp: int | None = None) -> Rows:
    """The rows of a partition's data, of those that reach `timestamp` if it is given."""
    topic = topic_words(key[0])
    chosen = (rows["kind"] == Kind.DATA) & (rows["partition"] == key[1]) & (rows["topic"] == topic).all(axis=1)
    if timestamp is not None:
        chosen &= rows["max_timestamp"] >= timestamp
    found: Rows = rows[chosen]
    return found


def _read_rows(
    file: SegmentFile,
    key: Key,
    rows: PartitionRows,
    first: int,
    max_bytes: int,
    high_watermark: int,
    at_least_one: bool,
) -> list[tuple[EntryHeader, memoryview]]:
    """The batches of consecutive rows, with as few reads as their places allow.

    The CRC of an entry is checked when this process reads it for the first time: checking it for each of many
    consumers would cost as much as the reads. That it is the right entry is checked each time, and clients can check
    the batch's own CRC.
    """
    found: list[tuple[EntryHeader, memoryview]] = []
    last = _last_row(rows, first, max_bytes, high_watermark, at_least_one)
    at = first
    while at < last:
        start = rows.positions[at]
        stop = at
        end = start
        while stop < last:
            gap = rows.positions[stop] - end
            entry_end = rows.positions[stop] + rows.lengths[stop]
            if stop > at and (gap > READ_GAP_BYTES or entry_end - start > READ_BYTES):
                break
            end = entry_end
            stop += 1
        chunk = memoryview(os.pread(file.fd, end - start, start))
        for number in range(at, stop):
            position, length = rows.positions[number], rows.lengths[number]
            entry = chunk[position - start : position - start + length]
            if number not in rows.checked or len(entry) != length:
                file.check(entry, position, length)
            found.append((_check_row(file, entry, key, rows, number), entry[HEADER_SIZE:]))
        at = stop
    if found:
        rows.mark_checked(first, last)
    return found


def _last_row(rows: PartitionRows, first: int, max_bytes: int, high_watermark: int, at_least_one: bool) -> int:
    """The row behind the last one that fits."""
    last = first
    count = len(rows.offsets)
    while last < count and rows.offsets[last] < high_watermark:
        max_bytes -= rows.lengths[last] - HEADER_SIZE
        if max_bytes < 0 and not (at_least_one and last == first):
            break
        last += 1
    return last


def _check_row(file: SegmentFile, entry: memoryview, key: Key, rows: PartitionRows, number: int) -> EntryHeader:
    """A valid entry that is not the one the index promised would be served to the wrong reader."""
    header = unpack_header(entry)
    position = rows.positions[number]
    if header.length != rows.lengths[number] or header.position != position:
        file.check(entry, position, rows.lengths[number])
    if header.base_offset != rows.offsets[number] or header.partition != key[1] or header.topic_id != key[0]:
        raise LogDamagedError(
            f"the index of {file.path} points to another entry at position {position}: "
            "delete the .oidx file and start again; it is rebuilt",
            path=file.path,
            position=position,
        )
    return header
