"""OTLP in, over HTTP and gRPC, against a real collector process: good requests, bad ones, and far too large ones."""

import base64
import contextlib
import gzip
import json
import secrets
import urllib.error
import urllib.request

import grpc
import pytest
from collector_process import Running
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from otlp_samples import JSON, PROTOBUF, bomb, new_span, post, request_of

from traces import otlp, otlp_json
from traces.errors import MalformedError
from traces.receiver import Limits

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LIMITS = Limits()


def stored(collector: Running, trace_id: bytes) -> list[dict[str, object]]:
    spans: list[dict[str, object]] = collector.get(f"/api/traces/{trace_id.hex()}")["data"][0]["spans"]
    return spans


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_protobuf_request_is_stored_before_it_is_answered(collector: Running, encoding: str) -> None:
    span = new_span("by protobuf")
    body = request_of(span).SerializeToString()
    answer = post(collector.url, gzip.compress(body) if encoding else body, PROTOBUF, encoding)
    assert answer == (200, b"", PROTOBUF)
    assert stored(collector, span.trace_id)[0]["operationName"] == "by protobuf"


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_json_request_with_hex_ids_and_numbers_as_strings_is_stored(collector: Running, encoding: str) -> None:
    trace_id, span_id = secrets.token_bytes(16), secrets.token_bytes(8)
    span = {
        "traceId": trace_id.hex().upper(),
        "spanId": span_id.hex(),
        "name": "by json",
        "kind": 3,
        "startTimeUnixNano": "1700000000000000001",
        "endTimeUnixNano": 1700000000000002001,
        "attributes": [
            {"key": "count", "value": {"intValue": "7"}},
            {"key": "raw", "value": {"bytesValue": base64.b64encode(b"xyz").decode()}},
            {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"doubleValue": 1.5}]}}},
        ],
        "aFieldOfTheFuture": {"is": "ignored"},
    }
    document = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "s"}, "spans": [span]}]}]}
    body = json.dumps(document).encode()
    answer = post(collector.url, gzip.compress(body) if encoding else body, JSON + "; charset=utf-8", encoding)
    assert answer == (200, b"{}", JSON)
    found = stored(collector, trace_id)[0]
    assert (found["spanID"], found["startTime"], found["duration"]) == (span_id.hex(), 1700000000000000, 2)
    tags = {tag["key"]: tag["value"] for tag in found["tags"]}  # type: ignore[attr-defined]
    assert tags["count"] == 7
    assert tags["raw"] == base64.b64encode(b"xyz").decode()
    assert json.loads(tags["list"]) == ["a", 1.5]
    assert tags["span.kind"] == "client"


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"\xff\xff{", "", 400),
        (b"not gzip", "gzip", 400),
        (gzip.compress(b"x" * 999)[:-12], "gzip", 400),
        (b"", "br", 415),
    ],
)
def test_bytes_that_are_no_request_get_the_protocols_error(
    collector: Running, kind: str, body: bytes, encoding: str, status: int
) -> None:
    got, said, answered = post(collector.url, body, kind, encoding)
    assert (got, answered) == (status, kind)
    error = json.loads(said) if kind == JSON else Status.FromString(said)
    assert (error["code"] if kind == JSON else error.code) == 3
    assert error["message"] if kind == JSON else error.message


def test_other_content_types_are_refused(collector: Running) -> None:
    status, said, _ = post(collector.url, b"{}", "text/plain")
    assert status == 415
    assert "application/json" in Status.FromString(said).message


@pytest.mark.parametrize("body", [b"[]", b'{"resourceSpans": 1}', b'{"resourceSpans": [1]}', b"[" * 100_000])
def test_json_of_the_wrong_shape_is_refused(collector: Running, body: bytes) -> None:
    status, said, _ = post(collector.url, body, JSON)
    assert status == 400
    assert json.loads(said)["code"] == 3


def test_spans_with_ids_of_wrong_length_are_rejected_and_the_others_stored(collector: Running) -> None:
    good, short, zero, long_parent, future = (new_span() for _ in range(5))
    short.trace_id = b"123"
    zero.span_id = bytes(8)
    long_parent.parent_span_id = bytes(9)
    future.end_time_unix_nano = 2**64 - 1
    before = collector.stats()["rejected"]
    body = request_of(good, short, zero, long_parent, future).SerializeToString()
    status, said, _ = post(collector.url, body)
    partial = ExportTraceServiceResponse.FromString(said).partial_success
    assert (status, partial.rejected_spans) == (200, 4)
    assert "trace id" in partial.error_message
    assert "span id" in partial.error_message
    assert len(stored(collector, good.trace_id)) == 1
    assert collector.stats()["rejected"] == before + 4


