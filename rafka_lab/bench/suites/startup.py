"""From nothing to the first acknowledged record. Formatting Kafka's storage, a JVM of its own, is not counted."""

import time

from confluent_kafka import KafkaError, Message, Producer

from rafka_lab.bench.bench import Bench, in_turn
from rafka_lab.bench.sides import Side
from rafka_lab.errors import LabError

_ACK_SECONDS = 60.0
# A cluster that is not quite there is asked again at once, whoever it is.
_EAGER = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 5, "linger.ms": 0}
_EAGER_METADATA = {"topic.metadata.refresh.fast.interval.ms": 10, "log_level": 0}


def run(bench: Bench) -> None:
    times: dict[str, list[float]] = {}
    for turn in range(bench.pace.restarts):
        with bench.sides(start=False) as sides:
            for side in in_turn([side for side in sides if side.restarts], turn):
                started = time.perf_counter()
                side.start()
                first_ack(side, "first")
                times.setdefault(side.name, []).append(time.perf_counter() - started)
                side.kill()
    bench.report.compare("empty data folder", "to first ack", "s", times)


def first_ack(side: Side, topic: str) -> None:
    """Produces one record with acks=all, to a topic that may be new."""
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": side.bootstrap, "acks": "all"} | _EAGER | _EAGER_METADATA)
    producer.produce(topic, b"x", on_delivery=delivered)
    unsent = producer.flush(_ACK_SECONDS)
    producer.close()
    if unsent or failed:
        raise LabError(f"{side.name} did not acknowledge its first record: {failed or 'no answer in time'}")
