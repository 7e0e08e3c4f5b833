"""Tracing: what a span costs the one who records it, and how fast the collector stores and answers.

The collector is a real process, bound to one core. Absolute figures depend on the machine: read the ratios first.
"""

import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
from opentelemetry.trace import set_span_in_context

from rafka_lab.bench.bench import Bench
from rafka_lab.bench.report import Report
from rafka_lab.node import process_environment
from traces import names, protobuf
from traces.wiring import configure

QUICK_SPANS, FULL_SPANS = 100_000, 1_000_000
TRACES_A_REQUEST = 1000
SENDERS = 2
RECORDED = 8000
ROUNDS = 5
CALLS = 15
LARGE_TRACE = 1000


class Collector:
    """A collector process on one core."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "traces", "--control-pipe", "--store", str(folder / "traces.db")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=process_environment()
        )
        assert self._process.stdout is not None
        self.url: str = json.loads(self._process.stdout.readline())["traces"]
        self._seen = psutil.Process(self._process.pid)
        self._seen.cpu_affinity([0])

    def cpu(self) -> float:
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            body: bytes = answer.read()
            return body

    def post(self, bodies: list[bytes]) -> None:
        """Sends over one connection, one after the other."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        for body in bodies:
            connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
            with connection.getresponse() as answer:
                said = answer.read()
            if answer.status != 200 or said:
                raise RuntimeError(f"the collector answered {answer.status} {said!r}")
        connection.close()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def collector() -> Iterator[Collector]:
    with tempfile.TemporaryDirectory() as folder:
        running = Collector(Path(folder))
        try:
            yield running
        finally:
            running.end()


@contextmanager
def swallower() -> Iterator[str]:
    """An OTLP server that throws everything away: only the recorder's own cost is left."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def span_cost(url: str, mode: str) -> tuple[float, float]:
    """(microseconds inline, microseconds of CPU in all) of one span with five attributes."""
    provider = configure("bench", url, install=False, environ={"RAFKA_TRACES": mode})
    tracer = provider.get_tracer("bench")
    context = set_span_in_context(tracer.start_span("root"))
    attributes: dict[str, str | int] = {names.MESH_OP_CODE: 2, names.MESH_ORG_ID: 1, names.KAFKA_TOPIC: "orders"}
    attributes[names.KAFKA_PARTITION] = 3
    inline = []
    cpu = time.process_time()
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for number in range(RECORDED):
            span = tracer.start_span(names.MESH_SENT, context, attributes=attributes)
            span.set_attribute(names.MESH_REQUEST_ID, number)
            span.end()
        inline.append((time.thread_time() - begin) / RECORDED)
        provider.force_flush()
    total = (time.process_time() - cpu) / (RECORDED * ROUNDS)
    stats = provider.stats()
    provider.shutdown()
    if (stats.exported, stats.dropped) != (RECORDED * ROUNDS, 0):
        raise RuntimeError(f"{mode} lost spans: {stats}")
    return min(inline) * 1e6, total * 1e6


def recorder(report: Report) -> None:
    with swallower() as url:
        light, light_cpu = span_cost(url, "light")
        sdk, sdk_cpu = span_cost(url, "sdk")
    report.at_most("light recorder, a span inline", light, 3, "us", f"{light_cpu:.1f} us of CPU in all")
    report.figure("OpenTelemetry SDK, a span inline", sdk, "us", f"{sdk_cpu:.1f} us of CPU in all")
    report.at_least("SDK against light recorder, inline", sdk / light, 4)
    report.at_least("SDK against light recorder, CPU in all", sdk_cpu / light_cpu, 3)


def produces(count: int, rng: random.Random, start: int) -> list[bytes]:
    """The gateway's and the broker's request with the seven spans of each of so many produces."""
    requests: dict[str, list[bytes]] = {"gateway": [], "broker": []}
    for number in range(count):
        trace_id, request_id, parent = rng.getrandbits(128), rng.getrandbits(40), 0
        attributes = {
            names.MESH_OP_CODE: 2,
            names.MESH_REQUEST_ID: request_id,
            names.MESH_ORG_ID: 1,
            names.KAFKA_TOPIC: f"topic-{request_id % 50}",
            names.KAFKA_PARTITION: request_id % 8,
            names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA,
        }
        for at, name in enumerate(names.PRODUCE_CHAIN):
            span_id, begin = rng.getrandbits(64) or 1, start + number * 300_000 + at * 1000
            end = begin + rng.randrange(1000, 1_000_000)
            ids = (trace_id, span_id, parent, "", 0x101)
            message = protobuf.span(*ids, name, at % 3 + 1, begin, end, attributes, (), (), b"")
            requests["broker" if name in names.PRODUCE_CHAIN[3:6] else "gateway"].append(message)
            parent = span_id
    return [request(service, spans) for service, spans in requests.items()]


def request(service: str, spans: list[bytes]) -> bytes:
    scope = protobuf.scope("bench", "", None)
    return protobuf.export_request(protobuf.resource({"service.name": service}), [(scope, "", spans)])


def fill(report: Report, running: Collector, spans: int) -> None:
    rng = random.Random(1)
    begin = time.time_ns() - 3600 * 10**9
    sent, wall, before = 0, 0.0, running.cpu()
    while sent < spans:
        chunks = [produces(TRACES_A_REQUEST, rng, begin + sent * 40_000 + at * 1000) for at in range(2 * SENDERS)]
        threads = [
            threading.Thread(target=running.post, args=([body for chunk in chunks[at::SENDERS] for body in chunk],))
            for at in range(SENDERS)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall += time.perf_counter() - started
        sent += len(chunks) * TRACES_A_REQUEST * len(names.PRODUCE_CHAIN)
    stats = json.loads(running.get("/api/stats"))
    per_cpu = sent / (running.cpu() - before)
    # Of its own CPU: other programs on the core are not its fault, and the wall clock is shown beside.
    report.at_least(
        "collector, spans a second of one core", per_cpu, 20_000, "span/s", f"{sent / wall:,.0f} by the clock"
    )
    report.at_most("spans lost on the way", sent - stats["spans"], 0, "spans", f"{sent:,} sent")


def answers_within(report: Report, running: Collector, name: str, path: str, target: float) -> None:
    """The median of some calls over HTTP, beside the slowest: on a shared machine that one is often not the store's."""
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        running.get(path)
        times.append((time.perf_counter() - started) * 1e3)
    report.at_most(name, statistics.median(times), target, "ms", f"slowest of {CALLS}: {max(times):.0f} ms")


