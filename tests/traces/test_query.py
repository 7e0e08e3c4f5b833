"""Jaeger's query API and the one client for it, against a real collector process."""

import json
import secrets
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from collector_process import Running
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import new_span, post, request_of, send

from traces import otlp_json, params
from traces.client import JaegerClient
from traces.errors import JaegerError, QueryError, TraceNotFoundError

SECOND = 10**9


class OnlyV1(JaegerClient):
    """As if the server had no API v3."""

    def _v3(self) -> bool:
        return False


@pytest.fixture(params=[JaegerClient, OnlyV1], ids=["v3", "v1"])
def client(request: pytest.FixtureRequest, collector: Running) -> JaegerClient:
    made: JaegerClient = request.param(collector.url)
    return made


def call(collector: Running) -> tuple[str, str, Span, Span]:
    """Two services with names of their own, and one call between them."""
    caller, called = (f"{role}-{secrets.token_hex(4)}" for role in ("caller", "called"))
    parent = new_span("ask", length=5_000_000)
    child = new_span("answer", parent.trace_id, parent.span_id, parent.start_time_unix_nano + 1000, 2_000_000)
    child.status.code, child.status.message = 2, "failed"
    child.attributes.add(key="topic").value.string_value = "orders"
    child.attributes.add(key="partition").value.int_value = 3
    send(collector.url, parent, service=caller)
    send(collector.url, child, service=called)
    return caller, called, parent, child


def status(collector: Running, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(collector.url + path, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_client_finds_services_operations_traces_and_dependencies(collector: Running, client: JaegerClient) -> None:
    caller, called, parent, _ = call(collector)
    assert {caller, called} <= set(client.services())
    assert client.operations(called) == ["answer"]
    trace = client.trace(parent.trace_id.hex())
    assert trace.chain() == ["ask", "answer"]
    answer = trace.find("answer")[0]
    assert (answer.service, answer.error, answer.status) == (called, True, "failed")
    assert answer.attributes == {"topic": "orders", "partition": 3}
    assert trace.parent(answer) == trace.root
    assert (caller, called, 1) in client.dependencies()


def test_the_client_searches(collector: Running, client: JaegerClient) -> None:
    caller, called, parent, _ = call(collector)
    trace_id = parent.trace_id.hex()
    now = datetime.now(UTC)

    def found(service: str, **query: Any) -> list[str]:
        return [trace.trace_id for trace in client.search(service, **query)]

    assert found(caller) == found(called) == [trace_id]
    assert found("nobody") == []
    assert found(called, operation="answer") == [trace_id]
    assert found(called, operation="ask") == []
    assert found(called, tags={"topic": "orders", "partition": 3}) == [trace_id]
    assert found(called, tags={"topic": "payments"}) == []
    assert found(called, tags={"error": True}) == [trace_id]
    assert found(caller, tags={"error": True}) == []
    assert found(caller, min_duration=timedelta(milliseconds=4)) == [trace_id]
    assert found(caller, min_duration=0.006) == []
    assert found(called, max_duration=0.003) == [trace_id]
    assert found(caller, max_duration=0.003) == []
    assert found(caller, start=now - timedelta(hours=1), end=now + timedelta(hours=1)) == [trace_id]
    assert found(caller, end=now - timedelta(hours=1)) == []
    assert found(caller, start=time.time() + 3600, end=time.time() + 7200) == []


def test_the_newest_traces_come_first_and_the_limit_holds(collector: Running, client: JaegerClient) -> None:
    service = f"many-{secrets.token_hex(4)}"
    spans = [new_span(start=time.time_ns() - age * SECOND) for age in (30, 10, 20)]
    send(collector.url, *spans, service=service)
    newest = [spans[at].trace_id.hex() for at in (1, 2, 0)]
    assert [trace.trace_id for trace in client.search(service)] == newest
    assert [trace.trace_id for trace in client.search(service, limit=2)] == newest[:2]


def test_a_trace_that_is_not_there_is_said_after_the_wait(client: JaegerClient) -> None:
    with pytest.raises(TraceNotFoundError, match="wait"):
        client.trace("ab" * 16, wait=0.1)


def test_both_apis_keep_what_they_can_of_a_span(collector: Running) -> None:
    _, _, parent, _ = call(collector)
    by_v3 = JaegerClient(collector.url).trace(parent.trace_id.hex())
    by_v1 = OnlyV1(collector.url).trace(parent.trace_id.hex())
    assert by_v3.root.start_ns == parent.start_time_unix_nano
    assert by_v1.root.start_ns == parent.start_time_unix_nano // 1000 * 1000
    assert by_v1.chain() == by_v3.chain()
    assert [span.attributes for span in by_v1.spans] == [span.attributes for span in by_v3.spans]


def test_summaries_have_what_a_list_shows(collector: Running) -> None:
    caller, called, parent, child = call(collector)
    (summary,) = collector.get(f"/api/v3/trace-summaries?query.serviceName={called}")["summaries"]
    assert summary["traceID"] == summary["traceId"] == parent.trace_id.hex()
    assert (summary["rootServiceName"], summary["rootOperationName"]) == (caller, "ask")
    assert (summary["spanCount"], summary["errorSpanCount"], summary["orphanSpanCount"]) == (2, 1, 0)
    assert summary["minStartTimeUnixNano"] == str(parent.start_time_unix_nano)
    assert summary["maxEndTimeUnixNano"] == str(parent.end_time_unix_nano)
    assert {"name": called, "spanCount": 1, "errorSpanCount": 1} in summary["services"]
    assert child.parent_span_id == parent.span_id


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/traces", 400),
        ("/api/traces?service=s&limit=many", 400),
        ("/api/traces?service=s&limit=0", 400),
        ("/api/traces?service=s&limit=99999999999999999999999", 400),
        ("/api/traces?service=s&minDuration=fast", 400),
        ("/api/traces?service=s&minDuration=2s&maxDuration=1s", 400),
        ("/api/traces?service=s&tags=notjson", 400),
        ("/api/traces?service=s&tags=[1]", 400),
        ("/api/traces?service=s&tag=nocolon", 400),
        ("/api/traces?service=s&start=20&end=10", 400),
        ("/api/traces?service=s&lookback=long", 400),
        ("/api/traces/xyz", 400),
        ("/api/traces/" + "a" * 33, 400),
        ("/api/traces/" + "a" * 32, 404),
        ("/api/traces?traceID=zz", 400),
        ("/api/operations", 400),
        ("/api/dependencies?endTs=soon", 400),
        ("/api/v3/traces?query.start_time_min=yesterday", 400),
        ("/api/v3/traces?query.service_name=nobody", 404),
        ("/api/v3/traces/12345", 404),
        ("/api/v3/traces/g", 400),
        ("/nowhere", 404),
        ("/viewer/../errors.py", 404),
        ("/viewer/%2e%2e/errors.py", 404),
        ("/viewer/__init__.py", 404),
        ("/viewer/index.html", 404),
    ],
)
def test_questions_that_mean_nothing_get_an_error_and_not_a_crash(collector: Running, path: str, code: int) -> None:
    got, said = status(collector, path)
    assert got == code, said
    assert said
    assert status(collector, "/healthz") == (200, '{"status":"ok"}')


