"""The embedded store against a real Jaeger: both get the same spans, and must give the same answers."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from collector_process import Running
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import new_span, send

from traces.client import JaegerClient
from traces.errors import ConfigurationError, JaegerError
from traces.jaeger_program import JaegerPlace, JaegerProgram, find_program, find_url

READY_SECONDS = 20
MISSING = "ab" * 16


@pytest.fixture(scope="module", params=["jaeger", "jaeger-all-in-one"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place(name: str, program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[JaegerPlace]:
    jaeger = JaegerProgram(Path(program(name)), tmp_path_factory.mktemp("jaeger"))
    yield jaeger.wait_ready()
    jaeger.stop()


def one_call() -> tuple[Span, Span]:
    begin = time.time_ns() // 1000 * 1000
    parent = new_span("ask", start=begin, length=5_000_000)
    parent.kind = Span.SPAN_KIND_CLIENT
    for key, value in (("text", "ü"), ("other", "x")):
        parent.attributes.add(key=key).value.string_value = value
    parent.attributes.add(key="count").value.int_value = 3
    parent.attributes.add(key="real").value.double_value = 1.5
    parent.attributes.add(key="yes").value.bool_value = True
    parent.attributes.add(key="raw").value.bytes_value = b"\x00\xff"
    items = parent.attributes.add(key="list").value.array_value.values
    items.add().string_value = "a"
    items.add().int_value = 2
    child = new_span("answer", parent.trace_id, parent.span_id, begin + 1000, 2_000_000)
    child.kind = Span.SPAN_KIND_SERVER
    child.status.code, child.status.message = Span().status.STATUS_CODE_ERROR, "failed"
    child.events.add(name="retry", time_unix_nano=begin + 2000).attributes.add(key="n").value.int_value = 1
    child.links.add(trace_id=bytes(range(16)), span_id=bytes(range(1, 9)), dropped_attributes_count=1)
    child.dropped_attributes_count, child.dropped_events_count, child.dropped_links_count = 2, 3, 4
    return parent, child


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())


def answer(url: str) -> tuple[int, Any]:
    """The status, and the document if the body is one."""
    try:
        with urllib.request.urlopen(url, timeout=20) as found:
            status, body = found.status, found.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    return status, json.loads(body) if body.startswith(b"{") else body


def by_key(document: Any) -> Any:
    """Jaeger orders attributes by key and counts nothing in `total`; the order means nothing."""
    if isinstance(document, dict):
        return {name: by_key(value) for name, value in document.items() if name != "total"}
    if isinstance(document, list):
        return sorted((by_key(item) for item in document), key=lambda item: json.dumps(item, sort_keys=True))
    return document


def v1(url: str) -> Any:
    """An answer of the first API; which process has which number is Jaeger's whim, so spans name their service."""
    document = get(url)
    for found in document["data"]:
        if isinstance(found, dict):
            processes = found["processes"]
            for span in found["spans"]:
                span["processID"] = processes[span["processID"]]["serviceName"]
            found["processes"] = list(processes.values())
    return by_key(document)


@dataclass(frozen=True)
class Sent:
    """One call between two services that only this Jaeger's tests use."""

    trace_id: str
    caller: str
    called: str


@pytest.fixture(scope="module")
def sent(collector: Running, name: str, place: JaegerPlace) -> Sent:
    parent, child = one_call()
    note = new_span("note", parent.trace_id, child.span_id, child.start_time_unix_nano + 1000, 1000)
    note.kind = Span.SPAN_KIND_UNSPECIFIED
    made = Sent(parent.trace_id.hex(), f"caller-{name}", f"called-{name}")
    for url in (collector.url, place.otlp):
        send(url, parent, service=made.caller)
        send(url, child, note, service=made.called)
    JaegerClient(place.url).trace(made.trace_id, wait=READY_SECONDS, spans=3)
    return made


