"""Every API in every version that is advertised, through a live gateway, with codecs that are not ours."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.protocol import admin as old_admin
from aiokafka.protocol import fetch as old_fetch
from aiokafka.protocol import offset as old_offset
from aiokafka.protocol import produce as old_produce
from gateway_cluster import Cluster
from kafka.protocol.admin import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest
from kafka_wire import Client, batch, create, produce_request

from nodes.kafka import APIS, ApiKey

UNKNOWN_TOPIC, UNKNOWN_ID, NOT_FOR_TRANSACTIONS = 3, 100, 53


def versions(key: ApiKey, first: int | None = None) -> Any:
    api = APIS[key]
    return pytest.mark.parametrize("version", range(api.lowest if first is None else first, api.highest + 1))


@pytest.fixture
def client(gateway: Cluster) -> Iterator[Client]:
    with Client(gateway.port) as connection:
        yield connection


def topic_id_of(client: Client, topic: str) -> uuid.UUID:
    found = metadata(client, topic, 12).topics[0].topic_id
    assert isinstance(found, uuid.UUID)
    return found


def metadata(client: Client, topic: str, version: int) -> Any:
    asked = MetadataRequest.MetadataRequestTopic(name=topic, topic_id=uuid.UUID(int=0))
    return client.call(MetadataRequest(topics=[asked], allow_auto_topic_creation=False), version)


@versions(ApiKey.API_VERSIONS)
def test_api_versions(client: Client, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response = client.call(request, version)
    assert response.error_code == 0
    assert {item.api_key: (item.min_version, item.max_version) for item in response.api_keys} == {
        key: (api.lowest, api.highest) for key, api in APIS.items()
    }


@versions(ApiKey.METADATA)
def test_metadata(client: Client, gateway: Cluster, version: int) -> None:
    topic = create(client, partitions=2)
    response = metadata(client, topic, version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (0, "127.0.0.1", gateway.port)
    (found,) = response.topics
    assert (found.error_code, found.name) == (0, topic)
    assert [(p.partition_index, p.leader_id, p.error_code) for p in found.partitions] == [(0, 0, 0), (1, 0, 0)]
    assert [list(p.replica_nodes) for p in found.partitions] == [[0], [0]]
    if version >= 1:
        assert response.controller_id == 0
    if version >= 2:
        assert response.cluster_id == "fake-cluster"
    if version >= 7:
        assert {p.leader_epoch for p in found.partitions} == {0}
    if version >= 8:
        assert found.authorized_operations in (None, -(2**31))
    if version >= 10:
        assert found.topic_id.int != 0


@versions(ApiKey.METADATA)
def test_metadata_of_all_topics_and_of_none(client: Client, version: int) -> None:
    topic = create(client)
    everything = client.call(MetadataRequest(topics=[] if version == 0 else None), version)
    assert topic in [item.name for item in everything.topics]
    if version >= 1:
        nothing = client.call(MetadataRequest(topics=[]), version)
        assert nothing.topics == []
        assert len(nothing.brokers) == 1


@versions(ApiKey.METADATA, first=10)
def test_metadata_by_id(client: Client, version: int) -> None:
    topic = create(client)
    known, unknown = topic_id_of(client, topic), uuid.uuid4()
    kind = MetadataRequest.MetadataRequestTopic
    asked = [kind(name=None, topic_id=known), kind(name=None, topic_id=unknown)]
    response = client.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version)
    assert [(item.error_code, item.name) for item in response.topics] == [
        (0, topic),
        (UNKNOWN_ID, None if version >= 12 else ""),
    ]


@versions(ApiKey.METADATA)
def test_metadata_creates_only_where_the_client_allows_it(client: Client, version: int) -> None:
    name = f"auto-{uuid.uuid4().hex}"
    response = metadata(client, name, version)  # its flag says no, which versions below 4 cannot say
    assert response.topics[0].error_code == (UNKNOWN_TOPIC if version >= 4 else 0)


@versions(ApiKey.PRODUCE, first=3)
def test_produce(client: Client, version: int) -> None:
    topic = create(client)
    for expected in (0, 2):
        response = client.call(produce_request(topic, 0, batch(b"a", b"b")), version)
        (item,) = response.responses
        (partition,) = item.partition_responses
        assert (item.name, partition.index, partition.error_code, partition.base_offset) == (topic, 0, 0, expected)
    missing = client.call(produce_request("no-such-topic", 0, batch(b"a")), version)
    assert missing.responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC
    wrong = client.call(produce_request(topic, 9, batch(b"a")), version)
    assert wrong.responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_of_old_versions(client: Client, version: int) -> None:
    topic = create(client)
    kind = getattr(old_produce, f"ProduceRequest_v{version}")
    response = client.old_call(kind(1, 1000, [(topic, [(0, b"an old message set")])]))
    ((name, ((partition, error, offset, *_),)),) = response.topics
    assert (name, partition, error, offset) == (topic, 0, 0, 0)


def fetch_request(topic: str, topic_id: uuid.UUID, offset: int = 0, **fields: Any) -> Any:
    kind = FetchRequest.FetchTopic
    partition = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    asked = kind(topic=topic, topic_id=topic_id, partitions=[partition])
    settings = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1_000_000, "session_id": 0, "session_epoch": -1}
    return FetchRequest(topics=[asked], forgotten_topics_data=[], rack_id="", **settings | fields)


@versions(ApiKey.FETCH, first=4)
def test_fetch(client: Client, version: int) -> None:
    topic = create(client)
    client.call(produce_request(topic, 0, batch(b"a", b"b")), 9)
    topic_id = topic_id_of(client, topic)
    response = client.call(fetch_request(topic, topic_id), version)
    (found,) = response.responses
    assert found.topic_id == topic_id if version >= 13 else found.topic == topic
    (partition,) = found.partitions
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert bytes(partition.records) == batch(b"a", b"b")
    if version >= 7:
        assert (response.error_code, response.session_id) == (0, 0)
    empty = client.call(fetch_request(topic, topic_id, offset=2), version)
    assert empty.responses[0].partitions[0].error_code == 0
    assert not empty.responses[0].partitions[0].records
    beyond = client.call(fetch_request(topic, topic_id, offset=3), version)
    assert beyond.responses[0].partitions[0].error_code == 1
    unknown = client.call(fetch_request("no-such-topic", uuid.uuid4()), version)
    assert unknown.responses[0].partitions[0].error_code == (UNKNOWN_ID if version >= 13 else UNKNOWN_TOPIC)


@versions(ApiKey.FETCH, first=7)
def test_fetch_sessions_are_never_granted(client: Client, version: int) -> None:
    topic = create(client)
    topic_id = topic_id_of(client, topic)
    new = client.call(fetch_request(topic, topic_id, session_epoch=0), version)
    assert (new.error_code, new.session_id, len(new.responses)) == (0, 0, 1)
    unknown = client.call(fetch_request(topic, topic_id, session_id=5, session_epoch=1), version)
    assert (unknown.error_code, unknown.responses) == (70, [])
    wrong = client.call(fetch_request(topic, topic_id, session_id=0, session_epoch=3), version)
    assert (wrong.error_code, wrong.responses) == (71, [])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_fetch_of_old_versions(client: Client, version: int) -> None:
    topic = create(client)
    client.call(produce_request(topic, 0, batch(b"a")), 9)
    kind = getattr(old_fetch, f"FetchRequest_v{version}")
    limit = (100_000,) if version == 3 else ()
    response = client.old_call(kind(-1, 100, 1, *limit, [(topic, [(0, 0, 100_000)])]))
    assert response.topics == [(topic, [(0, 0, 1, batch(b"a"))])]


@versions(ApiKey.LIST_OFFSETS, first=1)
def test_list_offsets(client: Client, version: int) -> None:
    topic = create(client)
    client.call(produce_request(topic, 0, batch(b"a", b"b", b"c")), 9)
    kind = ListOffsetsRequest.ListOffsetsTopic
    asked = [
        kind(
            name=topic,
            partitions=[
                kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=timestamp)
                for number, timestamp in ((0, -1), (0, -2), (7, -1))
            ],
        )
    ]
    response = client.call(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=asked), version)
    found = [(p.partition_index, p.error_code, p.offset) for p in response.topics[0].partitions]
    assert found == [(0, 0, 3), (0, 0, 0), (7, UNKNOWN_TOPIC, -1)]


def test_list_offsets_of_the_oldest_version(client: Client) -> None:
    topic = create(client)
    client.call(produce_request(topic, 0, batch(b"a", b"b", b"c")), 9)
    response = client.old_call(old_offset.OffsetRequest_v0(-1, [(topic, [(0, -1, 1), (0, -2, 1)])]))
    assert response.topics == [(topic, [(0, 0, [3]), (0, 0, [0])])]


@versions(ApiKey.FIND_COORDINATOR)
def test_find_coordinator_names_the_gateway(client: Client, gateway: Cluster, version: int) -> None:
    response = client.call(FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g", "h"]), version)
    found = response.coordinators if version >= 4 else [response]
    assert {(item.error_code, item.node_id, item.host, item.port) for item in found} == {
        (0, 0, "127.0.0.1", gateway.port)
    }
    assert version < 4 or [item.key for item in found] == ["g", "h"]
    if version >= 1:
        response = client.call(FindCoordinatorRequest(key="x", key_type=1, coordinator_keys=["x"]), version)
        assert (response.coordinators[0] if version >= 4 else response).error_code == NOT_FOR_TRANSACTIONS


def new_topic(name: str, **fields: Any) -> Any:
    settings = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    return CreateTopicsRequest.CreatableTopic(name=name, **settings | fields)


@versions(ApiKey.CREATE_TOPICS, first=2)
def test_create_topics(client: Client, version: int) -> None:
    name = f"made-{uuid.uuid4().hex}"
    kind = CreateTopicsRequest.CreatableTopic
    config = kind.CreatableTopicConfig(name="retention.ms", value="5")
    replicas = [kind.CreatableReplicaAssignment(partition_index=0, broker_ids=[7])]
    topics = [
        new_topic(name, configs=[config]),
        new_topic(name),
        new_topic("bad", num_partitions=0),
        new_topic("elsewhere", num_partitions=-1, replication_factor=-1, assignments=replicas),
    ]
    response = client.call(CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=False), version)
    assert [(item.name, item.error_code) for item in response.topics] == [
        (name, 0),
        (name, 36),
        ("bad", 37),
        ("elsewhere", 39),
    ]
    made = response.topics[0]
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        assert [(item.name, item.value, item.config_source) for item in made.configs] == [("retention.ms", "5", 1)]
    if version >= 7:
        assert made.topic_id == topic_id_of(client, name)


@versions(ApiKey.CREATE_TOPICS, first=2)
def test_create_topics_that_only_checks_makes_nothing(client: Client, version: int) -> None:
    name = f"checked-{uuid.uuid4().hex}"
    request = CreateTopicsRequest(topics=[new_topic(name)], timeout_ms=1000, validate_only=True)
    assert client.call(request, version).topics[0].error_code == 0
    assert metadata(client, name, 9).topics[0].error_code == UNKNOWN_TOPIC


@pytest.mark.parametrize("version", [0, 1])
def test_create_topics_of_old_versions(client: Client, version: int) -> None:
    name = f"old-{uuid.uuid4().hex}"
    kind = getattr(old_admin, f"CreateTopicsRequest_v{version}")
    response = client.old_call(kind([(name, 2, 1, [], [])], 1000, *([False] if version else [])))
    assert response.to_object()["topic_errors"][0]["error_code"] == 0
    assert len(metadata(client, name, 9).topics[0].partitions) == 2


@versions(ApiKey.DELETE_TOPICS, first=1)
def test_delete_topics(client: Client, version: int) -> None:
    topic = create(client)
    kind = DeleteTopicsRequest.DeleteTopicState
    nowhere = uuid.UUID(int=0)
    states = [kind(name=topic, topic_id=nowhere), kind(name="no-such-topic", topic_id=nowhere)]
    request = DeleteTopicsRequest(topics=states, topic_names=[topic, "no-such-topic"], timeout_ms=1000)
    response = client.call(request, version)
    assert [(item.name, item.error_code) for item in response.responses] == [
        (topic, 0),
        ("no-such-topic", UNKNOWN_TOPIC),
    ]
    assert client.call(produce_request(topic, 0, batch(b"a")), 9).responses[0].partition_responses[0].error_code == 3


def test_delete_topics_by_id(client: Client) -> None:
    topic = create(client)
    kind = DeleteTopicsRequest.DeleteTopicState
    known, unknown = topic_id_of(client, topic), uuid.uuid4()
    states = [kind(name=None, topic_id=known), kind(name=None, topic_id=unknown)]
    response = client.call(DeleteTopicsRequest(topics=states, topic_names=[], timeout_ms=1000), 6)
    assert [(item.name, item.topic_id, item.error_code) for item in response.responses] == [
        (topic, known, 0),
        (None, unknown, UNKNOWN_ID),
    ]


def test_delete_topics_of_the_oldest_version(client: Client) -> None:
    topic = create(client)
    response = client.old_call(old_admin.DeleteTopicsRequest_v0([topic], 1000))
    assert response.topic_error_codes == [(topic, 0)]


@versions(ApiKey.CREATE_PARTITIONS)
def test_create_partitions(client: Client, version: int) -> None:
    topic = create(client)
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [kind(name=topic, count=3, assignments=None), kind(name="no-such-topic", count=3, assignments=None)]
    response = client.call(CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False), version)
    assert [(item.name, item.error_code) for item in response.results] == [(topic, 0), ("no-such-topic", 3)]
    assert client.call(produce_request(topic, 2, batch(b"a")), 9).responses[0].partition_responses[0].error_code == 0


@versions(ApiKey.DELETE_RECORDS)
def test_delete_records(client: Client, version: int) -> None:
    topic = create(client)
    client.call(produce_request(topic, 0, batch(b"a", b"b", b"c")), 9)
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    partitions = [kind.DeleteRecordsPartition(partition_index=number, offset=2) for number in (0, 8)]
    request = DeleteRecordsRequest(topics=[kind(name=topic, partitions=partitions)], timeout_ms=1000)
    response = client.call(request, version)
    found = [(p.partition_index, p.low_watermark, p.error_code) for p in response.topics[0].partitions]
    assert found == [(0, 2, 0), (8, -1, UNKNOWN_TOPIC)]


@versions(ApiKey.DESCRIBE_CLUSTER)
def test_describe_cluster(client: Client, gateway: Cluster, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    response = client.call(request, version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "fake-cluster", 0)
    assert [(item.broker_id, item.host, item.port) for item in response.brokers] == [(0, "127.0.0.1", gateway.port)]
    assert response.authorized_operations


@versions(ApiKey.INIT_PRODUCER_ID)
def test_init_producer_id(client: Client, version: int) -> None:
    fields = {"transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    first = client.call(InitProducerIdRequest(transactional_id=None, **fields), version)
    second = client.call(InitProducerIdRequest(transactional_id=None, **fields), version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert second.producer_id > first.producer_id > 0
    assert (
        client.call(InitProducerIdRequest(transactional_id="x", **fields), version).error_code == NOT_FOR_TRANSACTIONS
    )


@versions(ApiKey.OFFSET_FOR_LEADER_EPOCH, first=2)
def test_offset_for_leader_epoch(client: Client, version: int) -> None:
    topic = create(client)
    client.call(produce_request(topic, 0, batch(b"a", b"b")), 9)
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partitions = [
        kind.OffsetForLeaderPartition(partition=number, current_leader_epoch=-1, leader_epoch=0) for number in (0, 5)
    ]
    request = OffsetForLeaderEpochRequest(replica_id=-2, topics=[kind(topic=topic, partitions=partitions)])
    response = client.call(request, version)
    found = [(p.partition, p.error_code, p.leader_epoch, p.end_offset) for p in response.topics[0].partitions]
    assert found == [(0, 0, 0, 2), (5, UNKNOWN_TOPIC, -1, -1)]


@versions(ApiKey.DESCRIBE_CONFIGS, first=1)
def test_describe_configs(client: Client, version: int) -> None:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resources = [kind(resource_type=2, resource_name="t", configuration_keys=None)]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    (result,) = client.call(request, version).results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, "t")
    (config,) = result.configs
    assert (config.name, config.value, config.config_source) == ("retention.ms", "604800000", 5)
    assert [item.name for item in config.synonyms] == ["retention.ms"]
    assert version < 3 or config.documentation == "How long records are kept."


def test_describe_configs_of_the_oldest_version(client: Client) -> None:
    response = client.old_call(old_admin.DescribeConfigsRequest_v0([(2, "t", None)]))
    assert response.resources[0][4][0][:2] == ("retention.ms", "604800000")


@versions(ApiKey.ALTER_CONFIGS)
def test_alter_configs(client: Client, version: int) -> None:
    kind = AlterConfigsRequest.AlterConfigsResource
    config = kind.AlterableConfig(name="retention.ms", value="5")
    request = AlterConfigsRequest(
        resources=[kind(resource_type=2, resource_name="t", configs=[config])], validate_only=False
    )
    (result,) = client.call(request, version).responses
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, "t")


@versions(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def test_incremental_alter_configs(client: Client, version: int) -> None:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [
        kind(
            resource_type=2,
            resource_name=f"t{operation}",
            configs=[kind.AlterableConfig(name="retention.ms", config_operation=operation, value="5")],
        )
        for operation in (0, -3, 2)
    ]
    response = client.call(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), version)
    assert [(item.resource_name, item.error_code) for item in response.responses] == [("t0", 0), ("t-3", 42), ("t2", 0)]
