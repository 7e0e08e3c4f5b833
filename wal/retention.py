"""What may go: which records a topic's settings no longer keep, and which segments then hold nothing live.

Decides only; `log` writes the entries and removes the files. A partition loses whole batches, oldest first. A segment
goes when no partition has a live record in it, so a quiet topic can keep an old segment of a busy one.
"""

from collections.abc import Iterator

from wal.control import TopicRecord
from wal.index import row_times
from wal.segments import Segment, Segments, partition_index
from wal.settings import WalSettings
from wal.state import Key, LogState, PartitionState

RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"


def expired_log_starts(
    state: LogState, segments: Segments, settings: WalSettings, now: int
) -> Iterator[tuple[Key, int]]:
    """The partitions whose log start has to move, and where to."""
    for key, partition in list(state.partitions.items()):
        topic = state.topics[key[0]]
        start = max(
            _start_by_time(key, partition, topic, segments, settings, now),
            _start_by_size(key, partition, topic, segments, settings),
        )
        if start > partition.log_start:
            yield key, min(start, partition.high_watermark)


def _start_by_time(
    key: Key, partition: PartitionState, topic: TopicRecord, segments: Segments, settings: WalSettings, now: int
) -> int:
    keep_ms = int(topic.configs.get(RETENTION_MS, settings.default_retention_ms))
    start = partition.log_start
    if keep_ms < 0:
        return start
    for segment in segments:
        summary = segment.summaries.get(key)
        if summary is None or summary.next_offset <= start:
            continue
        if summary.max_timestamp < now - keep_ms:
            start = summary.next_offset
            continue
        return max(start, _first_young(segment, key, now - keep_ms))
    return start


def _first_young(segment: Segment, key: Key, oldest: int) -> int:
    """The first offset of the first batch that is young enough, in a segment that has one."""
    rows = partition_index(segment.rows(), key)
    return int(rows["base_offset"][row_times(rows) >= oldest][0])


def _start_by_size(
    key: Key, partition: PartitionState, topic: TopicRecord, segments: Segments, settings: WalSettings
) -> int:
    """Drops the oldest batches as long as at least the kept size remains."""
    keep_bytes = int(topic.configs.get(RETENTION_BYTES, settings.default_retention_bytes))
    start = partition.log_start
    if keep_bytes < 0:
        return start
    holding = [
        segment
        for segment in segments
        if (summary := segment.summaries.get(key)) is not None and summary.next_offset > start
    ]
    live = []
    for segment in holding:
        rows = segments.lookup(segment).partitions[key]
        first = rows.find(start)
        live += list(zip(rows.offsets[first:], rows.lengths[first:], strict=True))
    surplus = sum(length for _, length in live) - keep_bytes
    for offset, length in live:
        if surplus < length:
            return max(start, offset)
        surplus -= length
    return partition.high_watermark


def dead_segments(state: LogState, segments: Segments) -> list[int]:
    """The sealed segments in which no partition has a live record."""
    return [
        segment.number
        for segment in segments
        if segment.sealed is not None and not any(_lives(state, key, segment) for key in segment.summaries)
    ]


def _lives(state: LogState, key: Key, segment: Segment) -> bool:
    partition = state.partitions.get(key)
    return partition is not None and segment.summaries[key].next_offset > partition.log_start
