"""Reads many entries of a segment at once, by their index rows, and says which of them are not what the index says.

Reads with `pread` and not through a mapping: a file that is cut off meanwhile then is an error, not the end of the
process.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from wal.arrow_decoder import BATCH_HEADER, gather
from wal.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from wal.batch import MAGIC, check_batch
from wal.entry import CRC_FROM, HEADER_SIZE
from wal.errors import BatchError, LogDamagedError, WalError
from wal.index import Rows
from wal.segment import SegmentFile
from wal.settings import KIB, MIB

# One step of a scan: small enough that its columns stay near the CPU's caches, large enough that what numpy, Arrow
# and Spark cost a call does not matter.
STEP_BYTES = 8 * MIB
STEP_RECORDS = 16_384
# Entries nearer to each other than this are read with one call; what lies between is thrown away.
READ_GAP_BYTES = 64 * KIB

# Where `length` of a batch starts to count, and an entry's fields that its index row repeats.
_BATCH_LENGTH_FROM = 12
_ENTRY = np.dtype(
    {
        "names": ["length", "crc", "position", "kind", "partition", "topic", "base_offset", "record_count"],
        "formats": ["<u4", "<u4", "<u8", "u1", "<i4", ("<u8", (2,)), "<i8", "<u4"],
        "offsets": [0, 4, 8, 16, 20, 32, 48, 56],
        "itemsize": HEADER_SIZE,
    }
)


class Entries(NamedTuple):
    """Data entries in memory. The batch of entry i is data[starts[i]:ends[i]]; `headers` are the batches' headers."""

    rows: Rows
    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    headers: np.ndarray

    def batch(self, number: int) -> memoryview:
        return self.data.data[int(self.starts[number]) : int(self.ends[number])]

    def without(self, bad: list[int]) -> "Entries":
        return self.only(np.delete(np.arange(len(self.rows)), bad))

    def only(self, good: list[int] | np.ndarray) -> "Entries":
        return Entries(self.rows[good], self.data, self.starts[good], self.ends[good], self.headers[good])


def steps(rows: Rows) -> Iterator[Rows]:
    """The rows in runs that are decoded together."""
    sizes = np.cumsum(rows["length"], dtype=np.int64)
    records = np.cumsum(rows["record_count"], dtype=np.int64)
    start = 0
    while start < len(rows):
        before = (int(sizes[start - 1]), int(records[start - 1])) if start else (0, 0)
        by_size = int(np.searchsorted(sizes, before[0] + STEP_BYTES, "right"))
        by_records = int(np.searchsorted(records, before[1] + STEP_RECORDS, "right"))
        stop = max(start + 1, min(by_size, by_records))
        yield rows[start:stop]
        start = stop


class Scratch:
    """Memory that one step of a scan reads into after the other, so that its pages are touched anew only once."""

    def __init__(self) -> None:
        self._data = np.empty(0, np.uint8)

    def room(self, size: int) -> np.ndarray:
        if len(self._data) < size:
            self._data = np.empty(size, np.uint8)
        return self._data[:size]


def read_entries(
    file: SegmentFile, rows: Rows, *, verify_crc: bool, scratch: Scratch | None = None
) -> tuple[Entries, dict[int, WalError]]:
    """The entries of these data rows, and what is wrong with those that are bad, by number.

    With a `scratch` the entries are good until it is used again.
    """
    data, starts = _read(file, rows, scratch or Scratch())
    lengths = rows["length"].astype(np.int64)
    short = lengths < HEADER_SIZE + BATCH_HEADER_SIZE
    if short.any():
        raise _index_is_wrong(file, int(rows["position"][int(np.argmax(short))]))
    headers = gather(data, starts + HEADER_SIZE, BATCH_HEADER)
    entries = Entries(rows, data, starts + HEADER_SIZE, starts + lengths, headers)
    suspect = _differ_from_index(data, starts, rows) | _differ_from_entry(headers, rows, lengths)
    if verify_crc:
        suspect |= _wrong_crc(file, data, starts, lengths)
    return entries, {int(at): _fault(file, entries, int(at), verify_crc) for at in np.flatnonzero(suspect)}


