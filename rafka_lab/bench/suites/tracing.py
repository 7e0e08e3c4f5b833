"""What tracing costs: the same cluster with every request traced and with tracing off, in turns within one run."""

import json
import statistics
import time
from contextlib import ExitStack
from urllib.request import urlopen

from rafka_lab.bench.bench import Bench
from rafka_lab.bench.results import pairwise
from rafka_lab.bench.sides import OurSide, folder_for
from rafka_lab.bench.suites.requests import answered

TOPIC = "traced"
# Longer than a node keeps spans before it sends them.
DRAIN_LOOK = 1.0
LARGE_BYTES, LARGE_CONNECTIONS = 64 * 1024, 20
SMALL_BYTES, SMALL_CONNECTIONS = 100, 64
LARGE_SHARE, SMALL_SHARE = 0.9, 0.6


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
        for name, size, connections, share in (
            ("64 KB a request, 20 connections", LARGE_BYTES, LARGE_CONNECTIONS, LARGE_SHARE),
            ("1 record a request, 64 connections", SMALL_BYTES, SMALL_CONNECTIONS, SMALL_SHARE),
        ):
            _compare(bench, traced, plain, name, size, connections, share)
        counted = _stats(traced)
        note = f"{counted['dropped']:,} dropped by the nodes' queues"
        bench.report.figure("spans kept", counted["received"], "", note)


def _compare(
    bench: Bench, traced: OurSide, plain: OurSide, name: str, size: int, connections: int, share: float
) -> None:
    """A B, then B A, so that a drift of the machine cancels out. The first turn is thrown away."""
    rates: dict[OurSide, list[float]] = {traced: [], plain: []}
    for turn in range(1 + bench.pace.restarts):
        for side in (traced, plain) if turn % 2 == 0 else (plain, traced):
            found = answered(bench, side, TOPIC, "all", connections, size)["requests"]
            _drain(side)
            if turn:
                rates[side].append(found)
    ratios = sorted(pairwise(rates[traced], rates[plain]))
    medians = [statistics.median(rates[side]) for side in (traced, plain)]
    note = f"{medians[0]:,.0f} against {medians[1]:,.0f} requests/s; single ratios {ratios[0]:.2f} to {ratios[-1]:.2f}"
    bench.report.at_least(f"{name}, traced against not traced", statistics.median(ratios), share, "x", note)


def _stats(side: OurSide) -> dict[str, int]:
    with urlopen(f"{side.traces_url}/api/stats", timeout=30) as answer:
        found: dict[str, int] = json.loads(answer.read())
    return found


def _drain(side: OurSide) -> None:
    """Waits until the collector has all spans: what it does later must not be on the other side's account."""
    if not side.traces_url:
        return
    received, before = _stats(side)["received"], -1
    while received != before:
        time.sleep(DRAIN_LOOK)
        received, before = _stats(side)["received"], received
