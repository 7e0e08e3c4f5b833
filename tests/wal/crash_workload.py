"""A random life of a log on a simulated disk, with a ledger of what was promised when, and the check after a crash."""

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import wal.recovery
from tests.wal.logs import FastDisk, batch, kill, new, noise, opened_without_clock, partition_of, topic
from tests.wal.simulated_disk import Loss, SimulatedDisk
from wal.batch import parse_header, with_base_offset
from wal.control import TopicRecord
from wal.log import Durability, SingleWal
from wal.producers import ProducerState
from wal.settings import WalSettings
from wal.state import Key

# Nothing is flushed by the clock, so that a seed makes the same operations each time.
SETTINGS = WalSettings(segment_bytes=5_000, checkpoint_bytes=1_500, buffer_bytes=2_000, buffer_seconds=3_600)
PARTITIONS = 3
PRODUCERS = 3
NEVER = 1 << 60


@contextmanager
def boot(name: str) -> Iterator[None]:
    """The machine's run, as the log sees it."""
    with mock.patch.object(wal.recovery, "boot_id", return_value=name):
        yield


@dataclass
class TopicFacts:
    record: TopicRecord
    created: int = NEVER  # the moment when it was promised
    deleting: int = NEVER  # the moment before the deletion
    deleted: int = NEVER  # the moment when that was promised


@dataclass
class Stored:
    data: bytes
    written: int = NEVER
    synced: int = NEVER


@dataclass
class Ledger:
    """What was sent and what was promised, with the moment (a number of disk operations) of each promise."""

    topics: dict[bytes, TopicFacts] = field(default_factory=dict)
    batches: dict[Key, dict[int, Stored]] = field(default_factory=lambda: defaultdict(dict))
    log_starts: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))  # moment, offset
    synced_starts: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def of_a_new_boot(self, moment: int, loss: Loss) -> "Ledger":
        """The promises that hold at a crash, for the life after it."""
        later = Ledger()
        for topic_id, facts in self.topics.items():
            if facts.deleting > moment:
                later.topics[topic_id] = TopicFacts(facts.record, -1 if facts.created <= moment else NEVER)
        for key, stored in self.batches.items():
            for offset, one in stored.items():
                held = _promised(one, moment, loss) and key[0] in later.topics
                later.batches[key][offset] = Stored(one.data, *([-1, -1] if held else []))
        for key, starts in self.log_starts.items():
            later.log_starts[key] = [(-1, offset) for at, offset in starts if at <= moment]
        return later


def _promised(stored: Stored, moment: int, loss: Loss) -> bool:
    return stored.synced <= moment or (loss is Loss.PROCESS and stored.written <= moment)