@pytest.mark.parametrize("name", ["a/b c", "ü&?=#", "'; DROP TABLE spans; --", "%2F"])
def test_any_service_name_can_be_asked_for(collector: Running, client: JaegerClient, name: str) -> None:
    send(collector.url, new_span("odd"), service=name)
    assert name in client.services()
    assert client.operations(name) == ["odd"]
    assert client.search(name)


def test_operations_without_a_kind_have_none(collector: Running) -> None:
    service = f"kinds-{secrets.token_hex(4)}"
    span = new_span("plain")
    span.kind = Span.SPAN_KIND_UNSPECIFIED
    send(collector.url, span, new_span("inside"), service=service)
    expected = [{"name": "inside", "spanKind": "internal"}, {"name": "plain", "spanKind": ""}]
    assert collector.get(f"/api/operations?service={service}")["data"] == expected
    assert collector.get(f"/api/v3/operations?service={service}")["operations"] == expected
    assert collector.get(f"/api/operations?service={service}&spanKind=internal")["data"] == expected[:1]
    assert collector.get(f"/api/operations?service={service}&spanKind=unspecified")["data"] == []
    [shown] = collector.get(f"/api/v3/traces/{span.trace_id.hex()}")["result"]["resourceSpans"]
    assert "kind" not in shown["scopeSpans"][0]["spans"][0]


