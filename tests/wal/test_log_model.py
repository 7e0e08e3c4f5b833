"""The log against a model that is a few dictionaries, with restarts and kills as steps (Hypothesis stateful test)."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.wal.logs import FastDisk, batch, kill, new, opened_without_clock, partition_of, topic
from wal.batch import parse_header, with_base_offset
from wal.control import TopicRecord
from wal.errors import OffsetOutOfRangeError, OutOfOrderSequenceError, UnknownTopicError
from wal.log import Durability
from wal.settings import WalSettings

SETTINGS = WalSettings(
    segment_bytes=4_096, checkpoint_bytes=1_200, buffer_bytes=1_500, buffer_seconds=3_600, default_retention_ms=-1
)
PARTITIONS = 2
partitions = st.integers(0, PARTITIONS - 1)
sizes = st.sampled_from([0, 20, 300, 1_500])


@dataclass
class Partition:
    """What one partition must hold."""

    batches: dict[int, bytes] = field(default_factory=dict)
    buffered: dict[int, bytes] = field(default_factory=dict)
    log_start: int = 0
    next_offset: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    sent: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)  # producer -> offset and batch


class LogModel(RuleBasedStateMachine):
    """Every rule does the same to the log and to the model; the invariants compare them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.log = opened_without_clock(self.folder, SETTINGS, FastDisk())
        self.topics: dict[bytes, TopicRecord] = {}
        self.partitions: dict[tuple[bytes, int], Partition] = {}
        self.values: dict[str, str] = {}
        self.created = 0

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)

    def _flushed(self) -> None:
        """Takes over what is no longer only in memory, when the sync thread has nothing left to do."""
        assert self.log._syncer.wait(self.log._syncer.wanted, 30)
        waiting = {(b.header.topic_id, b.header.partition, b.header.base_offset) for b in self.log._buffered}
        for key, partition in self.partitions.items():
            written = {at: one for at, one in partition.buffered.items() if (*key, at) not in waiting}
            partition.batches |= written
            for at in written:
                del partition.buffered[at]

    def _pick(self, data: st.DataObject) -> TopicRecord:
        return data.draw(st.sampled_from(sorted(self.topics.values(), key=lambda record: record.name)), "topic")

    @initialize()
    def start(self) -> None:
        self.create()

    @rule()
    def create(self) -> None:
        self.created += 1
        record = topic(self.created, PARTITIONS)
        self.log.create_topic(record)
        self.topics[record.topic_id.bytes] = record
        for partition in range(PARTITIONS):
            self.partitions[record.topic_id.bytes, partition] = Partition()
        self._flushed()

    @precondition(lambda self: len(self.topics) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        record = self._pick(data)
        self.log.delete_topic(record.topic_id.bytes)
        del self.topics[record.topic_id.bytes]
        for partition in range(PARTITIONS):
            del self.partitions[record.topic_id.bytes, partition]
        self._flushed()
        with pytest.raises(UnknownTopicError):
            self.log.read(record.topic_id.bytes, 0, 0, 1)

    @rule(data=st.data(), durability=st.sampled_from(Durability), count=st.integers(1, 3))
    def append(self, data: st.DataObject, durability: Durability, count: int) -> None:
        sent = []
        for _ in range(count):
            sent.append(
                (self._pick(data), data.draw(partitions), batch(bytes(data.draw(sizes)), data.draw(st.integers(1, 3))))
            )
        results = self.log.append([new(record, number, one) for record, number, one in sent], durability)
        for (record, number, one), result in zip(sent, results, strict=True):
            self._store(self.partitions[record.topic_id.bytes, number], one, result.base_offset)
        self._after_append(durability)

    @rule(data=st.data(), durability=st.sampled_from(Durability), producer=st.integers(0, 2), size=sizes)
    def append_idempotent(self, data: st.DataObject, durability: Durability, producer: int, size: int) -> None:
        record, number = self._pick(data), data.draw(partitions)
        partition = self.partitions[record.topic_id.bytes, number]
        sequence = partition.sequences.get(producer, 0)
        one = batch(bytes(size), 2, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        (result,) = self.log.append([new(record, number, one)], durability)
        assert result.error is None
        self._store(partition, one, result.base_offset)
        partition.sequences[producer] = sequence + 2
        partition.sent.setdefault(producer, []).append((result.base_offset, one))
        self._after_append(durability)

    @rule(data=st.data(), producer=st.integers(0, 2), durability=st.sampled_from(Durability))
    def repeat(self, data: st.DataObject, producer: int, durability: Durability) -> None:
        """A batch that was sent before is stored once; one that is older than five is refused."""
        record, number = self._pick(data), data.draw(partitions)
        sent = self.partitions[record.topic_id.bytes, number].sent.get(producer)
        if not sent:
            return
        at = data.draw(st.integers(0, len(sent) - 1))
        offset, one = sent[at]
        (result,) = self.log.append([new(record, number, one)], durability)
        if len(sent) - at <= 5:
            assert (result.base_offset, result.duplicate, result.error) == (offset, True, None)
        else:
            assert isinstance(result.error, OutOfOrderSequenceError)
        self._after_append(durability)

    def _store(self, partition: Partition, data: bytes, base_offset: int) -> None:
        assert base_offset == partition.next_offset
        stored = with_base_offset(data, base_offset, 0)
        partition.buffered[base_offset] = stored
        partition.next_offset = parse_header(stored).next_offset

    def _after_append(self, durability: Durability) -> None:
        self._flushed()
        assert durability is Durability.NONE or not self.log._buffered

    @rule(data=st.data())
    def move_log_start(self, data: st.DataObject) -> None:
        record, number = self._pick(data), data.draw(partitions)
        partition = self.partitions[record.topic_id.bytes, number]
        end = self.log.state.partition(record.topic_id.bytes, number).high_watermark
        offset = data.draw(st.integers(partition.log_start, end))
        self.log.move_log_start(record.topic_id.bytes, number, offset)
        partition.log_start = offset
        self._flushed()
        with pytest.raises(OffsetOutOfRangeError):
            self.log.move_log_start(record.topic_id.bytes, number, offset - 1)

    @rule()
    def retain(self) -> None:
        """Every topic keeps its records for ever here: only segments without a live record go."""
        self.log.retain()
        self._flushed()

    @rule(key=st.sampled_from("abc"), value=st.none() | st.text(max_size=5))
    def set_value(self, key: str, value: str | None) -> None:
        self.log.set_values({key: value})
        self.values.pop(key, None)
        if value is not None:
            self.values[key] = value
        self._flushed()

    @rule()
    def sync(self) -> None:
        assert self.log.wait_synced(timeout=30)
        self._flushed()

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = opened_without_clock(self.folder, SETTINGS, FastDisk())
        self._flushed()
        assert self.log.report.clean
        assert self.log.report.truncated_bytes == 0

    @rule()
    def crash(self) -> None:
        """What only memory had is gone, with all that followed from it."""
        for partition in self.partitions.values():
            partition.next_offset = min([partition.next_offset, *partition.buffered])
            for producer, sent in partition.sent.items():
                kept = [one for one in sent if one[0] < partition.next_offset]
                partition.sent[producer] = kept
                partition.sequences[producer] = 2 * len(kept)
            partition.buffered.clear()
        kill(self.log)
        self.log = opened_without_clock(self.folder, SETTINGS, FastDisk())
        assert self.log.report.truncated_bytes == 0

    @invariant()
    def the_registry_is_the_models(self) -> None:
        assert self.log.state.topics == self.topics
        assert self.log.state.values == self.values

    @invariant()
    def every_partition_holds_what_the_model_holds(self) -> None:
        for (topic_id, number), partition in self.partitions.items():
            state = self.log.state.partition(topic_id, number)
            assert (state.log_start, state.next_offset) == (partition.log_start, partition.next_offset)
            live = {
                at: one for at, one in partition.batches.items() if parse_header(one).next_offset > partition.log_start
            }
            assert partition_of(self.log, self.topics[topic_id], number, 700) == live

    @invariant()
    def the_files_are_bounded(self) -> None:
        assert len(self.log.segments) == len(list(self.folder.glob("*.log")))


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        LogModel,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def test_the_log_does_what_its_model_does() -> None:
    run(examples=40, steps=40)


@pytest.mark.soak
def test_the_log_does_what_its_model_does_for_long() -> None:
    run(examples=3_000, steps=80)
