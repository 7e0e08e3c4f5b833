"""A process that writes to a log until it is killed, and tells each ack over a pipe: `kill_writer.py FOLDER JOB`.

JOB is JSON: `{"seed": n, "next": {"producer": sequence, ...}}`. Each producer goes on with that sequence, which may
be stored already: its ack may have been lost with the process before.
"""

import json
import os
import random
import sys
import threading
from pathlib import Path

from tests.wal.logs import batch, new, topic
from wal.log import Durability, SingleWal
from wal.settings import WalSettings

SETTINGS = WalSettings(segment_bytes=100_000, checkpoint_bytes=20_000)
TOPIC = topic(1, partitions=2)
PRODUCERS = 4


def value_of(producer: int, sequence: int) -> bytes:
    """Any process can tell what a record must be."""
    size = random.Random(producer << 32 | sequence).choice([10, 100, 1_000, 9_000])
    return b"%d-%d-" % (producer, sequence) + b"v" * size


def batch_of(producer: int, sequence: int) -> bytes:
    return batch(value_of(producer, sequence), producer_id=producer, producer_epoch=0, base_sequence=sequence)


def say(*words: object) -> None:
    """One line in one write: a reader sees all of it or nothing."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def produce(log: SingleWal, producer: int, sequence: int, seed: int) -> None:
    random_ = random.Random(seed + producer)
    partition = producer % len(TOPIC.leaders)
    while True:
        durability = random_.choice([Durability.WRITTEN, Durability.SYNCED])
        (result,) = log.append([new(TOPIC, partition, batch_of(producer, sequence))], durability)
        if result.error is not None:
            raise result.error
        if durability is Durability.SYNCED:
            log.wait_synced(log.sequence)
        say("acked", producer, sequence, result.base_offset, durability.name)
        sequence += 1


def main(folder: Path, job: dict[str, object]) -> None:
    log = SingleWal.open(folder, SETTINGS)
    if TOPIC.topic_id.bytes not in log.state.topics:
        log.create_topic(TOPIC)
    say("open")
    following = job["next"]
    assert isinstance(following, dict)
    for producer in range(PRODUCERS):
        start = following.get(str(producer), 0)
        threading.Thread(target=produce, args=(log, producer, start, int(str(job["seed"])))).start()
    number = 0
    while True:  # control entries come in between
        log.set_values({"number": str(number)})
        say("value", number)
        number += 1
        threading.Event().wait(0.003)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