class Workload:
    """One life. `run` takes random steps; `check` looks at what a crash left."""

    def __init__(self, folder: Path, seed: int, boot_name: str = "boot", ledger: Ledger | None = None) -> None:
        self._random = random.Random(seed)
        self._folder = folder
        self.boot = boot_name
        self.ledger = ledger or Ledger()
        self._topics = 10_000 * (1 + len(self.ledger.topics)) + seed % 997
        folder.mkdir(exist_ok=True)
        self.disk = SimulatedDisk(folder)
        self._sequences: dict[tuple[Key, int], int] = {}
        self._epoch = 0 if ledger is None else 1_000  # above all of the first life
        self._log = opened_without_clock(folder, SETTINGS, self.disk)
        self._take_over()

    def _take_over(self) -> None:
        """What an opened log holds is on the disk from then on: the opening synced it."""
        now = self.disk.now
        for topic_id in list(self.ledger.topics):
            if topic_id not in self._log.state.topics:
                self.ledger.topics.pop(topic_id)
                for key in [key for key in self.ledger.batches if key[0] == topic_id]:
                    del self.ledger.batches[key]
        for topic_id, record in self._log.state.topics.items():
            self.ledger.topics.setdefault(topic_id, TopicFacts(record)).created = now
            for partition in range(PARTITIONS):
                key = (topic_id, partition)
                state = self._log.state.partition(*key)
                stored = self.ledger.batches[key]
                for offset in [offset for offset in stored if offset >= state.next_offset]:
                    del stored[offset]
                for offset, data in partition_of(self._log, record, partition).items():
                    stored[offset].written = stored[offset].synced = now
                    assert stored[offset].data == data
                if state.log_start:
                    self.ledger.synced_starts[key].append((now, state.log_start))

    def run(self, steps: int) -> "Workload":
        self._create()
        actions = [self._append] * 12 + [self._wait] * 3 + [self._move, self._retain, self._create, self._values]
        actions += [self._delete, self._kill, self._close]
        for _ in range(steps):
            self._random.choice(actions)()
            self._settle()
        kill(self._log)
        return self

    def _settle(self) -> None:
        """Syncs that a checkpoint asked for are over before the next step, so that a seed repeats."""
        wanted = self._log._syncer.wanted
        assert self._log._syncer.wait(wanted, 30)

    # Steps

    def _live(self) -> list[TopicFacts]:
        return [facts for facts in self.ledger.topics.values() if facts.record.topic_id.bytes in self._log.state.topics]

    def _append(self) -> None:
        topics = self._live()
        if not topics:
            return
        durability = self._random.choice(list(Durability))
        sent = []
        for _ in range(self._random.randint(1, 4)):
            key = (self._random.choice(topics).record.topic_id, self._random.randrange(PARTITIONS))
            sent.append((key, self._batch((key[0].bytes, key[1]))))
        results = self._log.append([new(topic_id, partition, data) for (topic_id, partition), data in sent], durability)
        for ((topic_id, partition), data), result in zip(sent, results, strict=True):
            assert result.error is None
            assert not result.duplicate
            stored = Stored(with_base_offset(data, result.base_offset, 0))
            self.ledger.batches[topic_id.bytes, partition][result.base_offset] = stored
        if durability is not Durability.NONE:
            self._mark_written()
        if durability is Durability.SYNCED:
            self._wait()

    def _batch(self, key: Key) -> bytes:
        count = self._random.randint(1, 3)
        value = noise(self._random, self._random.choice([1, 30, 200, 700]))
        if self._random.random() < 0.4:
            return batch(value, count)
        producer = self._random.randrange(PRODUCERS)
        sequence = self._sequences.get((key, producer), 0)
        self._sequences[key, producer] = sequence + count
        return batch(value, count, producer_id=producer, producer_epoch=self._epoch, base_sequence=sequence)

    def _mark_written(self) -> None:
        buffered = {
            (entry.header.topic_id, entry.header.partition, entry.header.base_offset) for entry in self._log._buffered
        }
        for key, partition in self.ledger.batches.items():
            for offset, stored in partition.items():
                if (*key, offset) not in buffered:
                    stored.written = min(stored.written, self.disk.now)

    def _all_stored(self) -> list[Stored]:
        return [stored for partition in self.ledger.batches.values() for stored in partition.values()]

    def _wait(self) -> None:
        self._log.flush()
        assert self._log.wait_synced(self._log.sequence, 30)
        now = self.disk.now
        for stored in self._all_stored():
            stored.written, stored.synced = min(stored.written, now), min(stored.synced, now)
        for topic_id, facts in self.ledger.topics.items():
            if topic_id in self._log.state.topics:
                facts.created = min(facts.created, now)
            else:
                facts.deleted = min(facts.deleted, now)
        for key, state in self._log.state.partitions.items():
            if state.log_start:
                self.ledger.synced_starts[key].append((now, state.log_start))

    def _create(self) -> None:
        self._topics += 1
        configs = self._random.choice([{}, {"retention_bytes": "3000"}])
        record = topic(self._topics, PARTITIONS, **configs)
        self.ledger.topics[record.topic_id.bytes] = TopicFacts(record)
        self._log.create_topic(record)
        self._mark_written()

    def _delete(self) -> None:
        topics = self._live()
        if len(topics) > 1:
            facts = self._random.choice(topics)
            facts.deleting = self.disk.now
            self._log.delete_topic(facts.record.topic_id.bytes)
            self._mark_written()

    def _move(self) -> None:
        for key, state in list(self._log.state.partitions.items()):
            if state.high_watermark > state.log_start and self._random.random() < 0.3:
                offset = self._random.randint(state.log_start, state.high_watermark)
                self.ledger.log_starts[key].append((self.disk.now, offset))
                self._log.move_log_start(*key, offset)
                self._mark_written()

    def _retain(self) -> None:
        before = self.disk.now
        self._log.retain(0)
        for key, state in self._log.state.partitions.items():
            self.ledger.log_starts[key].append((before, state.log_start))
        self._mark_written()

    def _values(self) -> None:
        self._log.set_values({"moment": str(self.disk.now), f"v{self._random.randrange(5)}": None})
        self._mark_written()

    def _kill(self) -> None:
        """The process ends, the machine runs on: only what was in memory is lost, and nobody was promised that."""
        for entry in self._log._buffered:
            stored = self.ledger.batches[entry.header.topic_id, entry.header.partition].pop(entry.header.base_offset)
            assert stored.written == NEVER
        kill(self._log)
        self._again()

    def _close(self) -> None:
        self._log.close()
        self._mark_written()
        self._again()

    def _again(self) -> None:
        self._sequences.clear()
        self._epoch += 1
        self._log = opened_without_clock(self._folder, SETTINGS, self.disk)
        for key, stored in self.ledger.batches.items():
            if key[0] in self._log.state.topics:
                assert self._log.state.partition(*key).next_offset == _end(stored)
        self._wait()

    # After a crash

    def crash(self, target: Path, seed: int) -> tuple[int, Loss]:
        """A folder as a crash at a random moment may have left it."""
        random_ = random.Random(seed)
        loss = random_.choice(list(Loss))
        moment = random_.randint(self.first_moment, self.disk.now)
        self.disk.crash(target, moment, loss, seed)
        return moment, loss

    @property
    def first_moment(self) -> int:
        return 0

    def boot_after(self, loss: Loss) -> str:
        return self.boot if loss is Loss.PROCESS else f"{self.boot}+1"

    def check(self, folder: Path, moment: int, loss: Loss, *, thorough: bool) -> None:
        """Opens what the crash left: all that was promised is there, and nothing that was never sent."""
        with SingleWal.open(folder, SETTINGS, FastDisk()) as log:
            found = self._check_topics(log, moment)
            self._check_batches(log, found, moment, loss)
            self._check_producers(log)
            if thorough:
                self._check_duplicates(log, found)
        if thorough:
            with SingleWal.open(folder, SETTINGS, FastDisk()) as log:
                assert log.report.clean
                assert self._check_topics(log, moment) == found

    def _check_topics(self, log: SingleWal, moment: int) -> dict[Key, dict[int, bytes]]:
        for topic_id, facts in self.ledger.topics.items():
            if topic_id not in log.state.topics:
                assert facts.created > moment or facts.deleting <= moment, f"lost {facts.record.name}"
            else:
                assert facts.deleted > moment, f"{facts.record.name} is back"
                assert log.state.topics[topic_id] == facts.record
        assert set(log.state.topics) <= set(self.ledger.topics)
        return {
            (topic_id, partition): partition_of(log, record, partition)
            for topic_id, record in log.state.topics.items()
            for partition in range(PARTITIONS)
        }

    def _check_batches(self, log: SingleWal, found: dict[Key, dict[int, bytes]], moment: int, loss: Loss) -> None:
        for key, batches in found.items():
            log_start = log.state.partition(*key).log_start
            starts = [offset for at, offset in self.ledger.log_starts[key] if at <= moment]
            assert log_start in [0, *starts]
            promised = [offset for at, offset in self.ledger.synced_starts[key] if at <= moment]
            assert log_start >= max(promised, default=0), "a log start went back"
            stored = self.ledger.batches[key]
            for offset, data in batches.items():
                assert stored[offset].data == data, f"a wrong record at offset {offset}"
            for offset, one in stored.items():
                if _promised(one, moment, loss) and parse_header(one.data).next_offset > log_start:
                    assert offset in batches, f"lost offset {offset}"

    def _check_producers(self, log: SingleWal) -> None:
        for key, state in log.state.partitions.items():
            expected: dict[int, ProducerState] = {}
            for offset, one in sorted(self.ledger.batches[key].items()):
                header = parse_header(one.data)
                if offset < state.next_offset and header.producer_id >= 0:
                    producer = expected.setdefault(header.producer_id, ProducerState())
                    producer.add(header.producer_epoch, header.base_sequence, header.record_count, offset, 0)
            assert _producers(state.producers) == _producers(expected)

    def _check_duplicates(self, log: SingleWal, found: dict[Key, dict[int, bytes]]) -> None:
        """What was stored is recognised when it is sent again."""
        for key, batches in found.items():
            for producer in log.state.partition(*key).producers.values():
                for known in producer.batches:
                    if known.base_offset in batches:
                        (again,) = log.append([new(log.state.topics[key[0]], key[1], batches[known.base_offset])])
                        assert again.duplicate
                        assert again.base_offset == known.base_offset


