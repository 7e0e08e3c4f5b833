"""The lab: starts, what a person does to its nodes, what goes wrong, and that nothing is left behind."""

import contextlib
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rafka_lab import DataFolderError, Lab, LabError, Node, NodeStartError, NodeStateError, State

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # a safety limit: the machine may be busy


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def produce(bootstrap: str, topic: str, value: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000, "log_level": 0})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE) == 0


def read_one(bootstrap: str, topic: str, partition: int = 0) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        message = consumer.poll(PATIENCE)
        assert message is not None
        return message.value()
    finally:
        consumer.close()


def is_gone(pid: int | None) -> bool:
    assert pid is not None
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def test_a_lab_serves_clients_and_leaves_nothing_behind() -> None:
    with Lab() as lab:
        folder = lab.data
        pids = [node.pid for node in lab.nodes.values()]
        assert list(lab.nodes) == ["broker-0", "gateway", "collector"]
        assert [node.state for node in lab.nodes.values()] == [State.RUNNING] * 3
        produce(lab.bootstrap, "t", b"hello")
        assert read_one(lab.bootstrap, "t") == b"hello"
        assert folder.exists()
        assert "broker-0" in lab.nodes["broker-0"].logs()
    assert not folder.exists()
    assert all(is_gone(pid) for pid in pids)
    assert not lab.is_running
    assert repr(lab) == "<Lab: stopped>"
    with pytest.raises(LabError, match="start"):
        _ = lab.bootstrap


def test_data_and_identities_are_kept_in_a_folder_of_the_users(tmp_path: Path) -> None:
    lab = Lab(data=tmp_path / "data").start()
    produce(lab.bootstrap, "t", b"kept")
    identities = {name: (node.node_id, node.mesh) for name, node in lab.nodes.items()}
    lab.stop()
    lab.stop()  # twice is fine
    with Lab(data=tmp_path / "data") as again:
        assert read_one(again.bootstrap, "t") == b"kept"
        assert {name: (node.node_id, node.mesh) for name, node in again.nodes.items()} == identities


def test_start_twice_is_one_cluster_and_a_cell_run_again_replaces_the_last_one(tmp_path: Path) -> None:
    first = Lab(data=tmp_path / "data").start()
    pids = [node.pid for node in first.nodes.values()]
    assert first.start() is first
    assert [node.pid for node in first.nodes.values()] == pids
    produce(first.bootstrap, "t", b"kept")
    second = Lab(data=tmp_path / "data", port=int(first.bootstrap.rpartition(":")[2])).start()
    try:
        assert not first.is_running
        assert all(is_gone(pid) for pid in pids)
        assert read_one(second.bootstrap, "t") == b"kept"
    finally:
        second.stop()


def test_a_lab_that_nobody_holds_ends() -> None:
    lab = Lab().start()
    pids = [node.pid for node in lab.nodes.values()]
    folder = lab.data
    del lab
    gc.collect()
    until(lambda: all(is_gone(pid) for pid in pids), "the nodes have gone")
    assert not folder.exists()


def test_a_killed_node_comes_back_where_it_was() -> None:
    with Lab() as lab:
        produce(lab.bootstrap, "t", b"hello")
        for node in (lab.nodes["broker-0"], lab.nodes["gateway"]):
            before = (node.node_id, node.mesh, lab.bootstrap)
            old = node.pid
            assert node.kill().state is State.KILLED
            assert is_gone(old)
            assert node.start().state is State.RUNNING
            assert (node.node_id, node.mesh, lab.bootstrap) == before
            assert node.pid != old
            assert read_one(lab.bootstrap, "t") == b"hello"
        assert lab.crashes == [], "what the person did is not a crash"


def test_stop_start_pause_and_resume() -> None:
    with Lab() as lab:
        broker = lab.nodes["broker-0"]
        assert broker.stop().state is State.STOPPED
        assert broker.exit_code == 0
        with pytest.raises(NodeStateError, match="stopped"):
            broker.pause()
        broker.start()
        assert broker.pause().state is State.PAUSED
        assert psutil.Process(broker.pid).status() == psutil.STATUS_STOPPED
        assert broker.pause().state is State.PAUSED
        assert broker.resume().state is State.RUNNING
        produce(lab.bootstrap, "t", b"after")
        broker.pause()
    assert is_gone(broker.pid), "a paused node can be stopped too"


def test_a_crash_is_seen_at_once_with_its_last_log_lines() -> None:
    seen: list[Node] = []
    with Lab(on_crash=seen.append) as lab:
        broker = lab.nodes["broker-0"]
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)  # not by the lab: nobody asked for it
        until(lambda: bool(seen), "the crash was noticed")
        assert seen == [broker]
        assert broker.state is State.CRASHED
        assert broker.exit_code == -signal.SIGKILL
        (report,) = lab.crashes
        assert "broker-0" in report
        assert "RecoveryReport" in report
        broker.start()
        produce(lab.bootstrap, "t", b"after")