def searches(report: Report, running: Collector, spans: int) -> None:
    newest = json.loads(running.get("/api/traces?service=broker&limit=1"))["data"][0]["spans"][0]
    request_id = next(tag["value"] for tag in newest["tags"] if tag["key"] == names.MESH_REQUEST_ID)
    rare = quote(json.dumps({names.MESH_REQUEST_ID: str(request_id)}))
    common = quote(json.dumps({names.KAFKA_TOPIC: "topic-7", names.KAFKA_PARTITION: "3"}))
    for name, query in {
        "by service": "service=gateway",
        "by operation": f"service=broker&operation={names.PRODUCE_STORE}",
        "by a duration that none has": "service=gateway&minDuration=10s",
        "by a tag that one trace has": f"service=broker&tags={rare}",
        "by two common tags": f"service=broker&tags={common}",
        "by errors where there are none": "service=broker&tags=" + quote('{"error":"true"}'),
    }.items():
        answers_within(report, running, f"search over {spans:,} spans {name}", f"/api/traces?{query}&limit=20", 200)
    path = "/api/v3/trace-summaries?query.service_name=gateway&query.num_traces=100"
    answers_within(report, running, f"100 summaries out of {spans:,} spans", path, 200)


def large_trace(report: Report, running: Collector) -> None:
    rng = random.Random(2)
    trace_id, start = rng.getrandbits(128), time.time_ns()
    attributes = {names.KAFKA_TOPIC: "orders", names.KAFKA_PARTITION: 3, names.MESH_OP_CODE: 2, names.MESH_ORG_ID: 1}
    root = rng.getrandbits(64)
    spans = [
        protobuf.span(
            trace_id,
            root + at,
            root if at else 0,
            "",
            0x101,
            "work",
            1,
            start + at,
            start + at + 99,
            attributes,
            (),
            (),
            b"",
        )
        for at in range(LARGE_TRACE)
    ]
    running.post([request("large", spans)])
    for version in ("/api/traces", "/api/v3/traces"):
        path = f"{version}/{trace_id:032x}"
        answers_within(report, running, f"a trace of 1,000 spans, {version}", path, 50)


def run(bench: Bench) -> None:
    report = bench.report
    spans = QUICK_SPANS if bench.quick else FULL_SPANS
    recorder(report)
    with collector() as running:
        fill(report, running, spans)
        searches(report, running, spans)
        large_trace(report, running)
