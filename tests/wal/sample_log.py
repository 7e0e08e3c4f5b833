"""Small logs for tests: topics, batches, and a log with a bit of everything in it."""

from uuid import UUID, uuid4

from tests.wal import logs
from wal import NewBatch, NewRecord, SingleWal, TopicRecord, WalSettings, build_batch, check_batch
from wal.batch import parse_header
from wal.view import LogView

SMALL = WalSettings(segment_bytes=20_000, checkpoint_bytes=8_000)


def topic(name: str, partitions: int = 2, **configs: str) -> TopicRecord:
    return logs.topic(uuid4().int >> 1, partitions, name, **configs)


def batch(
    topic_id: UUID | bytes, partition: int, *values: bytes, time: int = 1_000, trace: bytes = bytes(16)
) -> NewBatch:
    data = build_batch([NewRecord(b"key", value, time + at) for at, value in enumerate(values)])
    raw = topic_id.bytes if isinstance(topic_id, UUID) else topic_id
    return NewBatch(raw, partition, data, check_batch(data), trace)


def fill(log: SingleWal, record: TopicRecord, batches: int, size: int = 300) -> None:
    """As many batches of two records, over all partitions in turn."""
    for number in range(batches):
        value = number.to_bytes(4, "big") * (size // 4)
        log.append([batch(record.topic_id, number % len(record.leaders), value, b"second", time=1_000 + 10 * number)])


def all_batches(view: LogView, record: TopicRecord, partition: int) -> list[bytes]:
    """Everything that can be read of a partition, in small steps as a consumer takes them."""
    offset = view.state.partition(record.topic_id.bytes, partition).log_start
    found: list[bytes] = []
    while step := view.read(record.topic_id.bytes, partition, offset, max_bytes=2_000):
        found += [bytes(data) for data in step]
        offset = parse_header(found[-1]).next_offset
    return found
