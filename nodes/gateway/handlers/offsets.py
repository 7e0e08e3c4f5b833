"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: partition by partition at the brokers that hold them."""

import itertools
from collections.abc import Iterator
from typing import Any

from nodes import ops
from nodes.gateway.errors import kafka_code, read_failure, write_failure
from nodes.gateway.handlers.cluster import NO_THROTTLE
from nodes.gateway.routing import checked, scatter
from nodes.gateway.session import Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError, OpCode

_UNAVAILABLE = ErrorCode.not_leader_or_follower


async def list_offsets(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    items = [
        ops.ListOffsetsPartition(
            topic.name,
            ops.NO_ID,
            partition.partition_index,
            partition.timestamp,
            getattr(partition, "current_leader_epoch", -1),
        )
        for topic in body.topics
        for partition in topic.partitions
    ]

    async def send(index: int, chosen: list[ops.ListOffsetsPartition]) -> list[ops.ListOffsetsResult]:
        try:
            answer = await exchange.brokers.call(
                index,
                OpCode.LIST_OFFSETS,
                ops.ListOffsets(chosen),
                ops.ListOffsetsAnswer,
                timeout=exchange.settings.answer_time,
                trace=exchange.trace,
            )
            return checked(answer.results, chosen)
        except MeshError as error:
            return [ops.ListOffsetsResult(read_failure(error, _UNAVAILABLE)) for _ in chosen]

    results = iter(await scatter(exchange, items, send, lambda _, code: ops.ListOffsetsResult(code)))
    topics = tuple(
        build.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=tuple(
                build.ListOffsetsPartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=kafka_code(result.error),
                    timestamp=result.timestamp,
                    offset=result.offset,
                    leader_epoch=result.leader_epoch,
                )
                for partition, result in _paired(topic.partitions, results)
            ),
        )
        for topic in body.topics
    )
    return build.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=topics)


async def offset_for_leader_epoch(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    items = [
        ops.EpochPartition(topic.topic, partition.partition, partition.leader_epoch, partition.current_leader_epoch)
        for topic in body.topics
        for partition in topic.partitions
    ]

    async def send(index: int, chosen: list[ops.EpochPartition]) -> list[ops.EpochResult]:
        try:
            answer = await exchange.brokers.call(
                index,
                OpCode.EPOCH_ENDS,
                ops.EpochEnds(chosen),
                ops.EpochAnswer,
                timeout=exchange.settings.answer_time,
                trace=exchange.trace,
            )
            return checked(answer.results, chosen)
        except MeshError as error:
            return [ops.EpochResult(read_failure(error, _UNAVAILABLE)) for _ in chosen]

    results = iter(await scatter(exchange, items, send, lambda _, code: ops.EpochResult(code)))
    topics = tuple(
        build.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(
                build.EpochEndOffset(
                    error_code=kafka_code(result.error),
                    partition=partition.partition,
                    leader_epoch=result.leader_epoch,
                    end_offset=result.end_offset,
                )
                for partition, result in _paired(topic.partitions, results)
            ),
        )
        for topic in body.topics
    )
    return build.OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=topics)


async def delete_records(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    items = [
        ops.DeleteRecordsPartition(topic.name, partition.partition_index, partition.offset)
        for topic in body.topics
        for partition in topic.partitions
    ]

    async def send(index: int, chosen: list[ops.DeleteRecordsPartition]) -> list[ops.DeleteRecordsResult]:
        try:
            answer = await exchange.brokers.call(
                index,
                OpCode.DELETE_RECORDS,
                ops.DeleteRecords(chosen),
                ops.DeleteRecordsAnswer,
                timeout=exchange.settings.answer_time,
                trace=exchange.trace,
            )
            return checked(answer.results, chosen)
        except MeshError as error:
            return [ops.DeleteRecordsResult(write_failure(error, _UNAVAILABLE)) for _ in chosen]

    results = iter(await scatter(exchange, items, send, lambda _, code: ops.DeleteRecordsResult(code)))
    topics = tuple(
        build.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=tuple(
                build.DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index,
                    low_watermark=result.low_watermark,
                    error_code=kafka_code(result.error),
                )
                for partition, result in _paired(topic.partitions, results)
            ),
        )
        for topic in body.topics
    )
    return build.DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=topics)


def _paired(partitions: tuple[Any, ...], results: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """This topic's partitions with their results, which it takes off the front."""
    return zip(partitions, list(itertools.islice(results, len(partitions))), strict=True)
