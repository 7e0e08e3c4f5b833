"""The light recorder: what it sends, sampling, environment variables, and collectors that are dead, slow or refuse."""

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from sink import Sink

from traces import protobuf
from traces.errors import ConfigurationError
from traces.exporter import RecorderStats
from traces.otlp import plain_pairs
from traces.settings import RecorderSettings, from_environment
from traces.wiring import Provider, SilentProvider, configure

ROOT = Path(__file__).parents[2]


def dead_endpoint() -> str:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("mode", ["light", "sdk"])
def test_both_recorders_send_the_same_spans(sink: Sink, wire: Callable[..., Provider], mode: str) -> None:
    provider = wire(sink.url, RAFKA_TRACES=mode, OTEL_RESOURCE_ATTRIBUTES="zone=a%20b")
    tracer = provider.get_tracer("tests")
    state = TraceState([("vendor", "x")])
    remote = SpanContext(2**127 + 1, 2**63 + 1, True, TraceFlags(1), state)
    context = trace.set_span_in_context(NonRecordingSpan(remote))
    attributes = {"text": "ü", "count": 2**40, "negative": -1, "real": 0.5, "yes": True, "list": ["a", "b"]}
    span = tracer.start_span("work", context, SpanKind.CLIENT, attributes, [Link(remote, {"why": "test"})], 1000)
    span.set_attribute("late", 1)
    span.add_event("happened", {"k": "v"}, 1500)
    span.set_status(StatusCode.ERROR, "broken")
    span.end(3000)
    assert not span.is_recording()
    assert provider.force_flush(20_000)
    (sent,) = sink.spans
    assert (sent.trace_id.hex(), sent.parent_span_id.hex()) == (f"{remote.trace_id:032x}", f"{remote.span_id:016x}")
    assert sent.span_id.hex() == f"{span.get_span_context().span_id:016x}"
    assert (sent.name, sent.kind, sent.start_time_unix_nano, sent.end_time_unix_nano) == ("work", 3, 1000, 3000)
    assert dict(plain_pairs(sent.attributes)) == {**attributes, "late": 1}
    assert [(event.name, event.time_unix_nano) for event in sent.events] == [("happened", 1500)]
    assert sent.links[0].trace_id == sent.trace_id
    assert dict(plain_pairs(sent.links[0].attributes)) == {"why": "test"}
    assert (sent.status.code, sent.status.message) == (2, "broken")
    assert (sent.trace_state, sent.flags & 0x300) == ("vendor=x", 0x300)
    group = sink.requests[0].resource_spans[0]
    resource = dict(plain_pairs(group.resource.attributes))
    assert (resource["service.name"], resource["zone"]) == ("node", "a b")
    assert group.scope_spans[0].scope.name == "tests"
    assert provider.stats() == RecorderStats(exported=1)


def test_nesting_follows_the_current_span_and_errors_are_recorded(sink: Sink, wire: Callable[..., Provider]) -> None:
    provider = wire(sink.url)
    tracer = provider.get_tracer("tests")

    @tracer.start_as_current_span("inner")
    def fail() -> None:
        assert trace.get_current_span().is_recording()
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"), tracer.start_as_current_span("outer"):
        fail()
    with tracer.start_span("alone"):
        pass
    provider.force_flush()
    spans = {span.name: span for span in sink.spans}
    assert spans["inner"].parent_span_id == spans["outer"].span_id
    assert spans["inner"].trace_id == spans["outer"].trace_id != spans["alone"].trace_id
    assert spans["inner"].status.message == "ValueError: boom"
    assert dict(plain_pairs(spans["inner"].events[0].attributes))["exception.type"] == "ValueError"


def test_sampling_is_decided_once_at_the_root(sink: Sink, wire: Callable[..., Provider]) -> None:
    provider = wire(sink.url, 0.5)
    tracer = provider.get_tracer("tests")
    sampled = 0
    for _ in range(400):
        root = tracer.start_span("root")
        child = tracer.start_span("child", trace.set_span_in_context(root))
        assert child.is_recording() == root.is_recording()
        assert child.get_span_context().trace_id == root.get_span_context().trace_id
        assert child.get_span_context().trace_flags.sampled == root.is_recording()
        sampled += root.is_recording()
        child.end()
        root.end()
    provider.force_flush()
    assert 100 < sampled < 300
    assert len(sink.spans) == 2 * sampled


def test_a_burst_is_not_dropped(sink: Sink, wire: Callable[..., Provider]) -> None:
    provider = wire(sink.url)
    tracer = provider.get_tracer("tests")
    for _ in range(10_000):
        tracer.start_span("burst").end()
    assert provider.force_flush()
    assert provider.stats() == RecorderStats(exported=10_000)
    assert len({span.span_id for span in sink.spans}) == 10_000


