"""The embedded store against a real Jaeger: both get the same spans, and must give the same answers."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_process import Running
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import new_span, send

from traces.client import JaegerClient
from traces.errors import ConfigurationError, JaegerError
from traces.jaeger_program import JaegerPlace, JaegerProgram, find_program, find_url

READY_SECONDS = 20


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
    child.links.add(trace_id=bytes(range(16)), span_id=bytes(range(1, 9)))
    return parent, child


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())


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


def test_both_stores_answer_the_same(collector: Running, name: str, place: JaegerPlace) -> None:
    parent, child = one_call()
    for url in (collector.url, place.otlp):
        send(url, parent, service="caller")
        send(url, child, service="called")
    ours, theirs = JaegerClient(collector.url), JaegerClient(place.url)
    trace_id = parent.trace_id.hex()
    theirs.trace(trace_id, wait=READY_SECONDS, spans=2)
    for path in (f"/api/traces/{trace_id}", "/api/services/called/operations"):
        assert v1(collector.url + path) == v1(place.url + path)
    if name == "jaeger":
        # Version 1 keeps spans in its own model, and its v3 answers have lost what that cannot hold.
        path = f"/api/v3/traces/{trace_id}"
        assert by_key(get(collector.url + path)) == by_key(get(place.url + path))
        assert ours.trace(trace_id).spans == theirs.trace(trace_id).spans
    assert str(ours.trace(trace_id)) == str(theirs.trace(trace_id))
    assert set(theirs.services()) <= set(ours.services())
    assert ours.operations("caller") == theirs.operations("caller") == ["ask"]
    assert ("caller", "called", 1) in theirs.dependencies()
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
    for service in ("caller", "called", "nobody"):
        for query in queries:
            found = [
                trace_id in {trace.trace_id for trace in client.search(service, **query)} for client in (ours, theirs)
            ]
            assert found[0] == found[1], (service, query)


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