def _producers(states: dict[int, ProducerState]) -> dict[int, tuple[int, list[object]]]:
    return {number: (state.epoch, list(state.batches)) for number, state in states.items()}


def _end(stored: dict[int, Stored]) -> int:
    return parse_header(stored[max(stored)].data).next_offset if stored else 0


def two_lives(folder: Path, seed: int, crashes: int, *, thorough_every: int = 5) -> int:
    """A life with many possible ends, and for some of them a second life with its own; how many ends were looked at."""
    random_ = random.Random(seed)
    folder.mkdir()
    with boot("boot"):
        first = Workload(folder / "first", seed).run(40)
    checked = 0
    for number in range(crashes):
        crash_seed = random_.getrandbits(40)
        target = folder / f"{number}"
        moment, loss = first.crash(target, crash_seed)
        where = f"seed {seed}, crash {crash_seed} ({loss.value}) after {moment} operations"
        try:
            if number % 10 == 9:
                name = first.boot_after(loss)
                with boot(name):
                    second = Workload(target, crash_seed, name, first.ledger.of_a_new_boot(moment, loss)).run(15)
                for again in range(5):
                    other_seed = random_.getrandbits(40)
                    end = folder / f"{number}-{again}"
                    moment, loss = second.crash(end, other_seed)
                    where += f", then crash {other_seed} ({loss.value}) after {moment}"
                    with boot(second.boot_after(loss)):
                        second.check(end, moment, loss, thorough=True)
                    shutil.rmtree(end)
                    checked += 1
            else:
                with boot(first.boot_after(loss)):
                    first.check(target, moment, loss, thorough=number % thorough_every == 0)
        except Exception as error:
            error.add_note(where)
            raise
        checked += 1
        shutil.rmtree(target)
    shutil.rmtree(folder)
    return checked
