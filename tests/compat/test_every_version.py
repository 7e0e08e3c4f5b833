"""Every version of every API that is advertised, end to end: a produce in one version is fetched in each other."""

import dataclasses
import datetime
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from raw_client import RawClient, schema

from nodes.kafka import APIS, ApiKey
from wal.batch import split_batches
from wal.records import NewRecord, build_batch, decode_records

BATCH = build_batch([NewRecord(b"key", b"value", 1000)])
SECOND = datetime.timedelta(seconds=1)


def versions(key: ApiKey) -> list[int]:
    """Those that kio can write; the older ones are tested with real old clients (rows 5 and 6)."""
    api = APIS[key]
    return list(range(max(api.lowest, api.lowest_in_kio), api.highest + 1))


def build(kind: type[Any], /, **values: Any) -> Any:
    """An entity with those of the values that its version has."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


class Api:
    """One API in one version."""

    def __init__(self, bootstrap: str, name: str, version: int) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._version = version
        self.module = schema(name, version, "request")

    def part(self, name: str, /, **values: Any) -> Any:
        return build(getattr(self.module, name), **values)

    def ask(self, name: str, /, **values: Any) -> Any:
        answers = schema(self._name, self._version, "response")
        with RawClient(self._bootstrap) as client:
            return client.ask(self.part(f"{name}Request", **values), getattr(answers, f"{name}Response"))


def topic_id(bootstrap: str, topic: str) -> uuid.UUID:
    api = Api(bootstrap, "metadata", 12)
    asked = api.part("MetadataRequestTopic", name=topic, topic_id=None)
    answer = api.ask(
        "Metadata",
        topics=(asked,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    found: uuid.UUID = answer.topics[0].topic_id
    return found


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce(bootstrap: str, new_topic: Callable[..., str], version: int) -> None:
    topic = new_topic()
    api = Api(bootstrap, "produce", version)
    partition = api.part("PartitionProduceData", index=0, records=BATCH)
    data = api.part("TopicProduceData", name=topic, partition_data=(partition,))
    for offset in range(2):
        answer = api.ask("Produce", transactional_id=None, acks=-1, timeout=SECOND, topic_data=(data,))
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, offset)


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> tuple[str, uuid.UUID]:
    """A topic with one record, which is of 1970: without its own retention it would be removed within 30 s."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    creating = Api(bootstrap, "create_topics", 7)
    keep = creating.part("CreatableTopicConfig", name="retention.ms", value="-1")
    wish = creating.part(
        "CreatableTopic", name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=(keep,)
    )
    assert creating.ask("CreateTopics", topics=(wish,), timeout=SECOND).topics[0].error_code == 0
    api = Api(bootstrap, "produce", 9)
    partition = api.part("PartitionProduceData", index=0, records=BATCH)
    data = api.part("TopicProduceData", name=topic, partition_data=(partition,))
    api.ask("Produce", transactional_id=None, acks=-1, timeout=SECOND, topic_data=(data,))
    return topic, topic_id(bootstrap, topic)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(bootstrap: str, filled: tuple[str, uuid.UUID], version: int) -> None:
    api = Api(bootstrap, "fetch", version)
    partition = api.part("FetchPartition", partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topic = api.part("FetchTopic", topic=filled[0], topic_id=filled[1], partitions=(partition,))
    answer = api.ask("Fetch", max_wait=SECOND, min_bytes=1, topics=(topic,), forgotten_topics_data=())
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.high_watermark) == (0, 1)
    (batch,) = split_batches(row.records)
    assert [(record.key, record.value) for record in decode_records(batch)] == [(b"key", b"value")]


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(bootstrap: str, filled: tuple[str, uuid.UUID], version: int) -> None:
    api = Api(bootstrap, "list_offsets", version)
    for timestamp, offset in ((-1, 1), (-2, 0), (500, 0), (2000, -1)):
        partition = api.part("ListOffsetsPartition", partition_index=0, timestamp=timestamp)
        topic = api.part("ListOffsetsTopic", name=filled[0], partitions=(partition,))
        row = api.ask("ListOffsets", replica_id=-1, isolation_level=0, topics=(topic,)).topics[0].partitions[0]
        assert (row.error_code, row.offset) == (0, offset)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata(bootstrap: str, filled: tuple[str, uuid.UUID], version: int) -> None:
    api = Api(bootstrap, "metadata", version)
    topic = api.part("MetadataRequestTopic", name=filled[0], topic_id=None)
    answer = api.ask(
        "Metadata",
        topics=(topic,),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    assert (answer.topics[0].error_code, answer.topics[0].name) == (0, filled[0])
    assert len(answer.topics[0].partitions) == 1
    assert f"{answer.brokers[0].host}:{answer.brokers[0].port}" == bootstrap


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_create_topics_and_delete_topics(bootstrap: str, topic_name: str, version: int) -> None:
    api = Api(bootstrap, "create_topics", version)
    wish = api.part(
        "CreatableTopic", name=topic_name, num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    for code in (0, 36):
        row = api.ask("CreateTopics", topics=(wish,), timeout=SECOND, validate_only=False).topics[0]
        assert (row.error_code, row.name) == (code, topic_name)
    deleting = Api(bootstrap, "delete_topics", min(version, 5))
    for code in (0, 3):
        (row,) = deleting.ask("DeleteTopics", topic_names=(topic_name,), timeout=SECOND).responses
        assert row.error_code == code


@pytest.mark.parametrize("by_id", [False, True])
def test_delete_topics_version_6(bootstrap: str, new_topic: Callable[..., str], by_id: bool) -> None:
    topic = new_topic()
    api = Api(bootstrap, "delete_topics", 6)
    named = {"name": None, "topic_id": topic_id(bootstrap, topic)} if by_id else {"name": topic, "topic_id": None}
    for code in (0, 100 if by_id else 3):
        (row,) = api.ask("DeleteTopics", topics=(api.part("DeleteTopicState", **named),), timeout=SECOND).responses
        assert row.error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_create_partitions(bootstrap: str, new_topic: Callable[..., str], version: int) -> None:
    api = Api(bootstrap, "create_partitions", version)
    wish = api.part("CreatePartitionsTopic", name=new_topic(), count=3, assignments=None)
    for code in (0, 37):
        answer = api.ask("CreatePartitions", topics=(wish,), timeout=SECOND, validate_only=False)
        assert answer.results[0].error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_describe_configs(bootstrap: str, new_topic: Callable[..., str], version: int) -> None:
    api = Api(bootstrap, "describe_configs", version)
    resource = api.part(
        "DescribeConfigsResource", resource_type=2, resource_name=new_topic(), configuration_keys=("retention.ms",)
    )
    answer = api.ask("DescribeConfigs", resources=(resource,), include_synonyms=True, include_documentation=True)
    (row,) = answer.results
    assert row.error_code == 0
    assert [(config.name, config.value) for config in row.configs] == [("retention.ms", "604800000")]


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_alter_configs(bootstrap: str, new_topic: Callable[..., str], version: int) -> None:
    api = Api(bootstrap, "alter_configs", version)
    topic = new_topic()
    for value, code in (("5", 0), ("five", 40)):
        config = api.part("AlterableConfig", name="retention.ms", value=value)
        resource = api.part("AlterConfigsResource", resource_type=2, resource_name=topic, configs=(config,))
        answer = api.ask("AlterConfigs", resources=(resource,), validate_only=False)
        assert answer.responses[0].error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_incremental_alter_configs(bootstrap: str, new_topic: Callable[..., str], version: int) -> None:
    api = Api(bootstrap, "incremental_alter_configs", version)
    topic = new_topic()
    for operation, value, code in ((0, "5", 0), (1, None, 0), (0, "five", 40), (2, "5", 40)):
        config = api.part("AlterableConfig", name="retention.ms", config_operation=operation, value=value)
        resource = api.part("AlterConfigsResource", resource_type=2, resource_name=topic, configs=(config,))
        answer = api.ask("IncrementalAlterConfigs", resources=(resource,), validate_only=False)
        assert answer.responses[0].error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_delete_records(bootstrap: str, filled: tuple[str, uuid.UUID], version: int) -> None:
    api = Api(bootstrap, "delete_records", version)
    for offset, code in ((0, 0), (5, 1)):
        partition = api.part("DeleteRecordsPartition", partition_index=0, offset=offset)
        topic = api.part("DeleteRecordsTopic", name=filled[0], partitions=(partition,))
        row = api.ask("DeleteRecords", topics=(topic,), timeout=SECOND).topics[0].partitions[0]
        assert row.error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id(bootstrap: str, version: int) -> None:
    api = Api(bootstrap, "init_producer_id", version)
    values = {"transactional_id": None, "transaction_timeout": SECOND, "producer_id": -1, "producer_epoch": -1}
    first, second = (api.ask("InitProducerId", **values) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_offset_for_leader_epoch(bootstrap: str, filled: tuple[str, uuid.UUID], version: int) -> None:
    api = Api(bootstrap, "offset_for_leader_epoch", version)
    partition = api.part("OffsetForLeaderPartition", partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = api.part("OffsetForLeaderTopic", topic=filled[0], partitions=(partition,))
    row = api.ask("OffsetForLeaderEpoch", replica_id=-1, topics=(topic,)).topics[0].partitions[0]
    assert (row.error_code, row.end_offset) == (0, 1)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_describe_cluster(bootstrap: str, version: int) -> None:
    answer = Api(bootstrap, "describe_cluster", version).ask(
        "DescribeCluster", include_cluster_authorized_operations=True, endpoint_type=1, include_fenced_brokers=False
    )
    assert answer.error_code == 0
    assert answer.controller_id in {broker.broker_id for broker in answer.brokers}


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(bootstrap: str, version: int) -> None:
    answer = Api(bootstrap, "find_coordinator", version).ask(
        "FindCoordinator", key="group", key_type=0, coordinator_keys=("group",)
    )
    row = answer.coordinators[0] if version >= 4 else answer
    assert row.error_code == 0
    assert f"{row.host}:{row.port}" == bootstrap


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_api_versions(bootstrap: str, version: int) -> None:
    answer = Api(bootstrap, "api_versions", version).ask(
        "ApiVersions", client_software_name="test", client_software_version="1"
    )
    found = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert found == {api.key: (api.lowest, api.highest) for api in APIS.values()}
