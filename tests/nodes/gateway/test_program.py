"""`python -m nodes.gateway` as a program: the ready line, what keeps it from starting, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gateway_cluster import ROOT, Cluster, running
from kafka_wire import Client, batch, create, produce_request

NOWHERE = "0=" + "0" * 64 + "@127.0.0.1:1"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodes.gateway", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)


def test_the_ready_line_says_who_and_where(gateway: Cluster) -> None:
    said = gateway.gateway.said
    assert said["name"] == "gateway-0"
    assert said["role"] == "gateway"
    assert said["pid"] == gateway.gateway.process.pid
    assert len(said["node_id"]) == 64
    assert said["mesh"][0].startswith("127.0.0.1:")
    assert said["listen"] == gateway.bootstrap


def test_a_taken_port_is_one_sentence_and_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--name", "g", "--data", str(tmp_path), "--listen", f"127.0.0.1:{port}", "--broker", NOWHERE)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"port {port} of 127.0.0.1 is taken" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_one_sentence_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = run("--name", "g", "--data", str(tmp_path / "file" / "data"), "--listen", "127.0.0.1:0", "--broker", NOWHERE)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written to" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--broker", "nonsense"], "INDEX=NODE_ID@ADDRESS"),
        (["--broker", "1=" + "0" * 64 + "@127.0.0.1:1"], "--broker 0 is missing"),
        (["--broker", NOWHERE, "--broker", NOWHERE], "given twice"),
        (["--broker", NOWHERE, "--listen", "9092"], "--listen must be HOST:PORT"),
        (["--broker", NOWHERE, "--listen", "0.0.0.0:0"], "name one with --advertise"),
        (["--broker", NOWHERE, "--advertise", "host"], "--advertise must be HOST:PORT"),
    ],
)
def test_settings_that_make_no_sense_are_named(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    done = run("--name", "g", "--data", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_settings_file_gives_the_flags_and_its_mistakes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"name": "g", "data": str(tmp_path / "d"), "broker": ["nonsense"]}))
    assert "INDEX=NODE_ID@ADDRESS" in run("--settings", str(file)).stderr
    file.write_text(json.dumps({"nam": "g"}))
    assert "'nam', which is not a setting" in run("--settings", str(file)).stderr
    file.write_text("{")
    assert "cannot be read" in run("--settings", str(file)).stderr


def test_sigterm_answers_what_is_at_work_and_ends_with_code_0(tmp_path: Path) -> None:
    with running(tmp_path) as cluster, Client(cluster.port) as client:
        topic = create(client, prefix="slow")
        sent = client.send(produce_request(topic, 0, batch(b"x")), 9)
        time.sleep(0.2)
        cluster.gateway.process.send_signal(signal.SIGTERM)
        correlation, _ = client.receive()
        assert correlation == sent
        assert client.is_closed()
        assert cluster.gateway.process.wait(15) == 0


def test_the_program_ends_with_its_control_pipe(tmp_path: Path) -> None:
    with running(tmp_path, extra=("--control-pipe",)) as cluster:
        assert cluster.gateway.process.stdin is not None
        cluster.gateway.process.stdin.close()
        assert cluster.gateway.process.wait(15) == 0


def test_the_advertised_address_is_what_clients_are_told(tmp_path: Path) -> None:
    from kafka.protocol.metadata import MetadataRequest

    with running(tmp_path, extra=("--advertise", "kafka.example:19092")) as cluster, Client(cluster.port) as client:
        (broker,) = client.call(MetadataRequest(topics=[]), 5).brokers
        assert (broker.host, broker.port) == ("kafka.example", 19092)


def test_log_lines_go_to_the_file_that_is_named(tmp_path: Path) -> None:
    log = tmp_path / "named.log"
    with running(tmp_path, extra=("--log", str(log))) as cluster, Client(cluster.port) as client:
        client.socket.sendall(b"\xff\xff\xff\xff")
        assert client.is_closed()
        cluster.gateway.end(signal.SIGTERM)
    assert "announces -1 bytes" in log.read_text()
    assert "stopped: {" in log.read_text()