def test_a_body_over_the_limit_is_answered_and_the_collector_lives_on(collector: Running) -> None:
    status, said, _ = post(collector.url, bytes(LIMITS.body_bytes + 1))
    assert status == 413
    assert str(LIMITS.body_bytes) in Status.FromString(said).message
    assert collector.get("/healthz") == {"status": "ok"}


def test_a_gzip_bomb_is_refused_by_its_size_after_decompression(collector: Running) -> None:
    body = bomb(LIMITS.inflated_bytes + 1)
    assert len(body) < LIMITS.body_bytes
    status, said, _ = post(collector.url, body, PROTOBUF, "gzip")
    assert status == 413
    assert "decompression" in Status.FromString(said).message


def test_a_chunked_body_is_read(collector: Running) -> None:
    span = new_span("chunked")
    body = request_of(span).SerializeToString()
    chunks = (body[at : at + 10] for at in range(0, len(body), 10))
    request = urllib.request.Request(collector.url + "/v1/traces", chunks, {"content-type": PROTOBUF})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200
    assert len(stored(collector, span.trace_id)) == 1


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_grpc_stores_spans(collector: Running, compression: grpc.Compression) -> None:
    span, bad = new_span("by grpc"), new_span()
    bad.span_id = b""
    with grpc.insecure_channel(collector.grpc) as channel:
        said = channel.unary_unary(EXPORT)(
            request_of(span, bad).SerializeToString(), compression=compression, timeout=20
        )
    assert ExportTraceServiceResponse.FromString(said).partial_success.rejected_spans == 1
    assert stored(collector, span.trace_id)[0]["operationName"] == "by grpc"


@pytest.mark.parametrize(
    ("body", "compression", "code"),
    [
        (b"\xff\xff", grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(LIMITS.body_bytes + 1), grpc.Compression.NoCompression, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (bytes(LIMITS.body_bytes + 1), grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["malformed", "oversized", "bomb"],
)
def test_grpc_answers_bad_requests_with_its_own_codes(
    collector: Running, body: bytes, compression: grpc.Compression, code: grpc.StatusCode
) -> None:
    with grpc.insecure_channel(collector.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(EXPORT)(body, compression=compression, timeout=20)
    assert caught.value.code() is code
    assert collector.get("/healthz") == {"status": "ok"}


def test_other_methods_and_origins_get_nothing(collector: Running) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(collector.url + "/v1/traces", timeout=20)
    assert caught.value.code == 405
    caught.value.close()
    request = urllib.request.Request(collector.url + "/api/services", headers={"origin": "http://elsewhere.example"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert "access-control-allow-origin" not in answer.headers


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused(body: bytes) -> None:
    for check in (otlp.check, otlp_json.check):
        with contextlib.suppress(MalformedError):
            checked = check(body)
            assert bool(checked.rejected) == bool(checked.message)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["traceId", "spanId", "name", "kind", "attributes", "value", "key", "events", "intValue", "status"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["spans", "scope"]), JSON_VALUES))
def test_any_json_is_taken_or_refused(scope_spans: dict[str, object]) -> None:
    document = json.dumps({"resourceSpans": [{"scopeSpans": [scope_spans]}]}).encode()
    with contextlib.suppress(MalformedError):
        checked = otlp_json.check(document)
        spans = scope_spans.get("spans")
        assert checked.accepted + checked.rejected == (len(spans) if isinstance(spans, list) else 0)


@given(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=9),
    st.booleans(),
)
def test_otlp_json_of_a_span_reads_back_as_the_same_span(
    text: str, number: int, real: float, raw: bytes, flag: bool
) -> None:
    span = new_span(text)
    span.attributes.add(key=text).value.string_value = text
    span.attributes.add(key="n").value.int_value = number
    span.attributes.add(key="r").value.double_value = real
    span.attributes.add(key="b").value.bytes_value = raw
    items = span.attributes.add(key="l").value.array_value.values
    items.add().bool_value = flag
    span.events.add(name=text, time_unix_nano=5).attributes.add(key="k").value.bool_value = flag
    span.links.add(trace_id=span.trace_id, span_id=span.span_id)
    span.status.code, span.status.message = 2, text
    request: ExportTraceServiceRequest = request_of(span)
    group = request.resource_spans[0]
    document = {"resourceSpans": [otlp_json.resource_spans_json(group.resource, group.scope_spans[0].scope, [span])]}
    assert otlp_json.request_of(json.loads(json.dumps(document))) == request
