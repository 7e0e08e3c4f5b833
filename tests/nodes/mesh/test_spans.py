"""The mesh's spans and trace headers, as an in-memory exporter sees them."""

import asyncio
import collections
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags, get_current_span
from two_nodes import run_here

from nodes.mesh import NO_TRACE, Buffer, HandlerError, KafkaCall, Mesh, Payload, RemoteError, Settings, Status, spans
from nodes.mesh.frames import MAX_BODY_BYTES, TAG_BODY, TAG_LANE, encode_frame
from nodes.mesh.messages import Body, BodyAborted, Chunked, Inline, KafkaOp
from nodes.mesh.postcard import codec
from nodes.mesh.varint import encode_varint

OP = 0x40
REQUEST_ID = 1 << 40 | 200
SAMPLED = SpanContext(0xABC << 100, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
UNSAMPLED = SpanContext(0xABC << 100, 0xDEF, is_remote=False, trace_flags=TraceFlags(0))


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A provider of this test's own: the global one can be set only once in a process."""
    provider, memory = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(spans._scope, "tracer", provider.get_tracer("test"))
    yield memory
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


async def until(exporter: InMemorySpanExporter, count: int) -> None:
    async with asyncio.timeout(5):
        while len(exporter.get_finished_spans()) < count:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("given", [SAMPLED, spans.header_of(SAMPLED)], ids=["context", "header"])
def test_a_sampled_call_leaves_four_spans_nested_as_a_person_expects(
    tmp_path: Path, exporter: InMemorySpanExporter, kind: str, given: SpanContext | bytes
) -> None:
    seen: list[tuple[bytes, SpanContext]] = []

    def plain(call: KafkaCall) -> Payload:
        seen.append((call.header, get_current_span().get_span_context()))
        return b"answer"

    async def in_task(call: KafkaCall) -> Payload:
        await asyncio.sleep(0)
        return plain(call)

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, plain if kind == "plain" else in_task)
        assert await caller.kafka_op_call(server.node_id, OP, 7, b"", lane=1, trace=given) == b"answer"
        await until(exporter, 4)

    run_here(test, tmp_path)
    found = by_name(exporter)
    assert set(found) == {"mesh.kafkaop.sent", "mesh.kafkaop.handle", "kafkaop.ack", "kafkaop.ack_received"}
    sent, handle = found["mesh.kafkaop.sent"], found["mesh.kafkaop.handle"]
    parents = {name: span.parent.span_id for name, span in found.items() if span.parent is not None}
    assert parents == {
        "mesh.kafkaop.sent": SAMPLED.span_id,
        "mesh.kafkaop.handle": context_of(sent).span_id,
        "kafkaop.ack": context_of(handle).span_id,
        "kafkaop.ack_received": context_of(sent).span_id,
    }
    assert {context_of(span).trace_id for span in found.values()} == {SAMPLED.trace_id}
    assert (sent.kind, handle.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    for span in found.values():
        assert span.attributes is not None
        assert (span.attributes["mesh.op_code"], span.attributes["mesh.org_id"]) == (OP, 7)
        assert span.attributes["mesh.request_id"] == (sent.attributes or {})["mesh.request_id"]
    # The header of the request reaches the handler.
    [(header, current)] = seen
    assert spans.context_of(header).span_id == context_of(sent).span_id
    assert header[1:17] == SAMPLED.trace_id.to_bytes(16, "big")
    assert current.span_id == context_of(handle).span_id


@pytest.mark.parametrize("given", [UNSAMPLED, spans.header_of(UNSAMPLED), NO_TRACE, None])
def test_without_sampling_no_span_is_made_and_the_header_still_travels(
    tmp_path: Path, exporter: InMemorySpanExporter, given: SpanContext | bytes | None
) -> None:
    headers: list[bytes] = []

    def handler(call: KafkaCall) -> Payload:
        headers.append(call.header)
        return b""

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, handler)
        await caller.kafka_op_call(server.node_id, OP, 7, b"", trace=given)

    run_here(test, tmp_path)
    assert exporter.get_finished_spans() == ()
    expected = spans.header_of(UNSAMPLED) if given not in (NO_TRACE, None) else NO_TRACE
    assert headers == [expected]


def test_the_current_span_is_the_parent_when_none_is_given(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, lambda call: b"")
        with spans._scope.tracer.start_as_current_span("gateway.kafka.request"):
            await caller.kafka_op_call(server.node_id, OP, 7, b"")
        await until(exporter, 5)

    run_here(test, tmp_path)
    found = by_name(exporter)
    parent = found["mesh.kafkaop.sent"].parent
    assert parent is not None
    assert parent.span_id == context_of(found["gateway.kafka.request"]).span_id


def test_a_failed_call_is_an_error_in_its_spans(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    def refuse(call: KafkaCall) -> Payload:
        raise HandlerError("no such topic", code=103)

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, refuse)
        with pytest.raises(RemoteError):
            await caller.kafka_op_call(server.node_id, OP, 7, b"", trace=SAMPLED)
        await until(exporter, 4)

    run_here(test, tmp_path)
    found = by_name(exporter)
    for name in ("mesh.kafkaop.sent", "mesh.kafkaop.handle"):
        assert found[name].status.status_code is StatusCode.ERROR
    assert found["mesh.kafkaop.handle"].status.description == "no such topic"
    assert (found["kafkaop.ack"].attributes or {})["mesh.status"] == 103


def raw_call(payload: Inline | Chunked, op_code: int = OP, timeout_ms: int = 30_000) -> list[Buffer]:
    op = KafkaOp(op_code, REQUEST_ID, 7, 1, timeout_ms, payload)
    return encode_frame(TAG_LANE, spans.header_of(SAMPLED), codec(KafkaOp).parts(op))