def test_a_dead_collector_costs_the_caller_nothing_and_losses_are_counted(
    wire: Callable[..., Provider], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "traces.exporter"):
        provider = wire(dead_endpoint(), OTEL_BSP_MAX_QUEUE_SIZE="100", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="50")
        tracer = provider.get_tracer("tests")
        begin = time.perf_counter()
        for _ in range(5000):
            tracer.start_span("lost").end()
        assert time.perf_counter() - begin < 5
        assert not provider.force_flush(200)
        begin = time.perf_counter()
        assert not provider.shutdown(0.3)
        assert time.perf_counter() - begin < 5
    stats = provider.stats()
    assert stats.dropped == 5000
    assert (stats.exported, stats.queued) == (0, 0)
    assert len([record for record in caplog.records if "dropped" in record.message]) == 1
    tracer.start_span("after the end").end()
    assert provider.stats().dropped == 5001


def test_a_slow_collector_does_not_slow_the_caller(sink: Sink, wire: Callable[..., Provider]) -> None:
    gate = threading.Event()

    def slow() -> tuple[int, bytes]:
        gate.wait(20)
        return 200, b""

    sink.answer = slow
    provider = wire(sink.url, OTEL_BSP_SCHEDULE_DELAY="1")
    tracer = provider.get_tracer("tests")
    begin = time.perf_counter()
    for _ in range(2000):
        tracer.start_span("work").end()
    assert time.perf_counter() - begin < 5
    assert not gate.is_set()
    gate.set()
    assert provider.force_flush()
    assert provider.stats().exported == 2000


def test_spans_wait_for_a_collector_that_comes_back_and_it_hears_of_the_dropped(
    sink: Sink, wire: Callable[..., Provider]
) -> None:
    answers = iter([(503, b""), (429, b""), (503, b"")])
    sink.answer = lambda: next(answers, (200, b""))
    provider = wire(sink.url, OTEL_BSP_MAX_QUEUE_SIZE="10", OTEL_BSP_SCHEDULE_DELAY="60000")
    tracer = provider.get_tracer("tests")
    for _ in range(15):
        tracer.start_span("patient").end()
    assert provider.force_flush(20_000)
    assert provider.stats() == RecorderStats(exported=10, dropped=5)
    assert sink.headers[0]["rafka-dropped-spans"] == "5"


def test_refused_and_partly_refused_batches_are_counted(sink: Sink, wire: Callable[..., Provider]) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 2
    answers = iter([(400, b"bad"), (200, partial.SerializeToString())])
    sink.answer = lambda: next(answers)
    provider = wire(sink.url)
    tracer = provider.get_tracer("tests")
    for _ in range(2):
        for _ in range(3):
            tracer.start_span("work").end()
        provider.force_flush()
    assert provider.stats() == RecorderStats(exported=1, refused=5)


def test_values_without_an_otlp_type_are_left_out_and_counted_in_the_span(
    sink: Sink, wire: Callable[..., Provider]
) -> None:
    provider = wire(sink.url)
    tracer = provider.get_tracer("tests")
    endless: list[Any] = []
    endless.append(endless)
    odd: dict[str, Any] = {"object": object(), "huge": 2**70, "surrogate": "\ud800", "fine": 1}
    tracer.start_span("odd", attributes=odd).end()
    tracer.start_span(7, attributes={"endless": endless}).end()  # type: ignore[arg-type]
    tracer.start_span("next", attributes={"endless": endless}).end()
    assert provider.force_flush()
    sent = {span.name: span for span in sink.spans}
    assert dict(plain_pairs(sent["odd"].attributes)) == {"huge": str(2**70), "surrogate": "?", "fine": 1}
    assert sent["odd"].dropped_attributes_count == 1
    assert "next" in sent
    assert provider.stats() == RecorderStats(exported=2, refused=1)


def test_under_load_requests_are_few_and_the_last_span_still_comes_soon(
    sink: Sink, wire: Callable[..., Provider]
) -> None:
    provider = wire(sink.url, OTEL_BSP_SCHEDULE_DELAY="20")
    tracer = provider.get_tracer("tests")
    for _ in range(40):
        for _ in range(100):
            tracer.start_span("work").end()
        time.sleep(0.01)
    assert len(sink.requests) <= 10
    tracer.start_span("last").end()
    deadline = time.monotonic() + 20
    while not any(span.name == "last" for span in sink.spans) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(sink.spans) == 4001