def test_a_topics_partitions_are_spread_over_brokers_and_routed(tmp_path: Path) -> None:
    with Lab(brokers=3, data=tmp_path / "data", trace_ratio=0) as lab:
        admin = AdminClient({"bootstrap.servers": lab.bootstrap})
        admin.create_topics([NewTopic("t", 6, 1)])["t"].result(PATIENCE)
        for partition in range(6):
            produce(lab.bootstrap, "t", b"marker-%d" % partition, partition)
        for partition in range(6):
            assert read_one(lab.bootstrap, "t", partition) == b"marker-%d" % partition
    held = [
        {n for n in range(6) if b"marker-%d" % n in b"".join(f.read_bytes() for f in log.glob("*.log"))}
        for log in (tmp_path / "data" / f"broker-{index}" / "data" for index in range(3))
    ]
    assert [len(partitions) for partitions in held] == [2, 2, 2]
    assert set().union(*held) == set(range(6))


@pytest.mark.parametrize("shared", [True, False])
def test_bodies_lie_in_shared_memory_unless_they_are_to_cross_the_mesh(shared: bool) -> None:
    with Lab(shared_bodies=shared, trace_ratio=0) as lab:
        value = os.urandom(500_000)
        produce(lab.bootstrap, "large", value)
        assert read_one(lab.bootstrap, "large") == value
        for node in lab.nodes.values():
            assert ("rafka-arena" in Path(f"/proc/{node.pid}/maps").read_text()) is shared, node.name


def test_shared_memory_goes_back_when_the_traffic_is_over() -> None:
    def resident(pid: int | None) -> int:
        """Bytes of all arenas that a process has mapped and that are in memory."""
        smaps = Path(f"/proc/{pid}/smaps").read_text()
        return 1024 * sum(int(size) for size in re.findall(r"rafka-arena.*?\nRss: +(\d+) kB", smaps, re.DOTALL))

    with Lab(trace_ratio=0) as lab:
        nodes = list(lab.nodes.values())
        for _ in range(5):
            produce(lab.bootstrap, "large", os.urandom(900_000))
        assert max(resident(node.pid) for node in nodes) >= 900_000
        until(lambda: sum(resident(node.pid) for node in nodes) < 100_000, "the arenas are not given back")


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port} .* is taken") as caught:
            Lab(port=port).start()
    assert "\n" not in str(caught.value)


def test_a_folder_that_another_process_uses_is_one_sentence(tmp_path: Path) -> None:
    holder = start_lab_process(tmp_path)
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        with pytest.raises(DataFolderError, match=f"in use by process {holder.pid}"):
            Lab(data=tmp_path / "data").start()
    finally:
        end(holder, signal.SIGTERM)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataFolderError, match="cannot be used"):
        Lab(data=tmp_path / "file" / "data").start()


def test_fewer_brokers_than_a_folder_holds_are_refused(tmp_path: Path) -> None:
    Lab(brokers=2, data=tmp_path / "data").start().stop()
    with pytest.raises(DataFolderError, match="at least 2"):
        Lab(data=tmp_path / "data").start()


def test_a_log_that_is_damaged_keeps_the_lab_from_starting_with_the_brokers_own_words(tmp_path: Path) -> None:
    lab = Lab(data=tmp_path / "data").start()
    for n in range(3):
        produce(lab.bootstrap, "t", b"x" * 100 + b"%d" % n)
    lab.stop()
    (segment,) = (tmp_path / "data" / "broker-0" / "data").glob("*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[damaged.index(b"x" * 100) + 50] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(NodeStartError, match="broker-0 did not start: ") as caught:
        Lab(data=tmp_path / "data").start()
    assert "repair" in str(caught.value)
    assert caught.value.node == "broker-0"


@pytest.mark.parametrize(("brokers", "port"), [(0, 0), (-1, 0), (1000, 0), (1, -1), (1, 65536)])
def test_numbers_that_cannot_be_are_refused(brokers: int, port: int) -> None:
    with pytest.raises(LabError):
        Lab(brokers, port=port)


def start_lab_process(tmp_path: Path, port: int = 0) -> "subprocess.Popen[str]":
    """A process that has a lab and waits; its first line names the nodes' pids."""
    program = (
        "import sys, time; from rafka_lab import Lab; "
        f"lab = Lab(data={str(tmp_path / 'data')!r}, port={port}).start(); "
        "print(*(node.pid for node in lab.nodes.values()), flush=True); time.sleep(1000)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def end(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    assert process.stdout is not None
    process.send_signal(number)
    process.wait(PATIENCE)
    process.stdout.close()


def test_nodes_are_gone_when_their_kernel_is_killed(tmp_path: Path) -> None:
    process = start_lab_process(tmp_path)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 3
    assert not any(is_gone(pid) for pid in pids)
    end(process, signal.SIGKILL)
    killed = time.monotonic()
    with Lab(data=tmp_path / "data"):  # waits for the old nodes, instead of failing because of them
        assert all(is_gone(pid) for pid in pids[:1])
    until(lambda: all(is_gone(pid) for pid in pids), "the nodes have gone")
    assert time.monotonic() - killed < PATIENCE


def test_an_interrupt_of_the_kernel_is_not_meant_for_the_nodes() -> None:
    with Lab() as lab:
        groups = {os.getpgid(node.pid) for node in lab.nodes.values() if node.pid is not None}
        assert os.getpgid(0) not in groups


def test_tcp_sockets_are_on_loopback_only() -> None:
    with Lab(brokers=2) as lab:
        for node in lab.nodes.values():
            for connection in psutil.Process(node.pid).net_connections("tcp"):
                assert connection.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
