"""Opening a log: finds the last checkpoint, checks what follows it, and tells a torn tail from damage.

The rules. An entry is bad if any check of it fails. A bad entry with nothing valid behind it is a torn tail: a copy is
kept, the tail is cut off, and the report says how much. A bad entry with a valid one behind it is damage, and the log
is not opened, with one exception: after a power loss, bytes that were never synced may be lost in any order. Every
entry says how far the log was synced when it was written, so damage that no entry calls synced is a torn tail too.
"""

import logging
import os
import time
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np

from wal.control import Checkpoint, SegmentRecord, SegmentSealed, decode_body
from wal.disk import Disk, boot_id
from wal.entry import HEADER_SIZE, EntryHeader, Kind
from wal.errors import LogDamagedError, UnknownFormatError, WalError
from wal.index import ROW_DTYPE, ROW_SIZE, IndexWriter, Rows, pack_row, read_rows, rows_crc, scan_rows
from wal.segment import (
    FILE_HEADER_SIZE,
    SCAN_BYTES,
    BadEntryError,
    FileHeader,
    SegmentFile,
    index_path,
    log_path,
    segment_numbers,
)
from wal.segments import Segment, Segments, open_sealed
from wal.settings import WalSettings
from wal.state import LogState
from wal.writer import ActiveSegment, create_segment, now_ms, reopen_segment

log = logging.getLogger(__name__)

TORN_FOLDER = "torn"


class RecoveryReport(msgspec.Struct, kw_only=True):
    """What opening the log did."""

    clean: bool = False
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    torn_copy: str | None = None
    rebuilt_indexes: list[int] = []
    seconds: float = 0.0


class Recovered(msgspec.Struct):
    """A log that is ready to be written to."""

    state: LogState
    segments: Segments
    active: ActiveSegment
    report: RecoveryReport
    created: bool  # the active segment is new, and opens with a checkpoint of this very state


def recover(folder: Path, settings: WalSettings, disk: Disk) -> Recovered:
    """Opens the log in `folder`, or makes a new one there."""
    started = time.perf_counter()
    _remove_unfinished(folder, disk)
    numbers = segment_numbers(folder)
    _refuse_missing_log(folder, numbers)
    recovered = _Recovery(folder, settings, disk, numbers[-1]).run() if numbers else _new_log(folder, settings, disk)
    report = recovered.report
    report.seconds = time.perf_counter() - started
    if report.truncated_bytes:
        log.warning(
            "the end of the log was torn: %d bytes cut off, a copy is in %s", report.truncated_bytes, report.torn_copy
        )
    return recovered


def _remove_unfinished(folder: Path, disk: Disk) -> None:
    """Files that never got their name hold nothing that anyone was promised."""
    for path in folder.iterdir():
        if path.name.endswith((".log.new", ".oidx.new")):
            disk.remove(path)


def _refuse_missing_log(folder: Path, numbers: list[int]) -> None:
    """The newest log file is never removed, and its index is made after it: an index beyond it tells of a loss."""
    newest = numbers[-1] if numbers else -1
    for path in folder.glob("*.oidx"):
        if path.stem.isdigit() and int(path.stem) > newest:
            missing = path.with_suffix(".log")
            raise LogDamagedError(
                f"{missing} is missing, but its index is there: put the file back, or delete {path.name} to go on "
                "without the records that were in it",
                path=missing,
                position=0,
            )


def _new_log(folder: Path, settings: WalSettings, disk: Disk) -> Recovered:
    header = FileHeader(0, uuid4().bytes, now_ms())
    active = create_segment(disk, folder, header, make_checkpoint(LogState(), None, clean=False))
    segments = Segments(settings.lookup_cache_bytes, lambda segment: rebuild_index(disk, segment))
    segments.add(active.segment)
    return Recovered(LogState(), segments, active, RecoveryReport(clean=True), created=True)


def make_checkpoint(state: LogState, index: IndexWriter | None, *, clean: bool) -> Checkpoint:
    """All that is known now. `index` is None for the first entry of a segment."""
    return Checkpoint(
        boot=boot_id(),
        clean=clean,
        entries=0 if index is None else index.count,
        index_crc=0 if index is None else index.crc,
        segments=list(state.segments.values()),
        topics=list(state.topics.values()),
        partitions=state.partition_records(),
        values=state.values,
    )