def test_gzip_headers_and_the_exact_endpoint_come_from_the_environment(
    sink: Sink, wire: Callable[..., Provider]
) -> None:
    provider = wire(
        dead_endpoint(),
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{sink.url}/exact",
        OTEL_EXPORTER_OTLP_HEADERS="x-token=a%3Db",
        OTEL_SERVICE_NAME="renamed",
    )
    provider.get_tracer("tests").start_span("work").end()
    assert provider.force_flush()
    assert sink.headers[0]["x-token"] == "a=b"
    resource = dict(plain_pairs(sink.requests[0].resource_spans[0].resource.attributes))
    assert resource["service.name"] == "renamed"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, {"ratio": 0.0, "parent_based": False}),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, {"ratio": 1.0, "parent_based": True}),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"},
            {"ratio": 0.25, "parent_based": True},
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1/"}, {"endpoint": "http://h:1/v1/traces"}),
        ({"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_BSP_MAX_QUEUE_SIZE": "7"}, {"delay": 0.05, "queue_size": 7}),
        (
            {"OTEL_EXPORTER_OTLP_TIMEOUT": "1500", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"},
            {"timeout": 1.5, "gzip": True},
        ),
        ({"OTEL_SDK_DISABLED": "TRUE"}, {"disabled": True}),
        ({"OTEL_TRACES_EXPORTER": "none"}, {"disabled": True}),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, {"disabled": False}),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"endpoint": "http://127.0.0.1:4318/v1/traces"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=from-resource"}, {"service": "from-resource"}),
    ],
)
def test_standard_variables_are_respected(environ: dict[str, str], expected: dict[str, Any]) -> None:
    settings = from_environment(RecorderSettings(service="s"), environ)
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_SAMPLER": "sometimes"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "novalue"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
        {"OTEL_TRACES_EXPORTER": "console"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"RAFKA_TRACES": "loud"},
    ],
)
def test_a_variable_that_means_nothing_is_named_at_the_start(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=list(environ)[-1]):
        configure("node", install=False, environ=environ)


@pytest.mark.parametrize("environ", [{"OTEL_SDK_DISABLED": "true"}, {"RAFKA_TRACES": "off"}])
def test_tracing_can_be_switched_off(environ: dict[str, str]) -> None:
    provider = configure("node", install=False, environ=environ)
    assert isinstance(provider, SilentProvider)
    assert not provider.get_tracer("tests").start_span("nothing").is_recording()


def test_a_program_that_ends_sends_what_it_has_and_one_without_a_collector_ends_at_once(sink: Sink) -> None:
    program = (
        "import sys; from opentelemetry import trace; from traces.wiring import configure\n"
        "tracer = trace.get_tracer('made before the provider')\n"
        "configure('ending', sys.argv[1])\n"
        "tracer.start_span('last words').end()\n"
    )
    for url in (sink.url, dead_endpoint()):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", program, url], check=True, cwd=ROOT, timeout=30, env={"PATH": ""})
        assert time.perf_counter() - begin < 15
    assert [span.name for span in sink.spans] == ["last words"]


VALUES = st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.binary()


@given(
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.text(),
    st.integers(0, 5),
    st.integers(0, 2**63),
    st.dictionaries(st.text(), VALUES | st.lists(VALUES) | st.dictionaries(st.text(), VALUES)),
)
def test_the_hand_written_encoding_is_what_protobuf_reads(
    trace_id: int, span_id: int, parent: int, name: str, kind: int, start: int, attributes: dict[str, Any]
) -> None:
    events = [protobuf.event(start, name, attributes)]
    links = [protobuf.link(trace_id, span_id, "a=b", 0x301, attributes)]
    status = protobuf.status(2, name)
    message = protobuf.span(
        trace_id, span_id, parent, "s=1", 0x101, name, kind, start, start + 9, attributes, events, links, status
    )
    body = protobuf.export_request(protobuf.resource(attributes), [(protobuf.scope(name, "1", None), "", [message])])
    group = ExportTraceServiceRequest.FromString(body).resource_spans[0]
    span = group.scope_spans[0].spans[0]
    assert (span.trace_id, span.span_id) == (trace_id.to_bytes(16, "big"), span_id.to_bytes(8, "big"))
    assert span.parent_span_id == (parent.to_bytes(8, "big") if parent else b"")
    assert (span.name, span.kind, span.start_time_unix_nano, span.end_time_unix_nano) == (name, kind, start, start + 9)
    for given_attributes in (
        span.attributes,
        span.events[0].attributes,
        span.links[0].attributes,
        group.resource.attributes,
    ):
        assert dict(plain_pairs(given_attributes)) == attributes
    assert (span.status.message, span.links[0].flags, span.flags, span.trace_state) == (name, 0x301, 0x101, "s=1")