def test_both_stores_answer_the_same(collector: Running, name: str, place: JaegerPlace, sent: Sent) -> None:
    ours, theirs = JaegerClient(collector.url), JaegerClient(place.url)
    for path in (f"/api/traces/{sent.trace_id}", f"/api/services/{sent.called}/operations"):
        assert v1(collector.url + path) == v1(place.url + path)
    if name == "jaeger":
        # Version 1 keeps spans in its own model, and its v3 answers have lost what that cannot hold.
        path = f"/api/v3/traces/{sent.trace_id}"
        assert by_key(get(collector.url + path)) == by_key(get(place.url + path))
        assert ours.trace(sent.trace_id).spans == theirs.trace(sent.trace_id).spans
    assert str(ours.trace(sent.trace_id)) == str(theirs.trace(sent.trace_id))
    assert set(theirs.services()) <= set(ours.services())
    assert ours.operations(sent.caller) == theirs.operations(sent.caller) == ["ask"]
    for client in (ours, theirs):
        assert (sent.caller, sent.called, 1) in client.dependencies()


def test_operations_have_the_same_names_and_kinds(collector: Running, place: JaegerPlace, sent: Sent) -> None:
    for path in (
        f"/api/operations?service={sent.called}",
        f"/api/operations?service={sent.called}&spanKind=server",
        f"/api/operations?service={sent.called}&spanKind=internal",
        f"/api/operations?service={sent.called}&spanKind=unspecified",
    ):
        assert by_key(get(collector.url + path)) == by_key(get(place.url + path))
    for path in (
        f"/api/v3/operations?service={sent.called}",
        f"/api/v3/operations?service={sent.called}&span_kind=server",
        "/api/v3/operations?service=nobody",
    ):
        # Jaeger leaves out a kind that is not set; its UI reads that as the empty text, which is what we write.
        ours, theirs = (
            sorted((found["name"], found.get("spanKind", "")) for found in get(url + path)["operations"])
            for url in (collector.url, place.url)
        )
        assert ours == theirs


def test_searches_by_the_client_find_the_same(collector: Running, place: JaegerPlace, sent: Sent) -> None:
    ours, theirs = JaegerClient(collector.url), JaegerClient(place.url)
    queries: list[dict[str, Any]] = [
        {},
        {"operation": "ask"},
        {"operation": "absent"},
        {"tags": {"text": "ü", "count": 3}},
        {"tags": {"yes": True}},
        {"tags": {"real": 1.5}},
        {"tags": {"text": "absent"}},
        {"min_duration": 0.004},
        {"min_duration": 0.006},
        {"max_duration": 0.004},
        {"start": time.time() - 3600},
        {"end": time.time() - 3600},
    ]
    for service in (sent.caller, sent.called, "nobody"):
        for query in queries:
            found = [
                sent.trace_id in {trace.trace_id for trace in client.search(service, **query)}
                for client in (ours, theirs)
            ]
            assert found[0] == found[1], (service, query)


def v3_search(**query: str) -> str:
    """Parameters in Jaeger's spelling; it wants the times and the number."""
    needed = {"start_time_min": "2000-01-01T00:00:00Z", "start_time_max": "2200-01-01T00:00:00Z", "num_traces": "20"}
    return urlencode({f"query.{key}": value for key, value in (needed | query).items()})


def test_searches_have_the_same_bodies(collector: Running, name: str, place: JaegerPlace, sent: Sent) -> None:
    for query in (
        {"service": sent.caller},
        {"service": sent.called, "operation": "answer", "limit": "5", "lookback": "1h"},
        {"service": sent.caller, "tags": '{"text":"ü"}', "minDuration": "1ms", "maxDuration": "1s"},
        {"service": sent.caller, "operation": "absent"},
        {"service": "nobody"},
        {"traceID": sent.trace_id},
    ):
        path = f"/api/traces?{urlencode(query)}"
        assert v1(collector.url + path) == v1(place.url + path)
    if name == "jaeger":
        for query in (
            {"service_name": sent.caller},
            {"service_name": sent.called, "operation_name": "answer", "duration_min": "1ms", "duration_max": "1s"},
        ):
            path = f"/api/v3/traces?{v3_search(**query)}"
            assert by_key(get(collector.url + path)) == by_key(get(place.url + path))


