"""The broker's spans: one an op, under the mesh's, with the attributes of the design; none when not sampled."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from broker_process import BATCH, ORG, local_broker, run
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from nodes.broker import spans
from nodes.broker.errors import Code
from nodes.broker.handlers import produce
from nodes.broker.settings import BrokerSettings
from nodes.mesh import NO_TRACE, CallTimeoutError, OpCode, RemoteError
from nodes.mesh import spans as mesh_spans
from traces import names
from wal.disk import Disk
from wal.settings import WalSettings

PARENT = SpanContext(0x1234, 0x5678, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class HeldDisk(Disk):
    """Its syncs wait while the test holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()

    def sync(self, fd: int) -> None:
        self.free.wait(10)
        super().sync(fd)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(spans._scope, "tracer", provider.get_tracer("test"))
    monkeypatch.setattr(mesh_spans._scope, "tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_produce_and_fetch_leave_their_spans_under_the_meshs(tmp_path: Path, recorded: InMemorySpanExporter) -> None:
    async def body() -> None:
        async with local_broker(tmp_path) as (caller, _):
            await caller.create("t")
            with trace.use_span(NonRecordingSpan(PARENT)):
                await caller.produce("t")
                await caller.fetch("t")

    run(body())
    found = by_name(recorded)
    store, read = found[names.PRODUCE_STORE], found[names.FETCH_READ]
    handles = {span.context.span_id for span in recorded.get_finished_spans() if span.name == names.MESH_HANDLE}
    for span in (store, read):
        assert span.parent is not None
        assert span.parent.span_id in handles
        assert span.context.trace_id == PARENT.trace_id
        attributes = dict(span.attributes or {})
        assert attributes[names.KAFKA_TOPIC] == attributes[names.MESSAGING_DESTINATION] == "t"
        assert attributes[names.KAFKA_PARTITION] == 0
        assert attributes[names.MESSAGING_PARTITION] == "0"
        assert attributes[names.MESSAGING_SYSTEM] == "kafka"
        assert attributes[names.MESSAGING_OFFSET] == 0
    assert dict(store.attributes or {})[names.MESSAGING_BATCH_COUNT] == 1
    assert dict(read.attributes or {})["messaging.message.body.size"] == len(BATCH)


def test_nothing_is_made_for_a_call_that_is_not_sampled(tmp_path: Path, recorded: InMemorySpanExporter) -> None:
    async def body() -> None:
        async with local_broker(tmp_path) as (caller, _):
            await caller.create("t")
            await caller.produce("t", trace=NO_TRACE)

    run(body())
    assert recorded.get_finished_spans() == ()


def test_a_refused_produce_has_an_error_status(tmp_path: Path, recorded: InMemorySpanExporter) -> None:
    async def body() -> None:
        async with local_broker(tmp_path) as (caller, _):
            with trace.use_span(NonRecordingSpan(PARENT)):
                await caller.produce("nothing")

    run(body())
    span = by_name(recorded)[names.PRODUCE_STORE]
    assert not span.status.is_ok
    assert dict(span.attributes or {})[names.KAFKA_ERROR_CODE] == 3


def test_a_produce_that_a_stopping_broker_refuses_says_so_in_its_span(
    tmp_path: Path, recorded: InMemorySpanExporter
) -> None:
    async def body() -> None:
        async with local_broker(tmp_path) as (caller, served):
            await caller.create("t")
            served.stopping = True
            with trace.use_span(NonRecordingSpan(PARENT)):
                assert (await caller.produce("t")).error == Code.NOT_LEADER_OR_FOLLOWER

    run(body())
    found = by_name(recorded)
    span = found[names.PRODUCE_STORE]
    assert span.parent is not None
    assert span.parent.span_id == found[names.MESH_HANDLE].context.span_id
    assert span.status.description == "Kafka error 6: the broker is stopping; try again"
    attributes = dict(span.attributes or {})
    assert (attributes[names.KAFKA_TOPIC], attributes[names.KAFKA_ERROR_CODE]) == ("t", 6)
    assert attributes[names.MESSAGING_BATCH_COUNT] == 0


def test_a_produce_that_waited_too_long_for_room_says_so_in_its_span(
    tmp_path: Path, recorded: InMemorySpanExporter
) -> None:
    settings, disk = BrokerSettings(wal=WalSettings(max_unsynced_bytes=1)), HeldDisk()

    async def body() -> None:
        async with local_broker(tmp_path, settings, disk) as (caller, served):
            await caller.create("t")
            disk.free.clear()
            first = asyncio.ensure_future(caller.produce("t", trace=NO_TRACE))
            while served.wal.has_room:
                await asyncio.sleep(0.001)
            with trace.use_span(NonRecordingSpan(PARENT)), pytest.raises((CallTimeoutError, RemoteError)):
                await caller.produce("t", timeout=0.05)
            await asyncio.sleep(0.2)  # the broker's deadline is a little later than the caller's
            disk.free.set()
            assert (await first).error == 0
            assert (await caller.fetch("t")).high_watermark == 1

    run(body())
    span = by_name(recorded)[names.PRODUCE_STORE]
    assert (span.status.description or "").startswith("Kafka error 7: the disk is too slow")
    assert dict(span.attributes or {})[names.KAFKA_TOPIC] == "t"


def broken(*_: object) -> NoReturn:
    raise OSError("on purpose")


def assert_failed(exporter: InMemorySpanExporter, name: str) -> None:
    """The op's span and the mesh's say what was raised."""
    found = by_name(exporter)
    for span in (found[name], found[names.MESH_HANDLE]):
        assert span.status.description == "OSError: on purpose"
    parent = found[name].parent
    assert parent is not None
    assert parent.span_id == found[names.MESH_HANDLE].context.span_id


@pytest.mark.parametrize(("op", "name"), [("produce", names.PRODUCE_STORE), ("fetch", names.FETCH_READ)])
def test_a_handler_that_raises_loses_no_span(
    tmp_path: Path, recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, op: str, name: str
) -> None:
    async def body() -> None:
        async with local_broker(tmp_path) as (caller, served):
            await caller.create("t")
            await caller.produce("t", trace=NO_TRACE)
            monkeypatch.setattr(served.wal, {"produce": "append", "fetch": "read"}[op], broken)
            with trace.use_span(NonRecordingSpan(PARENT)), pytest.raises(RemoteError, match="on purpose"):
                await (caller.produce("t") if op == "produce" else caller.fetch("t"))

    run(body())
    assert_failed(recorded, name)


@pytest.mark.parametrize(("op", "name"), [(OpCode.PRODUCE, names.PRODUCE_STORE), (OpCode.FETCH, names.FETCH_READ)])
def test_a_payload_that_cannot_be_read_loses_no_span(
    tmp_path: Path, recorded: InMemorySpanExporter, op: OpCode, name: str
) -> None:
    async def body() -> None:
        async with local_broker(tmp_path) as (caller, _):
            with trace.use_span(NonRecordingSpan(PARENT)), pytest.raises(RemoteError, match="PostcardError"):
                await caller.mesh.kafka_op_call(caller.node_id, op, ORG, b"")

    run(body())
    assert (by_name(recorded)[name].status.description or "").startswith("PostcardError: ")


@pytest.mark.parametrize("in_line", [False, True], ids=["at once", "from the line"])
def test_a_produce_that_fails_after_its_sync_is_answered_and_loses_no_span(
    tmp_path: Path, recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, in_line: bool
) -> None:
    settings, disk = BrokerSettings(wal=WalSettings(max_unsynced_bytes=1)), HeldDisk()

    async def body() -> None:
        async with local_broker(tmp_path, settings, disk) as (caller, served):
            await caller.create("t")
            monkeypatch.setattr(produce, "_answer", broken)
            disk.free.clear()
            calls = []
            if in_line:
                calls.append(asyncio.ensure_future(caller.produce("t", trace=NO_TRACE)))
                while served.wal.has_room:
                    await asyncio.sleep(0.001)
            with trace.use_span(NonRecordingSpan(PARENT)):
                calls.append(asyncio.ensure_future(caller.produce("t")))
            await asyncio.sleep(0.05)
            disk.free.set()
            for call in calls:
                with pytest.raises(RemoteError, match="on purpose"):
                    await call

    run(body())
    assert_failed(recorded, names.PRODUCE_STORE)


def test_a_long_poll_that_fails_when_records_come_is_answered_and_loses_no_span(
    tmp_path: Path, recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with local_broker(tmp_path) as (caller, served):
            await caller.create("t")
            with trace.use_span(NonRecordingSpan(PARENT)):
                waiting = asyncio.ensure_future(caller.fetch("t", wait_ms=20_000))
            while not len(served.waits):
                await asyncio.sleep(0.001)
            monkeypatch.setattr(served.wal, "read", broken)
            await caller.produce("t", trace=NO_TRACE)
            with pytest.raises(RemoteError, match="on purpose"):
                await waiting

    run(body())
    assert_failed(recorded, names.FETCH_READ)


def test_every_op_has_a_span_name() -> None:
    groups = {OpCode.JOIN_GROUP, OpCode.SYNC_GROUP, OpCode.HEARTBEAT, OpCode.LEAVE_GROUP}
    offsets = {OpCode.OFFSET_COMMIT, OpCode.OFFSET_FETCH}
    assert set(spans.NAMES) >= set(OpCode) - groups - offsets
