"""The client of the benchmarks, a process of its own: librdkafka produces or fetches, and one JSON line says how fast.

`python -m rafka_lab.bench.client '{"work": "produce", "bootstrap": "...", ...}'`
"""

import sys
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import msgspec
import numpy as np
from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition

from rafka_lab.bench.payloads import pool
from rafka_lab.bench.tasks import Outcome, Task

# Messages handed over in one call into librdkafka: Python is then not what is measured.
HANDED_OVER = 1_000
HANDED_OVER_BYTES = 1_000_000
TIMEOUT = 120.0
# While librdkafka's queue is full.
_FULL_SECONDS = 0.002
_STAMP_BYTES = 8
# For a consumer to find the end of its partitions.
_SETTLE_SECONDS = 0.6
_PRODUCER = {
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 32_768,
    "delivery.report.only.error": True,
    "log_level": 4,
}
_CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.message.max.bytes": 8_388_608,
    "queued.max.messages.kbytes": 262_144,
    "log_level": 4,
}


class Failures:
    """Delivery reports come only for messages that failed, and any of them makes the figure worthless."""

    def __init__(self) -> None:
        self.first = ""

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and not self.first:
            self.first = str(error)


def produce(task: Task) -> Outcome:
    """From the first message handed over to the last acknowledgement; the warm-up before ends in the same way."""
    failures = Failures()
    producer = _producer(task, failures)
    groups = _groups(task)
    used = time.process_time()
    before = _hand_over(producer, failures, task, groups, task.warm_up, 0) if task.warm_up else 0
    started = time.perf_counter()
    messages = _hand_over(producer, failures, task, groups, task.seconds, task.messages)
    seconds = time.perf_counter() - started
    client_cpu = time.process_time() - used
    return Outcome(messages=messages, seconds=seconds, total=before + messages, client_cpu=client_cpu)


def _hand_over(
    producer: Producer,
    failures: Failures,
    task: Task,
    groups: "Iterator[tuple[list[dict[str, bytes]], int]]",
    seconds: float,
    messages: int,
) -> int:
    """Produces so many messages, or for so long where no number is given, and waits until all are acknowledged."""
    handed = 0
    end = time.perf_counter() + seconds
    while handed < messages if messages else time.perf_counter() < end:
        group, partition = next(groups)
        if messages:
            group = group[: messages - handed]
        while group:
            taken = producer.produce_batch(task.topic, group, partition=partition)
            handed += taken
            group = group[taken:]
            if group:
                producer.poll(_FULL_SECONDS)
            if failures.first:
                raise SystemExit(f"a message was not acknowledged: {failures.first}")
    _flush(producer, failures)
    return handed


def _producer(task: Task, failures: Failures) -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": task.bootstrap,
        "acks": task.acks,
        "linger.ms": task.linger_ms,
        "batch.size": task.batch_bytes,
        "compression.type": task.codec,
        "on_delivery": failures,
    }
    producer = Producer(_PRODUCER | settings)
    producer.list_topics(task.topic, timeout=TIMEOUT)  # the connection and the topic are there
    producer.produce(task.topic, b"first", partition=0)
    _flush(producer, failures)
    return producer


