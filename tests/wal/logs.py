"""What the log's tests share: topics, batches, a whole partition read back, and the end that kill -9 makes."""

import os
import random
from pathlib import Path
from typing import Any
from uuid import UUID

from wal.batch import check_batch, parse_header
from wal.control import TopicRecord
from wal.disk import Disk
from wal.log import Appended, Durability, NewBatch, SingleWal
from wal.records import NewRecord, build_batch
from wal.settings import MIB, WalSettings

ORG = 7
# Small segments and checkpoints, so that a few kilobytes go through rolls and checkpoints.
SMALL = WalSettings(segment_bytes=6_000, checkpoint_bytes=2_000)


class FastDisk(Disk):
    """The real files without the wait for the device: for tests that end processes, not the power."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


def topic(number: int, partitions: int = 1, name: str = "", **configs: str) -> TopicRecord:
    name = name or f"topic-{number}"
    return TopicRecord(
        topic_id=UUID(int=number + 1),
        org_id=ORG,
        name=name,
        ulid=f"top_{number:026d}",
        slug=name,
        rrl=f"org/env/cluster/topics/{name}",
        leaders=[1] * partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def batch(value: bytes = b"value", count: int = 1, timestamp: int = 0, **fields: Any) -> bytes:
    """A batch of `count` records of one value and one time; `fields` are those of `build_batch`."""
    return build_batch([NewRecord(b"key", value, timestamp)] * count, **fields)


def noise(random_: random.Random, size: int) -> bytes:
    return random_.randbytes(size)


def new(topic_id: UUID | TopicRecord, partition: int, data: bytes) -> NewBatch:
    topic_id = topic_id.topic_id if isinstance(topic_id, TopicRecord) else topic_id
    return NewBatch(topic_id.bytes, partition, data, check_batch(data))


def put(
    log: SingleWal, record: TopicRecord, data: bytes, partition: int = 0, durability: Durability = Durability.WRITTEN
) -> Appended:
    """Appends one batch, and waits where a sync was promised."""
    (result,) = log.append([new(record, partition, data)], durability)
    if result.error is not None:
        raise result.error
    if durability is Durability.SYNCED:
        assert log.wait_synced(log.sequence, 30)
    return result


def partition_of(log: SingleWal, record: TopicRecord, partition: int = 0, max_bytes: int = MIB) -> dict[int, bytes]:
    """All live batches of a partition by base offset; fails where offsets are not contiguous."""
    state = log.state.partition(record.topic_id.bytes, partition)
    found: dict[int, bytes] = {}
    offset = state.log_start
    while offset < state.high_watermark:
        batches = log.read(record.topic_id.bytes, partition, offset, max_bytes)
        assert batches, f"nothing at offset {offset} below the high watermark {state.high_watermark}"
        for data in batches:
            header = parse_header(data)
            first = not found
            assert header.base_offset <= offset if first else header.base_offset == offset, "a gap in the offsets"
            found[header.base_offset] = bytes(data)
            offset = header.next_offset
    assert offset == state.high_watermark
    return found


def opened_without_clock(folder: Path, settings: WalSettings, disk: Disk) -> SingleWal:
    """A log whose sync thread writes no buffered appends in passing, so that the same calls leave the same files."""
    log = SingleWal.open(folder, settings, disk)
    log._flush_if_room = lambda: None  # type: ignore[method-assign]
    return log


def kill(log: SingleWal) -> None:
    """Lets go of the log as the end of its process would: nothing more is written, the lock is free."""
    log._closed = True
    log._syncer.close()
    log._active.close()
    os.close(log._lock_fd)


def log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def index_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.oidx"))
