"""Reading a whole topic: first with its files out of the page cache, then with them in it."""

from rafka_lab.bench.bench import Bench, client, throughput
from rafka_lab.bench.sides import Side, forget_pages
from rafka_lab.bench.tasks import Task

MESSAGE_BYTES = 1_000
QUICK_MESSAGES, FULL_MESSAGES = 150_000, 1_000_000
PARTITIONS = (1, 12)


def run(bench: Bench) -> None:
    messages = QUICK_MESSAGES if bench.quick else FULL_MESSAGES
    with bench.sides() as sides:
        for partitions in PARTITIONS:
            measure(bench, sides, partitions, messages)


def measure(bench: Bench, sides: list[Side], partitions: int, messages: int) -> None:
    topic = bench.topic(f"fetch-{partitions}")
    many = f"{partitions} partition{'s' if partitions > 1 else ''}"
    for side in sides:
        fill(side, topic, partitions, messages)
    kept = [side for side in sides if side.data is not None]
    found = bench.rounds(
        kept, lambda side: _cold(side, topic, partitions, messages), repeats=bench.pace.restarts, discards=0
    )
    bench.compare(f"1 KB, {many}, cold", found, {"throughput": "MB/s"})
    found = bench.rounds(sides, lambda side: throughput(side, _task(side, topic, partitions, messages)))
    bench.compare(f"1 KB, {many}, cached", found, {"throughput": "MB/s"})
    for side in sides:
        side.delete_topic(topic)


def fill(side: Side, topic: str, partitions: int, messages: int) -> None:
    side.create_topic(topic, partitions)
    client(
        Task(
            work="produce",
            bootstrap=side.bootstrap,
            topic=topic,
            partitions=partitions,
            message_bytes=MESSAGE_BYTES,
            acks="1",
            messages=messages,
            warm_up=0,
        )
    )


def _cold(side: Side, topic: str, partitions: int, messages: int) -> dict[str, float]:
    assert side.data is not None
    forget_pages(side.data)
    return throughput(side, _task(side, topic, partitions, messages))


def _task(side: Side, topic: str, partitions: int, messages: int) -> Task:
    return Task(
        work="fetch",
        bootstrap=side.bootstrap,
        topic=topic,
        partitions=partitions,
        message_bytes=MESSAGE_BYTES,
        messages=messages,
    )
