"""The gateway's spans: `gateway.kafka.connect` and under it `gateway.kafka.request`, one trace a request.

Speaks the OpenTelemetry API only; the program chooses the SDK. The SDK's sampler is asked once per request, at the
connect span: if it says no, nothing else is made. Without an SDK nothing is made at all. Never raises.
"""

import contextlib
import time
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Link, ProxyTracerProvider, Span, SpanContext, SpanKind, Status, StatusCode

from nodes.gateway.session import Session
from nodes.kafka import ApiKey, Request

_tracer = trace.get_tracer("rafka.gateway")
# OpenTelemetry's names for what a messaging client does; others have no type.
_OPERATION_TYPES = {ApiKey.PRODUCE: "send", ApiKey.FETCH: "receive"}


class ConnectionSpans:
    """The spans of one connection's requests."""

    __slots__ = ("_accepted_at", "_first", "_requests", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._accepted_at = time.time_ns()
        self._first: SpanContext | None = None  # of the true connect span, if it was sampled
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
        links = [Link(self._first)] if reused and self._first is not None else None
        connect = _tracer.start_span(
            "gateway.kafka.connect",
            kind=SpanKind.SERVER,
            links=links,
            start_time=None if reused else self._accepted_at,
        )
        if not connect.is_recording():
            return None
        if not reused:
            self._first = connect.get_span_context()
        connect.set_attributes(self._connection_attributes(request, reused))
        span = _tracer.start_span(
            "gateway.kafka.request", context=trace.set_span_in_context(connect), kind=SpanKind.SERVER
        )
        connect.end()
        span.set_attributes(_request_attributes(request))
        return span

    def _connection_attributes(self, request: Request, reused: bool) -> dict[str, Any]:
        session = self._session
        return {
            "connection.id": session.id,
            "connection.reused": reused,
            "connection.request_number": self._requests,
            "connection.age_ms": (time.time_ns() - self._accepted_at) // 1_000_000,
            "network.peer.address": session.peer,
            "messaging.client.id": request.client_id or "",
            "client.software": session.software,
            "client.software_version": session.software_version,
        }


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
        "messaging.system": "kafka",
        "messaging.operation.name": request.api.schema,
        "messaging.client.id": request.client_id or "",
        "kafka.api_key": int(key),
        "kafka.api_version": request.version,
        "kafka.request_bytes": request.size,
    }
    if key in _OPERATION_TYPES:
        attributes["messaging.operation.type"] = _OPERATION_TYPES[key]
        attributes |= _first_partition(request)
    return attributes


def _first_partition(request: Request) -> dict[str, Any]:
    """The first topic and partition, which in nearly all requests is the only one, and how many there are."""
    body = request.body
    if request.api.key is ApiKey.PRODUCE:
        pairs = [(topic.name, part.index) for topic in body.topic_data for part in topic.partition_data]
    else:
        pairs = [(_name(topic), part.partition) for topic in body.topics for part in topic.partitions]
    if not pairs:
        return {}
    topic, partition = pairs[0]
    return {
        "kafka.topic": topic,
        "kafka.partition": partition,
        "kafka.partition_count": len(pairs),
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
    }


def _name(topic: Any) -> str:
    return str(getattr(topic, "topic", "") or topic.topic_id)
