"""Brokers that go and come: errors that clients try again on, never a hang, never a false ack; several brokers."""

import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from gateway_cluster import Cluster, running
from kafka.protocol.admin import CreatePartitionsRequest, DeleteTopicsRequest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest
from kafka_wire import Client, batch, create, decode, produce_request

NOT_LEADER, TIMED_OUT, LEADER_NOT_AVAILABLE = 6, 7, 5


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def own_two(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path, brokers=2) as cluster:
        yield cluster


def produced(client: Client, topic: str, partition: int = 0) -> int:
    response = client.call(produce_request(topic, partition, batch(b"x")), 9)
    return int(response.responses[0].partition_responses[0].error_code)


def fetched(client: Client, topic: str, partitions: list[int], max_wait_ms: int = 100) -> dict[int, tuple[int, bytes]]:
    kind = FetchRequest.FetchTopic
    asked = [
        kind.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=100_000) for number in partitions
    ]
    settings = {"max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 100_000, "session_id": 0, "session_epoch": -1}
    request = FetchRequest(topics=[kind(topic=topic, partitions=asked)], forgotten_topics_data=[], **settings)
    (found,) = client.call(request, 9).responses
    return {item.partition_index: (item.error_code, bytes(item.records or b"")) for item in found.partitions}


def until_produced(client: Client, topic: str, partition: int = 0, within: float = 20) -> float:
    started = time.monotonic()
    while produced(client, topic, partition):
        assert time.monotonic() - started < within
        time.sleep(0.02)
    return time.monotonic() - started


def test_a_killed_broker_gives_errors_to_try_again_on_and_serves_when_it_is_back(own: Cluster) -> None:
    with Client(own.port) as client:
        topic = create(client)
        assert produced(client, topic) == 0
        own.brokers[0].end()
        started = time.monotonic()
        assert produced(client, topic) in (NOT_LEADER, TIMED_OUT)
        assert time.monotonic() - started < 10
        while produced(client, topic) != NOT_LEADER:
            assert time.monotonic() - started < 20
        assert fetched(client, topic, [0])[0][0] == NOT_LEADER
        named = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        response = client.call(named, 5)
        assert response.topics[0].error_code == LEADER_NOT_AVAILABLE
        assert len(response.brokers) == 1
        pid = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        assert client.call(pid, 1).error_code == 15
        own.brokers[0].start()
        # The fake broker forgot its topics: they are made anew.
        again = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
        )
        while client.call(again, 5).topics[0].error_code:
            assert time.monotonic() - started < 40
        assert until_produced(client, topic) < 20


def test_all_topics_of_a_controller_that_is_down_close_the_connection(own: Cluster) -> None:
    own.brokers[0].end()
    with Client(own.port) as client:
        client.send(MetadataRequest(topics=None), 5)
        assert client.is_closed()
    with Client(own.port) as client:
        assert client.call(MetadataRequest(topics=[]), 5).topics == []


def test_a_frozen_broker_gives_no_ack_and_no_hang(own: Cluster) -> None:
    with Client(own.port) as client:
        topic = create(client)
        assert produced(client, topic) == 0
        own.brokers[0].process.send_signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            response = client.call(produce_request(topic, 0, batch(b"x"), timeout_ms=1500), 9)
            assert response.responses[0].partition_responses[0].error_code == TIMED_OUT
            assert time.monotonic() - started < 10
        finally:
            own.brokers[0].process.send_signal(signal.SIGCONT)
        until_produced(client, topic)


def test_a_real_producer_gets_over_a_restart_of_the_gateway(own: Cluster) -> None:
    with Client(own.port) as client:
        topic = create(client)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": own.bootstrap, "reconnect.backoff.max.ms": 200})
    for number in range(2000):
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=lambda e, _: failures.append(e) if e else None)
        producer.poll(0)
        if number == 1000:
            producer.flush(20)
            own.gateway.end(signal.SIGTERM)
            own.gateway.command = [own.bootstrap if part == "127.0.0.1:0" else part for part in own.gateway.command]
            own.gateway.start()
    assert producer.flush(30) == 0
    assert failures == []


