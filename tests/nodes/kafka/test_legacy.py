"""The versions by hand against aiokafka's codecs of the same versions: it writes our requests and reads our answers."""

import datetime
import io
from typing import Any

import pytest
from aiokafka.protocol import admin, fetch, offset, produce
from aiokafka.protocol.api import RequestHeader_v1

from nodes.kafka import APIS, ApiKey, ErrorCode, Request, decode_request, encode_response, entities
from nodes.kafka.codec import Wire

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
MOMENT_MS = 1767323045678


def decoded(request: Any) -> Any:
    """The body of a request that aiokafka encoded."""
    header = RequestHeader_v1(request, correlation_id=5, client_id="old")
    read = decode_request(memoryview(header.encode() + request.encode()))
    assert (read.correlation_id, read.client_id, read.version) == (5, "old", request.API_VERSION)
    return read.body


def answer(key: ApiKey, version: int, response: Any) -> bytes:
    """The response's body, without length and correlation id."""
    return b"".join(encode_response(Request(Wire(APIS[key], version), 5, None, None, 0), response))[8:]


def build(key: ApiKey) -> entities.Builders:
    return entities.Builders(APIS[key], 0)


def read_all(kind: Any, data: bytes) -> Any:
    stream = io.BytesIO(data)
    read = kind.decode(stream)
    assert stream.read() == b""
    return read


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce(version: int) -> None:
    kind = getattr(produce, f"ProduceRequest_v{version}")
    body = decoded(kind(1, 1500, [("t", [(3, b"records"), (4, b"")])]))
    assert body.acks == 1
    assert body.timeout == datetime.timedelta(milliseconds=1500)
    assert [(topic.name, [(p.index, bytes(p.records)) for p in topic.partition_data]) for topic in body.topic_data] == [
        ("t", [(3, b"records"), (4, b"")])
    ]
    make = build(ApiKey.PRODUCE)
    partition = make.PartitionProduceResponse(
        index=3, error_code=ErrorCode.corrupt_message, base_offset=9, log_append_time=MOMENT, log_start_offset=1
    )
    topic = make.TopicProduceResponse(name="t", partition_responses=(partition,))
    response = make.ProduceResponse(responses=(topic,), throttle_time=datetime.timedelta(milliseconds=7))
    read = read_all(getattr(produce, f"ProduceResponse_v{version}"), answer(ApiKey.PRODUCE, version, response))
    assert read.topics == [("t", [(3, 2, 9, MOMENT_MS) if version == 2 else (3, 2, 9)])]
    assert version == 0 or read.throttle_time_ms == 7


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_fetch(version: int) -> None:
    kind = getattr(fetch, f"FetchRequest_v{version}")
    limit = (4096,) if version == 3 else ()
    body = decoded(kind(-1, 500, 1, *limit, [("t", [(0, 17, 1000)])]))
    assert (body.min_bytes, body.max_bytes) == (1, 4096 if version == 3 else 2**31 - 1)
    assert body.max_wait == datetime.timedelta(milliseconds=500)
    partition = body.topics[0].partitions[0]
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (0, 17, 1000)
    make = build(ApiKey.FETCH)
    data = make.PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=20,
        last_stable_offset=20,
        aborted_transactions=None,
        records=memoryview(b"records"),
    )
    topic = make.FetchableTopicResponse(topic="t", partitions=(data,))
    response = make.FetchResponse(throttle_time=datetime.timedelta(), responses=(topic,))
    read = read_all(getattr(fetch, f"FetchResponse_v{version}"), answer(ApiKey.FETCH, version, response))
    assert read.topics == [("t", [(0, 0, 20, b"records")])]


def test_list_offsets() -> None:
    body = decoded(offset.OffsetRequest_v0(-1, [("t", [(2, -1, 1)])]))
    partition = body.topics[0].partitions[0]
    assert (body.topics[0].name, partition.partition_index, partition.timestamp) == ("t", 2, -1)
    make = build(ApiKey.LIST_OFFSETS)
    found = make.ListOffsetsPartitionResponse(partition_index=2, error_code=ErrorCode.none, offset=40)
    none = make.ListOffsetsPartitionResponse(partition_index=3, error_code=ErrorCode.none, offset=-1)
    response = make.ListOffsetsResponse(topics=(make.ListOffsetsTopicResponse(name="t", partitions=(found, none)),))
    read = read_all(offset.OffsetResponse_v0, answer(ApiKey.LIST_OFFSETS, 0, response))
    assert read.topics == [("t", [(2, 0, [40]), (3, 0, [])])]


