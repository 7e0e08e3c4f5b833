"""Rows 21 to 24 and 26 of KAFKA-PITFALLS.md: metadata, topics and settings as admin clients see them."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kcat_program import Kcat
from kio.serial import entity_reader
from raw_client import RawClient, schema
from reading import read_all

METADATA = 3
NOT_ASKED = -(2**31)


def metadata_v0(bootstrap: str, *names: str) -> set[str]:
    """The names in a Metadata v0 answer."""
    with RawClient(bootstrap) as client:
        body = struct.pack(">i", len(names)) + b"".join(struct.pack(">h", len(n)) + n.encode() for n in names)
        client.send_bytes(METADATA, 0, body)
        answer = client.receive_bytes()[1]
    found, _ = entity_reader(schema("metadata", 0, "response").MetadataResponse)(answer, 0)
    assert found.brokers
    return {topic.name for topic in found.topics}


def metadata(bootstrap: str, version: int, names: tuple[str, ...] | None, **fields: Any) -> Any:
    module = schema("metadata", version, "request")
    topics = None if names is None else tuple(module.MetadataRequestTopic(name=name) for name in names)
    with RawClient(bootstrap) as client:
        return client.ask(
            module.MetadataRequest(topics=topics, **fields), schema("metadata", version, "response").MetadataResponse
        )


def test_row_21_version_0_empty_is_all_and_later_null_is_all_and_empty_is_none(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    assert topic in metadata_v0(bootstrap)
    assert topic in {row.name for row in metadata(bootstrap, 1, None).topics}
    none = metadata(bootstrap, 1, ())
    assert none.topics == ()
    assert len(none.brokers) == 1


def test_row_21_kcat_lists_and_aiokafka_starts(bootstrap: str, kcat: Kcat, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    listed = json.loads(kcat.run("-L", "-J").stdout)
    assert len(next(row for row in listed["topics"] if row["topic"] == topic)["partitions"]) == 3

    async def aiokafka_round_trip() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            sent = await producer.send_and_wait(topic, b"value", key=b"key", headers=[("h", b"1")], partition=1)
            assert sent.offset == 0
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), 20)
            assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"1"),))

    asyncio.run(aiokafka_round_trip())


def test_row_22_a_producer_makes_a_topic_and_a_consumer_that_says_no_does_not(
    bootstrap: str, kcat: Kcat, topic_name: str
) -> None:
    refused = metadata(bootstrap, 4, (topic_name,), allow_auto_topic_creation=False).topics[0]
    assert refused.error_code == 3
    assert topic_name not in metadata_v0(bootstrap)
    kcat.produce(topic_name, "one")
    assert kcat.consume(topic_name) == ["one"]
    below_4 = f"{topic_name}-b"
    metadata(bootstrap, 3, (below_4,))
    assert below_4 in metadata_v0(bootstrap), "below version 4 there is no flag, and topics are made"


@pytest.mark.parametrize("name", [".", "..", "a b", "ä", "x" * 250, "a/b", "a:b"])
def test_row_22_bad_names_are_error_17(bootstrap: str, admin: AdminClient, name: str) -> None:
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    assert caught.value.args[0].code() == 17
    assert metadata(bootstrap, 4, (name,), allow_auto_topic_creation=True).topics[0].error_code == 17


def test_row_22_the_longest_name_and_all_allowed_letters(admin: AdminClient) -> None:
    for name in ("x" * 249, "Aa0._-"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
        admin.delete_topics([name])[name].result(20)


def test_row_22_names_that_differ_in_dot_and_underscore_collide(admin: AdminClient, topic_name: str) -> None:
    first, second = f"{topic_name}.x", f"{topic_name}_x"
    admin.create_topics([NewTopic(first, 1, 1)])[first].result(20)
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(second, 1, 1)])[second].result(20)
    assert caught.value.args[0].code() == 17


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"num_partitions": 0}, 37),
        ({"num_partitions": 1, "replication_factor": 3}, 38),
        ({"num_partitions": 1, "config": {"no.such.setting": "1"}}, 40),
        ({"num_partitions": 1, "config": {"retention.ms": "soon"}}, 40),
        ({"num_partitions": 1, "config": {"cleanup.policy": "compact"}}, 40),
        ({"num_partitions": 1, "config": {"compression.type": "gzip"}}, 40),
    ],
)
def test_row_22_topics_that_cannot_be_have_a_clear_error(
    admin: AdminClient, topic_name: str, wish: dict[str, Any], code: int
) -> None:
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(topic_name, **({"replication_factor": 1} | wish))])[topic_name].result(20)
    error = caught.value.args[0]
    assert error.code() == code
    assert len(error.str()) > 20, "it says what is wrong"


def test_row_22_a_duplicate_is_error_36_and_validate_only_makes_nothing(
    bootstrap: str, admin: AdminClient, topic_name: str
) -> None:
    admin.create_topics([NewTopic(topic_name, 1, 1)], validate_only=True)[topic_name].result(20)
    assert topic_name not in metadata_v0(bootstrap)
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(20)
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(20)
    assert caught.value.args[0].code() == 36


def test_row_23_controller_cluster_id_and_authorized_operations(bootstrap: str, admin: AdminClient) -> None:
    found = admin.list_topics(timeout=20)
    assert found.controller_id in found.brokers
    assert found.cluster_id
    raw = metadata(
        bootstrap,
        8,
        None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    assert raw.cluster_authorized_operations == NOT_ASKED
    assert all(topic.topic_authorized_operations == NOT_ASKED for topic in raw.topics)
    described = admin.describe_cluster().result(20)
    assert described.cluster_id == found.cluster_id
    assert described.controller.id == found.controller_id


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(20)
    return found


def test_row_24_a_topics_settings_with_defaults_and_sources(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"retention.ms": "1234"})
    found = described(admin, ResourceType.TOPIC, topic)
    assert found["retention.ms"].value == "1234"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["retention.bytes"].value == "-1"
    assert found["retention.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["cleanup.policy"].value == "delete"
    assert found["max.message.bytes"].value == "1048588"
    assert found["message.timestamp.type"].value == "CreateTime"
    assert found["compression.type"].value == "producer"
    assert {"segment.bytes", "min.insync.replicas"} <= set(found)


def test_row_24_a_brokers_settings(admin: AdminClient) -> None:
    found = described(admin, ResourceType.BROKER, "0")
    assert found["broker.id"].value == "0"
    assert found["num.partitions"].value == "1"
    assert found["log.segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert all(entry.is_read_only for entry in found.values())


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_row_24_read_modify_write_changes_only_what_was_meant(
    admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"retention.ms": "1234"})
    before = described(admin, ResourceType.TOPIC, topic)
    wanted = {name: entry.value for name, entry in before.items()} | {"max.message.bytes": "2000"}
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config=wanted)
    admin.alter_configs([resource])[resource].result(20)
    after = {name: entry.value for name, entry in described(admin, ResourceType.TOPIC, topic).items()}
    assert after == wanted


def test_row_24_incremental_changes(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"retention.ms": "1234", "retention.bytes": "99"})

    def change(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)

    change("retention.ms", None, AlterConfigOpType.DELETE)
    change("max.message.bytes", "5000", AlterConfigOpType.SET)
    change("cleanup.policy", "delete", AlterConfigOpType.APPEND)
    found = described(admin, ResourceType.TOPIC, topic)
    assert found["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    assert (found["max.message.bytes"].value, found["retention.bytes"].value) == ("5000", "99")
    with pytest.raises(KafkaException) as caught:
        change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    assert caught.value.args[0].code() == 40


def test_row_24_partitions_can_grow_and_not_shrink(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(20)
    assert len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == 5
    with pytest.raises(KafkaException) as caught:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    assert caught.value.args[0].code() == 37
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x", partition=4)
    assert producer.flush(20) == 0
    assert read_all(bootstrap, topic, 1, partition=4)[0].value() == b"x"


def test_row_26_the_address_that_clients_are_told_is_numeric(bootstrap: str, kcat: Kcat, topic_name: str) -> None:
    port = bootstrap.rpartition(":")[2]
    shown = kcat.run("-L", bootstrap=f"localhost:{port}").stdout.decode()
    assert f"at 127.0.0.1:{port}" in shown
    by_name = kcat.run("-P", "-t", topic_name, stdin=b"x\n", bootstrap=f"localhost:{port}")
    assert by_name.returncode == 0
    assert kcat.consume(topic_name) == ["x"]
