"""What a Spark task does with a split: opens the segment, takes its index rows, and gives Arrow record batches."""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from wal.arrow_scan import Request, Skipped, scan_batches, scan_records
from wal.errors import LogDamagedError, WalError
from wal.index import ROW_DTYPE, ROW_SIZE, Rows, scan_rows
from wal.segment import FILE_HEADER_SIZE, SegmentFile, index_path, log_path
from wal.segments import check_log_id
from wal.spark_options import BATCHES, Options
from wal.spark_plan import Split

_LOG = logging.getLogger(__name__)

# A Spark worker collects all garbage after each task, which takes 50 ms with all these libraries in memory. Frozen,
# they are left out, and a task costs 5 ms.
gc.freeze()


def read_split(split: Split, options: Options) -> Iterator[pa.RecordBatch]:
    """The wanted records, or batches, of a split. What cannot be read is an error, or logged, as the options say."""
    skipped = Skipped()
    try:
        yield from _read(split, options, skipped)
    except WalError as error:
        if options.fail_on_data_loss:
            raise
        _LOG.warning(
            "rafka_wal left out the rest of segment %d from entry %d on: %s", split.segment, split.first, error
        )
    if skipped.batches:
        _LOG.warning(
            "rafka_wal left out %d batches with %d records of segment %d, first: %s",
            skipped.batches,
            skipped.records,
            split.segment,
            skipped.first,
        )


def _read(split: Split, options: Options, skipped: Skipped) -> Iterator[pa.RecordBatch]:
    file = _open(split)
    rows = _rows(split, file)
    rows = rows[split.selection.chosen(rows, split.segment)]
    request = Request(
        columns=options.columns,
        names=split.selection.names,
        first_offsets=split.selection.first_offsets,
        start_time=options.start_time,
        end_time=options.end_time,
        verify_crc=options.verify_crc,
        skip_bad=not options.fail_on_data_loss,
    )
    if options.view == BATCHES:
        yield from scan_batches(file, rows, request)
    else:
        yield from scan_records(file, rows, request, skipped)


def _open(split: Split) -> SegmentFile:
    path = log_path(Path(split.folder), split.segment)
    try:
        file = SegmentFile(path)
    except FileNotFoundError:
        raise WalError(
            f"{path} was removed while the query ran, since retention let go of all its records: run the query again, "
            "or set failOnDataLoss=false to go on without them (on a cluster: the folder must be shared with all "
            "executors)",
            path=path,
        ) from None
    check_log_id(file, split.log_id)
    return file


def _rows(split: Split, file: SegmentFile) -> Rows:
    """The split's rows: as the driver sent them, from the index, or from the log if the index went away since."""
    if split.rows is not None:
        return np.frombuffer(split.rows, ROW_DTYPE)
    count = split.stop - split.first
    try:
        path = index_path(Path(split.folder), split.segment)
        rows = np.fromfile(path, ROW_DTYPE, count, offset=FILE_HEADER_SIZE + split.first * ROW_SIZE)
    except FileNotFoundError:
        rows = np.empty(0, ROW_DTYPE)
    if _fits(rows, split, count):
        return rows
    rows = scan_rows(file, split.end)[split.first : split.stop]
    if not _fits(rows, split, count):
        raise LogDamagedError(
            f"{file.path} has changed since the query was planned: run it again",
            path=file.path,
            position=split.position,
        )
    return rows


def _fits(rows: Rows, split: Split, count: int) -> bool:
    if len(rows) != count:
        return False
    last = rows[-1]
    return bool(rows["position"][0] == split.position and int(last["position"]) + int(last["length"]) == split.end)
