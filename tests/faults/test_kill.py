"""kill -9 of broker or gateway at random points under load: no acknowledged record is lost, none is there twice."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger import Load, check, make_topic

from rafka_lab import Lab, State

SOAK_KILLS = 500


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(brokers=2, data=tmp_path / "data", trace_ratio=0) as running:
        yield running


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("RAFKA_LAB_SEED", random.randrange(2**32)))
    print(f"RAFKA_LAB_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    return random.Random(seed)


def kill_under_load(lab: Lab, chance: random.Random, kills: int, victims: tuple[str, ...]) -> None:
    make_topic(lab.bootstrap, "idempotent", 4)
    make_topic(lab.bootstrap, "plain", 2)
    address = lab.bootstrap
    with (
        Load(address, "idempotent", 4, **{"enable.idempotence": True}) as idempotent,
        Load(address, "plain", 2, acks=1, **{"max.in.flight": 1}) as plain,
    ):
        idempotent.wait_for_acks(100)
        for _ in range(kills):
            time.sleep(chance.uniform(0.0, 0.4))
            node = lab.nodes[chance.choice(victims)]
            node.kill()
            assert node.state is State.KILLED
            node.start()
            idempotent.wait_for_acks(20)
            plain.wait_for_acks(1)
    assert lab.bootstrap == address, "a restarted gateway is where it was"
    check(idempotent, address, no_duplicates=True)
    check(plain, address, no_duplicates=False)


def test_kill_9_of_a_broker_under_load(lab: Lab, chance: random.Random) -> None:
    kill_under_load(lab, chance, 4, ("broker-0", "broker-1"))


def test_kill_9_of_the_gateway_under_load(lab: Lab, chance: random.Random) -> None:
    kill_under_load(lab, chance, 3, ("gateway",))


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_kill_9_at_500_random_points(lab: Lab, chance: random.Random) -> None:
    kill_under_load(lab, chance, SOAK_KILLS, ("broker-0", "broker-1", "gateway"))
