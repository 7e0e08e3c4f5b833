"""Retention: which records go, which segments go with them, and that a restart in between changes nothing."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.wal.faulty_disk import FaultyDisk
from tests.wal.logs import SMALL, FastDisk, batch, index_files, kill, log_files, partition_of, put, topic
from wal.errors import LogPoisonedError, OffsetOutOfRangeError
from wal.log import SingleWal
from wal.settings import WalSettings
from wal.writer import now_ms

KEPT, TIMED, SIZED = topic(1), topic(2, retention_ms="1000"), topic(3, retention_bytes="3000", retention_ms="-1")
ENDS: list[Callable[[SingleWal], None]] = [SingleWal.close, kill]
FOREVER = WalSettings(segment_bytes=6_000, checkpoint_bytes=2_000, default_retention_ms=-1)


def opened(folder: Path, settings: WalSettings = FOREVER) -> SingleWal:
    log = SingleWal.open(folder, settings, FastDisk())
    for record in (KEPT, TIMED, SIZED):
        if record.topic_id.bytes not in log.state.topics:
            log.create_topic(record)
    return log


def log_start(log: SingleWal, record: object) -> int:
    return log.state.partition(record.topic_id.bytes, 0).log_start  # type: ignore[attr-defined]


@pytest.mark.parametrize("end", ENDS)
def test_records_older_than_the_topic_keeps_go_batch_by_batch(tmp_path: Path, end: Callable[[SingleWal], None]) -> None:
    log = opened(tmp_path)
    for time in range(100):
        put(log, TIMED, batch(b"x" * 100, timestamp=100 * time))
    for now, expected in ((1_000, 0), (1_001, 1), (1_100, 1), (3_000, 20), (10_000, 90), (10_900, 99), (99_999, 100)):
        log.retain(now)
        assert log_start(log, TIMED) == expected, now
        end(log)
        log = opened(tmp_path)
        assert log_start(log, TIMED) == expected, now
        assert list(partition_of(log, TIMED)) == list(range(expected, 100))
    log.close()


def test_a_young_record_keeps_the_older_ones_behind_it(tmp_path: Path) -> None:
    """Records go from the front only, so an old time behind a young one stays."""
    with opened(tmp_path) as log:
        for time in (10, 5_000, 20, 30):
            put(log, TIMED, batch(timestamp=time))
        log.retain(5_500)
        assert log_start(log, TIMED) == 1


@pytest.mark.parametrize("end", ENDS)
def test_records_without_a_time_are_as_old_as_their_append(tmp_path: Path, end: Callable[[SingleWal], None]) -> None:
    """Old message formats have none, and must not go at the first look."""
    log = opened(tmp_path)
    put(log, TIMED, batch(timestamp=-1))
    end(log)
    log = opened(tmp_path)
    appended = now_ms()
    log.retain(appended + 500)
    assert log_start(log, TIMED) == 0
    log.retain(appended + 60_000)
    assert log_start(log, TIMED) == 1
    log.close()


@pytest.mark.parametrize("end", ENDS)
def test_a_partition_keeps_at_least_the_size_it_may_have(tmp_path: Path, end: Callable[[SingleWal], None]) -> None:
    random_ = random.Random(3)
    log = opened(tmp_path)
    stored: dict[int, int] = {}
    for round_ in range(6):
        for _ in range(20):
            data = batch(bytes(random_.randint(1, 400)))
            stored[put(log, SIZED, data).base_offset] = len(data) + 124
        log.retain(round_)
        start = log_start(log, SIZED)
        live = sum(size for offset, size in stored.items() if offset >= start)
        assert live >= 3_000
        assert live - stored[start] < 3_000, "one batch less would still be enough"
        end(log)
        log = opened(tmp_path)
        assert log_start(log, SIZED) == start
        assert list(partition_of(log, SIZED)) == list(range(start, len(stored)))
    log.close()


def test_topics_that_say_nothing_follow_the_broker(tmp_path: Path) -> None:
    settings = WalSettings(segment_bytes=6_000, default_retention_ms=500, default_retention_bytes=100_000)
    with opened(tmp_path, settings) as log:
        for time in range(10):
            put(log, KEPT, batch(timestamp=100 * time))
        log.retain(900)
        assert log_start(log, KEPT) == 4


@pytest.mark.parametrize("end", ENDS)
def test_a_segment_goes_when_nothing_in_it_lives_and_not_before(
    tmp_path: Path, end: Callable[[SingleWal], None]
) -> None:
    """A record of a quiet topic holds the oldest segment; the ones between it and the newest go."""
    log = opened(tmp_path)
    put(log, KEPT, batch(b"quiet"))
    for _ in range(150):
        put(log, TIMED, batch(b"x" * 100, timestamp=1))
    segments = len(log.segments)
    assert segments > 4
    size = sum(path.stat().st_size for path in log_files(tmp_path))
    freed = log.retain(100_000)
    assert freed > 0
    left = [int(path.stem) for path in log_files(tmp_path)]
    assert left[0] == 0
    assert len(left) <= 3
    assert sum(path.stat().st_size for path in log_files(tmp_path)) < size - freed + 2_000
    assert [int(path.stem) for path in index_files(tmp_path)] == left
    end(log)
    log = opened(tmp_path)
    assert [int(path.stem) for path in log_files(tmp_path)] == left
    assert len(partition_of(log, KEPT)) == 1
    assert list(partition_of(log, TIMED)) == []
    assert put(log, TIMED, batch()).base_offset == 150
    log.move_log_start(KEPT.topic_id.bytes, 0, 1)
    assert log.retain(0) > 0
    assert int(log_files(tmp_path)[0].stem) > 0
    end(log)
    with opened(tmp_path) as log:
        assert list(partition_of(log, TIMED)) == [150]
        assert log.state.partition(KEPT.topic_id.bytes, 0).next_offset == 1


def test_segments_of_a_deleted_topic_go_and_the_newest_never_does(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for _ in range(100):
            put(log, KEPT, batch(b"x" * 100))
        log.delete_topic(KEPT.topic_id.bytes)
        assert log.retain(0) > 0
        assert len(log.segments) <= 2
        assert log_files(tmp_path)
    with opened(tmp_path) as log:
        assert put(log, KEPT, batch()).base_offset == 0


def test_the_log_start_moves_forward_only_and_inside_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for _ in range(10):
            put(log, KEPT, batch())
        key = (KEPT.topic_id.bytes, 0)
        log.move_log_start(*key, 4)
        log.move_log_start(*key, 4)
        for offset in (3, 11, -1):
            with pytest.raises(OffsetOutOfRangeError, match="4"):
                log.move_log_start(*key, offset)
        with pytest.raises(OffsetOutOfRangeError, match="holds offsets 4 to 10"):
            log.read(*key, 3, 100)
        log.move_log_start(*key, 10)
        assert log.read(*key, 10, 100) == []
    with opened(tmp_path) as log:
        assert log_start(log, KEPT) == 10
        assert put(log, KEPT, batch()).base_offset == 10


def test_a_log_start_inside_a_batch_leaves_the_whole_batch_readable(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, KEPT, batch(count=10))
        log.move_log_start(KEPT.topic_id.bytes, 0, 5)
        assert len(log.read(KEPT.topic_id.bytes, 0, 5, 100)) == 1
        log.retain(0)
        assert list(partition_of(log, KEPT)) == [0]


def test_files_that_a_crash_left_of_dropped_segments_are_removed_at_the_next_open(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(100):
        put(log, TIMED, batch(b"x" * 100, timestamp=1))
    kept = {path: path.read_bytes() for path in (log_files(tmp_path)[0], index_files(tmp_path)[1])}
    log.retain(100_000)
    kill(log)
    for path, data in kept.items():
        assert not path.exists()
        path.write_bytes(data)
    opened(tmp_path).close()
    assert not any(path.exists() for path in kept)


def test_nothing_is_removed_when_the_drop_cannot_be_synced(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = SingleWal.open(tmp_path, SMALL, disk)
    log.create_topic(TIMED)
    for _ in range(100):
        put(log, TIMED, batch(b"x" * 100, timestamp=1))
    before = log_files(tmp_path)
    assert len(before) > 2
    disk.fail("sync", lambda *_: True)
    with pytest.raises(LogPoisonedError):
        log.retain(100_000)
    assert log_files(tmp_path) == before
    log.close()
    SingleWal.open(tmp_path, SMALL, FastDisk()).close()


def test_a_reader_of_a_dropped_segment_keeps_what_it_has(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for _ in range(100):
            put(log, TIMED, batch(b"x" * 100, timestamp=1))
        entries = log.entries()
        first = next(entries)
        log.retain(100_000)
        assert not log_files(tmp_path)[0].stem.endswith("0000000000")
        assert sum(1 for entry in entries if entry.segment == first.segment) > 5
