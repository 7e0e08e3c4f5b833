"""The versions that kio does not have, by hand: each maps onto the entities of kio's lowest version of the API.

So the rest of the gateway sees one form. What an old version cannot say takes the value that the protocol gives it;
what an old client cannot read is left out.
"""

import datetime
import struct
from collections.abc import Callable
from typing import Any

from kio.schema.create_topics.v2 import request as create_topics
from kio.schema.delete_topics.v1 import request as delete_topics
from kio.schema.describe_configs.v1 import request as describe_configs
from kio.schema.fetch.v4 import request as fetch
from kio.schema.list_offsets.v1 import request as list_offsets
from kio.schema.offset_for_leader_epoch.v2 import request as epochs
from kio.schema.produce.v3 import request as produce

from nodes.kafka.apis import ApiKey
from nodes.kafka.cursor import Cursor

Buffer = bytes | bytearray | memoryview
Parts = list[Buffer]

# Where a version has no such field: as much as an int32 says.
NO_LIMIT = 2**31 - 1
# DescribeConfigs 0 says "default" or not instead of where a value comes from.
_DEFAULT_CONFIG_SOURCE = 5


def decode(key: ApiKey, version: int, cursor: Cursor) -> Any:
    """The request's body, as kio's lowest version has it."""
    return _DECODERS[key](version, cursor)


def encode(key: ApiKey, version: int, parts: Parts, response: Any) -> None:
    """Appends the response's body."""
    _ENCODERS[key](version, response, parts)


# Requests


def _decode_produce(_version: int, cursor: Cursor) -> Any:
    def partition(cursor: Cursor) -> Any:
        return _new(produce.PartitionProduceData, index=cursor.int32(), records=cursor.nullable_bytes())

    def topic(cursor: Cursor) -> Any:
        return _new(produce.TopicProduceData, name=cursor.string(), partition_data=cursor.array(partition))

    return _new(
        produce.ProduceRequest,
        transactional_id=None,
        acks=cursor.int16(),
        timeout=cursor.milliseconds(),
        topic_data=cursor.array(topic),
    )


def _decode_fetch(version: int, cursor: Cursor) -> Any:
    def partition(cursor: Cursor) -> Any:
        return _new(
            fetch.FetchPartition,
            partition=cursor.int32(),
            fetch_offset=cursor.int64(),
            partition_max_bytes=cursor.int32(),
        )

    def topic(cursor: Cursor) -> Any:
        return _new(fetch.FetchTopic, topic=cursor.string(), partitions=cursor.array(partition))

    return _new(
        fetch.FetchRequest,
        replica_id=cursor.int32(),
        max_wait=cursor.milliseconds(),
        min_bytes=cursor.int32(),
        max_bytes=cursor.int32() if version >= 3 else NO_LIMIT,
        isolation_level=0,
        topics=cursor.array(topic),
    )


def _decode_list_offsets(_version: int, cursor: Cursor) -> Any:
    def partition(cursor: Cursor) -> Any:
        entity = _new(list_offsets.ListOffsetsPartition, partition_index=cursor.int32(), timestamp=cursor.int64())
        cursor.int32()  # max_num_offsets: one is given
        return entity

    def topic(cursor: Cursor) -> Any:
        return _new(list_offsets.ListOffsetsTopic, name=cursor.string(), partitions=cursor.array(partition))

    return _new(list_offsets.ListOffsetsRequest, replica_id=cursor.int32(), topics=cursor.array(topic))


def _decode_create_topics(version: int, cursor: Cursor) -> Any:
    def assignment(cursor: Cursor) -> Any:
        return _new(
            create_topics.CreatableReplicaAssignment,
            partition_index=cursor.int32(),
            broker_ids=cursor.array(Cursor.int32),
        )

    def config(cursor: Cursor) -> Any:
        return _new(create_topics.CreatableTopicConfig, name=cursor.string(), value=cursor.nullable_string())

    def topic(cursor: Cursor) -> Any:
        return _new(
            create_topics.CreatableTopic,
            name=cursor.string(),
            num_partitions=cursor.int32(),
            replication_factor=cursor.int16(),
            assignments=cursor.array(assignment),
            configs=cursor.array(config),
        )

    return _new(
        create_topics.CreateTopicsRequest,
        topics=cursor.array(topic),
        timeout=cursor.milliseconds(),
        validate_only=cursor.boolean() if version >= 1 else False,
    )


def _decode_delete_topics(_version: int, cursor: Cursor) -> Any:
    return _new(
        delete_topics.DeleteTopicsRequest,
        topic_names=cursor.array(Cursor.string),
        timeout=cursor.milliseconds(),
    )


def _decode_describe_configs(_version: int, cursor: Cursor) -> Any:
    def resource(cursor: Cursor) -> Any:
        return _new(
            describe_configs.DescribeConfigsResource,
            resource_type=cursor.int8(),
            resource_name=cursor.string(),
            configuration_keys=cursor.nullable_array(Cursor.string),
        )

    return _new(describe_configs.DescribeConfigsRequest, resources=cursor.array(resource), include_synonyms=False)


