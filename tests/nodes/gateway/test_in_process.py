"""The gateway and fake brokers in this process, where spans, counters and short limits can be looked at."""

import asyncio
import contextlib
import struct
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_broker import Broker, serve
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka_wire import batch, produce_request
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nodes.gateway import Gateway, Settings, bind
from nodes.gateway import spans as gateway_spans
from nodes.mesh import Mesh, tune_interpreter


class Client:
    """One connection on asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def call(self, request: Any, version: int) -> bytes:
        request.API_VERSION = version
        request.with_header(correlation_id=1, client_id="tests")
        self.writer.write(bytes(request.encode(header=True, framed=True)))
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)


class Nodes:
    def __init__(self, gateway: Gateway, brokers: list[Broker], meshes: list[Mesh], port: int) -> None:
        self.gateway = gateway
        self.brokers = brokers
        self.meshes = meshes
        self.port = port

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def nodes(folder: Path, count: int = 1, settings: Settings | None = None) -> AsyncIterator[Nodes]:
    ours = Mesh(folder / "gateway", role="gateway")
    meshes, brokers = [], []
    for index in range(count):
        mesh = Mesh(folder / f"broker-{index}", role="broker", allow=[ours.node_id])
        broker = Broker(index, count)
        serve(mesh, broker)
        await mesh.start()
        meshes.append(mesh)
        brokers.append(broker)
    await ours.start()
    gateway = Gateway(ours, {index: mesh.node_id for index, mesh in enumerate(meshes)}, settings=settings)
    for mesh in meshes:
        ours.add_peer(mesh.node_id, mesh.addresses)
        await ours.wait_up(mesh.node_id, 10)
    _, port = await gateway.start(bind("127.0.0.1", 0))
    try:
        yield Nodes(gateway, brokers, meshes, port)
    finally:
        await gateway.stop()
        await asyncio.gather(ours.close(), *(mesh.close() for mesh in meshes))


def run(test: Callable[[Nodes], Coroutine[Any, Any, None]], folder: Path, **more: Any) -> None:
    async def body() -> None:
        async with nodes(folder, **more) as all_nodes:
            await test(all_nodes)

    tune_interpreter()
    asyncio.run(body())


async def becomes(condition: Callable[[], bool], within: float = 20) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


def fetch(topic: str | uuid.UUID, max_wait_ms: int, partition: int = 0) -> FetchRequest:
    kind = FetchRequest.FetchTopic
    wanted = kind.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1000)
    named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    settings = {"max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 1000, "session_id": 0, "session_epoch": -1}
    return FetchRequest(topics=[kind(**named, partitions=[wanted])], forgotten_topics_data=[], **settings)


def test_a_long_poll_ends_at_the_broker_soon_after_its_client_went(tmp_path: Path) -> None:
    async def body(all_nodes: Nodes) -> None:
        broker = all_nodes.brokers[0]
        broker.make("t", 1, {})
        async with all_nodes.client() as client:
            waiting = asyncio.create_task(client.call(fetch("t", 60_000), 9))
            await becomes(lambda: "fetch 1000" in broker.calls)
            waiting.cancel()
        await becomes(lambda: all_nodes.gateway.status()["connections"] == 0)
        asked = len(broker.calls)
        await asyncio.sleep(1.5)
        assert len(broker.calls) == asked

    run(body, tmp_path)


def test_no_slice_of_a_long_poll_is_longer_than_a_second(tmp_path: Path) -> None:
    async def body(all_nodes: Nodes) -> None:
        broker = all_nodes.brokers[0]
        broker.make("t", 1, {})
        async with all_nodes.client() as client:
            await client.call(fetch("t", 2300), 9)
        waits = [int(call.split()[1]) for call in broker.calls if call.startswith("fetch")]
        assert len(waits) >= 3
        assert max(waits) == 1000
        assert sum(waits) <= 2300

    run(body, tmp_path)


def test_counters_tell_connections_requests_and_bytes(tmp_path: Path) -> None:
    async def body(all_nodes: Nodes) -> None:
        all_nodes.brokers[0].make("t", 1, {})
        async with all_nodes.client() as client:
            await client.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            for _ in range(3):
                await client.call(produce_request("t", 0, batch(b"x")), 9)
            status = all_nodes.gateway.status()
            assert (status["connections"], status["api_versions"], status["produce"]) == (1, 1, 3)
            assert status["unanswered_bytes"] == 0
            assert status["bytes_received"] > 300
            assert status["bytes_sent"] > 100
            assert status["brokers"] == {"0": "up"}
        await becomes(lambda: all_nodes.gateway.status()["connections"] == 0)

    run(body, tmp_path)


@pytest.mark.parametrize("part", [b"", b"\0", b"\0\0\4\0", b"\0\0\4\0\0\0\0\7\0\0\0\1"])
def test_silence_closes_a_connection_and_half_a_request_sooner(tmp_path: Path, part: bytes) -> None:
    settings = Settings(half_request_timeout=0.3, idle_timeout=1.0, sweep_interval=0.05)

    async def body(all_nodes: Nodes) -> None:
        async with all_nodes.client() as client:
            started = asyncio.get_running_loop().time()
            client.writer.write(part)
            assert await client.reader.read() == b""
            elapsed = asyncio.get_running_loop().time() - started
            assert elapsed > (0.25 if part else 0.95)

    run(body, tmp_path, settings=settings)


def test_half_requests_of_all_together_are_bounded(tmp_path: Path) -> None:
    settings = Settings(request_bytes=1_000_000, sweep_interval=0.05)

    async def body(all_nodes: Nodes) -> None:
        async with all_nodes.client() as large, all_nodes.client() as small:
            small.writer.write(struct.pack(">ihhi", 10_000, 0, 9, 1) + bytes(1000))
            large.writer.write(struct.pack(">ihhi", 50_000_000, 0, 9, 1) + bytes(3_000_000))
            with contextlib.suppress(ConnectionError):
                assert await large.reader.read() == b""
            small.writer.write(bytes(100))
            await asyncio.sleep(0.3)
            assert all_nodes.gateway.status()["connections"] == 1

    run(body, tmp_path, settings=settings)


def test_connections_over_the_limit_are_closed_at_once(tmp_path: Path) -> None:
    async def body(all_nodes: Nodes) -> None:
        async with all_nodes.client() as first, all_nodes.client() as second:
            with contextlib.suppress(ConnectionError):
                assert await second.reader.read() == b""
            assert await first.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)

    run(body, tmp_path, settings=Settings(connections=1))


def test_a_stop_ends_long_polls_within_a_slice(tmp_path: Path) -> None:
    async def body(all_nodes: Nodes) -> None:
        all_nodes.brokers[0].make("t", 1, {})
        async with all_nodes.client() as client:
            waiting = asyncio.create_task(client.call(fetch("t", 60_000), 9))
            await becomes(lambda: "fetch 1000" in all_nodes.brokers[0].calls)
            stop = asyncio.create_task(all_nodes.gateway.stop())
            assert await asyncio.wait_for(waiting, 10)
            await stop

    run(body, tmp_path)


def test_other_brokers_are_told_all_topics_when_they_come_up_and_new_ones_later(tmp_path: Path) -> None:
    async def body(all_nodes: Nodes) -> None:
        follower = all_nodes.brokers[1]
        await becomes(lambda: "sync 0 True" in follower.calls)
        await all_nodes.gateway.topics.metadata(["a", "b"], None, create=True)
        assert follower.calls[-1] == "sync 2 False"
        assert set(follower.topics) == {"a", "b"}
        del all_nodes.brokers[0].topics["a"]
        await all_nodes.gateway.topics.deleted()
        assert set(follower.topics) == {"b"}

    run(body, tmp_path, count=2)


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK for this test only: the API lets a process choose its provider once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(gateway_spans._scope, "tracer", provider.get_tracer("tests"))
    yield exporter
    provider.shutdown()


def by_trace(spans: tuple[ReadableSpan, ...]) -> list[dict[str, ReadableSpan]]:
    traces: dict[int, dict[str, ReadableSpan]] = {}
    for span in spans:
        traces.setdefault(span.context.trace_id, {})[span.name] = span
    return list(traces.values())


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_every_request_is_a_trace_that_starts_with_the_connection(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    async def body(all_nodes: Nodes) -> None:
        all_nodes.brokers[0].make("t", 1, {})
        async with all_nodes.client() as client:
            await client.call(ApiVersionsRequest(client_software_name="soft", client_software_version="1.2"), 3)
            for _ in range(2):
                await client.call(produce_request("t", 0, batch(b"x")), 9)

    run(body, tmp_path)
    spans = tuple(span for span in exported.get_finished_spans() if span.name.startswith("gateway."))
    first, second, third = by_trace(spans)
    for one in (first, second, third):
        assert set(one) == {"gateway.kafka.connect", "gateway.kafka.request"}
        assert one["gateway.kafka.connect"].parent is None
        parent = one["gateway.kafka.request"].parent
        assert parent is not None
        assert parent.span_id == one["gateway.kafka.connect"].context.span_id
    accepted = first["gateway.kafka.connect"]
    reused = third["gateway.kafka.connect"]
    assert accepted.links == ()
    assert [link.context.span_id for link in reused.links] == [accepted.context.span_id]
    attributes = attributes_of(third["gateway.kafka.request"])
    assert (attributes["kafka.topic"], attributes["kafka.partition"]) == ("t", 0)
    assert attributes["messaging.destination.partition.id"] == "0"
    assert attributes["messaging.client.id"] == "tests"


def test_a_connect_span_tells_which_connection_it_is_and_whose(tmp_path: Path, exported: InMemorySpanExporter) -> None:
    peers: list[str] = []

    async def body(all_nodes: Nodes) -> None:
        for _ in range(2):
            async with all_nodes.client() as client:
                host, port = client.writer.get_extra_info("sockname")
                peers.append(f"{host}:{port}")
                await client.call(ApiVersionsRequest(client_software_name="soft", client_software_version="1.2"), 3)
                await asyncio.sleep(0.05)
                await client.call(ApiVersionsRequest(), 0)

    run(body, tmp_path)
    spans = [span for span in exported.get_finished_spans() if span.name == "gateway.kafka.connect"]
    connects = [attributes_of(span) for span in sorted(spans, key=lambda span: span.end_time or 0)]
    assert [one["connection.request_number"] for one in connects] == [1, 2, 1, 2]
    assert [one["connection.reused"] for one in connects] == [False, True, False, True]
    assert [one["connection.peer"] for one in connects] == [peers[0], peers[0], peers[1], peers[1]]
    ids = [one["connection.id"] for one in connects]
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert ids[0] != ids[2]
    ages = [one["connection.age_ms"] for one in connects]
    assert ages[0] >= 0
    assert ages[1] >= ages[0] + 45, "50, but for the clocks"
    for one in connects:
        assert one["messaging.client.id"] == "tests"
        # Also of the first request, which is the one that says it.
        assert (one["client.software.name"], one["client.software.version"]) == ("soft", "1.2")


def test_a_fetch_tells_its_topic_and_partition_also_when_it_names_the_topic_by_id(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    async def body(all_nodes: Nodes) -> None:
        topic = all_nodes.brokers[0].make("t", 2, {})
        async with all_nodes.client() as client:
            await client.call(fetch("t", 0, partition=1), 9)
            await client.call(fetch(uuid.UUID(bytes=topic.topic_id), 0, partition=1), 13)

    run(body, tmp_path)
    requests = [span for span in exported.get_finished_spans() if span.name == "gateway.kafka.request"]
    assert len(requests) == 2
    for attributes in map(attributes_of, requests):
        assert (attributes["kafka.topic"], attributes["messaging.destination.name"]) == ("t", "t")
        assert (attributes["kafka.partition"], attributes["messaging.destination.partition.id"]) == (1, "1")
        assert attributes["kafka.partition_count"] == 1
        assert attributes["messaging.operation.type"] == "receive"


def test_without_an_sdk_no_span_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Counting:
        def start_span(self, name: str, **_: object) -> None:
            made.append(name)

    monkeypatch.setattr(gateway_spans._scope, "tracer", Counting())

    async def body(all_nodes: Nodes) -> None:
        async with all_nodes.client() as client:
            assert await client.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)

    run(body, tmp_path)
    assert made == []