def _read(file: SegmentFile, rows: Rows, scratch: Scratch) -> tuple[np.ndarray, np.ndarray]:
    """The entries' bytes in one array, and where in it each one starts."""
    positions = rows["position"].astype(np.int64)
    ends = positions + rows["length"]
    breaks = np.flatnonzero(positions[1:] - ends[:-1] > READ_GAP_BYTES) + 1
    firsts = np.concatenate(([0], breaks))
    lasts = np.concatenate((breaks, [len(rows)])) - 1
    spans = ends[lasts] - positions[firsts]
    places = np.concatenate(([0], np.cumsum(spans)))
    data = scratch.room(int(places[-1]))
    view = data.data
    for first, place, end in zip(firsts, places[:-1], places[1:], strict=True):
        _fill(file, view[int(place) : int(end)], int(positions[first]))
    shifts = np.repeat(places[:-1] - positions[firsts], lasts - firsts + 1)
    return data, positions + shifts


def _fill(file: SegmentFile, target: memoryview, position: int) -> None:
    done = 0
    while done < len(target):
        count = os.preadv(file.fd, [target[done:]], position + done)
        if not count:
            raise LogDamagedError(
                f"{file.path} ends at position {position + done}, before the end of entries that its index has: "
                f"run `rafka-lab wal verify {file.path.parent}`",
                path=file.path,
                position=position + done,
            )
        done += count


def _differ_from_index(data: np.ndarray, starts: np.ndarray, rows: Rows) -> np.ndarray:
    found = gather(data, starts, _ENTRY)
    differ: np.ndarray = (found["topic"] != rows["topic"]).any(axis=1)
    for name in ("length", "position", "kind", "partition", "base_offset", "record_count"):
        differ |= found[name] != rows[name]
    return differ


def _differ_from_entry(headers: np.ndarray, rows: Rows, lengths: np.ndarray) -> np.ndarray:
    differ: np.ndarray = headers["magic"] != MAGIC
    differ |= headers["base_offset"] != rows["base_offset"]
    differ |= headers["record_count"] != rows["record_count"]
    differ |= headers["length"] != lengths - HEADER_SIZE - _BATCH_LENGTH_FROM
    return differ


def _wrong_crc(file: SegmentFile, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    stated = gather(data, starts, _ENTRY)["crc"].tolist()
    view, seed = data.data, file.seed
    places = zip(starts.tolist(), lengths.tolist(), stated, strict=True)
    return np.array([crc32c(view[at + CRC_FROM : at + length], seed) != crc for at, length, crc in places])


def _fault(file: SegmentFile, entries: Entries, number: int, verify_crc: bool) -> WalError:
    """What is wrong with an entry that something is wrong with."""
    row = entries.rows[number]
    position, length = int(row["position"]), int(row["length"])
    entry = entries.data.data[int(entries.starts[number]) - HEADER_SIZE : int(entries.ends[number])]
    try:
        file.check(entry, position, length)
        check_batch(entry[HEADER_SIZE:], verify_crc=verify_crc, produced=False)
    except BatchError as error:
        return damaged(file, position, error)
    except LogDamagedError as error:
        return error
    return _index_is_wrong(file, position)


def damaged(file: SegmentFile, position: int, error: BatchError) -> LogDamagedError:
    """An entry whose batch cannot be read, though it may be just what a producer sent."""
    return LogDamagedError(
        f"{file.path} holds a batch at position {position} that cannot be read: {error}. Set failOnDataLoss=false to "
        "go on without it",
        path=file.path,
        position=position,
    )


def _index_is_wrong(file: SegmentFile, position: int) -> LogDamagedError:
    return LogDamagedError(
        f"the index of {file.path} disagrees with the entry at position {position}: stop the broker, delete the .oidx "
        "file and start it again; it is rebuilt",
        path=file.path,
        position=position,
    )
