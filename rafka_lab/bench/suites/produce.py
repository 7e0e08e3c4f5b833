"""Producing as fast as librdkafka goes: sizes, partitions, acks and codecs, with the mock as the client's own bound.

acks=all is compared with topics that Kafka syncs before each ack (`flush.messages=1`), as ours are; acks 0 and 1 with
its default, which leaves syncing to the system. Codecs get JSON events, the others random letters.
"""

import itertools
from dataclasses import dataclass

from rafka_lab.bench.bench import Bench, throughput
from rafka_lab.bench.sides import Side
from rafka_lab.bench.tasks import Task

SIZES = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB", 100_000: "100 KB"}
PARTITIONS = (1, 12)
ACKS = ("0", "1", "all")
CODECS = ("lz4", "zstd")


@dataclass(frozen=True)
class Load:
    message_bytes: int
    partitions: int
    acks: str
    codec: str

    @property
    def name(self) -> str:
        many = f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        codec = "" if self.codec == "none" else f", {self.codec}"
        return f"{SIZES[self.message_bytes]}, {many}, acks={self.acks}{codec}"

    def task(self, side: Side, topic: str, bench: Bench) -> Task:
        return Task(
            work="produce",
            bootstrap=side.bootstrap,
            topic=topic,
            partitions=self.partitions,
            message_bytes=self.message_bytes,
            payload="text" if self.codec == "none" else "json",
            acks=self.acks,
            codec=self.codec,
            seconds=bench.pace.seconds,
            warm_up=bench.pace.warm_up,
        )


# The targets' own, and one of each other kind.
QUICK = (
    Load(100, 1, "all", "none"),
    Load(1_000, 1, "all", "none"),
    Load(1_000, 1, "1", "none"),
    Load(1_000, 12, "all", "lz4"),
)
# A codec is the client's work and makes batches smaller, whatever the acks; so codecs are measured with acks=all only.
FULL = (
    *(Load(size, many, acks, "none") for size, many, acks in itertools.product(SIZES, PARTITIONS, ACKS)),
    *(Load(size, many, "all", codec) for size, many, codec in itertools.product(SIZES, PARTITIONS, CODECS)),
)


def run(bench: Bench) -> None:
    with bench.sides(mock=True) as sides:
        for number, load in enumerate(QUICK if bench.quick else FULL):
            measure(bench, sides, load, bench.topic(f"produce-{number}"))


def measure(bench: Bench, sides: list[Side], load: Load, topic: str) -> None:
    # The mock makes its topics itself, with four partitions, and what it is asked is how fast the client can be.
    chosen = [side for side in sides if side.makes_topics or (load.partitions == 1 and load.acks == "all")]
    for side in chosen:
        side.create_topic(topic, load.partitions, synced=load.acks == "all")
    found = bench.rounds(chosen, lambda side: throughput(side, load.task(side, topic, bench)))
    bench.compare(load.name, found, {"throughput": "MB/s"})
    for side in chosen:
        side.delete_topic(topic)
