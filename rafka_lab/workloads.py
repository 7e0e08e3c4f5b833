"""Loads for experiments and crash tests: each drives a lab through librdkafka and gives back what it measured."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rafka_lab.errors import LabError

if TYPE_CHECKING:
    from confluent_kafka import Message

    from rafka_lab.tools import LabTools

_POLL_SECONDS = 0.1
_SETTLE_SECONDS = 30.0
_MILLION = 1e6


def produce_load(
    lab: "LabTools",
    *,
    topic: str = "load",
    records: int = 10_000,
    size: int = 100,
    linger_ms: float = 5,
    batch_bytes: int = 1_000_000,
    acks: str | int = "all",
    compression: str = "none",
    rate: float | None = None,
) -> Mapping[str, float]:
    """Produces as fast as it goes, or at `rate` records a second; latency is from `produce()` to the ack."""
    from confluent_kafka import Producer

    producer = Producer(
        lab.kafka.config(
            {
                "linger.ms": str(linger_ms),
                "batch.size": str(batch_bytes),
                "acks": str(acks),
                "compression.type": compression,
                "queue.buffering.max.messages": "1000000",
            }
        )
    )
    producer.list_topics(topic, timeout=_SETTLE_SECONDS)  # connected before the clock runs
    latencies: list[float] = []
    failures: list[str] = []

    def delivered(error: Any, message: "Message") -> None:
        if error is None:
            latencies.append(message.latency() or 0.0)
        else:
            failures.append(error.str())

    value = bytes(size)
    begun = time.perf_counter()
    for number in range(records):
        if rate:
            _wait_until(producer, begun + number / rate)
        _send(producer, topic, value, delivered)
    producer.flush(_SETTLE_SECONDS)
    seconds = time.perf_counter() - begun
    if failures or len(latencies) != records:
        raise LabError(f"{records - len(latencies)} of {records} records were not acknowledged: {failures[:1]}")
    found = np.percentile(latencies, [50, 99]) * 1000
    return {
        "records_per_s": records / seconds,
        "mb_per_s": records * size / seconds / _MILLION,
        "p50_ms": float(found[0]),
        "p99_ms": float(found[1]),
    }


def fetch_load(lab: "LabTools", *, topic: str = "load") -> Mapping[str, float]:
    """Fetches all of a topic into a DataFrame."""
    begun = time.perf_counter()
    frame = lab.fetch(topic)
    seconds = time.perf_counter() - begun
    return {"records": float(len(frame)), "seconds_taken": seconds, "records_per_s": len(frame) / seconds}


def _send(producer: Any, topic: str, value: bytes, delivered: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(_POLL_SECONDS)


def _wait_until(producer: Any, moment: float) -> None:
    while (left := moment - time.perf_counter()) > 0:
        producer.poll(min(left, _POLL_SECONDS))
