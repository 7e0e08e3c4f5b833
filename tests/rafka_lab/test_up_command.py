"""`rafka-lab up`: one line of JSON, one sentence for what goes wrong, and no process left."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from rafka_lab.traces_view import Traces
from traces import names

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


def up(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    program = "import sys; from lab.command import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", program, "up", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )


def fails(*arguments: str) -> str:
    """What it says, which must be one sentence."""
    process = up(*arguments)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert out == ""
    assert errors.count("\n") == 1
    assert errors.startswith("rafka-lab up: ")
    return errors


def ready(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_json_is_one_line_and_a_signal_ends_all_nodes(tmp_path: Path, number: signal.Signals) -> None:
    process = up("--json", "--port", "0", "--brokers", "2", "--data", str(tmp_path / "data"))
    said = ready(process)
    assert set(said) >= {"bootstrap", "data", "nodes", "traces"}
    assert said["data"] == str(tmp_path / "data")
    assert [(node["name"], node["role"]) for node in said["nodes"]] == [
        ("broker-0", "broker"),
        ("broker-1", "broker"),
        ("gateway", "gateway"),
    ]
    for node in said["nodes"]:
        assert len(node["node_id"]) == 64
        assert node["mesh"][0].startswith("127.0.0.1:")
        assert psutil.pid_exists(node["pid"])
    producer = Producer({"bootstrap.servers": said["bootstrap"], "log_level": 0})
    producer.produce("t", b"x")
    assert producer.flush(PATIENCE) == 0
    assert Traces(said["traces"]).last("produce").find(names.PRODUCE_STORE)
    process.send_signal(number)
    out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, errors) == (0, "", "")
    assert not any(psutil.pid_exists(node["pid"]) for node in said["nodes"])


def test_without_json_a_person_can_read_it() -> None:
    process = up("--port", "0")
    assert process.stdout is not None
    lines = list(iter(process.stdout.readline, "Ctrl-C ends all of it.\n"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert lines[0].startswith("bootstrap 127.0.0.1:")
    assert any(line.startswith("broker-0 ") for line in lines)


def test_spans_that_a_variable_sends_elsewhere_are_a_warning_on_stderr() -> None:
    process = up("--json", "--port", "0", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    ready(process)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, errors.count("\n")) == (0, "", 1)
    assert errors.startswith("rafka-lab: warning: spans go to http://127.0.0.1:9/v1/traces")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in errors


def test_what_keeps_it_from_starting_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "is taken" in fails("--port", str(taken.getsockname()[1]))
    (tmp_path / "file").touch()
    assert "cannot be used" in fails("--port", "0", "--data", str(tmp_path / "file" / "x"))
    holder = up("--json", "--port", "0", "--data", str(tmp_path / "data"))
    ready(holder)
    assert f"in use by process {holder.pid}" in fails("--port", "0", "--data", str(tmp_path / "data"))
    holder.terminate()
    holder.communicate(timeout=PATIENCE)


def test_a_node_that_crashes_ends_it_with_the_nodes_last_lines() -> None:
    process = up("--json", "--port", "0")
    said = ready(process)
    os.kill(said["nodes"][0]["pid"], signal.SIGKILL)
    began = time.monotonic()
    _, errors = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < PATIENCE
    assert process.returncode == 1
    assert "broker-0" in errors
    assert "RecoveryReport" in errors
