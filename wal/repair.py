"""Copies what is good of a damaged log into a new folder, with a report of what is not. The old folder stays as it is.

Records keep their offsets, so a lost batch leaves a gap that consumers step over.
"""

from pathlib import Path
from uuid import UUID

import msgspec

from wal.control import Checkpoint, TopicRecord, decode_body
from wal.entry import EntryHeader, Kind
from wal.errors import UnknownFormatError, WalError
from wal.folder import KeepClosed
from wal.log import SingleWal
from wal.segment import (
    FILE_HEADER_SIZE,
    LOG_MAGIC,
    FileHeader,
    Hole,
    SegmentFile,
    log_path,
    parse_file_header,
    segment_numbers,
)
from wal.verify import Gap, Verified, verify

_LOG_ID_AT = 24  # of the file header


class BadRange(msgspec.Struct, frozen=True):
    """Bytes that hold no valid entry."""

    path: str
    start: int
    end: int
    what: str


class Repaired(msgspec.Struct, kw_only=True):
    """What was copied and what was not."""

    target: str
    entries: int = 0
    records: int = 0
    lost_bytes: int = 0
    bad_ranges: list[BadRange] = []
    missing_segments: list[int] = []
    gaps: list[Gap] = []
    recovered_topics: list[str] = []


def repair(folder: Path, target: Path) -> Repaired:
    """Copies the good part of the log in `folder` into a new log in `target`, which must be empty or not there."""
    if not segment_numbers(folder):
        raise WalError(f"there is no log in {folder}: give the folder with the .log files", path=folder)
    if target.exists() and any(target.iterdir()):
        raise WalError(f"{target} is not empty: give a new folder for the repaired log", path=target)
    with KeepClosed(folder), SingleWal.open(target) as new:
        report = _Repair(folder, new).run()
    verified = verify(target)
    report.gaps = verified.gaps
    _check(verified, target)
    return report


def _check(verified: Verified, target: Path) -> None:
    """The copy is a log like any other; if it is not sound, the mistake is ours."""
    if verified.problems:
        raise WalError(f"the repaired log in {target} is not sound: {verified.problems[0].what}", path=target)


class _Repair:
    def __init__(self, folder: Path, new: SingleWal) -> None:
        self._folder = folder
        self._new = new
        self._report = Repaired(target=str(new.folder))
        self._log_ids = _log_ids(folder)

    def run(self) -> Repaired:
        numbers = segment_numbers(self._folder)
        needed: set[int] = set()
        for number in numbers:
            path = log_path(self._folder, number)
            file = self._open(path, number)
            if file is None:
                size = path.stat().st_size
                self._lost(BadRange(str(path), min(FILE_HEADER_SIZE, size), size, "no entry of it can be read"))
                continue
            for found in file.salvage():
                if isinstance(found, Hole):
                    self._lost(BadRange(str(path), *found))
                elif found[0].kind == Kind.CHECKPOINT:
                    checkpoint = decode_body(Checkpoint, found[1])
                    needed = {segment.number for segment in checkpoint.segments}
                    self._reconcile(checkpoint)
                else:
                    self._copy(*found)
        self._report.missing_segments = sorted(needed - set(numbers))
        return self._report

    def _open(self, path: Path, number: int) -> SegmentFile | None:
        """The segment, also with a damaged header, if its entries are valid under one of the log's ids."""
        try:
            return SegmentFile(path)
        except UnknownFormatError:
            raise
        except WalError:
            self._lost(BadRange(str(path), 0, FILE_HEADER_SIZE, "the file's header is damaged"))
        for log_id in self._log_ids:
            file = SegmentFile(path, header=FileHeader(number, log_id, 0))
            if next(file.search(FILE_HEADER_SIZE, file.size()), None) is not None:
                return file
        return None

    def _lost(self, bad: BadRange) -> None:
        self._report.bad_ranges.append(bad)
        self._report.lost_bytes += bad.end - bad.start

    def _copy(self, entry: EntryHeader, body: memoryview) -> None:
        if entry.kind in (Kind.SEGMENT_SEALED, Kind.SEGMENTS_DROPPED):
            return  # the new log has its own segments
        if entry.kind == Kind.DATA:
            self._ensure_topic(entry)
            self._report.records += entry.record_count
        self._new.copy_entry(entry, body)
        self._report.entries += 1

    def _ensure_topic(self, entry: EntryHeader) -> None:
        """Records of a topic whose creation was lost are worth more than its name."""
        record = self._new.state.topics.get(entry.topic_id)
        if record is not None and entry.partition < len(record.leaders):
            return
        if record is None:
            topic_id = UUID(bytes=entry.topic_id)
            name = f"recovered-{topic_id}"
            record = TopicRecord(
                topic_id=topic_id, org_id=entry.org_id, name=name, ulid="", slug=name, rrl="", leaders=[]
            )
            self._report.recovered_topics.append(name)
        leaders = record.leaders + [0] * (entry.partition + 1 - len(record.leaders))
        changed = msgspec.structs.replace(record, leaders=leaders)
        if entry.topic_id in self._new.state.topics:
            self._new.change_topic(changed)
        else:
            self._new.create_topic(changed)

    def _reconcile(self, checkpoint: Checkpoint) -> None:
        """A checkpoint repeats all state, so it brings back what lost control entries said."""
        state = self._new.state
        topics = {topic.topic_id.bytes: topic for topic in checkpoint.topics}
        for topic_id in [known for known in state.topics if known not in topics]:
            self._new.delete_topic(topic_id)
        for topic_id, topic in topics.items():
            if topic_id not in state.topics:
                self._new.create_topic(topic)
            elif state.topics[topic_id] != topic:
                self._new.change_topic(topic)
        for partition in checkpoint.partitions:
            known = state.partition(partition.topic_id.bytes, partition.partition)
            known.next_offset = known.high_watermark = max(known.next_offset, partition.next_offset)
            if partition.log_start > known.log_start:
                self._new.move_log_start(partition.topic_id.bytes, partition.partition, partition.log_start)
        missing = {key: value for key, value in checkpoint.values.items() if state.values.get(key) != value}
        if missing:
            self._new.set_values(dict(missing))


def _log_ids(folder: Path) -> list[bytes]:
    """Every log id that the segments' headers name, whole headers first."""
    good: list[bytes] = []
    doubtful: list[bytes] = []
    for number in segment_numbers(folder):
        path = log_path(folder, number)
        with path.open("rb") as file:
            data = file.read(FILE_HEADER_SIZE)
        try:
            good.append(parse_file_header(data, LOG_MAGIC, path).log_id)
        except WalError:
            doubtful.append(data[_LOG_ID_AT : _LOG_ID_AT + 16])
    return list(dict.fromkeys(good + doubtful))
