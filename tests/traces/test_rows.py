"""Rows of spans: what is cut by hand is what the library reads, for spans of any kind."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import new_span, request_of

from traces import rows
from traces.otlp import tags_of
from traces.rows import SpanRow, groups_of, text_of

TIMES = st.integers(0, 2**63 - 1)
VALUES = st.text(max_size=200) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False)


def with_attributes(span: Span, attributes: dict[str, object]) -> Span:
    for key, value in attributes.items():
        target = span.attributes.add(key=key).value
        if isinstance(value, bool):
            target.bool_value = value
        elif isinstance(value, int):
            target.int_value = value
        elif isinstance(value, float):
            target.double_value = value
        else:
            target.string_value = str(value)
    return span


@st.composite
def spans(draw: st.DrawFn) -> Span:
    span = with_attributes(
        new_span(draw(st.text(max_size=150))), draw(st.dictionaries(st.text(max_size=20), VALUES, max_size=5))
    )
    span.parent_span_id = draw(st.sampled_from([b"", bytes(8), b"\xff" * 8]))
    span.kind = draw(st.integers(0, 5))  # type: ignore[assignment]
    span.start_time_unix_nano, span.end_time_unix_nano = draw(TIMES), draw(TIMES)
    span.flags = draw(st.sampled_from([0, 0x101, 0x301]))
    span.trace_state = draw(st.sampled_from(["", "a=b"]))
    span.dropped_attributes_count = draw(st.sampled_from([0, 3]))
    if draw(st.booleans()):
        span.links.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
    if draw(st.booleans()):
        span.status.code = draw(st.integers(0, 2))  # type: ignore[assignment]
        span.events.add(name="happened").attributes.add(key="k").value.int_value = 1
    return span


def plain(row: SpanRow) -> tuple[object, ...]:
    return (*row[:-1], {text_of(tag) for tag in row.tags})


@given(spans())
def test_a_row_says_what_the_span_says(span: Span) -> None:
    [group] = groups_of(request_of(span).SerializeToString())
    [row] = group.spans
    assert plain(row) == plain(rows._read(span, span.SerializeToString()))
    assert {text_of(tag) for tag in row.tags} == tags_of(span)
    assert row.duration == max(0, span.end_time_unix_nano - span.start_time_unix_nano)


def test_the_spans_of_our_own_recorder_are_cut_by_hand() -> None:
    span = with_attributes(new_span("work", parent=b"12345678"), {"kafka.topic": "orders", "mesh.request_id": 2**40})
    span.flags = 0x101
    span.links.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
    assert rows._cut(span.SerializeToString()) is not None