def test_summaries_are_the_same(collector: Running, place: JaegerPlace, sent: Sent) -> None:
    path = f"/api/v3/trace-summaries?{v3_search(service_name=sent.called)}"
    status, theirs = answer(place.url + path)
    if not isinstance(theirs, dict):
        pytest.skip("this Jaeger has no trace-summaries; it answers with its page")
    assert status == 200
    [found], [expected] = get(collector.url + path)["summaries"], theirs["summaries"]
    # The id has had two spellings; we write both.
    assert by_key(expected).items() <= by_key(found).items()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"/api/traces/{MISSING}", "trace not found"),
        ("/api/traces/xyz", None),
        (f"/api/traces/{MISSING}0", None),
        ("/api/traces?traceID=zz", None),
        ("/api/traces", "parameter 'service' is required"),
        ("/api/operations", "parameter 'service' is required"),
        ("/api/traces?service=s&limit=many", None),
        ("/api/traces?service=s&start=now", None),
        ("/api/traces?service=s&minDuration=fast", None),
        ("/api/traces?service=s&minDuration=2s&maxDuration=1s", "'maxDuration' should be greater than 'minDuration'"),
        ("/api/traces?service=s&tags=notjson", None),
        ("/api/traces?service=s&tag=nocolon", None),
        ("/api/dependencies?endTs=soon", None),
        (f"/api/v3/traces/{MISSING}", "No traces found"),
        ("/api/v3/traces/xyz", None),
        (f"/api/v3/traces?{v3_search(service_name='nobody')}", "No traces found"),
        (f"/api/v3/traces?{v3_search(num_traces='many')}", None),
        (f"/api/v3/traces?{v3_search(duration_min='fast')}", None),
        (f"/api/v3/traces?{v3_search(start_time_min='yesterday')}", None),
    ],
)
def test_errors_have_the_same_status_and_shape(
    collector: Running, place: JaegerPlace, path: str, message: str | None
) -> None:
    """And the same words, where a program may look for them; ours say more of what to do."""
    ours, theirs = answer(collector.url + path), answer(place.url + path)
    said = []
    for _, document in (ours, theirs):
        details = document["error"] if "/v3/" in path else document["errors"][0]
        said.append(details.pop("message" if "/v3/" in path else "msg"))
    assert ours == theirs
    assert all(said)
    if message is not None:
        assert said == [message, message]


def test_missing_traces_are_named(collector: Running, place: JaegerPlace, sent: Sent) -> None:
    path = f"/api/traces?traceID={sent.trace_id}&traceID={MISSING}"
    (ours,), (theirs,) = (get(url + path)["errors"] for url in (collector.url, place.url))
    assert theirs.items() <= ours.items()
    assert ours["traceID"] == MISSING


def test_a_jaeger_is_found_by_its_url() -> None:
    assert find_url({}) is None
    assert find_url({"JAEGER_URL": "http://h:16686/"}) == JaegerPlace("http://h:16686", "http://h:4318")
    given = {"JAEGER_URL": "https://h/jaeger", "JAEGER_OTLP_URL": "https://h/otlp"}
    assert find_url(given) == JaegerPlace("https://h/jaeger", "https://h/otlp")
    with pytest.raises(ConfigurationError, match="JAEGER_URL"):
        find_url({"JAEGER_URL": "jaeger:16686"})


def test_a_jaeger_is_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program() is None
    program = tmp_path / "jaeger-all-in-one"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program() == program


def test_a_program_that_ends_at_once_is_said_with_its_log(tmp_path: Path) -> None:
    program = tmp_path / "jaeger"
    program.write_text("#!/bin/sh\necho this cannot work >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(JaegerError, match=r"ended with 3(.|\n)*this cannot work"):
        JaegerProgram(program, tmp_path).wait_ready()
