"""Clusters to compare with: they serve real clients, keep their data over a kill, and end with their owner."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rafka_lab.peers import ApacheKafka, MockCluster, PeerUnavailableError, artifacts
from rafka_lab.peers.kafka import split_address

ROOT = Path(__file__).parents[2]
# The first run on a machine downloads 40 MB.
DOWNLOAD_SECONDS = 400
OWNER = """
import sys, time
from rafka_lab.peers import ApacheKafka
kafka = ApacheKafka(sys.argv[1]).start()
print(kafka.pids["kafka"], kafka.bootstrap, flush=True)
time.sleep(600)
"""


def produced(bootstrap: str, topic: str, count: int) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failed == []
    producer.close()


def fetched(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "any", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() or b"" for message in consumer.consume(count, 30)]
    consumer.close()
    return found


def gone(pid: int, within: float = 10) -> bool:
    try:
        psutil.wait_procs([psutil.Process(pid)], timeout=within)
    except psutil.NoSuchProcess:
        return True
    return not psutil.pid_exists(pid)


def test_the_mock_cluster_serves_other_processes_and_ends() -> None:
    with MockCluster() as mock:
        produced(mock.bootstrap, "any", 10)
        pid = mock.pids["mock"]
    assert gone(pid)


@pytest.mark.timeout(DOWNLOAD_SECONDS)
def test_kafka_keeps_its_data_over_a_kill_and_ends_with_its_owner(
    tmp_path: Path, program: Callable[[str], str]
) -> None:
    program("java"), program("mvn")
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert owner.stdout is not None
    pid, bootstrap = owner.stdout.readline().split()
    produced(bootstrap, "kept", 10)
    listening = {conn.laddr.ip for conn in psutil.Process(int(pid)).net_connections() if conn.status == "LISTEN"}
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    assert gone(int(pid))
    with ApacheKafka(tmp_path) as kafka:
        assert fetched(kafka.bootstrap, "kept", 10) == [str(number).encode() for number in range(10)]


def test_without_java_or_maven_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert not artifacts.kafka_is_there()
    with pytest.raises(PeerUnavailableError, match="install Maven"):
        artifacts.kafka_jars()
    with pytest.raises(PeerUnavailableError, match="needs Java 17"):
        artifacts.java_program()


def test_an_address_is_a_host_and_a_port() -> None:
    assert split_address("127.0.0.1:9092") == ("127.0.0.1", 9092)
    assert split_address("[::1]:9092") == ("::1", 9092)
    for wrong in ("kafka", "kafka:", ":9092", "kafka:port"):
        with pytest.raises(PeerUnavailableError, match="is no HOST:PORT"):
            split_address(wrong)
