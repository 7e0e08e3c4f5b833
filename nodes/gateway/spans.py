"""The gateway's spans: `gateway.kafka.connect` and under it `gateway.kafka.request`, one trace a request.

Speaks the OpenTelemetry API only; the program chooses the SDK. The SDK's sampler is asked once per request, at the
connect span: if it says no, nothing else is made. Without an SDK nothing is made at all. Never raises.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, ProxyTracerProvider, Span, SpanKind, Status, StatusCode

from nodes.gateway.session import Session
from nodes.kafka import ApiKey, ErrorCode, Request
from nodes.mesh import Trace
from traces import names

_tracer = trace.get_tracer("rafka.gateway")
# OpenTelemetry's names for what a messaging client does; others have no type.
_OPERATION_TYPES = {ApiKey.PRODUCE: "send", ApiKey.FETCH: "receive"}
_EMPTY = Context()
# Parts of an answer that are searched for an error: a request may name thousands of partitions.
_SEARCHED_PARTS = 64


class ConnectionSpans:
    """The spans of one connection's requests."""

    __slots__ = ("_accepted_at", "_first", "_requests", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._accepted_at = time.time_ns()
        self._first: tuple[Link] | None = None  # to the true connect span, if it was sampled
        self._requests = 0

    def start(self, request: Request) -> "Span | None":
        """The request's span, under a connect span of its own; None when spans are off or this one is not sampled."""
        self._requests += 1
        if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            return None
        with contextlib.suppress(Exception):
            return self._start(request)
        return None

    def _start(self, request: Request) -> Span | None:
        reused = self._requests > 1
        now = time.time_ns()
        connect = _tracer.start_span(
            names.GATEWAY_CONNECT,
            _EMPTY,
            SpanKind.SERVER,
            links=self._first if reused else None,
            start_time=now if reused else self._accepted_at,
        )
        if not connect.is_recording():
            return None
        if not reused:
            self._first = (Link(connect.get_span_context()),)
        connect.set_attributes(self._connection_attributes(request, reused, now))
        span = _tracer.start_span(
            names.GATEWAY_REQUEST,
            trace.set_span_in_context(connect, _EMPTY),
            SpanKind.SERVER,
            _request_attributes(request),
        )
        connect.end()
        return span

    def _connection_attributes(self, request: Request, reused: bool, now: int) -> dict[str, Any]:
        session = self._session
        return {
            names.CONNECTION_ID: session.id,
            names.CONNECTION_PEER: session.peer,
            names.CONNECTION_REUSED: reused,
            names.CONNECTION_REQUEST_NUMBER: self._requests,
            names.CONNECTION_AGE_MS: (now - self._accepted_at) // 1_000_000,
            names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA,
            names.MESSAGING_CLIENT_ID: request.client_id or "",
            names.CLIENT_SOFTWARE_NAME: session.software,
            names.CLIENT_SOFTWARE_VERSION: session.software_version,
        }


def answered(span: Span, response: Any) -> None:
    """Records the first Kafka error of an answer as the span's status."""
    with contextlib.suppress(Exception):
        error = next(filter(None, _errors(response)), None)
        if error is not None:
            span.set_attribute(names.KAFKA_ERROR_CODE, int(error))
            span.set_status(Status(StatusCode.ERROR, f"Kafka error {int(error)}, {error.name}"))


def name_topic(given: Trace, topic: str | None) -> None:
    """The name of a topic that a request gave only by its id."""
    if topic is not None and isinstance(given, Span):
        with contextlib.suppress(Exception):
            given.set_attributes({names.KAFKA_TOPIC: topic, names.MESSAGING_DESTINATION: topic})


def end(span: Span | None, error: str = "") -> None:
    if span is None:
        return
    with contextlib.suppress(Exception):
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end()


def _request_attributes(request: Request) -> dict[str, Any]:
    key = request.api.key
    attributes: dict[str, Any] = {
        names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA,
        names.MESSAGING_OPERATION_NAME: request.api.schema,
        names.MESSAGING_CLIENT_ID: request.client_id or "",
        names.KAFKA_API_KEY: int(key),
        names.KAFKA_API_VERSION: request.version,
        names.KAFKA_CORRELATION_ID: request.correlation_id,
        names.KAFKA_REQUEST_BYTES: request.size,
    }
    if key in _OPERATION_TYPES:
        attributes[names.MESSAGING_OPERATION_TYPE] = _OPERATION_TYPES[key]
        _add_partitions(attributes, request)
    return attributes


def _add_partitions(attributes: dict[str, Any], request: Request) -> None:
    """The first topic and partition, which in nearly all requests is the only one, and how many there are."""
    body = request.body
    if request.api.key is ApiKey.PRODUCE:
        if not body.topic_data or not body.topic_data[0].partition_data:
            return
        first = body.topic_data[0]
        topic, partition = first.name, first.partition_data[0].index
        count = sum(len(one.partition_data) for one in body.topic_data)
    else:
        if not body.topics or not body.topics[0].partitions:
            return
        first = body.topics[0]
        topic, partition = str(getattr(first, "topic", "") or first.topic_id), first.partitions[0].partition
        count = sum(len(one.partitions) for one in body.topics)
    attributes[names.KAFKA_TOPIC] = attributes[names.MESSAGING_DESTINATION] = topic
    attributes[names.KAFKA_PARTITION] = partition
    attributes[names.MESSAGING_PARTITION] = str(partition)
    attributes[names.KAFKA_PARTITION_COUNT] = count


@functools.cache
def _shape(kind: Any) -> tuple[bool, tuple[str, ...]]:
    """Whether a type of kio's has an error code, and its fields that hold other types of kio's."""
    fields = dataclasses.fields(kind)
    nested = tuple(field.name for field in fields if field.metadata.get("kafka_type") is None)
    return any(field.name == "error_code" for field in fields), nested


def _errors(entity: Any) -> Iterator[ErrorCode]:
    has_code, nested = _shape(entity.__class__)
    if has_code:
        yield entity.error_code
    for name in nested:
        value = getattr(entity, name)
        if value is not None:
            for part in value[:_SEARCHED_PARTS] if isinstance(value, tuple) else (value,):
                yield from _errors(part)
