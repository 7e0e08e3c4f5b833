"""The open log: what appends, reads and control calls promise, and what is left after each kind of failure."""

import random
import threading
from pathlib import Path
from uuid import UUID

import pytest

from tests.wal.logs import SMALL, FastDisk, batch, kill, log_files, new, noise, partition_of, put, topic
from wal.batch import with_base_offset
from wal.errors import (
    BatchTooLargeError,
    LogClosedError,
    LogDamagedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TopicExistsError,
    UnknownTopicError,
    WalError,
)
from wal.log import Durability, SingleWal
from wal.records import NewRecord, build_batch
from wal.segments import Position
from wal.settings import MAX_ENTRY_BYTES, WalSettings

FIRST, SECOND = topic(1, partitions=3), topic(2)


def opened(folder: Path, settings: WalSettings = SMALL) -> SingleWal:
    log = SingleWal.open(folder, settings, FastDisk())
    for record in (FIRST, SECOND):
        if record.topic_id.bytes not in log.state.topics:
            log.create_topic(record)
    return log


@pytest.mark.parametrize("durability", Durability)
def test_what_is_appended_is_read_back_with_its_offset_and_nothing_else_changed(
    tmp_path: Path, durability: Durability
) -> None:
    sent = [batch(b"%d" % n, count=n % 3 + 1) for n in range(50)]
    with opened(tmp_path) as log:
        offsets = [put(log, FIRST, data, n % 3, durability).base_offset for n, data in enumerate(sent)]
        log.flush()
        stored: dict[int, dict[int, bytes]] = {partition: partition_of(log, FIRST, partition) for partition in range(3)}
    for n, (offset, data) in enumerate(zip(offsets, sent, strict=True)):
        assert stored[n % 3][offset] == with_base_offset(data, offset, 0)
    with opened(tmp_path) as log:
        assert {partition: partition_of(log, FIRST, partition) for partition in range(3)} == stored


@pytest.mark.parametrize("durability", Durability)
def test_an_append_that_raises_midway_stores_nothing_and_harms_nothing(tmp_path: Path, durability: Durability) -> None:
    with opened(tmp_path) as log:
        put(log, FIRST, batch(b"before"), durability=durability)
        with pytest.raises(UnknownTopicError, match="create it first"):
            log.append([new(FIRST, 0, batch(b"lost")), new(UUID(int=99), 0, batch())], durability)
        with pytest.raises(UnknownTopicError, match="partitions 0 to 2"):
            log.append([new(FIRST, 0, batch(b"lost")), new(FIRST, 3, batch())], durability)
        put(log, FIRST, batch(b"after"), durability=durability)
        log.flush()
        expected = {0: with_base_offset(batch(b"before"), 0, 0), 1: with_base_offset(batch(b"after"), 1, 0)}
        assert partition_of(log, FIRST) == expected
    with opened(tmp_path) as log:
        assert partition_of(log, FIRST) == expected
        assert log.report.clean
        assert len(list(log.segments.entries())) > 0


@pytest.mark.parametrize("max_bytes", [1, 100, 200, 300, 500, 2_000, 10_000])
def test_a_bounded_read_never_skips_a_batch_at_a_segment_boundary(tmp_path: Path, max_bytes: int) -> None:
    """A large batch that does not fit must end the answer, though a small one of the next segment would fit."""
    random_ = random.Random(max_bytes)
    with opened(tmp_path) as log:
        for _ in range(200):
            put(log, FIRST, batch(noise(random_, random_.choice([1, 10, 400, 1500]))))
        assert len(log.segments) > 10
        whole = partition_of(log, FIRST)
        assert partition_of(log, FIRST, max_bytes=max_bytes) == whole
        for offset in whole:
            batches = log.read(FIRST.topic_id.bytes, 0, offset, max_bytes)
            assert len(batches) == 1 or sum(map(len, batches)) <= max_bytes
            assert [bytes(data) for data in batches] == [whole[offset + n] for n in range(len(batches))]


def test_a_repeat_of_a_buffered_batch_is_not_acked_before_it_is_stored(tmp_path: Path) -> None:
    data = batch(producer_id=5, producer_epoch=0, base_sequence=0)
    for durability in (Durability.WRITTEN, Durability.SYNCED):
        folder = tmp_path / durability.name
        log = opened(folder, WalSettings(buffer_seconds=1000))
        put(log, FIRST, data, durability=Durability.NONE)
        assert put(log, FIRST, data, durability=durability).duplicate
        kill(log)
        with opened(folder) as log:
            assert list(partition_of(log, FIRST)) == [0], durability


