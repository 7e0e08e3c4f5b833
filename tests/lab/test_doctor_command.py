"""`rafka-lab doctor` says what is there and how to get the rest."""

import json
import socket
from pathlib import Path

import pytest

from lab.command import main
from lab.doctor_command import KAFKA_PORT


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    main(["doctor", "--json"])
    return {line["what"]: line for line in json.loads(capsys.readouterr().out)}


def test_what_is_needed_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "python" in said
    found = findings(capsys)
    assert {"confluent-kafka", "iroh", "java", "kcat", "jaeger", "browser", f"port {KAFKA_PORT}"} <= set(found)
    assert all(line["state"] in ("ok", "note") for line in found.values())


def test_what_is_missing_comes_with_a_hint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("JAEGER_URL", raising=False)
    found = findings(capsys)
    for what, hint in {
        "java": "openjdk",
        "kcat": "apt install kcat",
        "maven": "apt install maven",
        "jaeger": "JAEGER_URL",
        "browser": "open",
    }.items():
        assert found[what]["state"] == "note"
        assert hint in found[what]["hint"]


def test_a_wrong_setting_and_a_taken_port_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAEGER_URL", "nonsense")
    assert main(["doctor"]) == 1
    capsys.readouterr()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", KAFKA_PORT))
            taken.listen()
        except OSError:
            pass  # somebody has it already, which serves as well
        found = findings(capsys)
    assert found["jaeger"]["state"] == "missing"
    assert "rafka-lab up --port 0" in found[f"port {KAFKA_PORT}"]["hint"]
