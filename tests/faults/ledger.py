"""Producers under load, and a ledger of what was acknowledged. No kill of a node touches it."""

import threading
import time
from collections import Counter

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

READ_SECONDS = 60.0


class Load:
    """One producer that writes numbers to all partitions of a topic until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **options: object) -> None:
        self.topic = topic
        self.partitions = partitions
        self.acked: dict[tuple[int, int], bytes] = {}  # value by partition and offset
        self.failed: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
                **options,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                self._producer.produce(
                    self.topic,
                    b"%d" % self.sent,
                    partition=self.sent % self.partitions,
                    on_delivery=self._delivered,
                )
                self.sent += 1
            self._producer.poll(0.005)
            while len(self._producer) > 5_000 and not self._stop.is_set():
                self._producer.poll(0.05)
        left = self._producer.flush(110)
        if left:
            self.failed.append(f"{left} records were neither acknowledged nor refused")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acked[partition, offset] = value

    def wait_for_acks(self, more: int, seconds: float = 60) -> None:
        """Waits until that many more records are acknowledged."""
        wanted = len(self.acked) + more
        end = time.monotonic() + seconds
        while len(self.acked) < wanted:
            assert time.monotonic() < end, f"{len(self.acked)} of {wanted} acknowledged; failed: {self.failed[:3]}"
            time.sleep(0.005)


def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until the result is there
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def read_partition(bootstrap: str, topic: str, partition: int) -> list[tuple[int, bytes]]:
    """Every record from the start to the end that the broker states."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})
    try:
        where = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(where, timeout=20)
        consumer.assign([where])
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + READ_SECONDS
        while len(found) < end and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None, message.error()
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                found.append((offset, value))
        assert [offset for offset, _ in found] == list(range(end)), "offsets are contiguous from 0 to the end"
        return found
    finally:
        consumer.close()


def check(load: Load, bootstrap: str, *, no_duplicates: bool) -> None:
    """Jepsen's questions: nothing acknowledged is lost or elsewhere, and an idempotent producer left nothing twice."""
    assert not load.failed, load.failed[:5]
    for partition in range(load.partitions):
        stored = dict(read_partition(bootstrap, load.topic, partition))
        acked = {offset: value for (number, offset), value in load.acked.items() if number == partition}
        lost = {offset: value for offset, value in acked.items() if stored.get(offset) != value}
        assert not lost, f"{len(lost)} acknowledged records are lost or changed: {list(lost.items())[:5]}"
        if no_duplicates:
            twice = [value for value, count in Counter(stored.values()).items() if count > 1]
            assert not twice, f"{len(twice)} records are there twice: {twice[:5]}"
            values = [int(value) for _, value in sorted(stored.items())]
            assert values == sorted(values), "records of one producer changed their order"
