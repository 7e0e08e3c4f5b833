"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: partition by partition at the brokers that hold them."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from nodes import ops
from nodes.gateway.errors import kafka_code, read_failure, write_failure
from nodes.gateway.handlers.cluster import NO_THROTTLE
from nodes.gateway.routing import checked, scatter
from nodes.gateway.session import Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError, OpCode

_UNAVAILABLE = ErrorCode.not_leader_or_follower


async def _ask(
    exchange: Exchange,
    op_code: OpCode,
    items: list[Any],
    request: Callable[[list[Any]], ops.Op],
    answer: type[Any],
    result: Callable[[int], Any],
    *,
    failure: Callable[[MeshError, ErrorCode], ErrorCode],
) -> Iterator[Any]:
    """A result for each item, in order; where a broker did not answer, one with the code that `failure` gives."""

    async def send(index: int, chosen: list[Any]) -> list[Any]:
        try:
            given = await exchange.brokers.call(
                index,
                op_code,
                request(chosen),
                answer,
                timeout=exchange.settings.answer_time,
                trace=exchange.trace,
            )
            return checked(given.results, chosen)
        except MeshError as error:
            return [result(failure(error, _UNAVAILABLE)) for _ in chosen]

    return iter(await scatter(exchange, items, send, lambda _, code: result(code)))


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
    kinds = (ops.ListOffsets, ops.ListOffsetsAnswer, ops.ListOffsetsResult)
    results = await _ask(exchange, OpCode.LIST_OFFSETS, items, *kinds, failure=read_failure)
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
    kinds = (ops.EpochEnds, ops.EpochAnswer, ops.EpochResult)
    results = await _ask(exchange, OpCode.EPOCH_ENDS, items, *kinds, failure=read_failure)
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
    kinds = (ops.DeleteRecords, ops.DeleteRecordsAnswer, ops.DeleteRecordsResult)
    results = await _ask(exchange, OpCode.DELETE_RECORDS, items, *kinds, failure=write_failure)
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