def test_partitions_are_routed_to_their_brokers(three_brokers: Cluster) -> None:
    with Client(three_brokers.port) as client:
        topic = create(client, partitions=6)
        assert [produced(client, topic, number) for number in range(6)] == [0] * 6
        found = fetched(client, topic, list(range(6)))
        assert {error for error, _ in found.values()} == {0}
        assert all(records == batch(b"x") for _, records in found.values())


def test_a_fetch_over_several_brokers_wakes_up_for_any_of_them(three_brokers: Cluster) -> None:
    with Client(three_brokers.port) as client, Client(three_brokers.port) as other:
        topic = create(client, partitions=3)
        for partition in range(3):
            assert produced(other, topic, partition) == 0
        kind = FetchRequest.FetchTopic
        asked = [kind.FetchPartition(partition=n, fetch_offset=1, partition_max_bytes=100_000) for n in range(3)]
        settings = {"max_wait_ms": 20_000, "min_bytes": 1, "max_bytes": 100_000, "session_id": 0, "session_epoch": -1}
        request = FetchRequest(topics=[kind(topic=topic, partitions=asked)], forgotten_topics_data=[], **settings)
        client.send(request, 9)
        time.sleep(0.3)
        started = time.monotonic()
        assert produced(other, topic, 2) == 0
        client.receive()
        assert time.monotonic() - started < 5


def test_min_bytes_may_come_from_several_brokers_together(three_brokers: Cluster) -> None:
    with Client(three_brokers.port) as client, Client(three_brokers.port) as other:
        topic = create(client, partitions=3)
        size = len(batch(bytes(1000)))
        kind = FetchRequest.FetchTopic
        asked = [kind.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=100_000) for n in range(3)]
        settings = {"max_wait_ms": 20_000, "min_bytes": 3 * size, "max_bytes": 100_000}
        request = FetchRequest(topics=[kind(topic=topic, partitions=asked)], session_id=0, session_epoch=-1, **settings)
        request.forgotten_topics_data = []
        client.send(request, 9)
        for partition in range(3):
            assert other.call(produce_request(topic, partition, batch(bytes(1000))), 9)
        _, data = client.receive()
        (found,) = decode(request, 9, data).responses
        assert [len(item.records) for item in found.partitions] == [size] * 3


def test_the_limit_of_a_fetch_holds_for_all_brokers_together(three_brokers: Cluster) -> None:
    with Client(three_brokers.port) as client:
        topic = create(client, partitions=3)
        large = batch(bytes(80_000))
        for partition in range(3):
            client.call(produce_request(topic, partition, large), 9)
        found = fetched(client, topic, [0, 1, 2])
        assert {error for error, _ in found.values()} == {0}
        assert [len(records) for _, records in found.values()] == [len(large), 0, 0]


def test_one_broker_down_leaves_the_others_at_work(own_two: Cluster) -> None:
    with Client(own_two.port) as client:
        topic = create(client, partitions=2)
        assert [produced(client, topic, number) for number in (0, 1)] == [0, 0]
        own_two.brokers[1].end()
        deadline = time.monotonic() + 20
        while produced(client, topic, 1) != NOT_LEADER:
            assert time.monotonic() < deadline
        assert produced(client, topic, 0) == 0
        found = fetched(client, topic, [0, 1])
        assert found[0][0] == 0
        assert found[1] == (NOT_LEADER, b"")
        # It comes back without its topics, and the gateway tells it of them.
        own_two.brokers[1].start()
        until_produced(client, topic, 1)


def test_created_grown_and_deleted_topics_reach_all_brokers(three_brokers: Cluster) -> None:
    with Client(three_brokers.port) as client:
        topic = create(client, partitions=1)
        kind = CreatePartitionsRequest.CreatePartitionsTopic
        grow = CreatePartitionsRequest(
            topics=[kind(name=topic, count=5, assignments=None)], timeout_ms=1000, validate_only=False
        )
        assert client.call(grow, 1).results[0].error_code == 0
        assert [produced(client, topic, number) for number in range(5)] == [0] * 5
        client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 3)
        assert [produced(client, topic, number) for number in range(3)] == [3] * 3
        named = MetadataRequest.MetadataRequestTopic(name=f"auto-{uuid.uuid4().hex}")
        made = client.call(MetadataRequest(topics=[named], allow_auto_topic_creation=True), 5).topics[0]
        assert [produced(client, made.name, number) for number in range(3)] == [0] * 3