class _Recovery:
    """One attempt at the last segment; a torn tail that reaches behind the checkpoint asks for another."""

    def __init__(self, folder: Path, settings: WalSettings, disk: Disk, number: int) -> None:
        self._folder = folder
        self._settings = settings
        self._disk = disk
        self._path = log_path(folder, number)
        self._index_path = index_path(folder, number)
        self._report = RecoveryReport()

    def run(self) -> Recovered:
        self._file = SegmentFile(self._path, self._disk.open(self._path))
        while True:
            rows = self._rows()
            at, checkpoint = self._last_checkpoint(rows)
            state = LogState()
            state.restore(checkpoint.topics, checkpoint.partitions, checkpoint.values, checkpoint.segments)
            try:
                rows, sealed = self._scan(rows, at, checkpoint, state)
            except BadEntryError as error:
                self._cut(error, checkpoint.boot)
                continue
            return self._finish(rows, state, sealed)

    def _rows(self) -> Rows:
        """The index rows, or the log's own where the index has none that can be right."""
        rows = read_rows(self._index_path, self._file.header, self._file.size())
        if rows is not None and len(rows):
            return rows
        return self._rebuild()

    def _rebuild(self) -> Rows:
        self._report.rebuilt_indexes.append(self._file.number)
        packed = bytearray()  # not a list: a million small objects would take more memory than their rows
        try:
            for entry, _ in self._file.scan(FILE_HEADER_SIZE, self._file.size()):
                packed += pack_row(entry)
        except BadEntryError as error:
            if not packed:  # the first checkpoint was synced before the file got its name
                raise self._refuse(error, "the segment's first entry is gone") from None
        return np.frombuffer(packed, ROW_DTYPE)

    def _last_checkpoint(self, rows: Rows) -> tuple[int, Checkpoint]:
        """The last checkpoint that is whole and agrees with the index rows before it."""
        for trusted in (rows, None):
            known = self._rebuild() if trusted is None else trusted
            for at in reversed(np.flatnonzero(known["kind"] == Kind.CHECKPOINT).tolist()):
                checkpoint = self._checkpoint_at(known, at)
                if checkpoint is not None:
                    self._known = known
                    return at, checkpoint
        raise LogDamagedError(
            f"{self._path} has no readable checkpoint: run `rafka-lab wal repair {self._folder}`",
            path=self._path,
            position=FILE_HEADER_SIZE,
        )

    def _checkpoint_at(self, rows: Rows, at: int) -> Checkpoint | None:
        try:
            entry = self._file.entry(int(rows[at]["position"]), int(rows[at]["length"]))
            checkpoint = decode_body(Checkpoint, entry[HEADER_SIZE:])
        except WalError:
            return None
        return checkpoint if checkpoint.entries == at and checkpoint.index_crc == rows_crc(rows[:at]) else None

    def _scan(self, rows: Rows, at: int, checkpoint: Checkpoint, state: LogState) -> tuple[Rows, SegmentSealed | None]:
        """Checks what the checkpoint does not vouch for, and applies what follows it."""
        rows = self._known
        size = self._file.size()
        position = int(rows[at]["position"])
        start = self._scan_start(rows, at, checkpoint, size)
        packed = bytearray()
        sealed: SegmentSealed | None = None
        self._report.scanned_bytes += size - start
        for entry, body in self._file.scan(start, size):
            if entry.position < position:
                continue
            if entry.position > position:
                self._apply(state, entry, body)
            packed += pack_row(entry)
            if entry.kind == Kind.SEGMENT_SEALED:
                sealed = decode_body(SegmentSealed, body)
                state.segments[self._file.number] = SegmentRecord(self._file.number, entry.end, entry.position)
        self._report.clean = checkpoint.clean and len(packed) == ROW_SIZE and not self._report.truncated_bytes
        if rows[at:].tobytes() == packed:
            return rows, sealed  # as a rule the index has them all, and there is nothing to copy
        return np.concatenate([rows[:at], np.frombuffer(packed, ROW_DTYPE)]), sealed

    def _apply(self, state: LogState, entry: EntryHeader, body: memoryview) -> None:
        try:
            state.apply(entry, body)
        except (UnknownFormatError, LogDamagedError) as error:
            where = f"{self._path} at position {entry.position}"
            raise type(error)(f"{where}: {error}", path=self._path, position=entry.position) from None

    def _scan_start(self, rows: Rows, at: int, checkpoint: Checkpoint, size: int) -> int:
        position, length = int(rows[at]["position"]), int(rows[at]["length"])
        if checkpoint.clean and position + length == size:
            # All was synced; a bounded part is read all the same, since damage is best found before it is served.
            tail = max(FILE_HEADER_SIZE, size - self._settings.verify_tail_bytes)
            return int(rows["position"][np.searchsorted(rows["position"], tail, "right") - 1])
        if checkpoint.boot and checkpoint.boot == boot_id():
            return position  # the machine ran on, so the kernel kept all that was written
        header = self._header_at(position, length)
        # What was written and not synced before the checkpoint may be gone though the checkpoint itself is there.
        return int(rows["position"][np.searchsorted(rows["position"], header.durable_to, "right") - 1])

    def _header_at(self, position: int, length: int) -> EntryHeader:
        return next(self._file.scan(position, position + length))[0]

    def _cut(self, error: BadEntryError, boot: str) -> None:
        """Cuts off a torn tail, or refuses damage."""
        position, size = error.at, self._file.size()
        same_boot = bool(boot) and boot == boot_id()
        for entry in self._file.search(position + 1, size):
            if same_boot or entry.durable_to > position:
                raise self._refuse(error, f"a valid entry follows at position {entry.position}")
        copy = self._keep_copy(position, size)
        self._disk.truncate(self._file.fd, position)
        self._disk.sync(self._file.fd)
        self._report.truncated_bytes += size - position
        self._report.torn_copy = str(copy)

    def _keep_copy(self, position: int, size: int) -> Path:
        folder = self._folder / TORN_FOLDER
        folder.mkdir(exist_ok=True)
        copy = folder / f"{self._path.stem}-{position}-{now_ms()}.bytes"
        with copy.open("wb") as file:
            for at in range(position, size, SCAN_BYTES):
                file.write(os.pread(self._file.fd, min(SCAN_BYTES, size - at), at))
            os.fsync(file.fileno())
        return copy

    def _refuse(self, error: BadEntryError, why: str) -> LogDamagedError:
        return LogDamagedError(
            f"{error}, and {why}: this is damage, not an unfinished write, so the log is not opened. "
            f"`rafka-lab wal repair {self._folder} NEW_FOLDER` copies what is good into a new log",
            path=self._path,
            position=error.position,
        )

    def _finish(self, rows: Rows, state: LogState, sealed: SegmentSealed | None) -> Recovered:
        disk = self._disk  # not self, which holds on to the rows
        segments = Segments(self._settings.lookup_cache_bytes, lambda segment: rebuild_index(disk, segment))
        self._open_sealed(segments, state)
        # A killed predecessor's last entries may not be on the disk yet. If they went away in a power loss, the log
        # would still need the segments that are removed next, and miss the end of a segment that another one follows.
        self._disk.sync(self._file.fd)
        self._remove_dropped(state)
        if sealed is not None:
            active = self._next_segment(state)
        else:
            active = reopen_segment(self._disk, self._file, rows, self._index(rows))
        segments.add(active.segment)
        return Recovered(state, segments, active, self._report, created=sealed is not None)

    def _index(self, rows: Rows) -> IndexWriter:
        """The index file with exactly these rows."""
        on_disk = read_rows(self._index_path, self._file.header, self._file.size())
        if on_disk is None or len(on_disk) > len(rows) or rows_crc(on_disk) != rows_crc(rows[: len(on_disk)]):
            if self._file.number not in self._report.rebuilt_indexes:
                self._report.rebuilt_indexes.append(self._file.number)
            return IndexWriter.create(self._disk, self._index_path, self._file.header, rows)
        index = IndexWriter.reopen(self._disk, self._index_path, rows[: len(on_disk)])
        if len(rows) > len(on_disk):
            index.append([rows[len(on_disk) :].tobytes()])
            index.count = len(rows)
        return index

    def _open_sealed(self, segments: Segments, state: LogState) -> None:
        for number in sorted(state.segments):
            segment = open_sealed(self._folder, state.segments[number], self._file.header.log_id)
            if not has_index(segment):
                rebuild_index(self._disk, segment)
                self._report.rebuilt_indexes.append(number)
            segments.add(segment)

    def _remove_dropped(self, state: LogState) -> None:
        """A crash may have come between the entry that drops segments and the removal of their files."""
        indexes = {int(path.stem) for path in self._folder.glob("*.oidx") if path.stem.isdigit()}
        for number in sorted(indexes.union(segment_numbers(self._folder))):
            if number < self._file.number and number not in state.segments:
                remove_segment(self._disk, self._folder, number)

    def _next_segment(self, state: LogState) -> ActiveSegment:
        """The crash came between sealing a segment and opening the next one."""
        header = FileHeader(self._file.number + 1, self._file.header.log_id, now_ms())
        return create_segment(self._disk, self._folder, header, make_checkpoint(state, None, clean=False))


def has_index(segment: Segment) -> bool:
    """Whether a sealed segment has an index of the right size; what it says is checked when it is read."""
    assert segment.sealed is not None
    path = segment.index_path
    return path.exists() and path.stat().st_size == FILE_HEADER_SIZE + (segment.sealed.entries + 1) * ROW_SIZE


def rebuild_index(disk: Disk, segment: Segment) -> None:
    """Writes a sealed segment's index anew, from its log, the seal's own row included."""
    rows = scan_rows(segment.file, segment.file.size())
    IndexWriter.create(disk, segment.index_path, segment.file.header, rows).close()


def remove_segment(disk: Disk, folder: Path, number: int) -> None:
    """Removes a segment's two files; the log first, since an index without a log means nothing."""
    for path in (log_path(folder, number), index_path(folder, number)):
        if path.exists():
            disk.remove(path)
    disk.sync_folder(folder)
