"""A crowd of clients: many that send a little and many that do nothing leave the others' answer times as they were.

Both times are taken in one run, turn by turn, so that a busy machine makes both of them slow. The full run compares
p99; the short one compares medians, since with 20 ms of scheduling on a shared machine its p99 is not the gateway's.
"""

import asyncio
import contextlib
import resource
import socket
import statistics
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_broker import MESH_CONNECTION
from gateway_cluster import Cluster, running
from kafka_wire import Client, batch, create, decode, produce_request

# RELIABILITY.md: 100 clients that send 1 KB a second, 10,000 idle connections; others' p99 at most doubles.
SENDERS, IDLE, ALLOWED = 100, 10_000, 2.0
# In the suite: the same shape, a size that takes seconds.
FEW_SENDERS, FEW_IDLE = 30, 300
SENT_BYTES = 1_000
SEND_INTERVAL = 1.0
SPARE_FILES = 500
VERSION = 9


def framed(request: object) -> bytes:
    request.API_VERSION = VERSION  # type: ignore[attr-defined]
    request.with_header(correlation_id=1, client_id="crowd")  # type: ignore[attr-defined]
    return bytes(request.encode(header=True, framed=True))  # type: ignore[attr-defined]


class Sender:
    """One connection that produces and waits for the answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def produce(self, request: bytes) -> bytes:
        self._writer.write(request)
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


async def connect(port: int) -> Sender:
    return Sender(*await asyncio.open_connection("127.0.0.1", port))


def is_open(idle: socket.socket) -> bool:
    """Neither closed by the gateway nor sent anything."""
    idle.setblocking(False)
    try:
        idle.recv(1)
    except BlockingIOError:
        return True
    return False


class Crowd:
    """Clients that send a little once a second, and connections that do nothing."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self.answers: list[bytes] = []

    @contextlib.asynccontextmanager
    async def present(self, senders: int, idle: int) -> AsyncIterator[None]:
        connections = [socket.create_connection(("127.0.0.1", self._port), timeout=20) for _ in range(idle)]
        sending = [await connect(self._port) for _ in range(senders)]
        tasks = [asyncio.create_task(self._send(one, number / senders)) for number, one in enumerate(sending)]
        try:
            yield
            assert [task.exception() for task in tasks if task.done()] == []
            assert all(map(is_open, connections))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in (*connections, *sending):
                connection.close()
            await asyncio.sleep(0)

    async def _send(self, sender: Sender, delay: float) -> None:
        await asyncio.sleep(delay * SEND_INTERVAL)
        while True:
            self.answers.append(await sender.produce(self._request))
            await asyncio.sleep(SEND_INTERVAL)


async def answer_times(port: int, request: bytes, calls: int) -> list[float]:
    """Seconds of single produces of a client of its own, one after the other."""
    sender = await connect(port)
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        await sender.produce(request)
        times.append(time.perf_counter() - started)
        await asyncio.sleep(0.002)
    sender.close()
    return times


def percentile(times: list[float], number: int) -> float:
    return statistics.quantiles(times, n=100)[number - 1]


async def compare(
    port: int, topic: str, senders: int, idle: int, rounds: int, calls: int
) -> tuple[list[float], list[float], int]:
    """Answer times alone and among the crowd, and how many of the crowd's produces were stored.

    The two take turns: what else the machine does then falls on both alike.
    """
    request = framed(produce_request(topic, 0, batch(bytes(100))))
    crowd = Crowd(port, framed(produce_request(topic, 1, batch(bytes(SENT_BYTES)))))
    await answer_times(port, request, calls)
    alone: list[float] = []
    among: list[float] = []
    for _ in range(rounds):
        alone += await answer_times(port, request, calls)
        async with crowd.present(senders, idle):
            among += await answer_times(port, request, calls)
    question = produce_request(topic, 1, b"")
    answers = [decode(question, VERSION, answer).responses[0].partition_responses[0] for answer in crowd.answers]
    assert [answer.error_code for answer in answers if answer.error_code] == []
    return alone, among, len(answers)


def mesh_connections(cluster: Cluster) -> int:
    """How many were ever made to the broker."""
    return (cluster.folder / "broker-0.log").read_text().count(MESH_CONNECTION)


def check(cluster: Cluster, senders: int, idle: int, *, rounds: int, calls: int, number: int) -> None:
    """Holds the percentile of that number to the limit."""
    with Client(cluster.port) as client:
        topic = create(client, partitions=2)
    alone, among, stored = asyncio.run(compare(cluster.port, topic, senders, idle, rounds, calls))
    assert stored >= senders
    assert mesh_connections(cluster) == 1
    before, after = percentile(alone, number), percentile(among, number)
    assert after <= ALLOWED * before, f"p{number} {before * 1000:.2f} ms alone, {after * 1000:.2f} ms among the crowd"


def test_a_crowd_leaves_other_clients_their_answer_times(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        check(cluster, FEW_SENDERS, FEW_IDLE, rounds=8, calls=120, number=50)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_100_senders_and_10_000_idle_connections_leave_others_their_answer_times(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= SENDERS + IDLE + SPARE_FILES, f"10,000 connections need more than the {hard} files of `ulimit -Hn`"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with running(tmp_path) as cluster:
            check(cluster, SENDERS, IDLE, rounds=6, calls=1500, number=99)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
