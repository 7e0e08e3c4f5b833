"""Fetch: sessionless, spread over the brokers; long polls are cut into slices, so they end when the client goes."""

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from typing import Any

from nodes import ops
from nodes.gateway import spans
from nodes.gateway.errors import kafka_code, read_failure
from nodes.gateway.handlers.cluster import NO_THROTTLE
from nodes.gateway.routing import checked, learn, scatter, split
from nodes.gateway.session import Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import NO_TRACE, MeshError, OpCode

_READ_COMMITTED = 1
# A long poll may look thousands of times; its trace shows the first ones.
_TRACED_LOOKS = 8
_FULL_EPOCHS = (-1, 0)  # no session wanted, and a new session wanted: both get a full answer without a session


async def fetch(exchange: Exchange) -> Any:
    body = exchange.request.body
    refusal = _session_error(body)
    if refusal is not ErrorCode.none:
        return _response(exchange, refusal, ())
    items = [
        ops.FetchPartition(
            getattr(topic, "topic", ""),
            _bytes(getattr(topic, "topic_id", None)),
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            getattr(partition, "current_leader_epoch", -1),
        )
        for topic in body.topics
        for partition in topic.partitions
    ]
    if items and not items[0].topic:
        spans.name_topic(exchange.trace, exchange.topics.name_of(items[0].topic_id))
    results = _within(await _poll(exchange, items), _max_bytes(exchange))
    return _response(exchange, ErrorCode.none, results)


def _session_error(body: Any) -> ErrorCode:
    """No session is ever granted, so a client that names one is wrong about it and starts over."""
    epoch = getattr(body, "session_epoch", -1)
    if epoch in _FULL_EPOCHS:
        return ErrorCode.none
    known = getattr(body, "session_id", 0) == 0
    return ErrorCode.invalid_fetch_session_epoch if known else ErrorCode.fetch_session_id_not_found


def _bytes(topic_id: Any) -> bytes:
    return ops.NO_ID if topic_id is None else bytes(topic_id.bytes)


def _max_bytes(exchange: Exchange) -> int:
    asked: int = exchange.request.body.max_bytes
    return max(0, min(asked, exchange.fetch_bytes))


async def _poll(exchange: Exchange, items: list[ops.FetchPartition]) -> list[ops.FetchResult]:
    """Results as soon as there are min_bytes or an error, or at the end of max_wait."""
    body, loop = exchange.request.body, asyncio.get_running_loop()
    deadline = loop.time() + max(0.0, body.max_wait.total_seconds())
    by_broker, unknown = split(exchange, items)
    if unknown:
        await learn(exchange, [items[position] for position in unknown])
        by_broker, _ = split(exchange, items)
    look = _Look(exchange, items, several=len(by_broker) > 1)
    # With several brokers none can wait for the sum of their bytes: the first look does not wait, and later ones end
    # with the first byte at any of them.
    wait = 0.0 if look.several else exchange.settings.poll_slice
    while True:
        started = loop.time()
        left = max(0.0, deadline - started)
        wait = min(wait, left)
        results = await look.take(wait)
        size = sum(len(result.records) for result in results)
        enough = size >= body.min_bytes or left <= wait or any(result.error for result in results)
        if enough or not items or exchange.stopping.is_set():
            return results
        if wait and loop.time() - started < wait:
            # A broker that did not wait (it has some bytes, but fewer than wanted, or it stops) will not do so the next
            # time either: then it is the gateway that waits.
            await asyncio.sleep(exchange.settings.gather_pause)
        wait = exchange.settings.poll_slice