def test_waiting_for_everything_covers_what_is_still_buffered(tmp_path: Path) -> None:
    log = opened(tmp_path, WalSettings(buffer_seconds=1000))
    assert log.wait_synced(timeout=30)
    put(log, FIRST, batch(), durability=Durability.NONE)
    assert log.wait_synced(timeout=30)
    kill(log)
    with opened(tmp_path) as log:
        assert list(partition_of(log, FIRST)) == [0]


def test_buffered_appends_are_written_soon_without_another_call(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, FIRST, batch(), durability=Durability.NONE)
        state = log.state.partition(FIRST.topic_id.bytes, 0)
        waited = threading.Event()
        for _ in range(1_000):
            if state.high_watermark == 1:
                break
            waited.wait(0.02)
        assert list(partition_of(log, FIRST)) == [0]


def test_several_batches_of_one_partition_in_one_call_get_consecutive_offsets(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        sent = [batch(b"%d" % n, count=2, producer_id=1, producer_epoch=0, base_sequence=2 * n) for n in range(4)]
        results = log.append([new(FIRST, 0, data) for data in sent])
        assert [result.base_offset for result in results] == [0, 2, 4, 6]
        repeated = log.append([new(FIRST, 0, data) for data in sent])
        assert [(result.base_offset, result.duplicate) for result in repeated] == [(n, True) for n in (0, 2, 4, 6)]
        assert list(partition_of(log, FIRST)) == [0, 2, 4, 6]


def test_one_bad_batch_of_a_call_is_its_own_result_and_the_others_are_stored(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        gap = batch(producer_id=1, producer_epoch=0, base_sequence=5)
        put(log, FIRST, batch(producer_id=1, producer_epoch=0, base_sequence=0))
        results = log.append([new(FIRST, 1, batch()), new(FIRST, 0, gap), new(SECOND, 0, batch())])
        assert [result.error is None for result in results] == [True, False, True]
        assert isinstance(results[1].error, OutOfOrderSequenceError)
        assert (len(partition_of(log, FIRST, 1)), len(partition_of(log, FIRST)), len(partition_of(log, SECOND))) == (
            1,
            1,
            1,
        )


def test_a_batch_above_the_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    with opened(tmp_path, WalSettings()) as log:
        huge = batch(bytes(MAX_ENTRY_BYTES // 2))
        with pytest.raises(BatchTooLargeError, match=str(MAX_ENTRY_BYTES // 2)):
            put(log, FIRST, huge)
        put(log, FIRST, batch())
        assert list(partition_of(log, FIRST)) == [0]


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, FIRST, batch(producer_id=1, producer_epoch=3, base_sequence=0))
        with pytest.raises(ProducerFencedError, match="epoch 3"):
            put(log, FIRST, batch(producer_id=1, producer_epoch=2, base_sequence=1))
        with pytest.raises(OutOfOrderSequenceError, match="0 comes next"):
            put(log, FIRST, batch(producer_id=1, producer_epoch=4, base_sequence=7))
        put(log, FIRST, batch(producer_id=1, producer_epoch=4, base_sequence=0))
        assert list(partition_of(log, FIRST)) == [0, 1]


@pytest.mark.parametrize("crash", [False, True])
def test_producer_state_survives_a_restart(tmp_path: Path, crash: bool) -> None:
    """The last five batches are still known, the sixth is not, sequences wrap around."""
    log = opened(tmp_path)
    sequences = [2**31 - 4 + n for n in range(8)]
    sent = [batch(producer_id=9, producer_epoch=1, base_sequence=s % 2**31) for s in sequences]
    for data in sent:
        put(log, FIRST, data, 2)
    (kill if crash else SingleWal.close)(log)
    with opened(tmp_path) as log:
        for offset, data in list(enumerate(sent))[-5:]:
            again = put(log, FIRST, data, 2)
            assert (again.base_offset, again.duplicate) == (offset, True)
        with pytest.raises(OutOfOrderSequenceError):
            put(log, FIRST, sent[2], 2)
        put(log, FIRST, batch(producer_id=9, producer_epoch=1, base_sequence=4), 2)
        assert list(partition_of(log, FIRST, 2)) == list(range(9))


def test_a_producer_that_is_silent_for_long_is_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path, WalSettings(producer_expiry_ms=0)) as log:
        put(log, FIRST, batch(producer_id=9, producer_epoch=1, base_sequence=0))
        threading.Event().wait(0.01)
    with opened(tmp_path, WalSettings(producer_expiry_ms=0)) as log:
        assert not log.state.partition(FIRST.topic_id.bytes, 0).producers


def test_topics_can_be_created_changed_and_deleted_and_stay_so(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, FIRST, batch())
        with pytest.raises(TopicExistsError, match="topic-1"):
            log.create_topic(FIRST)
        with pytest.raises(TopicExistsError, match="topic-1"):
            log.create_topic(topic(50, name="topic-1"))
        grown = topic(2, partitions=4, retention_ms="1000")
        log.change_topic(grown)
        log.delete_topic(FIRST.topic_id.bytes)
        log.create_topic(topic(50, name="topic-1"))
        for call in (log.read, log.move_log_start):
            with pytest.raises(UnknownTopicError):
                call(FIRST.topic_id.bytes, 0, 0, *([1] if call == log.read else []))
    log = SingleWal.open(tmp_path, SMALL, FastDisk())
    assert log.state.topics == {t.topic_id.bytes: t for t in (grown, topic(50, name="topic-1"))}
    found = log.state.by_name(7, "topic-1")
    assert found is not None
    assert found.topic_id == topic(50).topic_id
    log.close()


def test_a_topic_keeps_its_partitions_and_has_one_name(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        with pytest.raises(WalError, match="3 partitions"):
            log.change_topic(topic(1, partitions=2))
        assert log.state.topics[FIRST.topic_id.bytes] == FIRST
        log.change_topic(topic(1, partitions=3, name="other"))
        assert log.state.by_name(7, "topic-1") is None
        assert log.state.by_name(7, "other") is not None


def test_values_are_kept_changed_and_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.set_values({"a": "1", "b": "2", "c": "3"})
        log.set_values({"a": None, "b": "é"})
    log = opened(tmp_path)
    assert log.state.values == {"b": "é", "c": "3"}
    log.set_values({"c": None})
    kill(log)
    with opened(tmp_path) as log:
        assert log.state.values == {"b": "é"}


def test_a_log_of_control_entries_alone_rolls_too(tmp_path: Path) -> None:
    """Committed offsets are control entries: a broker may write many of them and little else."""
    with opened(tmp_path) as log:
        for n in range(400):
            log.set_values({"offset": str(n)})
        assert len(log.segments) > 3
        assert all(path.stat().st_size < 2 * SMALL.segment_bytes for path in tmp_path.glob("*.log"))
        assert log.retain() > 0
        assert len(log.segments) <= 2  # the entry that drops them may itself have opened another
    with opened(tmp_path) as log:
        assert log.state.values == {"offset": "399"}


@pytest.mark.parametrize("offset", [-1, 6, 2**40])
def test_reads_outside_of_the_log_say_what_it_holds(tmp_path: Path, offset: int) -> None:
    with opened(tmp_path) as log:
        for _ in range(5):
            put(log, FIRST, batch())
        with pytest.raises(OffsetOutOfRangeError, match=r"topic-1-0 holds offsets 0 to 5"):
            log.read(FIRST.topic_id.bytes, 0, offset, 100)
        assert log.read(FIRST.topic_id.bytes, 0, 5, 100) == []


def test_a_closed_log_refuses_everything_and_closes_twice(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.close()
    log.close()
    for call in (lambda: put(log, FIRST, batch()), log.flush, lambda: log.set_values({"a": "b"})):
        with pytest.raises(LogClosedError, match="closed"):
            call()


def test_records_are_found_by_time(tmp_path: Path) -> None:
    times = [10, 20, 20, 5, 30, 30, 25]
    with opened(tmp_path) as log:
        for n, time in enumerate(times):
            put(log, FIRST, batch(noise(random.Random(n), 1200), timestamp=time))
        assert len(log.segments) > 1
        topic_id = FIRST.topic_id.bytes
        for time in range(32):
            expected = next((n for n, t in enumerate(times) if t >= time), None)
            found = log.offset_at(topic_id, 0, time)
            assert (None if found is None else found.offset) == expected, time
        latest = log.latest_record(topic_id, 0)
        assert latest is not None
        assert (latest.offset, latest.timestamp) == (4, 30)
        log.move_log_start(topic_id, 0, 5)
        latest = log.latest_record(topic_id, 0)
        assert latest is not None
        assert latest.offset == 5


def test_the_latest_record_is_a_live_one(tmp_path: Path) -> None:
    """The log start may stand inside the batch whose largest time lies before it."""
    with opened(tmp_path) as log:
        put(log, FIRST, build_batch([NewRecord(None, b"", 90), NewRecord(None, b"", 10)]))
        put(log, FIRST, batch(timestamp=50))
        log.move_log_start(FIRST.topic_id.bytes, 0, 1)
        latest = log.latest_record(FIRST.topic_id.bytes, 0)
        assert latest is not None
        assert (latest.offset, latest.timestamp) == (2, 50)
        first = log.offset_at(FIRST.topic_id.bytes, 0, 60)
        assert first is None


def test_entries_can_be_read_from_any_position(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for n in range(60):
            put(log, FIRST, batch(b"%d" % n))
        whole = list(log.segments.entries())
        assert len({entry.segment for entry in whole}) > 1
        for n, entry in enumerate(whole):
            start = Position(entry.segment, entry.header.position)
            assert [found.header for found in log.segments.entries(start)] == [found.header for found in whole[n:]]


def test_each_entry_is_checked_once_and_known_to_be_the_right_one_each_time(tmp_path: Path) -> None:
    key = (FIRST.topic_id.bytes, 0)
    with opened(tmp_path, WalSettings()) as log:
        for n in range(20):
            put(log, FIRST, batch(b"%d" % n))
        rows = log.segments.lookup(log.segments.last).partitions[key]
        log.read(*key, 10, 1)
        assert rows.checked == range(10, 11)
        log.read(*key, 8, 3 * len(batch(b"00")))
        assert rows.checked == range(8, 11)
        log.read(*key, 0, 1)
        assert rows.checked == range(1)
        whole = partition_of(log, FIRST)
        assert rows.checked == range(20)
        with log_files(tmp_path)[0].open("r+b") as file:
            file.seek(rows.positions[5] + 8)
            file.write(b"x")
        with pytest.raises(LogDamagedError, match=f"position {rows.positions[5]}"):
            log.read(*key, 5, 1)
        assert bytes(log.read(*key, 6, 1)[0]) == whole[6]


def test_a_callback_that_fails_keeps_no_ack_from_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: WalError | None) -> None:
        raise ValueError("not our fault")

    with opened(tmp_path) as log:
        acks: list[WalError | None] = []
        for callback in (fail, acks.append, fail, acks.append):
            log.append([new(FIRST, 0, batch())], Durability.SYNCED)
            log.when_synced(log.sequence, callback)
        put(log, FIRST, batch(), durability=Durability.SYNCED)
        assert acks == [None, None]
    assert "a callback of a sync failed" in caplog.text


def test_64_writers_and_8_readers_share_one_log(tmp_path: Path) -> None:
    """Each writer's batches are in order and complete; a reader beside them never sees a gap or a half."""
    partitions, per_writer = 8, 20
    shared = topic(5, partitions=partitions)
    log = SingleWal.open(tmp_path, WalSettings(segment_bytes=40_000, checkpoint_bytes=10_000))
    log.create_topic(shared)
    acked: list[tuple[int, int, bytes]] = []
    failures: list[BaseException] = []
    writing = threading.Event()

    def write(writer: int) -> None:
        for n in range(per_writer):
            data = batch(b"%d-%d" % (writer, n), producer_id=writer, producer_epoch=0, base_sequence=n)
            result = put(log, shared, data, writer % partitions, Durability(n % 3))
            acked.append((writer % partitions, result.base_offset, data))

    def read(partition: int) -> None:
        while not writing.is_set():
            partition_of(log, shared, partition, 3_000)

    def guarded(work: object, number: int) -> None:
        try:
            work(number)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)
            raise

    writers = [threading.Thread(target=guarded, args=(write, n)) for n in range(64)]
    readers = [threading.Thread(target=guarded, args=(read, n)) for n in range(partitions)]
    for thread in [*readers, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    writing.set()
    for thread in readers:
        thread.join()
    assert not failures
    log.flush()
    stored = [partition_of(log, shared, partition) for partition in range(partitions)]
    log.close()
    assert sum(map(len, stored)) == len(acked) == 64 * per_writer
    for partition, offset, data in acked:
        assert stored[partition][offset] == with_base_offset(data, offset, 0)
