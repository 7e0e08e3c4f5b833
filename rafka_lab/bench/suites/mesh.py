"""The mesh between two processes on loopback: calls a second, latency, large bodies, memory, a flood of strangers.

The other process is this module with the word `node`. Absolute figures depend on the machine, so the same is done on a
bare stream in the same run, with minimal framing and no mesh: what the binding gives on this machine at this hour.
"""

import asyncio
import contextlib
import functools
import json
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from nodes.mesh import NO_TRACE, SINGLE_USE, KafkaCall, Mesh, Settings, quic, run_node, stop_event
from rafka_lab.bench.bench import Bench
from rafka_lab.bench.report import Report
from rafka_lab.node import process_environment

# Op codes that no Kafka op has.
ECHO, SIZE, ECHO_IN_TASK = 0x20, 0x21, 0x22
MODULE = "rafka_lab.bench.suites.mesh"
SMALL = b"x" * 200
MEGABYTE = b"z" * 1_000_000
CALLERS = 64
MEMORY_CALLS = 200_000
CANCELLED_CALLS = 40_000
STRANGERS_PER_SECOND = 1_000
BARE_HEAD = struct.Struct("<II")


async def rate(callers: Sequence[Callable[[], Awaitable[object]]], calls: int) -> float:
    """Calls a second when each caller waits for its answer before it calls again."""

    async def repeat(call: Callable[[], Awaitable[object]]) -> None:
        for _ in range(calls // len(callers)):
            await call()

    started = time.perf_counter()
    await asyncio.gather(*(repeat(call) for call in callers))
    return calls / (time.perf_counter() - started)


async def durations(call: Callable[[], Awaitable[object]], seconds: float, pause: float = 0) -> list[float]:
    """Sorted times of single calls, one after the other."""
    times = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        await call()
        times.append(time.perf_counter() - started)
        if pause:
            await asyncio.sleep(pause)
    return sorted(times)


class Pair:
    """Our node, connected to the child."""

    def __init__(self, mesh: Mesh, peer: str, addresses: list[str], pid: int) -> None:
        self.mesh = mesh
        self.peer = peer
        self.addresses = addresses
        self.pid = pid

    async def call(self, lane: Hashable = None, body: bytes = SMALL, op: int = ECHO) -> None:
        await self.mesh.kafka_op_call(self.peer, op, 1, body, lane=lane, trace=NO_TRACE)

    async def rate(self, calls: int, lanes: list[Hashable], op: int = ECHO) -> float:
        """Calls a second with one caller per lane."""
        return await rate([functools.partial(self.call, lane, op=op) for lane in lanes], calls)

    async def latencies(self, seconds: float, pause: float = 0) -> list[float]:
        return await durations(functools.partial(self.call, "latency"), seconds, pause)


@asynccontextmanager
async def pair(settings: Settings | None = None) -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        mesh = Mesh(Path(folder) / "ours", role="gateway", settings=settings)
        command = [sys.executable, "-m", MODULE, "node", str(Path(folder) / "theirs"), mesh.node_id]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env=process_environment())
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


class Bare:
    """One bare stream to a process that sends back what it gets: 8 bytes of length and number, then the body."""

    def __init__(self, stream: quic.Stream) -> None:
        self._stream = stream
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._queue: list[bytes] = []
        self._filled = asyncio.Event()
        self._number = 0
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def call(self) -> asyncio.Future[bytes]:
        self._number += 1
        self._queue.append(BARE_HEAD.pack(len(SMALL), self._number) + SMALL)
        self._filled.set()
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        return answer

    async def _write(self) -> None:
        while await self._filled.wait():
            self._filled.clear()
            data = b"".join(self._queue)
            self._queue.clear()
            await self._stream.write([data])
            await asyncio.sleep(0)

    async def _read(self) -> None:
        rest = b""
        while data := await self._stream.read(64 * 1024):
            whole = bare_frames(rest + data)
            for number, body in whole:
                self._answers.pop(number).set_result(body)
            rest = (rest + data)[sum(BARE_HEAD.size + len(body) for _, body in whole) :]
            await asyncio.sleep(0)