@pytest.mark.parametrize("version", [0, 1])
def test_create_topics(version: int) -> None:
    kind = getattr(admin, f"CreateTopicsRequest_v{version}")
    topics = [("a", 3, 1, [], [("retention.ms", "5")]), ("b", -1, -1, [(0, [0]), (1, [0])], [])]
    body = decoded(kind(topics, 1000, *([True] if version else [])))
    assert body.validate_only is bool(version)
    first, second = body.topics
    assert (first.name, first.num_partitions, first.replication_factor) == ("a", 3, 1)
    assert [(config.name, config.value) for config in first.configs] == [("retention.ms", "5")]
    assert [(item.partition_index, item.broker_ids) for item in second.assignments] == [(0, (0,)), (1, (0,))]
    make = build(ApiKey.CREATE_TOPICS)
    result = make.CreatableTopicResult(name="a", error_code=ErrorCode.topic_already_exists, error_message="it is there")
    response = make.CreateTopicsResponse(throttle_time=datetime.timedelta(), topics=(result,))
    read = read_all(getattr(admin, f"CreateTopicsResponse_v{version}"), answer(ApiKey.CREATE_TOPICS, version, response))
    (error,) = read.to_object()["topic_errors"]
    assert error["error_code"] == 36
    assert version == 0 or error["error_message"] == "it is there"


def test_delete_topics() -> None:
    body = decoded(admin.DeleteTopicsRequest_v0(["a", "b"], 1000))
    assert body.topic_names == ("a", "b")
    make = build(ApiKey.DELETE_TOPICS)
    result = make.DeletableTopicResult(name="a", error_code=ErrorCode.unknown_topic_or_partition)
    response = make.DeleteTopicsResponse(throttle_time=datetime.timedelta(), responses=(result,))
    read = read_all(admin.DeleteTopicsResponse_v0, answer(ApiKey.DELETE_TOPICS, 0, response))
    assert read.topic_error_codes == [("a", 3)]


def test_describe_configs() -> None:
    body = decoded(admin.DescribeConfigsRequest_v0([(2, "t", ["retention.ms"]), (4, "0", None)]))
    assert [(item.resource_type, item.resource_name, item.configuration_keys) for item in body.resources] == [
        (2, "t", ("retention.ms",)),
        (4, "0", None),
    ]
    make = build(ApiKey.DESCRIBE_CONFIGS)
    config = {"value": "5", "read_only": False, "is_sensitive": False, "synonyms": ()}
    configs = tuple(
        make.DescribeConfigsResourceResult(name=name, config_source=source, **config)
        for name, source in (("default", 5), ("set", 1))
    )
    result = make.DescribeConfigsResult(
        error_code=ErrorCode.none, error_message=None, resource_type=2, resource_name="t", configs=configs
    )
    response = make.DescribeConfigsResponse(throttle_time=datetime.timedelta(), results=(result,))
    read = read_all(admin.DescribeConfigsResponse_v0, answer(ApiKey.DESCRIBE_CONFIGS, 0, response))
    entries = read.resources[0][4]
    assert [(entry[0], entry[1], entry[3]) for entry in entries] == [("default", "5", True), ("set", "5", False)]


@pytest.mark.parametrize("version", [0, 1])
def test_offset_for_leader_epoch_has_no_epoch_of_the_client(version: int) -> None:
    """No client library at hand has these two versions: the bytes are as Kafka's message definition says."""
    topics = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + (3).to_bytes(4, "big") + (0).to_bytes(4, "big")
    frame = b"\0\x17" + version.to_bytes(2, "big") + b"\0\0\0\5" + b"\xff\xff" + topics
    body = decode_request(memoryview(frame)).body
    partition = body.topics[0].partitions[0]
    assert (partition.partition, partition.leader_epoch, partition.current_leader_epoch) == (3, 0, -1)
    make = build(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    end = make.EpochEndOffset(error_code=ErrorCode.none, partition=3, leader_epoch=0, end_offset=12)
    topic = make.OffsetForLeaderTopicResult(topic="t", partitions=(end,))
    response = make.OffsetForLeaderEpochResponse(throttle_time=datetime.timedelta(), topics=(topic,))
    data = answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, response)
    epoch = b"\0\0\0\0" if version else b""
    assert data == b"\0\0\0\1\0\1t\0\0\0\1" + b"\0\0" + b"\0\0\0\3" + epoch + (12).to_bytes(8, "big")
