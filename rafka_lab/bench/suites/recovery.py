"""A restart with data: from the start of the processes to the next ack, after a clean stop and after kill -9.

Records that were acknowledged before the kill are counted afterwards; a lost one fails the suite.
"""

import functools
import time
from collections.abc import Callable
from operator import methodcaller

from rafka_lab.bench.bench import Bench, client
from rafka_lab.bench.sides import Side
from rafka_lab.bench.suites.fetch import MESSAGE_BYTES, fill
from rafka_lab.bench.suites.startup import first_ack
from rafka_lab.bench.tasks import Task

TOPIC = "kept"
QUICK_MESSAGES, FULL_MESSAGES = 150_000, 2_000_000


def run(bench: Bench) -> None:
    messages = QUICK_MESSAGES if bench.quick else FULL_MESSAGES
    size = f"{messages * MESSAGE_BYTES / 1e9:g} GB"
    with bench.sides(warm=False) as sides:
        own = [side for side in sides if side.restarts]
        for side in own:
            fill(side, TOPIC, 1, messages)
        for way, end in (("clean stop", methodcaller("stop")), ("kill -9", methodcaller("kill"))):
            repeats = bench.pace.restarts
            found = bench.rounds(own, functools.partial(_restart, end=end), repeats=repeats, discards=0)
            bench.compare(f"{size}, after {way}", found, {"to first ack": "s"})
        for side in own:
            client(Task(work="fetch", bootstrap=side.bootstrap, topic=TOPIC, messages=messages))


def _restart(side: Side, end: Callable[[Side], None]) -> dict[str, float]:
    end(side)
    started = time.perf_counter()
    side.start()
    first_ack(side, TOPIC)
    return {"to first ack": time.perf_counter() - started}