def _decode_epochs(_version: int, cursor: Cursor) -> Any:
    def partition(cursor: Cursor) -> Any:
        return _new(
            epochs.OffsetForLeaderPartition,
            partition=cursor.int32(),
            current_leader_epoch=-1,
            leader_epoch=cursor.int32(),
        )

    def topic(cursor: Cursor) -> Any:
        return _new(epochs.OffsetForLeaderTopic, topic=cursor.string(), partitions=cursor.array(partition))

    return _new(epochs.OffsetForLeaderEpochRequest, topics=cursor.array(topic))


def _new(kind: Any, **fields: Any) -> Any:
    """The fields have nominal types (i32, TopicName) that plain values satisfy at run time, but not for mypy."""
    return kind(**fields)


# Responses


def _string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _array(parts: Parts, items: tuple[Any, ...], write: Callable[[Any], None]) -> None:
    parts.append(struct.pack(">i", len(items)))
    for item in items:
        write(item)


def _throttle(response: Any) -> bytes:
    return struct.pack(">i", response.throttle_time // datetime.timedelta(milliseconds=1))


def _append_time(moment: datetime.datetime | None) -> int:
    return -1 if moment is None else round(moment.timestamp() * 1000)


def _encode_produce(version: int, response: Any, parts: Parts) -> None:
    def partition(item: Any) -> None:
        parts.append(struct.pack(">ihq", item.index, item.error_code, item.base_offset))
        if version >= 2:
            parts.append(struct.pack(">q", _append_time(item.log_append_time)))

    def topic(item: Any) -> None:
        parts.append(_string(item.name))
        _array(parts, item.partition_responses, partition)

    _array(parts, response.responses, topic)
    if version >= 1:
        parts.append(_throttle(response))


def _encode_fetch(version: int, response: Any, parts: Parts) -> None:
    def partition(item: Any) -> None:
        records = item.records or b""
        parts.append(struct.pack(">ihqi", item.partition_index, item.error_code, item.high_watermark, len(records)))
        parts.append(records)

    def topic(item: Any) -> None:
        parts.append(_string(item.topic))
        _array(parts, item.partitions, partition)

    if version >= 1:
        parts.append(_throttle(response))
    _array(parts, response.responses, topic)


def _encode_list_offsets(_version: int, response: Any, parts: Parts) -> None:
    def partition(item: Any) -> None:
        offsets = [item.offset] if item.offset >= 0 else []
        form = f">ihi{len(offsets)}q"
        parts.append(struct.pack(form, item.partition_index, item.error_code, len(offsets), *offsets))

    def topic(item: Any) -> None:
        parts.append(_string(item.name))
        _array(parts, item.partitions, partition)

    _array(parts, response.topics, topic)


def _encode_create_topics(version: int, response: Any, parts: Parts) -> None:
    def topic(item: Any) -> None:
        parts.append(_string(item.name) + struct.pack(">h", item.error_code))
        if version >= 1:
            parts.append(_string(item.error_message))

    _array(parts, response.topics, topic)


def _encode_delete_topics(_version: int, response: Any, parts: Parts) -> None:
    _array(
        parts, response.responses, lambda item: parts.append(_string(item.name) + struct.pack(">h", item.error_code))
    )


def _encode_describe_configs(_version: int, response: Any, parts: Parts) -> None:
    def config(item: Any) -> None:
        is_default = item.config_source == _DEFAULT_CONFIG_SOURCE
        parts.append(_string(item.name) + _string(item.value))
        parts.append(struct.pack(">???", item.read_only, is_default, item.is_sensitive))

    def result(item: Any) -> None:
        parts.append(struct.pack(">h", item.error_code) + _string(item.error_message))
        parts.append(struct.pack(">b", item.resource_type) + _string(item.resource_name))
        _array(parts, item.configs, config)

    parts.append(_throttle(response))
    _array(parts, response.results, result)


def _encode_epochs(version: int, response: Any, parts: Parts) -> None:
    def partition(item: Any) -> None:
        parts.append(struct.pack(">hi", item.error_code, item.partition))
        if version >= 1:
            parts.append(struct.pack(">i", item.leader_epoch))
        parts.append(struct.pack(">q", item.end_offset))

    def topic(item: Any) -> None:
        parts.append(_string(item.topic))
        _array(parts, item.partitions, partition)

    _array(parts, response.topics, topic)


_DECODERS: dict[ApiKey, Callable[[int, Cursor], Any]] = {
    ApiKey.PRODUCE: _decode_produce,
    ApiKey.FETCH: _decode_fetch,
    ApiKey.LIST_OFFSETS: _decode_list_offsets,
    ApiKey.CREATE_TOPICS: _decode_create_topics,
    ApiKey.DELETE_TOPICS: _decode_delete_topics,
    ApiKey.DESCRIBE_CONFIGS: _decode_describe_configs,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _decode_epochs,
}
_ENCODERS: dict[ApiKey, Callable[[int, Any, Parts], None]] = {
    ApiKey.PRODUCE: _encode_produce,
    ApiKey.FETCH: _encode_fetch,
    ApiKey.LIST_OFFSETS: _encode_list_offsets,
    ApiKey.CREATE_TOPICS: _encode_create_topics,
    ApiKey.DELETE_TOPICS: _encode_delete_topics,
    ApiKey.DESCRIBE_CONFIGS: _encode_describe_configs,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _encode_epochs,
}
