"""Fetch: whole batches as bytes, with a long poll where there is too little; old clients get message sets."""

import asyncio
import functools
from typing import NamedTuple

from opentelemetry.trace import Span

from nodes import ops
from nodes.broker import spans
from nodes.broker.broker import Broker
from nodes.broker.errors import Code, RefusedError, kafka_code
from nodes.broker.waiting import Key
from nodes.mesh import Buffer, KafkaCall, Payload
from nodes.mesh.postcard import codec
from wal.batch import CODEC_MASK
from wal.compression import Codec
from wal.errors import BatchError, WalError
from wal.message_set import downconvert

FIRST_BATCH_VERSION = 4
FIRST_MAGIC_1_VERSION = 2
FIRST_ZSTD_VERSION = 10
# A long poll is answered this much before its call's deadline, so that the answer is not late.
DEADLINE_MARGIN = 0.1
_LOW_ATTRIBUTES_AT = 22
_REQUEST = codec(ops.Fetch)
_ANSWER = codec(ops.FetchAnswer)


class Reading(NamedTuple):
    """What the partitions of a fetch hold now."""

    results: list[ops.FetchResult]
    size: int
    failed: bool


def fetch(broker: Broker, call: KafkaCall) -> Payload | asyncio.Future[Payload]:
    """The answer, or a future of it while the client waits for more."""
    span = spans.start(call)
    try:
        request = _REQUEST.decode(call.payload)
        reading = _read(broker, call.org_id, request)
        left = call.deadline - asyncio.get_running_loop().time() - DEADLINE_MARGIN
        seconds = min(request.max_wait_ms / 1000, left)
        missing = request.min_bytes - reading.size
        if missing <= 0 or seconds <= 0 or reading.failed or broker.waits.closed:
            return _answer(broker, call.org_id, request, reading, span, 0.0)
        return _answer_when_ready(broker, call.org_id, request, missing, seconds, span)
    except Exception as error:
        spans.fail(span, error)
        raise


def _answer_when_ready(
    broker: Broker, org_id: int, request: ops.Fetch, missing: int, seconds: float, span: Span | None
) -> asyncio.Future[Payload]:
    """Looks again after that many bytes or seconds, and answers with what is there then."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    future: asyncio.Future[Payload] = loop.create_future()

    def ready() -> None:
        if future.done():
            return
        try:
            now = _read(broker, org_id, request)
            answer = _answer(broker, org_id, request, now, span, loop.time() - began)
        except Exception as error:  # noqa: BLE001 - without an answer the call would wait for ever
            spans.fail(span, error)
            future.set_exception(error)
        else:
            future.set_result(answer)

    broker.waits.add(_keys(broker, org_id, request), missing, seconds, ready)
    return future


def _keys(broker: Broker, org_id: int, request: ops.Fetch) -> list[Key]:
    keys = []
    for item in request.partitions:
        topic = broker.registry.find(org_id, item.topic, item.topic_id)
        if topic is not None:
            keys.append((topic.topic_id, item.partition))
    return keys


def _read(broker: Broker, org_id: int, request: ops.Fetch) -> Reading:
    """Reads partitions in the client's order until the answer is full. The first batch of all comes at any size."""
    results = []
    size = 0
    for item in request.partitions:
        limit = min(item.max_bytes, request.max_bytes - size)
        try:
            result, batches = _read_partition(broker, org_id, item, limit, at_any_size=size == 0)
            records, code = _for_client(batches, request.api_version)
        except RefusedError as error:
            results.append(ops.FetchResult(error.code))
            continue
        size += sum(map(len, records))
        results.append(ops.FetchResult(result.error or code, result.high_watermark, result.log_start_offset, records))
    return Reading(results, size, any(result.error for result in results))


def _read_partition(
    broker: Broker, org_id: int, item: ops.FetchPartition, limit: int, *, at_any_size: bool
) -> tuple[ops.FetchResult, list[memoryview]]:
    topic = broker.registry.held(org_id, item.topic, item.topic_id, item.partition)
    check_epoch(item.leader_epoch)
    state = broker.wal.state.partition(topic.topic_id, item.partition)
    result = ops.FetchResult(0, state.high_watermark, state.log_start)
    if item.offset == state.high_watermark or (limit <= 0 and not at_any_size):
        in_range = state.log_start <= item.offset <= state.high_watermark
        return (result if in_range else _failed(Code.OFFSET_OUT_OF_RANGE, result)), []
    try:
        batches = broker.wal.read(topic.topic_id, item.partition, item.offset, max(0, limit))
    except WalError as error:
        return _failed(kafka_code(error), result), []
    if not at_any_size and batches and len(batches[0]) > limit:
        batches = []
    return result, batches


def _failed(code: Code, result: ops.FetchResult) -> ops.FetchResult:
    return ops.FetchResult(code, result.high_watermark, result.log_start_offset)


def check_epoch(epoch: int) -> None:
    """Partitions never change hands, so there is one epoch. -1 is a client that does not say."""
    if epoch > ops.LEADER_EPOCH:
        raise RefusedError(
            Code.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here; {ops.LEADER_EPOCH} is the only one"
        )


def _for_client(batches: list[memoryview], api_version: int) -> tuple[list[Buffer], Code]:
    """The batches in a form that the client knows; an error if already the first has none."""
    if api_version >= FIRST_ZSTD_VERSION:
        return list(batches), Code.NONE
    found: list[Buffer] = []
    for batch in batches:
        if batch[_LOW_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD:
            return found, Code.NONE if found else Code.UNSUPPORTED_COMPRESSION_TYPE
        if api_version >= FIRST_BATCH_VERSION:
            found.append(batch)
            continue
        try:
            found.append(downconvert(batch, 1 if api_version >= FIRST_MAGIC_1_VERSION else 0))
        except BatchError as error:
            return found, Code.NONE if found else kafka_code(error)
    return found, Code.NONE


def _answer(
    broker: Broker, org_id: int, request: ops.Fetch, reading: Reading, span: Span | None, waited: float
) -> Payload:
    broker.counters.fetched_bytes += reading.size
    if span is not None:
        names = functools.partial(_name, broker, org_id)
        spans.end_fetch(span, request, reading.results, reading.size, waited, names)
    return _ANSWER.parts(ops.FetchAnswer(reading.results))


def _name(broker: Broker, org_id: int, item: ops.FetchPartition) -> str:
    """Newer clients name topics only by their ids."""
    topic = None if item.topic else broker.registry.find(org_id, "", item.topic_id)
    return item.topic or (item.topic_id.hex() if topic is None else topic.record.name)
