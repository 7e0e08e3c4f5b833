"""Span sites: what the short ways of the light recorder leave is what the API leaves with the real SDK."""

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from sink import Sink

from traces import sites
from traces.otlp import plain_pairs
from traces.recorder import LightTracerProvider
from traces.shape import Fixed
from traces.sites import Scope, Site
from traces.wiring import Provider

ELSEWHERE = SpanContext(7 << 64, 9, True, TraceFlags(1))
MODES = pytest.mark.parametrize("mode", ["light", "sdk"])


@pytest.fixture
def spans_of(
    sink: Sink, wire: Callable[..., Provider], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Callable[[Scope], None]], dict[str, Any]]:
    """What a piece of a program leaves, by the spans' names."""

    def run(mode: str, program: Callable[[Scope], None]) -> dict[str, Any]:
        provider = wire(sink.url, RAFKA_TRACES=mode)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # which can be set only once in a process
        program(Scope("tests"))
        assert provider.force_flush(20_000)
        return {span.name: span for span in sink.spans}

    return run


def told(span: Any) -> dict[str, Any]:
    return dict(plain_pairs(span.attributes))


def started(span: Span | None) -> Span:
    assert span is not None
    return span


@MODES
def test_roots_children_and_points_nest_and_carry_what_they_share_and_their_own(
    spans_of: Callable[..., dict[str, Any]], mode: str
) -> None:
    def program(scope: Scope) -> None:
        link = Link(ELSEWHERE)
        root = started(Site(scope, "root", SpanKind.SERVER, Fixed(shared="yes"), (link,)).root(1000, {"own": 1}))
        child = Site(scope, "child", SpanKind.CLIENT, Fixed(shared=2)).child(root, {"own": 2**40})
        Site(scope, "point", attributes=Fixed(shared="p")).point(child, {"own": 3})
        Site(Scope("others"), "point of others").point(child, {"own": 4})
        child.end()
        root.end()

    found = spans_of(mode, program)
    assert [found[name].parent_span_id for name in ("root", "child", "point", "point of others")] == [
        b"",
        found["root"].span_id,
        found["child"].span_id,
        found["child"].span_id,
    ]
    assert len({span.trace_id for span in found.values()}) == 1
    assert len({span.span_id for span in found.values()}) == 4
    assert told(found["root"]) == {"shared": "yes", "own": 1}
    assert (found["root"].start_time_unix_nano, found["root"].kind) == (1000, 2)
    assert [link.span_id for link in found["root"].links] == [ELSEWHERE.span_id.to_bytes(8, "big")]
    assert told(found["child"]) == {"shared": 2, "own": 2**40}
    assert told(found["point"]) == {"shared": "p", "own": 3}
    assert told(found["point of others"]) == {"own": 4}
    child, point = found["child"], found["point"]
    assert child.start_time_unix_nano <= point.start_time_unix_nano <= point.end_time_unix_nano
    assert point.end_time_unix_nano <= child.end_time_unix_nano
    assert {span.flags & 0x300 for span in found.values()} <= {0, 0x100}, "no parent is in another process"


@MODES
def test_a_child_of_another_process_keeps_its_ids(spans_of: Callable[..., dict[str, Any]], mode: str) -> None:
    trace_id, parent_id = bytes(range(16)), bytes(range(1, 9))

    def program(scope: Scope) -> None:
        started(Site(scope, "handle", SpanKind.SERVER).remote_child(trace_id, parent_id, {"own": 1})).end()

    handle = spans_of(mode, program)["handle"]
    assert (handle.trace_id, handle.parent_span_id, handle.flags & 0x300) == (trace_id, parent_id, 0x300)


@MODES
@pytest.mark.parametrize("before", [{}, {"late": 0}, {"name of its own": 0}])
def test_what_is_known_at_the_end_wins_whatever_was_said_before(
    spans_of: Callable[..., dict[str, Any]], mode: str, before: dict[str, Any]
) -> None:
    def program(scope: Scope) -> None:
        span = started(Site(scope, "work", attributes=Fixed({"site": 1, "both": 1})).root(1, {}))
        span.set_attributes(before)
        span.set_status(StatusCode.ERROR, "broken")
        sites.finish(span, Fixed({"both": 2, "late": 3}), {"own": 4})
        assert not span.is_recording()
        span.set_attribute("after", 1)

    work = spans_of(mode, program)["work"]
    assert told(work) == {**before, "site": 1, "both": 2, "late": 3, "own": 4}
    assert (work.status.code, work.status.message) == (2, "broken")


@MODES
def test_own_names_that_are_shared_too_are_told_once(spans_of: Callable[..., dict[str, Any]], mode: str) -> None:
    def program(scope: Scope) -> None:
        span = started(Site(scope, "work", attributes=Fixed({"a": 1, "b": 1})).root(1, {}))
        span.set_attributes(Fixed({"c": 2}))
        span.set_attribute("c", 3)
        span.set_attribute("a", 4)
        span.end()

    work = spans_of(mode, program)["work"]
    assert len(work.attributes) == 3
    assert told(work) == {"a": 4, "b": 1, "c": 3}


def test_points_are_counted_where_spans_are(wire: Callable[..., Provider], sink: Sink) -> None:
    provider = wire(sink.url, OTEL_BSP_MAX_QUEUE_SIZE="1", OTEL_BSP_SCHEDULE_DELAY="60000")
    assert isinstance(provider, LightTracerProvider)
    point = Site(Scope("tests"), "point")
    for _ in range(2):
        span = started(provider.scope("tests").root(Site(Scope("tests"), "work"), 1))
        point.point(span, {})
        point.point(span, {})
        span.end()
    assert (provider.stats().queued, provider.stats().dropped) == (3, 3)
    assert provider.force_flush(20_000)
    assert provider.stats().exported == len(sink.spans) == 3


def test_a_point_after_the_end_and_one_with_a_trace_state_are_spans_too(
    wire: Callable[..., Provider], sink: Sink
) -> None:
    provider = wire(sink.url)
    site = Site(Scope("tests"), "point")
    parent = trace.NonRecordingSpan(SpanContext(5, 6, True, TraceFlags(1), TraceState([("vendor", "x")])))
    stateful = provider.get_tracer("tests").start_span("stateful", sites.under(parent))
    site.point(stateful, {"own": 1})
    ended = provider.get_tracer("tests").start_span("ended")
    ended.end()
    site.point(ended, {"own": 2})
    stateful.end()
    assert provider.force_flush(20_000)
    found = {told(span).get("own", span.name): span for span in sink.spans}
    assert found[1].trace_state == "vendor=x"
    assert found[1].parent_span_id == found["stateful"].span_id
    assert found[2].parent_span_id == found["ended"].span_id