def test_v3_gives_back_all_that_was_sent(collector: Running) -> None:
    span = new_span("whole")
    span.trace_state, span.flags, span.status.code = "a=b", 0x101, Span().status.STATUS_CODE_OK
    span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count = 1, 2, 3
    span.events.add(name="happened", time_unix_nano=5, dropped_attributes_count=4)
    link = span.links.add(trace_id=b"t" * 16, span_id=b"s" * 8, trace_state="c=d", flags=1, dropped_attributes_count=5)
    link.attributes.add(key="list").value.array_value.SetInParent()
    request = request_of(span)
    group = request.resource_spans[0]
    group.schema_url, group.resource.dropped_attributes_count = "https://example.org/resource", 6
    group.scope_spans[0].schema_url = "https://example.org/scope"
    group.scope_spans[0].scope.dropped_attributes_count = 7
    assert post(collector.url, request.SerializeToString())[0] == 200
    assert otlp_json.request_of(collector.get(f"/api/v3/traces/{span.trace_id.hex()}")["result"]) == request


def test_spans_of_one_resource_are_one_process_of_v1_whatever_their_schemas(collector: Running) -> None:
    first = new_span("first")
    request = request_of(first)
    request.MergeFrom(request_of(new_span("second", first.trace_id)))
    request.resource_spans[1].schema_url = "https://example.org/resource"
    assert post(collector.url, request.SerializeToString())[0] == 200
    [trace] = collector.get(f"/api/traces/{first.trace_id.hex()}")["data"]
    assert (len(trace["spans"]), len(trace["processes"])) == (2, 1)


@pytest.mark.parametrize(
    ("number", "name"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")]
)
def test_numbers_that_json_has_not_are_their_names_in_both_apis(collector: Running, number: float, name: str) -> None:
    span = new_span()
    span.attributes.add(key="real").value.double_value = number
    listed = span.attributes.add(key="list").value
    listed.array_value.values.add().double_value = number
    listed.array_value.values.add().kvlist_value.values.add(key="in").value.double_value = number
    service = f"numbers-{secrets.token_hex(4)}"
    send(collector.url, span, service=service)
    trace_id = span.trace_id.hex()
    [by_v1] = collector.get(f"/api/traces/{trace_id}")["data"][0]["spans"]
    tags = {tag["key"]: tag for tag in by_v1["tags"]}
    assert tags["real"] == {"key": "real", "type": "float64", "value": name}
    assert json.loads(tags["list"]["value"]) == [name, {"in": name}]
    by_v3 = collector.get(f"/api/v3/traces/{trace_id}")["result"]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert by_v3["attributes"][0] == {"key": "real", "value": {"doubleValue": name}}
    for client in (JaegerClient(collector.url), OnlyV1(collector.url)):
        assert str(client.trace(trace_id).root.attributes["real"]) == str(number)
        assert [found.trace_id for found in client.search(service, tags={"real": name})] == [trace_id]


def test_traces_that_are_asked_for_and_not_there_are_named(collector: Running) -> None:
    span = new_span()
    send(collector.url, span)
    there, missing = span.trace_id.hex(), secrets.token_hex(16)
    answer = collector.get(f"/api/traces?traceID={there}&traceID={missing}&traceID=0ab")
    assert [trace["traceID"] for trace in answer["data"]] == [there]
    assert answer["errors"] == [
        {"code": 404, "msg": "trace not found", "traceID": trace_id} for trace_id in (missing, "ab".zfill(32))
    ]
    assert collector.get(f"/api/traces?traceID={there}")["errors"] is None


def test_several_traces_can_be_asked_for_by_id(collector: Running) -> None:
    spans = [new_span(), new_span()]
    send(collector.url, *spans)
    found = collector.get("/api/traces?" + "&".join(f"traceID={span.trace_id.hex()}" for span in spans))
    assert {trace["traceID"] for trace in found["data"]} == {span.trace_id.hex() for span in spans}


def test_a_server_that_is_no_jaeger_is_said(collector: Running) -> None:
    with pytest.raises(JaegerError, match="is it running"):
        JaegerClient("http://127.0.0.1:9").services()
    with pytest.raises(JaegerError):
        OnlyV1(f"{collector.url}/elsewhere").services()


@pytest.mark.parametrize(
    ("text", "expected"), [("1.5ms", 1_500_000), ("1m30s", 90 * SECOND), ("200us", 200_000), ("2d", 172_800 * SECOND)]
)
def test_durations_are_read_as_go_writes_them(text: str, expected: int) -> None:
    assert params.duration(text, "d") == expected


@pytest.mark.parametrize("text", ["", "5", "ms", "1x", "1ms ", "-1s", "9999999999999h"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(QueryError):
        params.duration(text, "d")
