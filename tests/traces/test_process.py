"""The collector as a process: ready line, clean ends with everything stored, bad arguments, the viewer's page."""

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from collector_process import ROOT, Running
from opentelemetry.trace import set_span_in_context
from otlp_samples import new_span, post, produce_requests, send

from traces.client import JaegerClient
from traces.wiring import configure

Start = Callable[..., Running]


def stored(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM spans").fetchone()[0])
    finally:
        connection.close()


def test_it_ends_with_its_control_pipe_and_leaves_one_file(start_collector: Start) -> None:
    running = start_collector()
    send(running.url, new_span())
    assert running.end() == 0
    assert stored(running.store) == 1
    assert [path.name for path in running.store.parent.iterdir()] == ["traces.db"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_on_signals_with_all_it_acknowledged_stored(start_collector: Start, number: signal.Signals) -> None:
    running = start_collector()
    bodies = [body for seed in range(4) for body in produce_requests(200, random.Random(seed), time.time_ns())]
    taken: list[int] = []

    def sender() -> None:
        for body in bodies:
            try:
                taken.append(post(running.url, body)[0])
            except OSError:
                return

    thread = threading.Thread(target=sender)
    thread.start()
    while len(taken) < 2:
        time.sleep(0.001)
    running.process.send_signal(number)
    assert running.process.wait(20) == 0
    thread.join()
    acknowledged = sum(count for count, status in zip((800, 600) * 4, taken, strict=False) if status == 200)
    assert stored(running.store) >= acknowledged > 0


def test_spans_acknowledged_before_a_kill_are_there_after_it(start_collector: Start) -> None:
    running = start_collector()
    spans = [new_span() for _ in range(50)]
    for span in spans:
        send(running.url, span)
    running.process.kill()
    running.process.wait()
    again = start_collector()
    assert again.stats()["spans"] == 50


def test_a_recorder_outlives_its_collectors_restart_without_loss(start_collector: Start) -> None:
    running = start_collector()
    port = running.url.rpartition(":")[2]
    provider = configure("patient", running.url, install=False, environ={})
    tracer = provider.get_tracer("tests")
    tracer.start_span("before").end()
    assert provider.force_flush(20_000)
    running.end()
    root = tracer.start_span("root")
    tracer.start_span("child", set_span_in_context(root)).end()
    root.end()
    again = start_collector("--port", port)
    assert provider.force_flush(20_000)
    trace = JaegerClient(again.url).trace(f"{root.get_span_context().trace_id:032x}")
    assert trace.chain() == ["root", "child"]
    assert again.stats()["spans"] == 3
    assert (provider.stats().exported, provider.stats().dropped) == (3, 0)
    provider.shutdown()


def test_what_a_recorder_dropped_is_in_the_statistics(start_collector: Start) -> None:
    running = start_collector()
    environ = {"OTEL_BSP_MAX_QUEUE_SIZE": "5", "OTEL_BSP_SCHEDULE_DELAY": "60000"}
    provider = configure("small", running.url, install=False, environ=environ)
    tracer = provider.get_tracer("tests")
    for _ in range(8):
        tracer.start_span("work").end()
    assert provider.force_flush(20_000)
    stats = running.stats()
    assert (stats["spans"], stats["dropped"]) == (5, 3)
    provider.shutdown()


def test_it_listens_on_loopback_only(start_collector: Start) -> None:
    running = start_collector()
    listening = [
        item.laddr for item in psutil.Process(running.process.pid).net_connections() if item.status == "LISTEN"
    ]
    assert len(listening) == 2
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_without_a_file_the_store_is_temporary(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "traces", "--control-pipe"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert Path(said["store"]).is_relative_to(tmp_path)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "70000"], "no port"),
        (["--max-bytes", "0"], "above 0"),
        (["--retention-hours", "never"], "above 0"),
        (["--store", "/proc/nothing/traces.db"], "--store"),
    ],
)
def test_bad_arguments_are_said_in_one_line(arguments: list[str], message: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "traces", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_a_port_in_use_is_said(option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "traces", option, str(taken.getsockname()[1])]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert f"choose another {option}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_viewers_page_and_files_are_served(start_collector: Start) -> None:
    running = start_collector()
    for path in ("/", "/viewer/viewer.js", "/viewer/viewer.css"):
        with urllib.request.urlopen(running.url + path, timeout=20) as answer:
            assert answer.status == 200
            assert answer.read()
            assert answer.headers.get("Cache-Control", "no-cache") == "no-cache"


def test_numbers_that_a_browser_reads_wrongly_are_text(start_collector: Start) -> None:
    running = start_collector()
    large = new_span("large")
    for key, number in (("safe", 2**53 - 1), ("beyond", 2**53), ("below", -(2**63))):
        large.attributes.add(key=key).value.int_value = number
    send(running.url, large)
    [trace] = running.get(f"/api/traces/{large.trace_id.hex()}")["data"]
    tags = {tag["key"]: (tag["type"], tag["value"]) for tag in trace["spans"][0]["tags"]}
    assert tags["safe"] == ("int64", 2**53 - 1)
    assert tags["beyond"] == ("int64", str(2**53))
    assert tags["below"] == ("int64", str(-(2**63)))
    assert JaegerClient(running.url).trace(large.trace_id.hex()).root.attributes["beyond"] == 2**53


def test_a_long_lived_client_makes_no_giant_trace(start_collector: Start) -> None:
    """10,000 requests on one connection, each its own trace that links to the connection's first span."""
    running = start_collector()
    provider = configure("gateway", running.url, install=False, environ={})
    tracer = provider.get_tracer("tests")
    accept = tracer.start_span("gateway.kafka.connect")
    accept.end()
    for _ in range(10_000):
        connect = tracer.start_span("gateway.kafka.connect", attributes={"connection.reused": True})
        connect.add_link(accept.get_span_context())
        tracer.start_span("gateway.kafka.request", set_span_in_context(connect)).end()
        connect.end()
    assert provider.force_flush(30_000)
    assert provider.stats().dropped == 0
    stats = running.stats()
    assert (stats["spans"], stats["traces"]) == (20_001, 10_001)
    summaries = running.get("/api/v3/trace-summaries?query.service_name=gateway&query.num_traces=200")["summaries"]
    assert {summary["spanCount"] for summary in summaries} == {2}
    provider.shutdown()