def _groups(task: Task) -> Iterator[tuple[list[dict[str, bytes]], int]]:
    """Groups of messages, one partition after the other."""
    values = pool(task.payload, task.message_bytes)
    size = max(1, min(HANDED_OVER, HANDED_OVER_BYTES // task.message_bytes, len(values)))
    groups = [[{"value": value} for value in values[at : at + size]] for at in range(0, len(values) - size + 1, size)]
    return zip(cycle(groups), cycle(range(task.partitions)))


def _flush(producer: Producer, failures: Failures) -> None:
    unsent = producer.flush(TIMEOUT)
    if unsent or failures.first:
        raise SystemExit(f"{unsent} messages were not acknowledged: {failures.first or 'no answer in time'}")


def fetch(task: Task) -> Outcome:
    """All partitions from their start; the clock runs from the first message to the last."""
    used = time.process_time()
    consumer = Consumer(_CONSUMER | {"bootstrap.servers": task.bootstrap})
    consumer.assign([TopicPartition(task.topic, partition, 0) for partition in range(task.partitions)])
    read = len(_taken(consumer.consume(1, TIMEOUT), 0, task))
    started = time.perf_counter()
    while read < task.messages:
        read += len(_taken(consumer.consume(min(10_000, task.messages - read), TIMEOUT), read, task))
    seconds = time.perf_counter() - started
    consumer.close()
    return Outcome(messages=read - 1, seconds=seconds, total=read, client_cpu=time.process_time() - used)


def _taken(messages: list[Message], read: int, task: Task) -> list[Message]:
    if not messages or messages[0].error():
        why = messages[0].error() if messages else "no more"
        raise SystemExit(f"{read} of {task.messages} messages came: {why}")
    return messages


def paced(task: Task) -> Outcome:
    """Produces at a fixed rate. A message carries the time at which it was due, so waiting in here counts as well."""
    failures = Failures()
    producer = _producer(task, failures)
    values = cycle(value[_STAMP_BYTES:] for value in pool(task.payload, task.message_bytes))
    count = int((task.warm_up + task.seconds) * task.rate)
    used, begun = time.process_time(), time.perf_counter_ns()
    for number, value in zip(range(count), values, strict=False):
        due = begun + int(number / task.rate * 1e9)
        while (wait := due - time.perf_counter_ns()) > 0:
            producer.poll(0)
            time.sleep(wait / 1e9)
        producer.produce(task.topic, due.to_bytes(_STAMP_BYTES, "big") + value, partition=number % task.partitions)
    seconds = (time.perf_counter_ns() - begun) / 1e9
    _flush(producer, failures)
    return Outcome(messages=count, seconds=seconds, total=count, client_cpu=time.process_time() - used)


def consume(task: Task) -> Outcome:
    """The far end of `paced`, in another process: both see the same clock. Says `ready` before the first message."""
    used = time.process_time()
    consumer = Consumer(_CONSUMER | {"bootstrap.servers": task.bootstrap})
    consumer.assign([TopicPartition(task.topic, partition, OFFSET_END) for partition in range(task.partitions)])
    consumer.poll(_SETTLE_SECONDS)  # it has fetched once, so its position is the end
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    expected = int((task.warm_up + task.seconds) * task.rate)
    times: list[tuple[int, int]] = []
    while len(times) < expected:
        message = consumer.poll(TIMEOUT)
        now = time.perf_counter_ns()
        if message is None or message.error():
            why = message.error() if message else f"no more within {TIMEOUT:g} s"
            raise SystemExit(f"{len(times)} of {expected} messages came: {why}")
        value = message.value() or b""
        if len(value) == task.message_bytes:  # the producer's first message is shorter
            times.append((int.from_bytes(value[:_STAMP_BYTES], "big"), now))
    consumer.close()
    measured = times[int(task.warm_up * task.rate) :]
    waits = [(seen - due) / 1e6 for due, seen in measured]
    return Outcome(
        messages=len(waits),
        seconds=task.seconds,
        total=len(times),
        client_cpu=time.process_time() - used,
        latencies_ms=percentiles(waits),
    )


def percentiles(values: list[float]) -> dict[str, float]:
    found = np.percentile(values, [50, 99, 99.9, 100])
    return {name: float(value) for name, value in zip(("p50", "p99", "p99.9", "max"), found, strict=True)}


def main(text: str) -> None:
    task = msgspec.json.decode(text, type=Task)
    if task.work == "requests":
        from rafka_lab.bench.raw_client import requests

        outcome = requests(task)
    else:
        work = {"produce": paced if task.rate else produce, "fetch": fetch, "consume": consume}[task.work]
        outcome = work(task)
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
