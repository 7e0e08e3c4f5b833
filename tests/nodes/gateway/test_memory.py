"""Memory comes back: large requests, halves of them and large answers leave the gateway as small as it was."""

import asyncio
import gc
import socket
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from gateway_cluster import Cluster, running
from kafka.protocol.consumer import FetchRequest
from kafka_wire import Client, batch, create, produce_request
from test_in_process import nodes

from nodes import heap
from nodes.gateway import Settings

MIB = 1024 * 1024
# RELIABILITY.md: what any bad input may leave behind.
ALLOWED = 10_000_000
# Several sweeps of the gateway, on a machine that has other things to do.
SETTLED_WITHIN = 20.0
LARGE = 64 * MIB


def announced(cluster: Cluster, length: int, come: int) -> None:
    """Announces a produce, sends so many bytes of it, and closes as soon as the gateway has read them."""
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=20) as connection:
        block = bytes(MIB)
        try:
            connection.sendall(struct.pack(">ihhi", length, 0, 9, 1))
            for _ in range(come // MIB):
                connection.sendall(block)
            if come >= length:
                connection.recv(1)  # a request of zeros is refused by closing
        except ConnectionError:
            return


def half_a_request(cluster: Cluster) -> None:
    announced(cluster, LARGE, LARGE * 5 // 8)


def a_request_of_zeros(cluster: Cluster) -> None:
    announced(cluster, LARGE, LARGE)


def large_produce(cluster: Cluster) -> None:
    with Client(cluster.port) as client:
        topic = create(client)
        client.call(produce_request(topic, 0, batch(bytes(30 * MIB))), 9)


def large_fetch(cluster: Cluster) -> None:
    kind = FetchRequest.FetchTopic
    with Client(cluster.port) as client:
        topic = create(client)
        # One batch: an answer with several ends at the gateway's own limit, long before this.
        client.call(produce_request(topic, 0, batch(bytes(45 * MIB))), 9)
        part = kind.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=LARGE)
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": LARGE, "session_id": 0, "session_epoch": -1}
        topics = [kind(topic=topic, partitions=[part])]
        answer = client.call(FetchRequest(topics=topics, forgotten_topics_data=[], rack_id="", **limits), 11)
        assert len(answer.responses[0].partitions[0].records) > 40 * MIB


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path) as cluster:
        yield cluster


@pytest.mark.parametrize("load", [half_a_request, a_request_of_zeros, large_produce, large_fetch])
def test_memory_of_large_requests_comes_back(own_gateway: Cluster, load: Callable[[Cluster], None]) -> None:
    process = psutil.Process(own_gateway.gateway.process.pid)
    with Client(own_gateway.port) as client:
        client.call(produce_request(create(client), 0, batch(b"loads the types")), 9)
    before = process.memory_info().rss
    for _ in range(3):
        load(own_gateway)
    deadline = time.monotonic() + SETTLED_WITHIN
    while (more := process.memory_info().rss - before) > ALLOWED and time.monotonic() < deadline:
        time.sleep(0.1)
    assert more <= ALLOWED, f"{more / 1e6:.1f} MB more than before"


def test_a_connection_that_went_is_held_by_nothing(tmp_path: Path) -> None:
    """Neither its half request (at once) nor itself (after a sweep, which looks at every connection)."""

    async def scenario() -> None:
        async with nodes(tmp_path, settings=Settings(sweep_interval=0.01)) as cluster:
            async with cluster.client() as client:
                client.writer.write(struct.pack(">ihhi", LARGE, 0, 9, 1) + bytes(8 * MIB))
                await client.writer.drain()
                while not (found := [one for one in cluster.gateway._connections if one.held > 8 * MIB]):
                    await asyncio.sleep(0.01)
                (connection,) = found
                found.clear()
            while cluster.gateway._connections:
                await asyncio.sleep(0.01)
            assert connection.held == 0
            gone = weakref.ref(connection)
            del connection
            await asyncio.sleep(0.1)
            gc.collect()
            assert gone() is None

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.skipif(heap._library is None, reason="the C library is not glibc")
def test_free_memory_within_the_limit_is_left_alone() -> None:
    assert heap.trim(2**40) is False
    assert heap.trim(0) is True
