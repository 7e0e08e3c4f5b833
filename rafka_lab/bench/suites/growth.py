"""What grows with size: partitions, connections, bytes of log. A cost that should stay the same is seen to, or not."""

import functools
import time
from collections.abc import Sequence

import psutil

from rafka_lab.bench.bench import Bench, Peak, client, seconds_of, throughput
from rafka_lab.bench.sides import Side, folder_for, forget_pages
from rafka_lab.bench.suites.fetch import MESSAGE_BYTES
from rafka_lab.bench.suites.produce import Load
from rafka_lab.bench.suites.requests import answered
from rafka_lab.bench.suites.startup import first_ack
from rafka_lab.bench.tasks import Task

QUICK_PARTITIONS, FULL_PARTITIONS = (100,), (1, 10, 100, 1_000)
QUICK_CONNECTIONS, FULL_CONNECTIONS = (256,), (1, 100, 1_000, 5_000)
QUICK_LOG, FULL_LOG = (0.1, 0.5), (1, 10, 50)  # GB
# What must stay free on the disk beside the logs.
_SPARE_BYTES = 10e9
_GIGABYTE = 1e9
_HEAD_MESSAGES = 100_000
_REST_SECONDS = 1.0


def run(bench: Bench) -> None:
    with bench.sides() as sides:
        for partitions in QUICK_PARTITIONS if bench.quick else FULL_PARTITIONS:
            _partitions(bench, sides, partitions)
        for side in sides:
            side.create_topic(bench.topic("connections"))
        for connections in QUICK_CONNECTIONS if bench.quick else FULL_CONNECTIONS:
            _connections(bench, sides, connections)
    with bench.sides(warm=False) as sides:
        _log(bench, [side for side in sides if side.restarts], QUICK_LOG if bench.quick else FULL_LOG)


def _partitions(bench: Bench, sides: list[Side], partitions: int) -> None:
    topic = bench.topic(f"partitions-{partitions}")
    made = {side.name: [seconds_of(functools.partial(side.create_topic, topic, partitions))] for side in sides}
    workload = f"{partitions:,} partition{'s' if partitions > 1 else ''}"
    bench.report.compare(workload, "create topic", "s", made)
    load = Load(MESSAGE_BYTES, partitions, "1", "none")
    repeats = bench.pace.restarts
    found = bench.rounds(
        sides, lambda side: throughput(side, load.task(side, topic, bench)), repeats=repeats, discards=0
    )
    bench.compare(workload, found, {"throughput": "MB/s"})
    bench.report.compare(workload, "PSS", "MB", {side.name: [side.memory()] for side in sides if side.pids})
    for side in sides:
        side.delete_topic(topic)


def _connections(bench: Bench, sides: list[Side], connections: int) -> None:
    workload = f"{connections:,} connection{'s' if connections > 1 else ''}"
    peaks: dict[str, list[float]] = {side.name: [] for side in sides if side.pids}

    def measure(side: Side) -> dict[str, float]:
        with Peak(side) as peak:
            figures = answered(bench, side, bench.topic("connections"), "1", connections)
        if side.pids:
            peaks[side.name].append(peak.megabytes)
        return figures

    found = bench.rounds(sides, measure, repeats=bench.pace.restarts, discards=0)
    bench.compare(workload, found, {"requests": "1/s"})
    bench.report.compare(workload, "PSS", "MB", peaks)


def _log(bench: Bench, sides: list[Side], sizes: Sequence[float]) -> None:
    """One topic that grows; restart, memory and a cold read of its start, at each size."""
    for side in sides:
        side.create_topic("log")
    written = 0.0
    for size in sizes:
        if not _has_room(size - written, len(sides)):
            bench.report.note(
                f"a log of {size:g} GB is left out: the disk has too little room for {len(sides)} of them"
            )
            return
        found: dict[str, list[dict[str, float]]] = {}
        for side in sides:
            found[side.name] = [_at_size(side, size - written)]
        bench.compare(f"log of {size:g} GB", found, {"to first ack": "s", "PSS": "MB", "cold read": "MB/s"})
        written = size


def _has_room(gigabytes: float, logs: int) -> bool:
    with folder_for("room") as folder:
        return bool(psutil.disk_usage(str(folder)).free > gigabytes * _GIGABYTE * logs + _SPARE_BYTES)


def _at_size(side: Side, more: float) -> dict[str, float]:
    messages = int(more * _GIGABYTE / MESSAGE_BYTES)
    client(Task(work="produce", bootstrap=side.bootstrap, topic="log", acks="1", messages=messages, warm_up=0))
    side.stop()
    assert side.data is not None
    forget_pages(side.data)
    started = time.perf_counter()
    side.start()
    first_ack(side, "log")
    restarted = time.perf_counter() - started
    time.sleep(_REST_SECONDS)
    memory = side.memory()
    head = throughput(side, Task(work="fetch", bootstrap=side.bootstrap, topic="log", messages=_HEAD_MESSAGES))
    return {"to first ack": restarted, "PSS": memory, "cold read": head["throughput"]}
