"""Faults are real: what a killed, damaged or full broker does is seen from outside."""

from collections.abc import Iterator

import pytest

from rafka_lab import Lab, LabError, NodeStartError, kill_under_load
from rafka_lab.node import State


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


def test_what_cannot_be_done_is_said(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"no node 'broker-7'.*broker-0"):
        lab.faults.kill("broker-7")
    with pytest.raises(LabError, match="kill or stop it first"):
        lab.faults.torn_tail()
    with pytest.raises(LabError, match="gateway has no log"):
        lab.faults.flip_bit("gateway")
    lab.faults.kill()
    with pytest.raises(LabError, match="only a node that is running"):
        lab.faults.full_disk()
    with pytest.raises(LabError, match="drop between 1 and"):
        lab.faults.torn_tail(drop=10**9)
    with pytest.raises(LabError, match="bits 0 to 7"):
        lab.faults.flip_bit(bit=8)
