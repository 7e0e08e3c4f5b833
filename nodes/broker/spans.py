"""The broker's spans, one an op, under the mesh's `mesh.kafkaop.handle`. Speaks the OpenTelemetry API, by
`traces.sites`.

Nothing is made for a call that is not sampled, and a span that cannot be recorded is logged and never fails a call.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from opentelemetry.trace import Span, Status, StatusCode

from nodes import ops
from nodes.broker.record_links import MAX_LINKS, links_of
from nodes.mesh import KafkaCall, OpCode
from traces import names
from traces.shape import Fixed
from traces.sites import LOST, Scope, Site, end, finish
from wal.batch import parse_header
from wal.errors import BatchError

log = logging.getLogger(__name__)
_scope = Scope("rafka.broker")

NAMES: dict[int, str] = {
    OpCode.PRODUCE: names.PRODUCE_STORE,
    OpCode.FETCH: names.FETCH_READ,
    OpCode.LIST_OFFSETS: names.LIST_OFFSETS_READ,
    OpCode.DELETE_TOPIC: names.DELETE_TOPICS_STORE,
    OpCode.METADATA: names.METADATA_READ,
    OpCode.CREATE_TOPICS: names.CREATE_TOPICS_STORE,
    OpCode.CREATE_PARTITIONS: names.CREATE_PARTITIONS_STORE,
    OpCode.SYNC_TOPICS: names.SYNC_TOPICS_STORE,
    OpCode.DESCRIBE_CONFIGS: names.DESCRIBE_CONFIGS_READ,
    OpCode.ALTER_CONFIGS: names.ALTER_CONFIGS_STORE,
    OpCode.INIT_PRODUCER_ID: names.INIT_PRODUCER_ID_STORE,
    OpCode.EPOCH_ENDS: names.EPOCH_ENDS_READ,
    OpCode.DELETE_RECORDS: names.DELETE_RECORDS_STORE,
    OpCode.STATUS: names.STATUS_READ,
}
# A request may name thousands of partitions; a span that lists more than this helps nobody.
MAX_EVENTS = 64
# A fetch of more batches does not count its records: that would take longer than reading them did.
MAX_COUNTED_BATCHES = 256
_NO_PARTITION = Fixed()
_OPERATIONS = {op_code: name.split(".")[1] for op_code, name in NAMES.items()}
# Ops and partitions of which a few make nearly all calls.
_KEPT = 4096


def start(call: KafkaCall) -> Span | None:
    """The op's span, if its call is sampled."""
    if call.span is None:
        return None
    try:
        return _site(call.op_code, call.org_id).child(call.span)
    except Exception:
        log.exception(LOST)
        return None


@functools.lru_cache(_KEPT)
def _site(op_code: int, org_id: int) -> Site:
    attributes = {
        names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA,
        names.MESSAGING_OPERATION_NAME: _OPERATIONS[op_code],
        names.MESH_ORG_ID: org_id,
    }
    return Site(_scope, NAMES[op_code], attributes=Fixed(attributes))


@contextlib.contextmanager
def around(call: KafkaCall) -> Iterator[Span | None]:
    """The span of an op that is done when the block ends."""
    span = start(call)
    try:
        yield span
    except BaseException as failure:
        fail(span, failure)
        raise
    end(span)


def fail(span: Span | None, error: BaseException) -> None:
    """Ends the span of an op that raised, if there is one and nothing has ended it."""
    if span is not None and span.is_recording():
        end(span, f"{type(error).__name__}: {error}")


def describe(span: Span, request: Any, answer: Any) -> None:
    """What an op without attributes of its own was about: the first topic, the first error."""
    try:
        items = getattr(request, "partitions", None) or getattr(request, "topics", None) or ()
        first = items[0] if items else next(iter(getattr(request, "names", None) or ()), None)
        topic = first if isinstance(first, str) else getattr(first, "topic", "") or getattr(first, "name", "")
        if topic:
            span.set_attributes({names.KAFKA_TOPIC: topic, names.MESSAGING_DESTINATION: topic})
        if isinstance(partition := getattr(first, "partition", None), int):
            span.set_attributes({names.KAFKA_PARTITION: partition, names.MESSAGING_PARTITION: str(partition)})
        results = getattr(answer, "results", None) or getattr(answer, "topics", None) or (answer,)
        error, message = _failure(results)
        if error:
            span.set_attribute(names.KAFKA_ERROR_CODE, error)
            span.set_status(Status(StatusCode.ERROR, message))
    except Exception:
        log.exception(LOST)


