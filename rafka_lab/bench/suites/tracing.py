"""What tracing costs: the same cluster with every request traced and with tracing off, in turns within one run."""

import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.request import urlopen

from rafka_lab.bench.bench import Bench, in_turn, throughput
from rafka_lab.bench.results import pairwise
from rafka_lab.bench.sides import OurSide, folder_for
from rafka_lab.bench.suites.requests import answered
from rafka_lab.bench.tasks import Task

TOPIC = "traced"
# Longer than a node keeps spans before it sends them.
DRAIN_LOOK = 1.0
# A round is short, and so a pair of rounds is over before the machine has changed; many pairs make the median.
QUICK_PAIRS, FULL_PAIRS = 5, 10
KIB = 1024
LARGE_SHARE, SMALL_SHARE = 0.9, 0.6


@dataclass(frozen=True)
class Load:
    """One way to produce; `share` of its rate without tracing is to be left with it."""

    name: str
    share: float
    rate: Callable[[Bench, OurSide], float]


def _batches(kib: int) -> Load:
    """librdkafka, as fast as it goes."""

    def rate(bench: Bench, side: OurSide) -> float:
        task = Task(
            work="produce",
            bootstrap=side.bootstrap,
            topic=TOPIC,
            batch_bytes=kib * KIB,
            seconds=bench.pace.seconds,
            warm_up=bench.pace.warm_up,
        )
        return throughput(side, task)["throughput"]

    return Load(f"librdkafka, batches of {kib} KB", LARGE_SHARE, rate)


def _requests(name: str, size: int, connections: int, share: float) -> Load:
    """One request at a time a connection, by bare sockets: next to no client, so what nodes do shows most."""
    return Load(
        f"{name}, {connections} connections",
        share,
        lambda bench, side: answered(bench, side, TOPIC, "all", connections, size)["requests"],
    )


SMALL = _requests("1 record a request", 100, 64, SMALL_SHARE)
SOCKETS = _requests("64 KB a request", 64 * KIB, 20, LARGE_SHARE)
QUICK = (_batches(64), SOCKETS, SMALL)
FULL = (_batches(64), _batches(256), _batches(1000), SOCKETS, SMALL)


def run(bench: Bench) -> None:
    with ExitStack() as stack:
        traced, plain = (
            OurSide(stack.enter_context(folder_for(name)), trace_ratio=ratio)
            for name, ratio in (("traced", 1.0), ("plain", 0.0))
        )
        for side in (traced, plain):
            stack.callback(side.close)
            side.start()
            side.create_topic(TOPIC)
        for load in QUICK if bench.quick else FULL:
            _compare(bench, traced, plain, load)
        counted = _stats(traced)
        note = f"{counted['dropped']:,} dropped by the nodes' queues"
        bench.report.figure("spans kept", counted["received"], "", note)


def _compare(bench: Bench, traced: OurSide, plain: OurSide, load: Load) -> None:
    """A B, then B A, so that a drift of the machine cancels out. The first turn is thrown away."""
    rates: dict[OurSide, list[float]] = {traced: [], plain: []}
    for turn in range(1 + (QUICK_PAIRS if bench.quick else FULL_PAIRS)):
        for side in in_turn((traced, plain), turn):
            found = load.rate(bench, side)
            _drain(side)
            if turn:
                rates[side].append(found)
    ratios = sorted(pairwise(rates[traced], rates[plain]))
    medians = [statistics.median(rates[side]) for side in (traced, plain)]
    note = f"{medians[0]:,.0f} against {medians[1]:,.0f}; single ratios {ratios[0]:.2f} to {ratios[-1]:.2f}"
    bench.report.at_least(f"{load.name}, traced against not traced", statistics.median(ratios), load.share, "x", note)


def _stats(side: OurSide) -> dict[str, int]:
    with urlopen(f"{side.traces_url}/api/stats", timeout=30) as answer:
        found: dict[str, int] = json.loads(answer.read())
    return found


def _drain(side: OurSide) -> None:
    """Waits until the collector has all spans, and in its tables: what it does later must not be on the other side's
    account."""
    if not side.traces_url:
        return
    received, before = _stats(side)["received"], -1
    while received != before:
        time.sleep(DRAIN_LOOK)
        received, before = _stats(side)["received"], received
    with urlopen(f"{side.traces_url}/api/services", timeout=60) as answer:  # a question sees all that came before it
        answer.read()
    if _stats(side)["pending"]:
        raise RuntimeError("the collector answered a question before it had indexed what came before")
