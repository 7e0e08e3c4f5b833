"""From a log and a user's options to the splits that Spark's tasks read. Runs in the driver; imports no Spark.

The log's own reader says what is true at this moment, exactly as for a consumer: which topics live, where each
partition starts and ends, which segments there are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import numpy as np

from wal.errors import LogDamagedError
from wal.index import ROW_DTYPE, Rows, pack_row, scan_rows
from wal.reader import WalReader
from wal.segment import FILE_HEADER_SIZE, Hole
from wal.segments import Segment
from wal.spark_options import OptionError, Options
from wal.spark_selection import Predicate, Selection


@dataclass(frozen=True)
class Split:
    """Rows `first` to `stop` of a segment's index, and what is wanted of them.

    `rows` has them where the index cannot be used. `position` and `end` are where their entries lie.
    """

    folder: str
    segment: int
    log_id: bytes
    first: int
    stop: int
    position: int
    end: int
    selection: Selection
    rows: bytes | None = None


class Place(NamedTuple):
    """A place in the whole log: so many index rows of a segment. Places sort by age."""

    segment: int
    row: int


class _TolerantReader(WalReader):
    """Goes on without sealed segments that are missing or damaged, and keeps what was wrong with them."""

    def _load(self) -> None:
        self.lost: dict[int, LogDamagedError] = {}
        super()._load()

    def _open_sealed(self, number: int, log_id: bytes) -> None:
        try:
            super()._open_sealed(number, log_id)
        except LogDamagedError as error:
            self.lost[number] = error


class LogPlan:
    """A log as a query sees it: as it was at the last `refresh`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._reader = WalReader(options.path) if options.fail_on_data_loss else _TolerantReader(options.path)
        self._check_topics()

    @property
    def log_id(self) -> UUID:
        return UUID(bytes=self._reader.segments.last.file.header.log_id)

    @property
    def losses(self) -> list[str]:
        """What was wrong with segments that are left out."""
        lost = self._reader.lost if isinstance(self._reader, _TolerantReader) else {}
        return [str(error) for error in lost.values()]

    def refresh(self) -> None:
        self._reader.refresh()

    def segments(self) -> list[int]:
        return [segment.number for segment in self._reader.segments]

    def end(self) -> Place:
        """Behind everything that is in the log."""
        last = self._reader.segments.last
        return Place(last.number, len(self._rows(last)[0]))

    def selection(
        self, predicates: tuple[Predicate, ...] = (), keeps: Callable[[str], bool] = lambda name: True
    ) -> Selection:
        """What is wanted, by topic id, with log starts as they are now."""
        options, state = self._options, self._reader.state
        names = {
            topic_id: topic.name
            for topic_id, topic in state.topics.items()
            if options.org in (None, topic.org_id)
            and (options.topics is None or topic.name in options.topics)
            and keeps(topic.name)
        }
        starting = {(topic, partition): offset for topic, partition, offset in options.starting_offsets}
        firsts = {}
        for topic_id, name in names.items():
            for partition in range(len(state.topics[topic_id].leaders)):
                known = state.partitions.get((topic_id, partition))
                first = max(known.log_start if known else 0, starting.get((name, partition), 0))
                if first:
                    firsts[topic_id, partition] = first
        return Selection(names, firsts, options.partitions, options.start_time, predicates)

    def lost_between(self, start: Place, end: Place) -> list[int]:
        """Segments that were dropped and may have held wanted records.

        The log drops a segment only when all its records lie before their partitions' log starts, or their topics are
        deleted: without a log start that moved, nothing that anybody could still read is gone.
        """
        gone = sorted(set(range(start.segment, end.segment + 1)) - set(self.segments()))
        moved = any(
            state.log_start > 0
            for (topic_id, _), state in self._reader.state.partitions.items()
            if topic_id in self.selection().names
        )
        return gone if moved else []

    def splits(self, selection: Selection, start: Place | None = None, end: Place | None = None) -> list[Split]:
        """All that is wanted between two places, in tasks of about `splitBytes`."""
        found: list[Split] = []
        for segment in self._reader.segments:
            if (start is not None and segment.number < start.segment) or (
                end is not None and segment.number > end.segment
            ):
                continue
            first = start.row if start is not None and segment.number == start.segment else 0
            stop = end.row if end is not None and segment.number == end.segment else None
            found += self._segment_splits(segment, selection, first, stop)
        return found

    def _segment_splits(self, segment: Segment, selection: Selection, first: int, stop: int | None) -> Iterator[Split]:
        rows, from_log = self._rows(segment)
        if max(first, stop or 0) > len(rows):
            raise LogDamagedError(
                f"{segment.file.path} has {len(rows)} entries, and the query has read {max(first, stop or 0)}: entries "
                "that were not on the disk yet were lost with the machine's power. Start with a new checkpoint",
                path=segment.file.path,
                position=segment.end,
            )
        rows = rows[first:stop]
        wanted = np.flatnonzero(selection.chosen(rows, segment.number)) if len(rows) else np.empty(0, np.int64)
        for numbers in _cut(wanted, rows, self._options.split_bytes):
            start, last = int(numbers[0]), int(numbers[-1])
            some = rows[start : last + 1]
            yield Split(
                str(self._reader.folder),
                segment.number,
                segment.file.header.log_id,
                first + start,
                first + last + 1,
                int(some["position"][0]),
                int(some["position"][-1]) + int(some["length"][-1]),
                selection.narrowed(rows[numbers]),
                some.tobytes() if from_log else None,
            )

    def limited(
        self, start: Place, end: Place, selection: Selection, max_rows: int | None, max_bytes: int | None
    ) -> Place:
        """The place that is at most so many wanted records and bytes behind `start`, and at least one batch."""
        records = size = 0
        for segment in self._reader.segments:
            if not start.segment <= segment.number <= end.segment:
                continue
            first = start.row if segment.number == start.segment else 0
            rows = self._rows(segment)[0][first : end.row if segment.number == end.segment else None]
            if not len(rows):
                continue
            wanted = selection.chosen(rows, segment.number)
            all_records = records + np.cumsum(rows["record_count"] * wanted, dtype=np.int64)
            all_bytes = size + np.cumsum(rows["length"] * wanted, dtype=np.int64)
            over = np.zeros(len(rows), bool)
            if max_rows is not None:
                over |= all_records > max_rows
            if max_bytes is not None:
                over |= all_bytes > max_bytes
            if over.any():
                at = int(np.argmax(over))
                alone = int(all_records[at]) == int(rows["record_count"][at])  # the first one is taken at any size
                return Place(segment.number, first + at + alone)
            records, size = int(all_records[-1]), int(all_bytes[-1])
        return end

    def _rows(self, segment: Segment) -> tuple[Rows, bool]:
        """A segment's rows, and whether tasks cannot take them from its index."""
        try:
            rows, from_log = segment.checked_rows()
            if segment.sealed is None and _end(rows) != segment.end:  # without a broker the index may be short
                return scan_rows(segment.file, segment.end), True
            return rows, from_log
        except LogDamagedError as error:
            if not isinstance(self._reader, _TolerantReader):
                raise
            self._reader.lost[segment.number] = error
            packed = [pack_row(found[0]) for found in segment.file.salvage() if not isinstance(found, Hole)]
            return np.frombuffer(b"".join(packed), ROW_DTYPE), True

    def _check_topics(self) -> None:
        options = self._options
        topics = [topic for topic in self._reader.state.topics.values() if options.org in (None, topic.org_id)]
        names = {topic.name for topic in topics}
        asked = {*(options.topics or ()), *(topic for topic, _, _ in options.starting_offsets)}
        if missing := sorted(asked - names):
            there = ", ".join(sorted(names)) or "none at all"
            raise OptionError(
                f"rafka_wal: the log in {options.path} has no topic {', '.join(missing)}; its topics are: {there}"
            )
        chosen = [topic for topic in topics if options.topics is None or topic.name in options.topics]
        most = max((len(topic.leaders) for topic in chosen), default=0)
        if options.partitions is not None and chosen and options.partitions[-1] >= most:
            raise OptionError(
                f"rafka_wal: no topic that is read has a partition {options.partitions[-1]}; the last one is {most - 1}"
            )


def _end(rows: Rows) -> int:
    return int(rows["position"][-1]) + int(rows["length"][-1]) if len(rows) else FILE_HEADER_SIZE


def _cut(wanted: np.ndarray, rows: Rows, split_bytes: int) -> list[np.ndarray]:
    """The wanted row numbers in runs of about that many bytes."""
    if not len(wanted):
        return []
    ends = np.cumsum(rows["length"][wanted], dtype=np.int64)
    owners = (ends - 1) // split_bytes
    return np.split(wanted, np.flatnonzero(np.diff(owners)) + 1)
