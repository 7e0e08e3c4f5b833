"""What the log says is true: topics, partitions, producers and values. A fold over entries, without I/O.

A checkpoint is a snapshot of it, so recovery starts at the last one and applies what follows.
"""

from uuid import UUID

from wal.control import (
    PartitionRecord,
    SegmentRecord,
    SegmentsDropped,
    TopicRecord,
    ValuesChanged,
    decode_body,
)
from wal.entry import FIRST_OPTIONAL_KIND, EntryHeader, Kind
from wal.errors import UnknownFormatError, UnknownTopicError
from wal.producers import ProducerState

Key = tuple[bytes, int]  # topic id and partition


class PartitionState:
    """Where a partition's log starts and ends. `next_offset` may run ahead of `high_watermark` while buffered."""

    __slots__ = ("high_watermark", "log_start", "next_offset", "producers")

    def __init__(self, log_start: int = 0, next_offset: int = 0) -> None:
        self.log_start = log_start
        self.next_offset = next_offset
        self.high_watermark = next_offset
        self.producers: dict[int, ProducerState] = {}


class LogState:
    """The registry and all partitions."""

    def __init__(self) -> None:
        self.topics: dict[bytes, TopicRecord] = {}
        self.names: dict[tuple[int, str], bytes] = {}
        self.partitions: dict[Key, PartitionState] = {}
        self.values: dict[str, str] = {}
        self.segments: dict[int, SegmentRecord] = {}

    def topic(self, topic_id: bytes) -> TopicRecord:
        found = self.topics.get(topic_id)
        if found is None:
            raise UnknownTopicError(f"the log has no topic {UUID(bytes=topic_id)}: create it first")
        return found

    def by_name(self, org_id: int, name: str) -> TopicRecord | None:
        topic_id = self.names.get((org_id, name))
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: bytes, partition: int) -> PartitionState:
        """The state of a partition of a known topic; an empty one before its first record."""
        found = self.partitions.get((topic_id, partition))
        if found is None:
            count = len(self.topic(topic_id).leaders)
            if not 0 <= partition < count:
                raise UnknownTopicError(f"{self.topics[topic_id].name} has partitions 0 to {count - 1}, no {partition}")
            found = self.partitions[topic_id, partition] = PartitionState()
        return found

    def apply(self, entry: EntryHeader, body: bytes | memoryview) -> None:
        """Takes an entry that is in the log."""
        match entry.kind:
            case Kind.DATA:
                self.add_data(entry)
            case Kind.TOPIC_CREATED | Kind.TOPIC_CHANGED:
                self.set_topic(decode_body(TopicRecord, body))
            case Kind.TOPIC_DELETED:
                self.delete_topic(entry.topic_id)
            case Kind.LOG_START_MOVED:
                self.move_log_start(entry)
            case Kind.VALUES_CHANGED:
                self._change_values(decode_body(ValuesChanged, body))
            case Kind.SEGMENTS_DROPPED:
                for number in decode_body(SegmentsDropped, body).segments:
                    self.segments.pop(number, None)
            case Kind.CHECKPOINT | Kind.SEGMENT_SEALED:
                pass  # they repeat what is known
            case kind if kind < FIRST_OPTIONAL_KIND:
                raise UnknownFormatError(
                    f"the entry at position {entry.position} is of kind 0x{kind:02x}, which this version of rafka-lab "
                    "does not know and must not skip: use the version that wrote it, or a newer one",
                    position=entry.position,
                )

    def add_data(self, entry: EntryHeader) -> None:
        state = self.partitions.get((entry.topic_id, entry.partition))
        if state is None:
            if entry.topic_id not in self.topics:
                return  # written in the same moment as the topic's deletion: nobody can ask for it
            state = self.partition(entry.topic_id, entry.partition)
        state.next_offset = state.high_watermark = entry.next_offset
        if entry.producer_id >= 0:
            self.add_producer(state, entry)

    @staticmethod
    def add_producer(state: PartitionState, entry: EntryHeader) -> None:
        producer = state.producers.get(entry.producer_id)
        if producer is None:
            producer = state.producers[entry.producer_id] = ProducerState()
        producer.add(
            entry.producer_epoch, entry.base_sequence, entry.record_count, entry.base_offset, entry.append_time
        )

    def set_topic(self, record: TopicRecord) -> None:
        before = self.topics.get(record.topic_id.bytes)
        if before is not None:
            self.names.pop((before.org_id, before.name), None)
        self.topics[record.topic_id.bytes] = record
        self.names[record.org_id, record.name] = record.topic_id.bytes

    def delete_topic(self, topic_id: bytes) -> None:
        record = self.topics.pop(topic_id, None)
        if record is None:
            return
        self.names.pop((record.org_id, record.name), None)
        for partition in range(len(record.leaders)):
            self.partitions.pop((topic_id, partition), None)

    def move_log_start(self, entry: EntryHeader) -> None:
        if entry.topic_id in self.topics:
            state = self.partition(entry.topic_id, entry.partition)
            state.log_start = max(state.log_start, entry.base_offset)

    def _change_values(self, changed: ValuesChanged) -> None:
        for key, value in changed.values.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def expire_producers(self, before: int) -> None:
        """Forgets producers that wrote nothing since `before`."""
        for state in self.partitions.values():
            for producer_id in [number for number, known in state.producers.items() if known.last_time < before]:
                del state.producers[producer_id]

    def partition_records(self) -> list[PartitionRecord]:
        """For a checkpoint. Partitions without a record yet are as good as new and left out."""
        return [
            PartitionRecord(
                topic_id=UUID(bytes=topic_id),
                partition=partition,
                log_start=state.log_start,
                next_offset=state.next_offset,
                producers=[known.record(number) for number, known in state.producers.items()],
            )
            for (topic_id, partition), state in self.partitions.items()
            if state.next_offset or state.log_start
        ]

    def restore(
        self,
        topics: list[TopicRecord],
        partitions: list[PartitionRecord],
        values: dict[str, str],
        segments: list[SegmentRecord],
    ) -> None:
        """Becomes what a checkpoint says."""
        self.topics = {}
        self.names = {}
        for topic in topics:
            self.set_topic(topic)
        self.values = dict(values)
        self.segments = {segment.number: segment for segment in segments}
        self.partitions = {}
        for record in partitions:
            state = PartitionState(record.log_start, record.next_offset)
            state.producers = {known.producer_id: ProducerState.of(known) for known in record.producers}
            self.partitions[record.topic_id.bytes, record.partition] = state
