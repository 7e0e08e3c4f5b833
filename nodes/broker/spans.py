"""The broker's spans, one an op, under the mesh's `mesh.kafkaop.handle`. Speaks the OpenTelemetry API only.

Nothing is made for a call that is not sampled, and a span that cannot be recorded is logged and never fails a call.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from nodes import ops
from nodes.mesh import KafkaCall, OpCode
from traces import names

log = logging.getLogger(__name__)
_tracer = trace.get_tracer("rafka.broker")

NAMES: dict[int, str] = {
    OpCode.PRODUCE: names.PRODUCE_STORE,
    OpCode.FETCH: names.FETCH_READ,
    OpCode.LIST_OFFSETS: names.LIST_OFFSETS_READ,
    OpCode.DELETE_TOPIC: names.DELETE_TOPICS_STORE,
    OpCode.METADATA: names.METADATA_READ,
    OpCode.CREATE_TOPICS: names.CREATE_TOPICS_STORE,
    OpCode.CREATE_PARTITIONS: "broker.create_partitions.store",
    OpCode.SYNC_TOPICS: "broker.sync_topics.store",
    OpCode.DESCRIBE_CONFIGS: "broker.describe_configs.read",
    OpCode.ALTER_CONFIGS: "broker.alter_configs.store",
    OpCode.INIT_PRODUCER_ID: "broker.init_producer_id.store",
    OpCode.EPOCH_ENDS: "broker.epoch_ends.read",
    OpCode.DELETE_RECORDS: "broker.delete_records.store",
    OpCode.STATUS: "broker.status.read",
}
# A request may name thousands of partitions; a span that lists more than this helps nobody.
MAX_EVENTS = 64


@contextlib.contextmanager
def _harmless() -> Iterator[None]:
    """Span processors are the program's: one that raises must not fail a call."""
    try:
        yield
    except Exception:
        log.exception("a span could not be recorded")


def start(call: KafkaCall) -> Span | None:
    """The op's span, if its call is sampled."""
    if call.span is None:
        return None
    try:
        return _tracer.start_span(
            NAMES[call.op_code],
            context=trace.set_span_in_context(call.span),
            kind=SpanKind.INTERNAL,
            attributes={names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA, names.MESH_ORG_ID: call.org_id},
        )
    except Exception:
        log.exception("a span could not be started")
        return None


def end(span: Span | None, error: str = "") -> None:
    if span is not None:
        with _harmless():
            if error:
                span.set_status(Status(StatusCode.ERROR, error))
            span.end()


@contextlib.contextmanager
def around(call: KafkaCall) -> Iterator[None]:
    """The span of an op that is done when the block ends."""
    span = start(call)
    error = ""
    try:
        yield
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
        raise
    finally:
        end(span, error)


def end_produce(
    span: Span, request: ops.Produce, results: Sequence[ops.ProduceResult], records: int, segment: int
) -> None:
    """Ends the span of a produce: the first partition as attributes, the others as events."""
    with _harmless():
        span.set_attributes(
            {
                names.MESSAGING_OPERATION_NAME: "produce",
                names.MESSAGING_OPERATION_TYPE: "send",
                names.MESSAGING_BATCH_COUNT: records,
                names.WAL_SEGMENT: segment,
            }
        )
        for at, (item, result) in enumerate(zip(request.partitions[:MAX_EVENTS], results, strict=False)):
            _partition(span, at, item, result.error, result.base_offset)
    end(span, _failure(results))


def end_fetch(span: Span, request: ops.Fetch, results: Sequence[ops.FetchResult], size: int, waited: float) -> None:
    with _harmless():
        span.set_attributes(
            {
                names.MESSAGING_OPERATION_NAME: "fetch",
                names.MESSAGING_OPERATION_TYPE: "receive",
                "messaging.message.body.size": size,
                "kafka.fetch.waited_ms": round(waited * 1000, 3),
            }
        )
        for at, (item, result) in enumerate(zip(request.partitions[:MAX_EVENTS], results, strict=False)):
            _partition(span, at, item, result.error, item.offset)
    end(span, _failure(results))


def _partition(span: Span, at: int, item: ops.ProducePartition | ops.FetchPartition, error: int, offset: int) -> None:
    attributes: dict[str, str | int] = {
        names.KAFKA_TOPIC: item.topic or item.topic_id.hex(),
        names.KAFKA_PARTITION: item.partition,
        names.MESSAGING_DESTINATION: item.topic or item.topic_id.hex(),
        names.MESSAGING_PARTITION: str(item.partition),
        names.MESSAGING_OFFSET: offset,
        names.KAFKA_ERROR_CODE: error,
    }
    if at == 0:
        span.set_attributes(attributes)
    else:
        span.add_event("partition", attributes)


def _failure(results: Sequence[ops.ProduceResult] | Sequence[ops.FetchResult]) -> str:
    failed = next((result.error for result in results if result.error), 0)
    return f"Kafka error {failed}" if failed else ""