class _Look:
    """Rounds over the brokers of one fetch. The first broker that has something ends the wait for all."""

    def __init__(self, exchange: Exchange, items: list[ops.FetchPartition], *, several: bool) -> None:
        self.several = several
        self._exchange = exchange
        self._items = items
        self._min_bytes = 1 if several else exchange.request.body.min_bytes
        self._max_bytes = _max_bytes(exchange)
        self._last: dict[ops.FetchPartition, ops.FetchResult] = {}
        self._ended = asyncio.Event()
        self._looks = 0

    async def take(self, wait: float) -> list[ops.FetchResult]:
        self._ended.clear()
        self._looks += 1

        async def send(index: int, items: list[ops.FetchPartition]) -> list[ops.FetchResult]:
            return await self._ask(index, items, wait)

        return await scatter(self._exchange, self._items, send, _failed)

    async def _ask(self, index: int, items: list[ops.FetchPartition], wait: float) -> list[ops.FetchResult]:
        exchange = self._exchange
        payload = ops.Fetch(exchange.request.version, int(wait * 1000), self._min_bytes, self._max_bytes, items)
        timeout = wait + exchange.settings.answer_time
        trace = exchange.trace if self._looks <= _TRACED_LOOKS else NO_TRACE
        call = exchange.brokers.call(index, OpCode.FETCH, payload, ops.FetchAnswer, timeout=timeout, trace=trace)
        try:
            answer = await (self._until_ended(call) if self.several and wait else call)
            if answer is None:
                return [self._last[item] for item in items]
            results = checked(answer.results, items)
        except MeshError as error:
            self._ended.set()
            code = read_failure(error, ErrorCode.not_leader_or_follower)
            return [_failed(item, code) for item in items]
        if any(result.error or len(result.records) for result in results):
            self._ended.set()
        if self.several:
            self._last.update(zip(items, results, strict=True))
        return results

    async def _until_ended(self, call: Coroutine[Any, Any, ops.FetchAnswer]) -> ops.FetchAnswer | None:
        """The answer, or None when another broker had something first."""
        answer = asyncio.ensure_future(call)
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({answer, ended}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()
            ended.cancel()


def _failed(item: ops.FetchPartition, code: ErrorCode) -> ops.FetchResult:
    return ops.FetchResult(code)


def _within(results: list[ops.FetchResult], max_bytes: int) -> list[ops.FetchResult]:
    """Each broker kept to max_bytes; together they may have more. The first batches always go."""
    size = 0
    kept = []
    for result in results:
        if size and size + len(result.records) > max_bytes:
            result = ops.FetchResult(result.error, result.high_watermark, result.log_start_offset)
        size += len(result.records)
        kept.append(result)
    return kept


def _response(exchange: Exchange, error: ErrorCode, results: Sequence[ops.FetchResult]) -> Any:
    build, body = exchange.request.build, exchange.request.body
    given = iter(results)
    aborted = () if getattr(body, "isolation_level", 0) == _READ_COMMITTED else None

    def partition(asked: Any, result: ops.FetchResult, by_id: bool) -> Any:
        return build.PartitionData(
            partition_index=asked.partition,
            error_code=_code(result.error, by_id),
            high_watermark=result.high_watermark,
            last_stable_offset=result.high_watermark,
            log_start_offset=result.log_start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=-1,
            records=result.records,
        )

    def topic(asked: Any) -> Any:
        by_id = hasattr(asked, "topic_id")
        mine = itertools.islice(given, len(asked.partitions))
        pairs = zip(asked.partitions, mine, strict=True)
        return build.FetchableTopicResponse(
            topic=getattr(asked, "topic", ""),
            topic_id=getattr(asked, "topic_id", None),
            partitions=tuple([partition(one, result, by_id) for one, result in pairs]),
        )

    return build.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        session_id=0,
        responses=tuple(topic(asked) for asked in body.topics) if error is ErrorCode.none else (),
    )


def _code(number: int, by_id: bool) -> ErrorCode:
    """Clients that fetch by name do not know the error for an unknown id."""
    code = kafka_code(number)
    return ErrorCode.unknown_topic_or_partition if code is ErrorCode.unknown_topic_id and not by_id else code
