"""Faults are real: what a killed, damaged or full broker does is seen from outside."""

import statistics
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from rafka_lab import Lab, LabError, NodeStartError, kill_under_load
from rafka_lab.node import State

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="socket filters are Linux's")


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as running:
        yield running


def test_what_was_acknowledged_survives_a_kill(lab: Lab) -> None:
    verdict = kill_under_load(lab, "kept", acks="all", records=300)
    assert verdict.acked >= 600
    assert (verdict.lost, verdict.duplicates, verdict.unasked, verdict.failed) == (0, 0, 0, 0)
    faults = lab.faults.timeline()
    assert faults["fault"].tolist() == ["kill", "restart"]
    assert faults["time"].is_monotonic_increasing


def test_a_torn_tail_is_cut_off_and_a_flipped_bit_refused(lab: Lab) -> None:
    for number in range(4):
        lab.produce("t", str(number))
    lab.faults.kill()
    lab.faults.torn_tail(drop=5)
    assert lab.wal.verify()["torn_tail_bytes"].iloc[0] > 0
    lab.faults.restart()
    assert lab.fetch("t")["value"].tolist() == ["0", "1", "2"]

    for number in range(3):
        lab.produce("t", str(number))
    lab.faults.kill()
    inside = int(lab.wal.entries("t")["position"].iloc[-2]) + 150
    path = lab.faults.flip_bit(position=inside)
    with pytest.raises(NodeStartError, match=rf"{path.name}.*repair"):
        lab.faults.restart()
    lab.faults.flip_bit(position=inside)
    lab.faults.restart()
    assert lab.fetch("t")["value"].tolist() == ["0", "1", "2", "0", "1", "2"]


def test_a_full_disk_fails_the_produce_and_nothing_else(lab: Lab) -> None:
    lab.produce("t", "before")
    lab.faults.full_disk(room=200)
    with pytest.raises(LabError, match="were not acknowledged"):
        lab.produce("t", "x" * 1000, config={"message.timeout.ms": "1000"})
    assert lab.fetch("t")["value"].tolist() == ["before"]
    assert lab.nodes["broker-0"].state is State.RUNNING
    lab.faults.free_disk()
    lab.produce("t", "after")
    assert lab.fetch("t")["value"].tolist() == ["before", "after"]


def test_a_paused_broker_answers_when_it_is_resumed(lab: Lab) -> None:
    lab.produce("t", "before")
    lab.faults.pause()
    with pytest.raises(LabError, match="were not acknowledged"):
        lab.produce("t", "x", acks=1, config={"message.timeout.ms": "500"})
    lab.faults.resume()
    lab.produce("t", "after")
    assert lab.fetch("t")["value"].iloc[-1] == "after"


def median_ms(lab: Lab, topic: str, requests: int = 9) -> float:
    """From produce() to the acknowledgement, on a connection that is open already."""
    from confluent_kafka import Producer

    producer = Producer(lab.kafka.config({"linger.ms": "0", "acks": "1"}))
    taken = []
    for _ in range(requests + 1):
        begun = time.perf_counter()
        producer.produce(topic, b"x")
        assert producer.flush(20) == 0
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken[1:])


def relays() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "rafka_lab.mesh_relay" in child.cmdline()]


@needs_linux
def test_mesh_latency_is_met_by_real_requests_and_ends(lab: Lab) -> None:
    lab.produce("t", "first")
    direct = median_ms(lab, "t")
    fault = lab.faults.mesh_latency(60)
    first = median_ms(lab, "t")
    assert first - direct >= 2 * 60  # there and back: no way around the relay was found
    with lab.faults.mesh_latency(120, jitter_ms=10):
        assert 1.6 < (median_ms(lab, "t") - direct) / (first - direct) < 2.4
    fault.end()
    assert median_ms(lab, "t") - direct < (first - direct) / 2
    assert relays() == []
    assert lab.faults.timeline()["fault"].tolist() == ["mesh latency"] * 2 + ["mesh latency ends"] * 2


@needs_linux
def test_mesh_latency_of_one_broker_leaves_the_other_alone_and_outlives_restarts() -> None:
    with Lab(brokers=2, default_partitions=2) as lab:
        lab.produce("t", [{"value": "x", "partition": number} for number in (0, 1)])
        held = lab.wal.partitions().query("topic == 't'").set_index("broker")["partition"]
        slow, fast = int(held["broker-1"]), int(held["broker-0"])

        def milliseconds(partition: int) -> float:
            sent = [lab.produce("t", [{"value": "x", "partition": partition}], linger_ms=0) for _ in range(3)]
            return min(float(frame["latency_ms"].iloc[0]) for frame in sent)

        with lab.faults.mesh_latency(150, node="broker-1"):
            assert milliseconds(slow) > 300 > milliseconds(fast)
            lab.faults.kill("broker-1")
            lab.faults.restart("broker-1")
            assert milliseconds(slow) > 300
            lab.faults.restart("gateway")
            assert milliseconds(slow) > 300 > milliseconds(fast)
        assert milliseconds(slow) < 300


@needs_linux
def test_what_is_sent_over_a_lossy_mesh_arrives_once_and_in_order(lab: Lab) -> None:
    lab.produce("t", "first")
    with lab.faults.mesh_loss(0.1):
        sent = [
            lab.produce("t", [f"{number}" for number in range(at, at + 20)], linger_ms=0) for at in range(0, 100, 20)
        ]
    assert sum(map(len, sent)) == 100
    assert lab.fetch("t")["value"].tolist() == ["first", *(str(number) for number in range(100))]


@needs_linux
def test_a_cut_mesh_fails_the_produce_and_the_end_of_the_cut_heals_it(lab: Lab) -> None:
    lab.produce("t", "before")
    with lab.faults.mesh_loss(1):
        with pytest.raises(LabError, match="were not acknowledged"):
            lab.produce("t", "x", config={"message.timeout.ms": "1000"})
    lab.produce("t", "after")
    assert lab.fetch("t")["value"].iloc[-1] == "after"


@needs_linux
def test_a_mesh_fault_ends_with_its_lab() -> None:
    lab = Lab().start()
    lab.faults.mesh_latency(20)
    assert len(relays()) == 1
    lab.stop()
    assert relays() == []
    with lab:  # and the next start knows nothing of it
        lab.produce("t", "x")
        assert relays() == []


def test_what_cannot_be_done_is_said(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"no node 'broker-7'.*broker-0"):
        lab.faults.kill("broker-7")
    with pytest.raises(LabError, match="kill or stop it first"):
        lab.faults.torn_tail()
    with pytest.raises(LabError, match="gateway has no log"):
        lab.faults.flip_bit("gateway")
    with pytest.raises(LabError, match="from 0 to 1"):
        lab.faults.mesh_loss(5)
    with pytest.raises(LabError, match="a jitter of at most that"):
        lab.faults.mesh_latency(5, jitter_ms=6)
    with pytest.raises(LabError, match="gateway is no broker"):
        lab.faults.mesh_latency(5, node="gateway")
    lab.faults.kill()
    with pytest.raises(LabError, match="only a node that is running"):
        lab.faults.full_disk()
    with pytest.raises(LabError, match="drop between 1 and"):
        lab.faults.torn_tail(drop=10**9)
    with pytest.raises(LabError, match="bits 0 to 7"):
        lab.faults.flip_bit(bit=8)
