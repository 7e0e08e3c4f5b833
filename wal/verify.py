"""Reads a whole log and says everything that is wrong with it. Changes nothing."""

from pathlib import Path
from uuid import UUID

import msgspec

from wal.control import Checkpoint, decode_body
from wal.entry import EntryHeader, Kind
from wal.errors import WalError
from wal.index import pack_row, read_rows
from wal.records import decode_records
from wal.segment import Hole, SegmentFile, index_path, log_path, segment_numbers
from wal.state import Key, LogState


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where."""

    path: str
    position: int
    what: str


class Gap(msgspec.Struct, frozen=True):
    """Offsets that no entry holds."""

    topic_id: str
    partition: int
    first_missing: int
    next_found: int


class Verified(msgspec.Struct, kw_only=True):
    """The result: sound if there is no problem. A torn tail is what a crash leaves, a gap what a repair leaves."""

    segments: int = 0
    entries: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    torn_tail_bytes: int = 0
    problems: list[Problem] = []
    gaps: list[Gap] = []

    @property
    def sound(self) -> bool:
        return not self.problems


def verify(folder: Path) -> Verified:
    """Checks every byte: headers, entries, batches, records, indexes, offsets, and that no segment is missing."""
    return _Verification(folder).run()


class _Verification:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._result = Verified()
        self._state = LogState()
        self._folded = False  # whether the state so far is complete, from a checkpoint on
        self._ends: dict[Key, int] = {}
        self._gaps: list[tuple[Key, int, int]] = []

    def run(self) -> Verified:
        numbers = segment_numbers(self._folder)
        if not numbers:
            raise WalError(f"there is no log in {self._folder}: give the folder with the .log files", path=self._folder)
        for number in numbers:
            try:
                self._segment(SegmentFile(log_path(self._folder, number)), last=number == numbers[-1])
            except WalError as error:
                self._problem(error.path or str(log_path(self._folder, number)), error.position or 0, str(error))
        for number in sorted(set(self._state.segments) - set(numbers)):
            self._problem(str(log_path(self._folder, number)), 0, "the segment is missing, and the log needs it")
        self._result.gaps = [
            Gap(str(UUID(bytes=topic_id)), partition, end, found)
            for (topic_id, partition), end, found in self._gaps
            if (state := self._state.partitions.get((topic_id, partition))) is not None and found > state.log_start
        ]
        return self._result

    def _segment(self, file: SegmentFile, *, last: bool) -> None:
        result = self._result
        size = file.size()
        result.segments += 1
        result.bytes += size
        packed: list[bytes] = []
        for found in file.salvage():
            if isinstance(found, Hole):
                self._hole(file, found, torn_tail=last and found.end == size)
                continue
            entry, body = found
            packed.append(pack_row(entry))
            result.entries += 1
            self._entry(file, entry, body)
        self._index(file, packed, size)

    def _hole(self, file: SegmentFile, hole: Hole, *, torn_tail: bool) -> None:
        if torn_tail:
            self._result.torn_tail_bytes = hole.end - hole.start
        else:
            self._problem(str(file.path), hole.start, hole.what)

    def _entry(self, file: SegmentFile, entry: EntryHeader, body: memoryview) -> None:
        try:
            if entry.kind == Kind.DATA:
                self._result.batches += 1
                self._result.records += self._data(entry, body)
            if entry.kind == Kind.CHECKPOINT:
                self._checkpoint(decode_body(Checkpoint, body))
            else:
                self._state.apply(entry, body)
        except WalError as error:
            self._problem(str(file.path), entry.position, str(error))

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint must say what the entries before it say; the first one has the last word on what is gone."""
        before = self._state
        self._state = LogState()
        self._state.restore(checkpoint.topics, checkpoint.partitions, checkpoint.values, checkpoint.segments)
        if self._folded:
            self._lost_ends(before)
            if _facts(before) != _facts(self._state):
                raise WalError("the checkpoint differs from what the entries before it add up to")
        self._folded = True

    def _lost_ends(self, before: LogState) -> None:
        """A partition may end behind its last entry: a repair keeps the end of one whose last batches were lost."""
        for key, state in self._state.partitions.items():
            end = known.next_offset if (known := before.partitions.get(key)) is not None else 0
            if key[0] in before.topics and state.next_offset > end:
                self._gaps.append((key, end, state.next_offset))
                self._ends[key] = before.partition(*key).next_offset = state.next_offset

    def _data(self, entry: EntryHeader, body: memoryview) -> int:
        key = (entry.topic_id, entry.partition)
        end = self._ends.get(key)
        if end is not None and entry.base_offset != end:
            self._gaps.append((key, end, entry.base_offset))
        self._ends[key] = entry.next_offset
        records = decode_records(body)
        if len(records) != entry.record_count or records[0].offset != entry.base_offset:
            raise WalError(
                f"the entry says {entry.record_count} records from offset {entry.base_offset}, its batch has "
                f"{len(records)} from {records[0].offset}"
            )
        return len(records)

    def _index(self, file: SegmentFile, packed: list[bytes], size: int) -> None:
        path = index_path(self._folder, file.number)
        rows = read_rows(path, file.header, size)
        if rows is None or rows.tobytes() != b"".join(packed):
            self._problem(str(path), 0, "the index does not match the log: it is rebuilt when the log is opened")

    def _problem(self, path: str, position: int, what: str) -> None:
        self._result.problems.append(Problem(path, position, what))


def _facts(state: LogState) -> tuple[object, ...]:
    """What two states must agree on. Producers may be forgotten at a checkpoint; segments are the writer's own."""
    ends = {key: (known.log_start, known.next_offset) for key, known in state.partitions.items() if known.next_offset}
    return state.topics, state.values, ends
