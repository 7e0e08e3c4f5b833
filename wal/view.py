"""What can be read of a log, in the writer's process and in others alike: by offset, by time, by position."""

import threading
from collections.abc import Iterator

from wal.errors import OffsetOutOfRangeError
from wal.records import Record
from wal.segments import Entry, Position, Segments
from wal.state import LogState, PartitionState


class LogView:
    """A log's state and segments. The subclass keeps them up to date; `_turn` guards both."""

    def __init__(self, state: LogState, segments: Segments) -> None:
        self.state = state
        self.segments = segments
        self._turn = threading.RLock()

    @property
    def end(self) -> Position:
        """Where the next entry goes."""
        last = self.segments.last
        return Position(last.number, last.end)

    def read(self, topic_id: bytes, partition: int, offset: int, max_bytes: int) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on: at least one if there is any, then up to `max_bytes`."""
        with self._turn:
            state = self.state.partition(topic_id, partition)
            self._check_offset(topic_id, partition, state, offset)
            if offset == state.high_watermark:
                return []
            return self.segments.read((topic_id, partition), offset, max_bytes, state.high_watermark)

    def _check_offset(self, topic_id: bytes, partition: int, state: PartitionState, offset: int) -> None:
        if not state.log_start <= offset <= state.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.state.topic(topic_id).name}-{partition} holds offsets {state.log_start} to "
                f"{state.high_watermark}, not {offset}"
            )

    def offset_at(self, topic_id: bytes, partition: int, timestamp: int) -> Record | None:
        """The first record of that time or later."""
        with self._turn:
            state = self.state.partition(topic_id, partition)
            return self.segments.first_at((topic_id, partition), timestamp, state.log_start, state.high_watermark)

    def latest_record(self, topic_id: bytes, partition: int) -> Record | None:
        """The first record with the largest timestamp."""
        with self._turn:
            state = self.state.partition(topic_id, partition)
            return self.segments.latest((topic_id, partition), state.log_start)

    def entries(self, start: Position | None = None) -> Iterator[Entry]:
        """Every entry from `start` (or the oldest) on, in the order of the log, each checked."""
        return self.segments.entries(start)
