"""From a segment's index rows to Arrow record batches, as records or as one row a batch. What the Spark source reads.

Which rows these are (topics that live, splits, pushed filters) was decided before, in `spark_plan`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from wal.arrow_columns import DECODED_COLUMNS, MICROSECONDS, arrow_schema, first_offsets, index_column
from wal.arrow_decoder import (
    BadBatchError,
    Payload,
    decode_payload,
    inflate,
    inflated_payload,
    plain_payload,
)
from wal.arrow_entries import Entries, Scratch, damaged, read_entries, steps
from wal.batch import CODEC_MASK
from wal.errors import BatchError, WalError
from wal.index import Rows
from wal.segment import SegmentFile
from wal.settings import MIB
from wal.state import Key

# Decompressed records are gathered up to this size before they are decoded: far from the 2 GiB that Arrow's offsets
# reach, also with one batch of 64 MiB more.
INFLATED_BYTES = 32 * MIB


@dataclass(frozen=True)
class Request:
    """What is wanted of the rows. `first_offsets` are log starts and starting offsets, where they are not 0."""

    columns: tuple[str, ...]
    names: Mapping[bytes, str]
    first_offsets: Mapping[Key, int] = field(default_factory=dict)
    start_time: int | None = None
    end_time: int | None = None  # the first millisecond that is not wanted any more
    verify_crc: bool = True
    skip_bad: bool = False


@dataclass
class Skipped:
    """What was left out because it cannot be read."""

    batches: int = 0
    records: int = 0
    first: str = ""

    def add(self, records: int, error: WalError) -> None:
        self.batches += 1
        self.records += records
        self.first = self.first or str(error)


def scan_batches(file: SegmentFile, rows: Rows, request: Request) -> Iterator[pa.RecordBatch]:
    """One row an entry. The log itself is read only for the column `fault`."""
    for step in steps(rows):
        arrays = {name: _batch_column(name, file, step, request) for name in request.columns}
        yield _record_batch(arrays, request)


def _batch_column(name: str, file: SegmentFile, rows: Rows, request: Request) -> pa.Array:
    if name == "live_records":
        hidden = np.clip(first_offsets(rows, request.first_offsets) - rows["base_offset"], 0, rows["record_count"])
        return pa.array(rows["record_count"] - hidden)
    if name == "fault":
        _, faults = read_entries(file, rows, verify_crc=True)
        return pa.array([str(faults[at]) if at in faults else None for at in range(len(rows))], pa.string())
    return index_column(name, rows, request.names, file.number)


def scan_records(file: SegmentFile, rows: Rows, request: Request, skipped: Skipped) -> Iterator[pa.RecordBatch]:
    """One row a record, in the order of the log."""
    filtered_by_time = request.start_time is not None or request.end_time is not None
    if not filtered_by_time and not DECODED_COLUMNS & set(request.columns):
        for step in steps(rows):
            yield from _finish(file, step, {"offset": _offsets(step)}, request)
        return
    scratch = Scratch()
    for step in steps(rows):
        entries, faults = read_entries(file, step, verify_crc=request.verify_crc, scratch=scratch)
        for number in sorted(faults):
            _skip(faults[number], int(step["record_count"][number]), request, skipped)
        if faults:
            entries = entries.without(sorted(faults))
        yield from _decode(file, entries, request, skipped)


def _skip(error: WalError, records: int, request: Request, skipped: Skipped) -> None:
    if not request.skip_bad:
        raise error
    skipped.add(records, error)


def _decode(file: SegmentFile, entries: Entries, request: Request, skipped: Skipped) -> Iterator[pa.RecordBatch]:
    for some, payload in _payloads(file, entries, request, skipped):
        while len(some.rows):
            try:
                arrays = decode_payload(payload, request.columns, some.batch)
            except BadBatchError as error:
                row = some.rows[error.number]
                _skip(damaged(file, int(row["position"]), error), int(row["record_count"]), request, skipped)
                some, payload = some.without([error.number]), payload.without(error.number)
            else:
                yield from _finish(file, some.rows, arrays, request)
                break


def _payloads(
    file: SegmentFile, entries: Entries, request: Request, skipped: Skipped
) -> Iterator[tuple[Entries, Payload]]:
    """The entries with their plain records, in runs that are not too large once decompressed."""
    if not (entries.headers["attributes"] & CODEC_MASK).any():
        yield entries, plain_payload(entries.data, entries.starts, entries.ends, entries.headers)
        return
    chosen: list[int] = []
    parts: list[memoryview] = []
    size = 0
    for number, attributes in enumerate(entries.headers["attributes"].tolist()):
        try:
            part = inflate(entries.batch(number), attributes)
        except BatchError as error:
            row = entries.rows[number]
            _skip(damaged(file, int(row["position"]), error), int(row["record_count"]), request, skipped)
            continue
        if size + len(part) > INFLATED_BYTES and parts:
            yield _inflated(entries, chosen, parts)
            chosen, parts, size = [], [], 0
        chosen.append(number)
        parts.append(part)
        size += len(part)
    if parts:
        yield _inflated(entries, chosen, parts)


def _inflated(entries: Entries, chosen: list[int], parts: list[memoryview]) -> tuple[Entries, Payload]:
    some = entries.only(chosen)
    return some, inflated_payload(parts, some.headers)


def _finish(file: SegmentFile, rows: Rows, arrays: dict[str, pa.Array], request: Request) -> Iterator[pa.RecordBatch]:
    """Adds the columns that all records of a batch share, and leaves out records that are not wanted."""
    for name in request.columns:
        if name not in arrays:
            arrays[name] = index_column(name, rows, request.names, file.number, by_record=True)
    wanted = _wanted(rows, arrays, request)
    found = _record_batch(arrays, request)
    if wanted is not None:
        found = found.filter(pa.array(wanted))
    if found.num_rows:
        yield found


def _wanted(rows: Rows, arrays: dict[str, pa.Array], request: Request) -> np.ndarray | None:
    """Which records are wanted; None if all are."""
    wanted: np.ndarray | None = None
    firsts = first_offsets(rows, request.first_offsets)
    if (firsts > rows["base_offset"]).any():
        wanted = arrays["offset"].to_numpy() >= np.repeat(firsts, rows["record_count"])
    if request.start_time is not None or request.end_time is not None:
        # A time that Spark cannot hold is null here; it lies outside of every range.
        times = arrays["timestamp"].cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        inside = times != np.iinfo(np.int64).min
        if request.start_time is not None:
            inside &= times >= request.start_time * MICROSECONDS
        if request.end_time is not None:
            inside &= times < request.end_time * MICROSECONDS
        wanted = inside if wanted is None else wanted & inside
    return wanted


def _offsets(rows: Rows) -> pa.Array:
    """Offsets from the index alone: the log takes only batches without gaps."""
    counts = rows["record_count"].astype(np.int64)
    ends = np.cumsum(counts)
    shifts = rows["base_offset"] - (ends - counts)
    return pa.array(np.repeat(shifts, counts) + np.arange(int(ends[-1])))


def _record_batch(arrays: dict[str, pa.Array], request: Request) -> pa.RecordBatch:
    schema = arrow_schema(request.columns)
    return pa.RecordBatch.from_arrays([arrays[name] for name in request.columns], schema=schema)