def link(span: Span, batches: Iterable[bytes]) -> None:
    """Links the span to the traces that records name in their headers. `batches` are the plain records of each."""
    try:
        left = MAX_LINKS
        for records in batches:
            for context in links_of(records)[:left]:
                span.add_link(context)
                left -= 1
            if not left:
                return
    except Exception:
        log.exception(LOST)


def end_produce(
    span: Span, request: ops.Produce, results: Sequence[ops.ProduceResult], records: int, segment: int
) -> None:
    """Ends the span of a produce: the first partition as attributes, the others as events."""
    try:
        parts = [
            _kind_of_partition("send", item.topic, item.partition, result.error)
            for item, result in zip(request.partitions[:MAX_EVENTS], results, strict=False)
        ]
        own = {names.MESSAGING_BATCH_COUNT: records, names.WAL_SEGMENT: segment}
        if parts:
            own[names.MESSAGING_OFFSET] = results[0].base_offset
        for part, result in zip(parts[1:], results[1:], strict=False):
            span.add_event(names.PARTITION_EVENT, {**part, names.MESSAGING_OFFSET: result.base_offset})
        if message := _failure(results)[1]:
            span.set_status(Status(StatusCode.ERROR, message))
        finish(span, parts[0] if parts else _NO_PARTITION, own)
    except Exception:
        log.exception(LOST)
        end(span)  # with what it has: a hop must not be missing


def end_fetch(
    span: Span,
    request: ops.Fetch,
    results: Sequence[ops.FetchResult],
    size: int,
    waited: float,
    name_of: Callable[[ops.FetchPartition], str],
) -> None:
    attributes: dict[str, int | float] = {
        names.MESSAGING_BODY_SIZE: size,
        names.KAFKA_FETCH_WAITED_MS: round(waited * 1000, 3),
    }
    try:
        records = _record_count(results)
        if records is not None:
            attributes[names.MESSAGING_BATCH_COUNT] = records
        for at, (item, result) in enumerate(zip(request.partitions[:MAX_EVENTS], results, strict=False)):
            _partition(span, at, "receive", name_of(item), item.partition, result.error, item.offset)
        span.set_attributes(attributes)
    except Exception:
        log.exception(LOST)
    end(span, _failure(results)[1])


def _record_count(results: Sequence[ops.FetchResult]) -> int | None:
    """From the headers of the batches; None for old clients' message sets, and for very many batches."""
    batches = [batch for result in results if isinstance(result.records, list) for batch in result.records]
    if len(batches) > MAX_COUNTED_BATCHES:
        return None
    try:
        return sum(parse_header(batch).record_count for batch in batches)
    except BatchError:
        return None


def _partition(span: Span, at: int, kind: str, topic: str, partition: int, error: int, offset: int) -> None:
    """One partition of a request: the first one's values are the span's own."""
    shared = _kind_of_partition(kind, topic, partition, error)
    if at == 0:
        span.set_attributes(shared)
        span.set_attribute(names.MESSAGING_OFFSET, offset)
    else:
        span.add_event(names.PARTITION_EVENT, {**shared, names.MESSAGING_OFFSET: offset})


@functools.lru_cache(_KEPT)
def _kind_of_partition(kind: str, topic: str, partition: int, error: int) -> Fixed:
    return Fixed(
        {
            names.MESSAGING_OPERATION_TYPE: kind,
            names.KAFKA_TOPIC: topic,
            names.KAFKA_PARTITION: partition,
            names.MESSAGING_DESTINATION: topic,
            names.MESSAGING_PARTITION: str(partition),
            names.KAFKA_ERROR_CODE: error,
        }
    )


def _failure(results: Sequence[Any]) -> tuple[int, str]:
    """The first error, and what to say of it."""
    for result in results:
        error = getattr(result, "error", 0)
        if error:
            message = getattr(result, "message", None)
            return error, f"Kafka error {error}{f': {message}' if message else ''}"
    return 0, ""
