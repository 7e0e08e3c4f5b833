"""Requests as they are checked: which spans are rejected, and why."""

import gzip
import json
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import new_span, request_of

from traces import jaeger_v1, otlp, otlp_json, protobuf
from traces.errors import MalformedError, TooLargeError
from traces.otlp import Checked
from traces.reader import StoredSource, StoredTrace

TRACE_ID, SPAN_ID = bytes(range(1, 17)), bytes(range(1, 9))


def by_protobuf(span: Span) -> Checked:
    return otlp.check(request_of(span).SerializeToString())


def by_json(span: Span) -> Checked:
    group = request_of(span).resource_spans[0]
    document = otlp_json.resource_spans_json(group.resource, group.scope_spans[0].scope, [span])
    links = [{"traceId": link.trace_id.hex(), "spanId": link.span_id.hex()} for link in span.links]
    document["scopeSpans"][0]["spans"][0]["links"] = links
    return otlp_json.check(json.dumps({"resourceSpans": [document]}).encode())


def linked(*links: tuple[bytes, bytes]) -> Span:
    span = new_span()
    for trace_id, span_id in links:
        span.links.add(trace_id=trace_id, span_id=span_id)
    return span


@pytest.mark.parametrize("check", [by_protobuf, by_json])
@pytest.mark.parametrize(
    ("trace_id", "span_id"),
    [(b"", b""), (TRACE_ID, b""), (b"", SPAN_ID), (TRACE_ID[:15], SPAN_ID), (TRACE_ID, SPAN_ID + b"x")],
)
def test_a_span_with_a_link_to_ids_of_wrong_length_is_rejected_with_the_reason(
    check: Callable[[Span], Checked], trace_id: bytes, span_id: bytes
) -> None:
    checked = check(linked((TRACE_ID, SPAN_ID), (trace_id, span_id)))
    assert (checked.accepted, checked.rejected) == (0, 1)
    assert f"has a link to {trace_id.hex()!r} and {span_id.hex()!r}" in checked.message


@pytest.mark.parametrize("check", [by_protobuf, by_json])
def test_a_link_of_zeros_which_sdks_record_for_its_attributes_costs_no_span(check: Callable[[Span], Checked]) -> None:
    assert check(linked((bytes(16), bytes(8)))).accepted == 1


def test_answers_leave_out_links_that_name_no_span() -> None:
    span = linked((TRACE_ID, SPAN_ID), (b"", b""), (bytes(16), SPAN_ID), (TRACE_ID, bytes(8)), (TRACE_ID, b"short"))
    group = request_of(span).resource_spans[0]
    source = StoredSource("sample", group.resource, group.scope_spans[0].scope)
    [shown] = jaeger_v1.trace_json(StoredTrace(span.trace_id, [(source, [span])]))["spans"]
    reference = {"refType": "FOLLOWS_FROM", "traceID": TRACE_ID.hex(), "spanID": SPAN_ID.hex()}
    assert shown["references"] == [reference]
    assert otlp_json.span_json(span)["links"] == [{"traceId": TRACE_ID.hex(), "spanId": SPAN_ID.hex()}]
    del span.links[0]
    assert "links" not in otlp_json.span_json(span)


def ids(size: int) -> st.SearchStrategy[bytes]:
    return st.sampled_from([bytes(range(size)), b"\xff" * size] * 4 + [bytes(size), b"", bytes(size - 1), bytes(300)])


TIMES = st.sampled_from([0, 1, 10**18, 2**63 - 1, 2**63, 2**64 - 1])


@st.composite
def spans(draw: st.DrawFn) -> Span:
    span = Span(trace_id=draw(ids(16)), span_id=draw(ids(8)), parent_span_id=draw(ids(8)), name=draw(st.text()))
    span.kind = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 300, -1]))  # type: ignore[assignment]
    span.start_time_unix_nano, span.end_time_unix_nano = draw(TIMES), draw(TIMES)
    for _ in range(draw(st.integers(0, 2))):
        span.links.add(trace_id=draw(ids(16)), span_id=draw(ids(8)), trace_state=draw(st.text(max_size=3)))
    return span