def bare_frames(data: bytes) -> list[tuple[int, bytes]]:
    """The whole frames at the start of the data."""
    frames, position = [], 0
    while len(data) - position >= BARE_HEAD.size:
        length, number = BARE_HEAD.unpack_from(data, position)
        end = position + BARE_HEAD.size + length
        if end > len(data):
            break
        frames.append((number, data[position + BARE_HEAD.size : end]))
        position = end
    return frames


async def serve_node(folder: Path, caller: str) -> None:
    """The other end of `Pair`: sends bodies back, or says how long they were."""
    mesh = Mesh(folder, role="broker", allow=[caller])

    def echo(call: KafkaCall) -> memoryview:
        return call.payload

    async def size(call: KafkaCall) -> bytes:
        return str(len(call.payload)).encode()

    async def echo_in_task(call: KafkaCall) -> memoryview:
        return call.payload

    mesh.register_kafka_handler(ECHO, echo)
    mesh.register_kafka_handler(SIZE, size)
    mesh.register_kafka_handler(ECHO_IN_TASK, echo_in_task)
    stop = stop_event()
    await mesh.start()
    sys.stdout.write(json.dumps({"node_id": mesh.node_id, "addresses": mesh.addresses}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await mesh.close()


async def serve_bare() -> None:
    """The other end of `Bare`: sends the first stream back, swallows the second and confirms its end."""
    endpoint = await quic.bind(quic.new_secret(), ["127.0.0.1:0", "[::1]:0"])
    sys.stdout.write(json.dumps([endpoint.node_id, endpoint.addresses]) + "\n")
    sys.stdout.flush()
    handshake = await endpoint.accept()
    assert handshake is not None
    connection = await handshake.complete()
    echo = await connection.accept_stream()
    copying = asyncio.create_task(copy(echo, echo))
    sink = await connection.accept_stream()
    await copy(sink, None)
    await sink.write([b"all"])
    await sink.finish()
    await copying


async def copy(source: quic.Stream, target: quic.Stream | None) -> None:
    with contextlib.suppress(quic.StreamLostError):
        while data := await source.read(64 * 1024):
            if target is not None:
                await target.write([data])
            await asyncio.sleep(0)


async def bare() -> tuple[float, float, float]:
    """Calls a second of 64 callers, p50 of one, and MB/s of a bare stream."""
    command = [sys.executable, "-m", MODULE, "bare"]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=process_environment())
    assert child.stdout is not None
    node_id, addresses = json.loads(await child.stdout.readline())
    endpoint = await quic.bind(quic.new_secret(), ["127.0.0.1:0", "[::1]:0"])
    connection = await endpoint.dial(node_id, addresses)
    try:
        stream = Bare(await connection.open_stream())
        calls = max([await rate([stream.call] * CALLERS, CALLERS * 300) for _ in range(3)])
        times = await durations(stream.call, 1)
        sink = await connection.open_stream()
        started, sent = time.perf_counter(), 0
        while time.perf_counter() - started < 2:
            await sink.write([MEGABYTE[: 64 * 1024]])
            sent += 64 * 1024
            await asyncio.sleep(0)
        await sink.finish()
        await sink.read(3)
        await stream.close()
        return calls, at(times, 0.5), sent / 1e6 / (time.perf_counter() - started)
    finally:
        await endpoint.close()
        child.terminate()
        await child.wait()


async def small_calls(report: Report, nodes: Pair) -> None:
    bare_rate, bare_p50, _ = await bare()
    lanes: list[Hashable] = list(range(CALLERS))
    await nodes.rate(CALLERS * 50, lanes)
    on_lanes = max([await nodes.rate(CALLERS * 300, lanes) for _ in range(3)])
    in_tasks = max([await nodes.rate(CALLERS * 300, lanes, ECHO_IN_TASK) for _ in range(3)])
    single = max([await nodes.rate(CALLERS * 60, [SINGLE_USE] * CALLERS) for _ in range(3)])
    report.figure("64 callers, 200 B, lanes", on_lanes, "call/s", f"{in_tasks:,.0f} with an async handler")
    report.figure("64 callers, 200 B, single-use streams", single, "call/s")
    report.at_least("lanes against single-use streams", on_lanes / single, 4)
    report.figure("lanes against minimal framing", on_lanes / bare_rate, "x", f"which makes {bare_rate:,.0f} call/s")
    times = await nodes.latencies(2)
    note = f"p99 {at(times, 0.99) * 1e6:.0f} us; on a bare stream p50 {bare_p50 * 1e6:.0f} us"
    report.at_most("one call at a time, p50", at(times, 0.5) * 1e6, 350, "us", note)


async def shared_bodies(report: Report, nodes: Pair) -> None:
    alone, times, beside = await large_bodies(nodes)
    report.figure("1 MB bodies in shared memory", alone, "MB/s")
    note = f"p50 {at(times, 0.5) * 1e3:.1f} ms, beside {beside:.0f} MB/s"
    report.at_most("small calls beside them, p99", at(times, 0.99) * 1e3, 5, "ms", note)


async def sent_bodies(report: Report, _nodes: Pair) -> None:
    """As between machines: nothing is shared."""
    *_, bare_speed = await bare()
    async with pair(Settings(arena_bytes=0)) as nodes:
        alone, times, beside = await large_bodies(nodes)
    report.at_least("1 MB bodies over QUIC", alone, 250, "MB/s", f"a bare stream makes {bare_speed:.0f} MB/s")
    report.figure("1 MB bodies over QUIC against a bare stream", alone / bare_speed, "x")
    note = f"p50 {at(times, 0.5) * 1e3:.1f} ms, beside {beside:.0f} MB/s"
    report.at_most("small calls beside bodies over QUIC, p99", at(times, 0.99) * 1e3, 5, "ms", note)


async def large_bodies(nodes: Pair) -> tuple[float, list[float], float]:
    """Megabytes a second without other calls, the times of small calls beside them, and megabytes a second then."""
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
    rate_beside = (sent - before) / (time.perf_counter() - beside)
    stop = True
    await asyncio.gather(*senders)
    return alone, times, rate_beside


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
    command = [sys.executable, "-m", MODULE, "attack", nodes.peer, *nodes.addresses]
    attacker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=process_environment())
    await asyncio.sleep(1)
    times = await nodes.latencies(3, pause=0.001)
    assert attacker.stdout is not None
    tried = float(await attacker.stdout.read())
    await attacker.wait()
    note = f"{tried:.0f} handshakes/s tried, p50 {at(times, 0.5) * 1e3:.1f} ms"
    report.at_most("calls under a flood of strangers, p99", at(times, 0.99) * 1e3, 20, "ms", note)


# What it does when all is well; the others are for the full form.
QUICK = (small_calls, shared_bodies, sent_bodies)
FULL = (*QUICK, memory, cancellation, flood)


async def measure(report: Report, parts: Sequence[Callable[[Report, Pair], Awaitable[None]]]) -> None:
    for part in parts:
        async with pair() as nodes:
            await part(report, nodes)


def run(bench: Bench) -> None:
    run_node(measure(bench.report, QUICK if bench.quick else FULL))


def serve(role: str, *words: str) -> None:
    """The other processes of this suite."""
    if role == "node":
        run_node(serve_node(Path(words[0]), words[1]))
    elif role == "bare":
        run_node(serve_bare())
    else:
        run_node(attack(words[0], list(words[1:]), 5))


if __name__ == "__main__":
    serve(*sys.argv[1:])
