"""The registry: identity, names, spreading over brokers, and following the controller."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes import ops
from nodes.broker.errors import Code, RefusedError
from nodes.broker.names import check_name, slug_of
from nodes.broker.registry import Registry, op_of
from nodes.broker.settings import BrokerSettings
from wal.log import SingleWal

ORG = 1


def wish(name: str, partitions: int = -1, **configs: str) -> ops.NewTopic:
    return ops.NewTopic(name, partitions, -1, [], dict(configs))


@pytest.fixture
def wal(tmp_path: Path) -> Iterator[SingleWal]:
    with SingleWal.open(tmp_path / "data") as opened:
        yield opened


def test_a_topic_has_id_slug_rrl_and_uuid_and_keeps_them_over_a_restart(tmp_path: Path) -> None:
    with SingleWal.open(tmp_path / "data") as wal:
        registry = Registry(wal, BrokerSettings())
        made = registry.create(ORG, wish("Orders.v1_raw", 3))
        cluster = registry.cluster_id
        assert made.ulid.startswith("top_")
        assert len(made.ulid) == 4 + 26
        assert (made.slug, made.rrl) == ("orders-v1-raw", "1/lab/rafka/topics/orders-v1-raw")
        assert made.topic_id.version == 4
        assert len(cluster) == 22
    with SingleWal.open(tmp_path / "data") as wal:
        registry = Registry(wal, BrokerSettings())
        found = registry.find(ORG, "Orders.v1_raw")
        assert found is not None
        assert found.record == made
        assert registry.cluster_id == cluster
        with pytest.raises(RefusedError):
            registry.create(ORG, wish("Orders_v1_raw"))


def test_slugs_are_unique(wal: SingleWal) -> None:
    registry = Registry(wal, BrokerSettings())
    slugs = [registry.create(ORG, wish(name)).slug for name in ("a.b", "a-b", "A-b", "A-B")]
    assert len(set(slugs)) == 4
    assert slugs[0] == "a-b"


def test_partitions_are_spread_round_robin(wal: SingleWal) -> None:
    registry = Registry(wal, BrokerSettings(brokers=3))
    first = registry.create(ORG, wish("a", 6)).leaders
    assert sorted(first) == [0, 0, 1, 1, 2, 2]
    singles = [registry.create(ORG, wish(f"s{n}")).leaders[0] for n in range(6)]
    assert sorted(singles) == [0, 0, 1, 1, 2, 2], "topics of one partition are spread as well"
    grown = registry.grow(ORG, ops.MorePartitions("a", 9, [])).leaders
    assert grown[:6] == first
    assert sorted(grown[6:]) == [0, 1, 2]
    with pytest.raises(RefusedError) as caught:
        registry.grow(ORG, ops.MorePartitions("a", 11, [0, 7]))
    assert caught.value.code is Code.INVALID_REPLICA_ASSIGNMENT


@given(st.text(min_size=0, max_size=260))
def test_every_name_is_taken_or_refused_with_17(name: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
    good = 0 < len(name) <= 249 and name not in (".", "..") and set(name) <= allowed
    if good:
        check_name(name)
        assert slug_of(name)
    else:
        with pytest.raises(RefusedError) as caught:
            check_name(name)
        assert caught.value.code is Code.INVALID_TOPIC


def test_a_follower_becomes_what_the_controller_says(wal: SingleWal, tmp_path: Path) -> None:
    controller = Registry(wal, BrokerSettings(brokers=2))
    with SingleWal.open(tmp_path / "other") as other:
        follower = Registry(other, BrokerSettings(index=1, brokers=2))
        first, second = controller.create(ORG, wish("a", 2)), controller.create(ORG, wish("b", 2))
        assert follower.follow(ORG, [op_of(first), op_of(second)], complete=True) == []
        assert follower.all_of(ORG) == [first, second]
        grown = controller.grow(ORG, ops.MorePartitions("a", 4, []))
        follower.follow(ORG, [op_of(grown)], complete=False)
        follower.follow(ORG, [op_of(first)], complete=False)  # an old list that came late
        assert follower.all_of(ORG) == [grown, second]
        controller.delete(ORG, ops.TopicRef("a", ops.NO_ID))
        again = controller.create(ORG, wish("a"))
        assert follower.follow(ORG, [op_of(again)], complete=False) == [grown], "the same name, another topic"
        assert follower.follow(ORG, [op_of(again)], complete=True) == [second]
        assert follower.follow(2, [], complete=True) == [], "another organisation's list says nothing of ours"
        assert follower.all_of(ORG) == [again]


def test_a_topic_is_found_by_id_only_in_its_organisation(wal: SingleWal) -> None:
    registry = Registry(wal, BrokerSettings())
    made = registry.create(ORG, wish("a"))
    assert registry.find(ORG, "", made.topic_id.bytes) is not None
    assert registry.find(2, "", made.topic_id.bytes) is None
    assert registry.find(ORG, "", uuid.uuid4().bytes) is None
    with pytest.raises(RefusedError) as caught:
        registry.held(ORG, "a", ops.NO_ID, 1)
    assert caught.value.code is Code.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("configs", "word"),
    [
        ({"cleanup.policy": "compact"}, "compact is not supported"),
        ({"cleanup.policy": "compact,delete"}, "compact is not supported"),
        ({"segment.bytes": "1000"}, "--segment-bytes"),
        ({"retention.ms": "-2"}, "whole number from -1"),
        ({"retention.ms": "1e3"}, "whole number"),
        ({"max.message.bytes": str(2**31)}, "whole number"),
        ({"message.timestamp.type": "Other"}, "CreateTime, LogAppendTime"),
        ({"retention.msec": "1"}, "known are"),
    ],
)
def test_bad_settings_are_refused_with_what_is_wrong(wal: SingleWal, configs: dict[str, str], word: str) -> None:
    with pytest.raises(RefusedError) as caught:
        Registry(wal, BrokerSettings()).create(ORG, wish("a", **configs))
    assert caught.value.code is Code.INVALID_CONFIG
    assert word in str(caught.value)
    assert not wal.state.topics