@given(st.lists(st.lists(spans(), max_size=3), max_size=3))
def test_the_spans_of_a_request_are_judged_each_by_itself(groups: list[list[Span]]) -> None:
    request = ExportTraceServiceRequest()
    for group in groups:
        request.MergeFrom(request_of(*group))
    each = [not otlp._fault(span) for group in groups for span in group]
    checked = otlp.check(request.SerializeToString())
    assert (checked.accepted, checked.rejected) == (each.count(True), each.count(False))


def request_with(*fields: bytes) -> bytes:
    """A request of one good span and one of these fields."""
    good = new_span().SerializeToString()
    return protobuf.export_request(b"", [(b"", "", [good, b"".join(fields)])])


IDS = (protobuf.block(b"\x0a", TRACE_ID), protobuf.block(b"\x12", SPAN_ID))


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        pytest.param((*IDS, *IDS), 2, id="ids twice"),
        pytest.param((protobuf.block(b"\x0a", b"bad"), *IDS), 2, id="the last one counts"),
        pytest.param((*IDS, protobuf.block(b"\x0a", b"bad")), 1, id="the last one counts and is bad"),
        pytest.param((IDS[0],), 1, id="no span id"),
        pytest.param((*IDS, b"\x22\x00"), 2, id="an empty parent"),
        pytest.param((*IDS, b"\x32\x01\x07"), 2, id="a packed kind, which is skipped"),
        pytest.param((*IDS, b"\x3a\x03abc"), 2, id="bytes for a time, which are skipped"),
        pytest.param((*IDS, b"\x30\x83\x00"), 2, id="a kind in two bytes"),
        pytest.param((*IDS, b"\x6a\x00"), 1, id="an empty link"),
        pytest.param((*IDS, protobuf.block(b"\x6a", IDS[0] * 2)), 1, id="a link with two trace ids and no span id"),
    ],
)
def test_spans_in_unusual_bytes_are_judged_by_what_is_read_of_them(fields: tuple[bytes, ...], accepted: int) -> None:
    checked = otlp.check(request_with(*fields))
    assert (checked.accepted, checked.rejected) == (accepted, 2 - accepted)


def test_ids_of_one_span_do_not_stand_for_anothers() -> None:
    twice, none = b"".join(IDS) + IDS[0], IDS[1]
    checked = otlp.check(protobuf.export_request(b"", [(b"", "", [twice, none])]))
    assert (checked.accepted, checked.rejected) == (1, 1)


def members(*contents: bytes) -> bytes:
    return b"".join(map(gzip.compress, contents))


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=5), st.binary(min_size=1, max_size=9))
def test_gzip_of_many_members_is_all_of_them_and_never_half_of_one(contents: list[bytes], more: bytes) -> None:
    body, whole = members(*contents), b"".join(contents)
    assert otlp.inflate(body, "gzip", len(whole)) == whole
    with pytest.raises(MalformedError, match="ends in the middle"):
        otlp.inflate(body[:-1], "gzip", len(whole))
    with pytest.raises(TooLargeError, match="smaller batches"):
        otlp.inflate(body + members(more), "gzip", len(whole))
    with pytest.raises(MalformedError):
        otlp.inflate(body + b"no gzip", "gzip", len(whole))


def test_the_work_of_inflating_grows_with_the_body_and_not_with_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    given_bytes = 0

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._stream = decompressobj(wbits=wbits)

        def decompress(self, data: memoryview, limit: int) -> bytes:
            nonlocal given_bytes
            given_bytes += len(data)
            return self._stream.decompress(data, limit)

        def __getattr__(self, name: str) -> object:
            return getattr(self._stream, name)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    per_byte = []
    for count in (500, 2000):
        body = members(b"") * count + members(bytes(range(256)) * 4000)
        given_bytes = 0
        assert len(otlp.inflate(body, "gzip", 2**24)) == 256 * 4000
        per_byte.append(given_bytes / len(body))
    assert per_byte[1] < 2 * per_byte[0]
