"""Produce: checks each partition's batch, appends all of one call at once, answers as its acks ask.

A call is appended before its handler returns, so the order of a lane is the order in the log. When the log has no room
(too much waits for a sync), calls wait in one line and are appended in that order: order is kept there too.
"""

import asyncio
import functools
from collections import deque

from opentelemetry.trace import Span

from nodes import ops
from nodes.broker import spans
from nodes.broker.broker import Broker
from nodes.broker.errors import Code, RefusedError, kafka_code
from nodes.broker.produced import Checked, check_produced
from nodes.mesh import KafkaCall, Payload
from nodes.mesh.postcard import codec
from wal.errors import LogPoisonedError, WalError
from wal.log import Appended, Durability

_DURABILITIES = {0: Durability.NONE, 1: Durability.WRITTEN, -1: Durability.SYNCED}
_TRACE_ID = slice(1, 17)
_REQUEST = codec(ops.Produce)
_ANSWER = codec(ops.ProduceAnswer)


class ProduceLine:
    """The produce handler, with the line of calls that wait for room."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._line: deque[tuple[KafkaCall, asyncio.Future[Payload]]] = deque()

    def produce(self, call: KafkaCall) -> Payload | asyncio.Future[Payload]:
        if self._broker.stopping:
            return _refuse(self._broker, call, Code.NOT_LEADER_OR_FOLLOWER, "the broker is stopping; try again")
        if not self._line and self._broker.wal.has_room:
            return store(self._broker, call)
        future: asyncio.Future[Payload] = self._loop.create_future()
        self._line.append((call, future))
        if len(self._line) == 1:
            self._broker.syncs.after_sync(self._go_on)
        return future

    def _go_on(self, error: WalError | None) -> None:
        while self._line and (error is not None or self._broker.wal.has_room):
            call, future = self._line.popleft()
            try:
                result = self._late(call) or store(self._broker, call)
            except Exception as failure:  # noqa: BLE001 - it is the answer of this call, and the others go on
                future.set_exception(failure)
                continue
            if isinstance(result, asyncio.Future):
                result.add_done_callback(functools.partial(_pass_on, future))
            else:
                future.set_result(result)
        if self._line:
            self._broker.syncs.after_sync(self._go_on)

    def _late(self, call: KafkaCall) -> Payload | None:
        """The refusal of a call that has waited too long; its caller has gone."""
        if call.deadline > self._loop.time():
            return None
        message = "the disk is too slow for what comes in; nothing was stored"
        return _refuse(self._broker, call, Code.REQUEST_TIMED_OUT, message)


def _refuse(broker: Broker, call: KafkaCall, code: Code, message: str) -> Payload:
    """The answer to a call that is not even looked at."""
    return _answer_refused(broker, _REQUEST.decode(call.payload), code, message, spans.start(call))


def _answer_refused(broker: Broker, request: ops.Produce, code: Code, message: str, span: Span | None) -> Payload:
    """The same for all partitions of a call of which nothing was stored."""
    results = [ops.ProduceResult(code, message=message)] * len(request.partitions)
    return _answer(broker, request, results, 0, span)


def _pass_on(waiting: asyncio.Future[Payload], done: asyncio.Future[Payload]) -> None:
    if waiting.done():
        return
    error = done.exception()
    if error is None:
        waiting.set_result(done.result())
    else:
        waiting.set_exception(error)


def store(broker: Broker, call: KafkaCall) -> Payload | asyncio.Future[Payload]:
    """Appends now; the answer, or with acks=all a future of it."""
    span = spans.start(call)
    try:
        request = _REQUEST.decode(call.payload)
        durability = _DURABILITIES.get(request.acks)
        if durability is None:
            message = f"acks {request.acks}: it must be 0, 1 or -1"
            return _answer_refused(broker, request, Code.INVALID_REQUIRED_ACKS, message, span)
        results, chosen, places = _check_all(broker, call, request)
        records = 0
        if chosen:
            if span is not None:
                spans.link(span, [one.records for one in chosen])
            records, some_stored = _append(broker, chosen, places, results, durability)
            if some_stored and durability is Durability.SYNCED:
                return _answer_when_synced(broker, request, results, records, span)
        return _answer(broker, request, results, records, span)
    except Exception as error:
        spans.fail(span, error)
        raise


def _check_all(
    broker: Broker, call: KafkaCall, request: ops.Produce
) -> tuple[list[ops.ProduceResult], list[Checked], list[int]]:
    """A result for each refused partition, and the batches of the others with their places."""
    results: list[ops.ProduceResult] = []
    chosen: list[Checked] = []
    places: list[int] = []
    seen: set[tuple[bytes, int]] = set()
    trace_id = call.header[_TRACE_ID]
    for place, item in enumerate(request.partitions):
        try:
            topic = broker.registry.held(call.org_id, item.topic, item.topic_id, item.partition)
            checked = check_produced(topic, item, request.api_version, trace_id)
            if checked.new[:2] in seen:
                raise RefusedError(Code.INVALID_REQUEST, "the partition is named twice in one request")
        except RefusedError as error:
            results.append(ops.ProduceResult(error.code, message=error.message))
        else:
            results.append(_PENDING)
            seen.add(checked.new[:2])
            chosen.append(checked)
            places.append(place)
    return results, chosen, places


_PENDING = ops.ProduceResult(Code.UNKNOWN_SERVER_ERROR)


def _append(
    broker: Broker,
    chosen: list[Checked],
    places: list[int],
    results: list[ops.ProduceResult],
    durability: Durability,
) -> tuple[int, bool]:
    """Stores the batches and fills in their results; how many records are new, and whether any result is a success."""
    wal = broker.wal
    batches = [checked.new for checked in chosen]
    try:
        appended = wal.append(batches, durability)
        if durability and any(one.duplicate for one in appended):
            wal.flush()  # the first copy may have come with acks=0 and wait in memory
    except WalError as error:
        if isinstance(error, LogPoisonedError):
            broker.fail(error)
        for place in places:
            results[place] = ops.ProduceResult(kafka_code(error), message=str(error))
        return 0, False
    records = 0
    some_stored = False
    for checked, place, one in zip(chosen, places, appended, strict=True):
        results[place] = _result(checked, one)
        some_stored = some_stored or one.error is None
        if one.error is None and not one.duplicate:
            records += checked.new.header.record_count
            size = len(checked.new.batch)
            broker.counters.produced_bytes += size
            broker.appended(checked.new[:2], size, buffered=durability is Durability.NONE)
    broker.counters.produced_records += records
    return records, some_stored


def _result(checked: Checked, one: Appended) -> ops.ProduceResult:
    if one.error is not None:
        return ops.ProduceResult(kafka_code(one.error), log_start_offset=one.log_start, message=str(one.error))
    return ops.ProduceResult(0, one.base_offset, checked.log_append_time, one.log_start)


def _answer_when_synced(
    broker: Broker, request: ops.Produce, results: list[ops.ProduceResult], records: int, span: Span | None
) -> asyncio.Future[Payload]:
    future: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()

    def done(error: WalError | None) -> None:
        answers = results
        if error is not None:
            lost = ops.ProduceResult(kafka_code(error), message=str(error))
            answers = [result if result.error else lost for result in results]
        try:
            answer = _answer(broker, request, answers, records, span)
        except Exception as failure:  # noqa: BLE001 - it is the answer of this call, and the others go on
            spans.fail(span, failure)
            future.set_exception(failure)
        else:
            future.set_result(answer)

    broker.syncs.after_sync(done)
    return future


def _answer(
    broker: Broker, request: ops.Produce, results: list[ops.ProduceResult], records: int, span: Span | None
) -> Payload:
    if span is not None:
        spans.end_produce(span, request, results, records, broker.wal.end.segment)
    return _ANSWER.parts(ops.ProduceAnswer(results))
