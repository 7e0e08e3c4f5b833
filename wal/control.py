"""The bodies of control entries: JSON, so that any tool can read them. FORMAT.md lists which kind has which body."""

from typing import TypeVar
from uuid import UUID

import msgspec

from wal.errors import LogDamagedError

T = TypeVar("T", bound=msgspec.Struct)


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all bodies. Unknown fields are left alone, so a later version may add some."""


class TopicRecord(Body, frozen=True, kw_only=True):
    """TOPIC_CREATED and TOPIC_CHANGED: the topic as it is from here on. `leaders[p]` is the broker of partition p."""

    topic_id: UUID
    org_id: int
    name: str
    ulid: str
    slug: str
    rrl: str
    leaders: list[int]
    configs: dict[str, str] = {}


class ValuesChanged(Body, frozen=True, kw_only=True):
    """VALUES_CHANGED: small facts that a broker keeps (producer ids, committed offsets); None removes one."""

    values: dict[str, str | None]


class SegmentsDropped(Body, frozen=True, kw_only=True):
    """SEGMENTS_DROPPED: these files hold nothing live any more and are removed after this entry is on the disk."""

    segments: list[int]


class ProducerBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One of a producer's last batches in a partition."""

    base_sequence: int
    last_sequence: int
    base_offset: int


class ProducerRecord(Body, frozen=True, kw_only=True):
    """A producer's state in a partition."""

    producer_id: int
    epoch: int
    last_time: int
    batches: list[ProducerBatch]


class PartitionRecord(Body, frozen=True, kw_only=True):
    """A partition's state in a checkpoint."""

    topic_id: UUID
    partition: int
    log_start: int
    next_offset: int
    producers: list[ProducerRecord] = []


class PartitionSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one segment holds of one partition. `bytes` is of whole entries; no time: that of the append."""

    topic_id: UUID
    partition: int
    first_offset: int
    next_offset: int
    entries: int
    bytes: int
    max_timestamp: int


class SegmentSealed(Body, frozen=True, kw_only=True):
    """SEGMENT_SEALED, a segment's last entry: `entries` and `index_crc` are of the rows before it."""

    entries: int
    index_crc: int
    partitions: list[PartitionSummary]


class SegmentRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sealed segment that must be there: its size, and where its seal stands."""

    number: int
    size: int
    sealed_at: int


class Checkpoint(Body, frozen=True, kw_only=True):
    """CHECKPOINT: all state before this entry. `boot` names the run of the machine that wrote what follows."""

    boot: str
    clean: bool
    entries: int
    index_crc: int
    segments: list[SegmentRecord]
    topics: list[TopicRecord]
    partitions: list[PartitionRecord]
    values: dict[str, str]


def encode_body(body: Body) -> bytes:
    return msgspec.json.encode(body)


def decode_body(kind: type[T], data: bytes | memoryview) -> T:
    """The body of an entry whose CRC was right; raises where it is still not what its kind says."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise LogDamagedError(f"the body of a control entry is not a {kind.__name__}: {error}") from error
