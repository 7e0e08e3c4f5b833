"""Memory of all processes of a side (PSS): at rest after the first record, and at most while it is under load.

Kafka runs with the heap that its own start script gives it (1 GB); only what it touches counts.
"""

import time

from msgspec.structs import replace

from rafka_lab.bench.bench import Bench, Peak, client, in_turn
from rafka_lab.bench.sides import Side
from rafka_lab.bench.suites.fetch import MESSAGE_BYTES
from rafka_lab.bench.suites.startup import first_ack
from rafka_lab.bench.tasks import Task

REST_SECONDS = 2.0
PARTITIONS = 12


def run(bench: Bench) -> None:
    rest: dict[str, list[float]] = {}
    peak: dict[str, list[float]] = {}
    for turn in range(bench.pace.restarts):
        with bench.sides(start=False) as sides:
            for side in in_turn([side for side in sides if side.restarts], turn):
                side.start()
                first_ack(side, "first")
                time.sleep(REST_SECONDS)
                rest.setdefault(side.name, []).append(side.memory())
                peak.setdefault(side.name, []).append(_under_load(bench, side))
                side.kill()
    bench.report.compare("at rest", "PSS", "MB", rest)
    bench.report.compare("at most under load", "PSS", "MB", peak)


def _under_load(bench: Bench, side: Side) -> float:
    side.create_topic("load", PARTITIONS)
    task = Task(
        work="produce",
        bootstrap=side.bootstrap,
        topic="load",
        partitions=PARTITIONS,
        message_bytes=MESSAGE_BYTES,
        seconds=bench.pace.seconds,
        warm_up=0,
    )
    with Peak(side) as peak:
        made = client(task)
        client(replace(task, work="fetch", messages=made.total))
    return peak.megabytes
