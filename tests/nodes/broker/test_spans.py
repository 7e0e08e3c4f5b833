"""The broker's spans: one an op, under the mesh's, with the attributes of the design; none when not sampled."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BATCH, local_broker, run
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from nodes.broker import spans
from nodes.mesh import NO_TRACE, OpCode
from nodes.mesh import spans as mesh_spans
from traces import names

PARENT = SpanContext(0x1234, 0x5678, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


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


def test_every_op_has_a_span_name() -> None:
    groups = {OpCode.JOIN_GROUP, OpCode.SYNC_GROUP, OpCode.HEARTBEAT, OpCode.LEAVE_GROUP}
    offsets = {OpCode.OFFSET_COMMIT, OpCode.OFFSET_FETCH}
    assert set(spans.NAMES) >= set(OpCode) - groups - offsets
