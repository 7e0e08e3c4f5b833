"""From a partition's offset to the entry that holds it, in memory: 16 bytes an entry (offset 8, position 4, length 4).

One `Lookup` a segment. The active segment's grows with each append; a sealed one's is built from its index rows.
"""

from array import array
from bisect import bisect_right
from uuid import UUID

import numpy as np

from wal.control import PartitionSummary
from wal.entry import EntryHeader, Kind
from wal.index import Rows, row_times
from wal.state import Key

BYTES_PER_ENTRY = 16
# Rows are sorted and copied this many at a time, since a whole index of copies would take more than all lookups.
_CHUNK_ROWS = 65_536


class PartitionRows:
    """The entries of one partition in one segment, in offset order."""

    __slots__ = ("bytes", "checked", "lengths", "max_timestamp", "next_offset", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("I")
        self.lengths = array("I")
        self.next_offset = 0
        self.bytes = 0
        self.max_timestamp = -1
        self.checked = range(0)  # rows whose entries were read with a right CRC; one stretch, so it costs nothing

    def add(self, entry: EntryHeader) -> None:
        self.offsets.append(entry.base_offset)
        self.positions.append(entry.position)
        self.lengths.append(entry.length)
        self.next_offset = entry.base_offset + entry.record_count
        self.bytes += entry.length
        time = entry.max_timestamp if entry.max_timestamp >= 0 else entry.append_time
        if time > self.max_timestamp:
            self.max_timestamp = time

    def extend(self, rows: Rows) -> None:
        """The rows of this partition, in the order of the log."""
        self.offsets.frombytes(rows["base_offset"].astype("<i8").tobytes())
        self.positions.frombytes(rows["position"].astype("<u4").tobytes())
        self.lengths.frombytes(rows["length"].tobytes())
        self.next_offset = int(rows["base_offset"][-1]) + int(rows["record_count"][-1])
        self.bytes += int(rows["length"].sum(dtype=np.int64))
        self.max_timestamp = max(self.max_timestamp, int(row_times(rows).max()))

    def mark_checked(self, first: int, last: int) -> None:
        """Rows from `first` to before `last` were read with a right CRC."""
        known = self.checked
        if first <= known.stop and known.start <= last and known:
            self.checked = range(min(first, known.start), max(last, known.stop))
        else:
            self.checked = range(first, last)

    def find(self, offset: int) -> int:
        """Which entry holds `offset`, or the first one behind it."""
        at = bisect_right(self.offsets, offset) - 1
        return max(at, 0)


class Lookup:
    """All partitions of one segment."""

    def __init__(self) -> None:
        self.partitions: dict[Key, PartitionRows] = {}
        self.entries = 0

    @property
    def size(self) -> int:
        """Bytes of memory, near enough to bound a cache by."""
        return self.entries * BYTES_PER_ENTRY

    def add(self, entry: EntryHeader) -> None:
        """A data entry that was appended."""
        self._partition((entry.topic_id, entry.partition)).add(entry)
        self.entries += 1

    @classmethod
    def of(cls, rows: Rows) -> "Lookup":
        """From the rows of an index."""
        lookup = cls()
        for start in range(0, len(rows), _CHUNK_ROWS):
            lookup.extend(rows[start : start + _CHUNK_ROWS])
        return lookup

    def extend(self, rows: Rows) -> None:
        """Takes in the data rows of an index, many at a time."""
        data = rows[rows["kind"] == Kind.DATA]
        self.entries += len(data)
        if not len(data):
            return
        order = np.lexsort((data["partition"], data["topic"][:, 1], data["topic"][:, 0]))  # stable: offsets stay sorted
        keys = np.empty(len(data), [("high", "<u8"), ("low", "<u8"), ("partition", "<i4")])
        keys["high"], keys["low"] = data["topic"][order, 0], data["topic"][order, 1]
        keys["partition"] = data["partition"][order]
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            chosen = data[order[start:end]]
            self._partition(_key(chosen)).extend(chosen)

    def _partition(self, key: Key) -> PartitionRows:
        rows = self.partitions.get(key)
        if rows is None:
            rows = self.partitions[key] = PartitionRows()
        return rows

    def summaries(self) -> dict[Key, PartitionSummary]:
        """What the segment holds of each partition."""
        return {
            (topic_id, partition): PartitionSummary(
                UUID(bytes=topic_id),
                partition,
                rows.offsets[0],
                rows.next_offset,
                len(rows.offsets),
                rows.bytes,
                rows.max_timestamp,
            )
            for (topic_id, partition), rows in self.partitions.items()
        }


def _key(rows: Rows) -> Key:
    return rows["topic"][0].tobytes(), int(rows["partition"][0])