GIVEN_UP = encode_frame(TAG_BODY, NO_TRACE, codec(Body).parts(Body(BodyAborted(REQUEST_ID))))
TURNED_AWAY = {
    "no handler": (Status.NO_HANDLER, raw_call(Inline(b""), op_code=OP + 1), "has no handler"),
    "too large": (Status.TOO_LARGE, raw_call(Chunked(MAX_BODY_BYTES + 1)), "the limit is"),
    "busy": (Status.BUSY, raw_call(Inline(b"")), "send fewer"),
    "closing": (Status.CLOSING, raw_call(Inline(b"")), "shutting down"),
    "too late": (Status.DEADLINE, raw_call(Inline(b""), timeout_ms=0), "before the handler could start"),
    "given up": (Status.CANCELLED, [*raw_call(Chunked(50_000)), *GIVEN_UP], "gave up"),
}


@pytest.mark.parametrize("why", TURNED_AWAY)
def test_a_call_that_gets_no_handler_leaves_its_spans_with_the_reason(
    tmp_path: Path, exporter: InMemorySpanExporter, why: str
) -> None:
    status, frames, reason = TURNED_AWAY[why]

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, lambda call: b"not called")
        await server.wait_up(caller.node_id, 5)
        server._links[caller.node_id].serving.closing = why == "closing"
        stream = await caller._links[server.node_id].connection.open_stream()
        await stream.write(frames)
        await until(exporter, 2)

    run_here(test, tmp_path, Settings(handlers=0) if why == "busy" else None)
    found = by_name(exporter)
    assert set(found) == {"mesh.kafkaop.handle", "kafkaop.ack"}
    handle, ack = found["mesh.kafkaop.handle"], found["kafkaop.ack"]
    assert handle.parent is not None
    assert handle.parent.span_id == SAMPLED.span_id
    assert handle.status.status_code is StatusCode.ERROR
    assert reason in (handle.status.description or "")
    assert ack.parent is not None
    assert ack.parent.span_id == context_of(handle).span_id
    for span in (handle, ack):
        assert (span.attributes or {})["mesh.request_id"] == REQUEST_ID
    assert (ack.attributes or {})["mesh.status"] == status


def test_a_call_that_gets_no_handler_and_is_not_sampled_leaves_no_span(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        with pytest.raises(RemoteError, match="has no handler"):
            await caller.kafka_op_call(server.node_id, OP, 7, b"", trace=UNSAMPLED)

    run_here(test, tmp_path)
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize("kind", ["future", "async"])
def test_a_handler_that_outlasts_its_node_loses_no_span(
    tmp_path: Path, exporter: InMemorySpanExporter, kind: str
) -> None:
    def stuck(call: KafkaCall) -> "asyncio.Future[Payload]":
        return asyncio.get_running_loop().create_future()

    async def in_task(call: KafkaCall) -> Payload:
        return await stuck(call)

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, stuck if kind == "future" else in_task)
        waiting = asyncio.ensure_future(caller.kafka_op_call(server.node_id, OP, 7, b"", trace=SAMPLED))
        await server.wait_up(caller.node_id, 5)
        while not server._links[caller.node_id].serving._running:
            await asyncio.sleep(0.001)
        await server.close()
        with pytest.raises(RemoteError, match="shut down"):
            await waiting

    run_here(test, tmp_path, Settings(close_grace=0.05))
    counted = collections.Counter(span.name for span in exporter.get_finished_spans())
    assert counted == dict.fromkeys(
        ("mesh.kafkaop.sent", "mesh.kafkaop.handle", "kafkaop.ack", "kafkaop.ack_received"), 1
    )
    handle = by_name(exporter)["mesh.kafkaop.handle"]
    assert handle.status.description == "the node shut down before the handler ended"


def test_an_unknown_tag_leaves_a_span_and_the_next_frame_is_served(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    served: list[bytes] = []

    def handler(call: KafkaCall) -> Payload:
        served.append(bytes(call.payload))
        return b""

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, handler)
        unknown = b"\x80" + encode_varint(100) + spans.header_of(SAMPLED) + bytes(68)
        op = KafkaOp(OP, REQUEST_ID, 7, 1, 30_000, Inline(b"after"))
        known = b"".join(encode_frame(TAG_LANE, NO_TRACE, codec(KafkaOp).parts(op)))
        stream = await caller._links[server.node_id].connection.open_stream()
        await stream.write([unknown + known])
        await until(exporter, 1)
        assert server.roster.counters["unsupported_tag"] == 1

    run_here(test, tmp_path)
    [span] = exporter.get_finished_spans()
    assert span.name == "unsupported_tag"
    assert context_of(span).trace_id == SAMPLED.trace_id
    assert (span.attributes or {})["mesh.tag"] == 0x80
    assert (span.attributes or {})["mesh.frame_bytes"] == 100
    assert served == [b"after"]


def test_a_span_processor_that_raises_fails_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Span, parent_context: object = None) -> None:
            raise RuntimeError("broken processor")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    monkeypatch.setattr(spans._scope, "tracer", provider.get_tracer("test"))

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, lambda call: b"fine")
        assert await caller.kafka_op_call(server.node_id, OP, 7, b"", trace=SAMPLED) == b"fine"

    with caplog.at_level(logging.ERROR, logger="nodes.mesh.spans"):
        run_here(test, tmp_path)
    assert "a span could not be recorded" in caplog.text
    provider.shutdown()


def test_a_header_of_another_length_is_the_callers_mistake(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(OP, lambda call: b"fine")
        with pytest.raises(ValueError, match="32 bytes"):
            await caller.kafka_op_call(server.node_id, OP, 7, b"", trace=b"short")
        assert await caller.kafka_op_call(server.node_id, OP, 7, b"") == b"fine"

    run_here(test, tmp_path)
