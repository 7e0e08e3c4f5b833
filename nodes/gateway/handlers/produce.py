"""Produce: batches go to their brokers as the bytes they came in; order within a connection is kept."""

import asyncio
import datetime
import itertools
from typing import Any

from nodes import ops
from nodes.gateway.errors import CloseConnectionError, kafka_code, write_failure
from nodes.gateway.handlers.cluster import NO_THROTTLE
from nodes.gateway.routing import STALE, checked, learn, split, unknown_code
from nodes.gateway.session import Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError, OpCode

NO_ACK = 0
_ACKS = (-1, NO_ACK, 1)
_MILLISECOND = datetime.timedelta(milliseconds=1)


async def produce(exchange: Exchange) -> Any:
    """The response, or None where the client wants none (acks=0; then an error closes the connection, as in Kafka)."""
    body = exchange.request.body
    items = [
        ops.ProducePartition(topic.name, ops.NO_ID, partition.index, partition.records or b"")
        for topic in body.topic_data
        for partition in topic.partition_data
    ]
    refusal = _refusal(body)
    results = [ops.ProduceResult(refusal)] * len(items) if refusal else await _store(exchange, items)
    if body.acks == NO_ACK:
        failed = next((result for result in results if result.error), None)
        if failed is not None:
            raise CloseConnectionError(f"a produce with acks=0 failed with error {failed.error}: {failed.message}")
        return None
    return _response(exchange, results)


def _refusal(body: Any) -> ErrorCode | None:
    if body.acks not in _ACKS:
        return ErrorCode.invalid_required_acks
    return ErrorCode.invalid_txn_state if body.transactional_id is not None else None


async def _store(exchange: Exchange, items: list[ops.ProducePartition]) -> list[ops.ProduceResult]:
    session = exchange.session
    index = None
    if len(items) == 1 and not session.produces_routed:
        index = exchange.topics.leader(items[0].topic, ops.NO_ID, items[0].partition)
    if index is None:
        session.produces_routed += 1
        try:
            return await _route(exchange, items)
        finally:
            session.produces_routed -= 1
    # What small producers send all the time: nothing to spread, and nobody before it who is still at the gate.
    session.produces_sent += 1
    place_in_line = session.produces_sent
    results = dict(enumerate(await _send(exchange, index, items)))
    if results[0].error:
        await _try_stale_again(exchange, items, {index: [0]}, results, place_in_line)
    return [results[0]]


async def _route(exchange: Exchange, items: list[ops.ProducePartition]) -> list[ops.ProduceResult]:
    """Sends each broker its part."""
    session = exchange.session
    async with session.produce_gate:
        by_broker, unknown = split(exchange, items)
        error = None
        if unknown:
            error = await learn(exchange, [items[position] for position in unknown])
            by_broker, unknown = split(exchange, items)
        session.produces_sent += 1
        place_in_line = session.produces_sent
        # With several brokers every send is a task, made while the gate is held: tasks start in the order they were
        # made. With one there is nothing to wait for between the gate and the send.
        sends = [_send(exchange, index, [items[at] for at in positions]) for index, positions in by_broker.items()]
        if not exchange.brokers.is_single:
            sends = [asyncio.ensure_future(send) for send in sends]  # type: ignore[misc]
    given = [await sends[0]] if len(sends) == 1 else await asyncio.gather(*sends)
    results = {at: ops.ProduceResult(unknown_code(items[at], error)) for at in unknown}
    for positions, answers in zip(by_broker.values(), given, strict=True):
        results.update(zip(positions, answers, strict=True))
    await _try_stale_again(exchange, items, by_broker, results, place_in_line)
    return [results[at] for at in range(len(items))]


async def _try_stale_again(
    exchange: Exchange,
    items: list[ops.ProducePartition],
    asked: dict[int, list[int]],
    results: dict[int, ops.ProduceResult],
    place_in_line: int,
) -> None:
    """Sends what a broker did not know once more, after a look at the registry.

    Not if a later produce of this connection was sent meanwhile: it might have been taken, and this one would then
    come behind it. The client gets the error and tries again, in the order that it keeps itself.
    """
    stale = [at for positions in asked.values() for at in positions if results[at].error in STALE]
    if not stale:
        return
    async with exchange.session.produce_gate:
        if exchange.session.produces_sent != place_in_line:
            return
        again = [items[at] for at in stale]
        if await learn(exchange, again) is not None:
            return
        by_broker, _ = split(exchange, again)
        for index, positions in by_broker.items():
            answers = await _send(exchange, index, [again[place] for place in positions])
            results.update((stale[place], answer) for place, answer in zip(positions, answers, strict=True))


async def _send(exchange: Exchange, index: int, items: list[ops.ProducePartition]) -> list[ops.ProduceResult]:
    body, settings = exchange.request.body, exchange.settings
    timeout_ms = max(0, body.timeout // _MILLISECOND)
    timeout = min(max(timeout_ms / 1000, settings.produce_timeout_least), settings.produce_timeout_most)
    payload = ops.Produce(exchange.request.version, body.acks, timeout_ms, items)
    try:
        answer = await exchange.brokers.call(
            index,
            OpCode.PRODUCE,
            payload,
            ops.ProduceAnswer,
            timeout=timeout,
            lane=exchange.session.id,
            trace=exchange.trace,
        )
        return checked(answer.results, items)
    except MeshError as error:
        code = write_failure(error, ErrorCode.not_leader_or_follower)
        return [ops.ProduceResult(code, message=str(error))] * len(items)


def _response(exchange: Exchange, results: list[ops.ProduceResult]) -> Any:
    build = exchange.request.build
    given = iter(results)
    topics = tuple(
        build.TopicProduceResponse(
            name=topic.name,
            partition_responses=tuple(
                _partition(build, partition.index, result)
                for partition, result in zip(
                    topic.partition_data, itertools.islice(given, len(topic.partition_data)), strict=True
                )
            ),
        )
        for topic in exchange.request.body.topic_data
    )
    return build.ProduceResponse(responses=topics, throttle_time=NO_THROTTLE)


def _partition(build: Any, index: int, result: ops.ProduceResult) -> Any:
    return build.PartitionProduceResponse(
        index=index,
        error_code=kafka_code(result.error),
        base_offset=result.base_offset,
        log_append_time=_moment(result.log_append_time),
        log_start_offset=result.log_start_offset,
        record_errors=(),
        error_message=result.message,
    )


def _moment(milliseconds: int) -> datetime.datetime | None:
    """-1, which is none, unless the topic has log append time."""
    if milliseconds < 0:
        return None
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)
