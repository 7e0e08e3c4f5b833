"""End-to-end latency at fixed rates: from the moment a message was due to the moment its consumer has it.

Producer and consumer are processes of their own with one clock. A message that had to wait because the one before it
was slow counts with its waiting, so a stall is seen in full (no coordinated omission).
"""

from msgspec.structs import replace

from rafka_lab.bench.bench import Bench, finish, start_client
from rafka_lab.bench.sides import Side
from rafka_lab.bench.tasks import Task

MESSAGE_BYTES = 100
QUICK_LOADS = ((1_000, "all"), (1_000, "1"))
FULL_LOADS = ((100, "all"), (1_000, "all"), (1_000, "1"), (10_000, "all"), (10_000, "1"))
# p99.9 of a second at 1,000 msg/s would be one message.
QUICK_SECONDS, FULL_SECONDS = 2.5, 10.0


def run(bench: Bench) -> None:
    seconds = QUICK_SECONDS if bench.quick else FULL_SECONDS
    with bench.sides() as sides:
        for rate, acks in QUICK_LOADS if bench.quick else FULL_LOADS:
            measure(bench, sides, rate, acks, seconds)


def measure(bench: Bench, sides: list[Side], rate: float, acks: str, seconds: float) -> None:
    topic = bench.topic(f"latency-{rate}-{acks}")
    for side in sides:
        side.create_topic(topic, synced=acks == "all")
    # Each round has a warm-up of its own, and is long.
    found = bench.rounds(sides, lambda side: _percentiles(side, topic, rate, acks, seconds), discards=0)
    bench.compare(f"{rate:,} msg/s, acks={acks}", found, {"p50": "ms", "p99": "ms", "p99.9": "ms"})
    for side in sides:
        side.delete_topic(topic)


def _percentiles(side: Side, topic: str, rate: float, acks: str, seconds: float) -> dict[str, float]:
    task = Task(
        work="consume",
        bootstrap=side.bootstrap,
        topic=topic,
        message_bytes=MESSAGE_BYTES,
        acks=acks,
        linger_ms=0,
        rate=rate,
        seconds=seconds,
    )
    consumer = start_client(task)
    assert consumer.stdout is not None
    consumer.stdout.readline()  # ready
    producer = start_client(replace(task, work="produce"))
    try:
        finish(producer)
        return finish(consumer).latencies_ms
    finally:
        for process in (producer, consumer):
            process.kill()
