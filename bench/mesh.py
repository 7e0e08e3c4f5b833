"""The mesh between two processes on loopback: calls a second, latency, large bodies, memory, a flood of strangers.

The other process is the tests' `child_node.py`. Absolute figures depend on the machine: read the ratios first.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from bench.report import Report
from nodes.mesh import SINGLE_USE, Mesh, quic, run_node

ROOT = Path(__file__).parents[1]
CHILD = ROOT / "tests" / "nodes" / "mesh" / "child_node.py"
ECHO, SIZE = 0x20, 0x21
SMALL = b"x" * 200
MEGABYTE = b"z" * 1_000_000
CALLERS = 64
MEMORY_CALLS = 200_000
CANCELLED_CALLS = 40_000
STRANGERS_PER_SECOND = 1_000


class Pair:
    """Our node, connected to the child."""

    def __init__(self, mesh: Mesh, peer: str, addresses: list[str], pid: int) -> None:
        self.mesh = mesh
        self.peer = peer
        self.addresses = addresses
        self.pid = pid

    async def call(self, lane: Hashable = None, body: bytes = SMALL, op: int = ECHO) -> None:
        await self.mesh.kafka_op_call(self.peer, op, 1, body, lane=lane)

    async def rate(self, calls: int, lanes: list[Hashable]) -> float:
        """Calls a second with one caller per lane."""

        async def caller(lane: Hashable) -> None:
            for _ in range(calls // len(lanes)):
                await self.call(lane)

        started = time.perf_counter()
        await asyncio.gather(*(caller(lane) for lane in lanes))
        return calls / (time.perf_counter() - started)

    async def latencies(self, seconds: float, pause: float = 0) -> list[float]:
        """Sorted times of single calls, one after the other."""
        times = []
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            await self.call("latency")
            times.append(time.perf_counter() - started)
            if pause:
                await asyncio.sleep(pause)
        return sorted(times)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        mesh = Mesh(Path(folder) / "ours", role="gateway")
        command = [sys.executable, str(CHILD), str(Path(folder) / "theirs"), mesh.node_id]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)})
        try:
            assert child.stdout is not None
            said = json.loads(child.stdout.readline())
            await mesh.start()
            mesh.add_peer(said["node_id"], said["addresses"])
            await mesh.wait_up(said["node_id"], 5)
            yield Pair(mesh, said["node_id"], said["addresses"], child.pid)
        finally:
            await mesh.close()
            child.terminate()
            child.wait(10)


def at(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(len(times) * share))]


async def small_calls(report: Report, nodes: Pair) -> None:
    lanes: list[Hashable] = list(range(CALLERS))
    await nodes.rate(CALLERS * 50, lanes)
    on_lanes = max([await nodes.rate(CALLERS * 300, lanes) for _ in range(3)])
    single = max([await nodes.rate(CALLERS * 60, [SINGLE_USE] * CALLERS) for _ in range(3)])
    report.figure("64 callers, 200 B, lanes", on_lanes, "call/s")
    report.figure("64 callers, 200 B, single-use streams", single, "call/s")
    report.at_least("lanes against single-use streams", on_lanes / single, 4)
    times = await nodes.latencies(2)
    report.at_most("one call at a time, p50", at(times, 0.5) * 1e6, 350, "us", f"p99 {at(times, 0.99) * 1e6:.0f} us")


async def large_bodies(report: Report, nodes: Pair) -> None:
    stop = False
    sent = 0

    async def sender(lane: int) -> None:
        nonlocal sent
        while not stop:
            await nodes.call(f"large-{lane}", MEGABYTE, SIZE)
            sent += 1

    started = time.perf_counter()
    senders = [asyncio.create_task(sender(lane)) for lane in range(4)]
    await asyncio.sleep(2)
    alone = sent / (time.perf_counter() - started)
    beside, before = time.perf_counter(), sent
    times = await nodes.latencies(2, pause=0.001)
    shared = (sent - before) / (time.perf_counter() - beside)
    stop = True
    await asyncio.gather(*senders)
    report.at_least("1 MB bodies", alone, 250, "MB/s", f"{shared:.0f} MB/s with small calls beside them")
    report.at_most("small calls beside them, p99", at(times, 0.99) * 1e3, 5, "ms")


async def memory(report: Report, nodes: Pair) -> None:
    lanes: list[Hashable] = list(range(CALLERS))
    await nodes.rate(CALLERS * 500, lanes)
    processes = {"caller": psutil.Process(), "server": psutil.Process(nodes.pid)}
    before = {name: process.memory_info().rss for name, process in processes.items()}
    await nodes.rate(MEMORY_CALLS, lanes)
    for name, process in processes.items():
        grown = (process.memory_info().rss - before[name]) / 1e6
        report.at_most(f"memory after 200,000 calls, {name}", grown, 1, "MB")


async def cancellation(report: Report, nodes: Pair) -> None:
    for _ in range(CANCELLED_CALLS // 1000):
        tasks = [asyncio.create_task(nodes.call(n % 7)) for n in range(1000)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    started = time.perf_counter()
    await nodes.call()
    report.at_most("the call after 40,000 cancelled ones", (time.perf_counter() - started) * 1e3, 100, "ms")


async def attack(peer: str, addresses: list[str], seconds: float) -> None:
    """Strangers' handshakes at a steady rate; prints how many were tried."""
    endpoints = [await quic.bind(quic.new_secret(), ["127.0.0.1:0", "[::1]:0"]) for _ in range(8)]
    tasks: set[asyncio.Task[None]] = set()

    async def knock(endpoint: quic.Endpoint) -> None:
        try:
            async with asyncio.timeout(1):
                connection = await endpoint.dial(peer, addresses)
                await connection.closed()
        except (quic.StreamLostError, TimeoutError):
            return

    started, tried = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        while tried < elapsed * STRANGERS_PER_SECOND:
            task = asyncio.get_running_loop().create_task(knock(endpoints[tried % len(endpoints)]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            tried += 1
        await asyncio.sleep(0.002)
    sys.stdout.write(f"{tried / (time.perf_counter() - started):.0f}\n")


async def flood(report: Report, nodes: Pair) -> None:
    command = [sys.executable, "-m", "bench.mesh", "attack", nodes.peer, *nodes.addresses]
    attacker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    await asyncio.sleep(1)
    times = await nodes.latencies(3, pause=0.001)
    assert attacker.stdout is not None
    tried = float(await attacker.stdout.read())
    await attacker.wait()
    note = f"{tried:.0f} handshakes/s tried, p50 {at(times, 0.5) * 1e3:.1f} ms"
    report.at_most("calls under a flood of strangers, p99", at(times, 0.99) * 1e3, 20, "ms", note)


async def measure(report: Report) -> None:
    for part in (small_calls, large_bodies, memory, cancellation, flood):
        async with pair() as nodes:
            await part(report, nodes)


def run(report: Report) -> None:
    run_node(measure(report))


if __name__ == "__main__" and sys.argv[1:2] == ["attack"]:
    run_node(attack(sys.argv[2], sys.argv[3:], 5))
