"""The client of `bench.cluster`, a process of its own: librdkafka produces or fetches, and one JSON line says how fast.

`python -m bench.cluster_client '{"work": "produce", "bootstrap": "...", ...}'`. Without a bootstrap it starts
librdkafka's own in-memory cluster in this process and uses that.
"""

import json
import sys
import time
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

# Messages handed over in one call into librdkafka: Python is then not what is measured.
HANDED_OVER = 1_000
TIMEOUT = 120.0
_MOCK = {"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 4}  # it says on stderr that it is a mock
_PRODUCER = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
    "delivery.report.only.error": True,
}
_CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.message.max.bytes": 8_388_608,
    "queued.max.messages.kbytes": 262_144,
}


class Task(msgspec.Struct, frozen=True):
    """What to do. An empty `bootstrap` means librdkafka's mock cluster."""

    work: str
    bootstrap: str
    topic: str
    message_bytes: int
    messages: int


class Outcome(msgspec.Struct, frozen=True):
    seconds: float
    messages: int


class Failures:
    """Delivery reports come only for messages that failed, and any of them makes the figure worthless."""

    def __init__(self) -> None:
        self.first = ""

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and not self.first:
            self.first = str(error)


def produce(task: Task) -> Outcome:
    failures = Failures()
    target: dict[str, Any] = _MOCK if not task.bootstrap else {"bootstrap.servers": task.bootstrap}
    producer = Producer(_PRODUCER | target | {"on_delivery": failures})
    producer.list_topics(task.topic, timeout=TIMEOUT)  # the connection and the topic are there
    producer.produce(task.topic, b"first", partition=0)
    producer.flush(TIMEOUT)
    value = bytes(task.message_bytes)
    group = [{"value": value}] * HANDED_OVER
    started = time.perf_counter()
    left = task.messages
    while left:
        taken = producer.produce_batch(task.topic, group[: min(left, HANDED_OVER)], partition=0)
        left -= taken
        if taken < HANDED_OVER and left:
            producer.poll(0.005)  # the queue is full
    unsent = producer.flush(TIMEOUT)
    seconds = time.perf_counter() - started
    if unsent or failures.first:
        raise SystemExit(f"{unsent} messages were not acknowledged: {failures.first or 'no answer in time'}")
    return Outcome(seconds, task.messages)


def fetch(task: Task) -> Outcome:
    consumer = Consumer(_CONSUMER | {"bootstrap.servers": task.bootstrap})
    consumer.assign([TopicPartition(task.topic, 0, 0)])
    read = len(consumer.consume(1, TIMEOUT))
    started = time.perf_counter()
    while read < task.messages:
        got = consumer.consume(min(10_000, task.messages - read), TIMEOUT)
        if not got or got[0].error():
            raise SystemExit(f"{read} of {task.messages} messages came: {got[0].error() if got else 'no more'}")
        read += len(got)
    seconds = time.perf_counter() - started
    consumer.close()
    return Outcome(seconds, read)


def main(text: str) -> None:
    task = msgspec.json.decode(text, type=Task)
    outcome = {"produce": produce, "fetch": fetch}[task.work](task)
    sys.stdout.write(json.dumps(msgspec.to_builtins(outcome)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
