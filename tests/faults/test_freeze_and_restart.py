"""A frozen broker and a restarted gateway: no false acknowledgement, nothing twice, clients go on by themselves."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger import Load, check, make_topic

from rafka_lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(data=tmp_path / "data", trace_ratio=0) as running:
        make_topic(running.bootstrap, "t", 3)
        yield running


def freeze(lab: Lab, seconds: float) -> None:
    broker = lab.nodes["broker-0"]
    with Load(lab.bootstrap, "t", 3, **{"enable.idempotence": True, "request.timeout.ms": 5000}) as load:
        load.wait_for_acks(100)
        broker.pause()
        time.sleep(0.5)  # what was answered before the freeze is on its way to the client
        before = len(load.acked)
        time.sleep(seconds)
        assert len(load.acked) == before, "nobody could have stored these"
        broker.resume()
        load.wait_for_acks(200)
    check(load, lab.bootstrap, no_duplicates=True)


def test_a_broker_that_freezes_for_a_moment(lab: Lab) -> None:
    freeze(lab, 1)


def test_a_broker_that_freezes_for_longer_than_the_mesh_waits(lab: Lab) -> None:
    freeze(lab, 6)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [10, 25, 40])
def test_a_broker_that_freezes_for_long(lab: Lab, seconds: float) -> None:
    freeze(lab, seconds)


def test_clients_go_on_after_a_restart_of_the_gateway(lab: Lab) -> None:
    gateway = lab.nodes["gateway"]
    address = lab.bootstrap
    with Load(address, "t", 3, **{"enable.idempotence": True}) as load:
        for _ in range(3):
            load.wait_for_acks(100)
            gateway.stop()
            gateway.start()
        load.wait_for_acks(100)
    assert lab.bootstrap == address
    check(load, address, no_duplicates=True)


def test_a_clean_stop_of_a_broker_under_load_loses_nothing(lab: Lab) -> None:
    broker = lab.nodes["broker-0"]
    with Load(lab.bootstrap, "t", 3, **{"enable.idempotence": True}) as load:
        for _ in range(2):
            load.wait_for_acks(100)
            assert broker.stop().exit_code == 0
            broker.start()
        load.wait_for_acks(100)
    assert "truncated_bytes=0" in broker.logs()
    check(load, lab.bootstrap, no_duplicates=True)
