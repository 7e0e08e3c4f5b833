"""The gateway's spans: `gateway.kafka.connect` and under it `gateway.kafka.request`, one trace a request.

Speaks the OpenTelemetry API, by `traces.sites`; the program chooses the SDK. The sampler is asked once per request, at
the connect span: if it says no, nothing else is made. Without an SDK nothing is made at all. Never raises.
"""

import dataclasses
import functools
import logging
import time
from typing import Any

from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from nodes.gateway.session import Session
from nodes.kafka import ApiKey, ErrorCode, Request, Wire
from nodes.mesh import Trace
from traces import names, sites
from traces.shape import Fixed
from traces.sites import LOST, Scope, Site

log = logging.getLogger(__name__)
_scope = Scope("rafka.gateway")
# OpenTelemetry's names for what a messaging client does; others have no type.
_OPERATION_TYPES = {ApiKey.PRODUCE: "send", ApiKey.FETCH: "receive"}
# Clients, APIs and partitions of which a few make nearly all requests.
_KEPT_SITES = 4096
# Parts of an answer that are searched for an error: a request may name thousands of partitions.
_SEARCHED_PARTS = 64


class ConnectionSpans:
    """The spans of one connection's requests."""

    __slots__ = ("_accepted_at", "_client", "_connect", "_first", "_requests", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._accepted_at = time.time_ns()
        self._first: tuple[Link, ...] = ()  # to the true connect span, if it was sampled
        self._requests = 0
        self._client: tuple[str | None, str, bool] | None = None  # what `_connect` was made for
        self._connect: Site

    def start(self, request: Request) -> "Span | None":
        """The request's span, under a connect span of its own; None when spans are off or this one is not sampled."""
        self._requests += 1
        if not sites.is_recording():
            return None
        try:
            return self._start(request)
        except Exception:
            log.exception(LOST)
            return None

    def _start(self, request: Request) -> Span | None:
        number = self._requests
        now = time.time_ns()
        site = self._connect_site(request, number > 1)
        age = (now - self._accepted_at) // 1_000_000
        own = {names.CONNECTION_REQUEST_NUMBER: number, names.CONNECTION_AGE_MS: age}
        connect = site.root(now if number > 1 else self._accepted_at, own)
        if connect is None:
            return None
        if number == 1:
            self._first = (Link(connect.get_span_context()),)
        own = {names.KAFKA_CORRELATION_ID: request.correlation_id, names.KAFKA_REQUEST_BYTES: request.size}
        span = _site_of(request).child(connect, own)
        connect.end()
        return span

    def _connect_site(self, request: Request, reused: bool) -> Site:
        """The same object for all requests of a connection, but for the first."""
        session = self._session
        client = (request.client_id, session.software, reused)
        if client != self._client:
            self._client = client
            software, version = _software(request, session)
            attributes = {
                names.CONNECTION_ID: session.id,
                names.CONNECTION_PEER: session.peer,
                names.CONNECTION_REUSED: reused,
                names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA,
                names.MESSAGING_CLIENT_ID: request.client_id or "",
                names.CLIENT_SOFTWARE_NAME: software,
                names.CLIENT_SOFTWARE_VERSION: version,
            }
            links = self._first if reused else ()
            self._connect = Site(_scope, names.GATEWAY_CONNECT, SpanKind.SERVER, Fixed(attributes), links)
        return self._connect


def _software(request: Request, session: Session) -> tuple[str, str]:
    """The client's software and its version. The session learns them when an ApiVersions is handled, which is later
    than the span of the true accept is made; but that is mostly the span of the ApiVersions itself."""
    name = getattr(request.body, "client_software_name", session.software)
    return name, getattr(request.body, "client_software_version", session.software_version)


def answered(span: Span, response: Any) -> None:
    """Records the first Kafka error of an answer as the span's status."""
    try:
        error = _first_error(response)
        if error is not None:
            span.set_attribute(names.KAFKA_ERROR_CODE, int(error))
            span.set_status(Status(StatusCode.ERROR, f"Kafka error {int(error)}, {error.name}"))
    except Exception:
        log.exception(LOST)


def name_topic(given: Trace, topic: str | None) -> None:
    """The name of a topic that a request gave only by its id."""
    if topic is not None and isinstance(given, Span):
        try:
            given.set_attributes({names.KAFKA_TOPIC: topic, names.MESSAGING_DESTINATION: topic})
        except Exception:
            log.exception(LOST)


def _site_of(request: Request) -> Site:
    partition = _first_partition(request) if request.wire.api.key in _OPERATION_TYPES else None
    return _request_site(request.wire, request.client_id, partition)


@functools.lru_cache(_KEPT_SITES)
def _request_site(wire: Wire, client_id: str | None, partition: tuple[str, int, int] | None) -> Site:
    """What requests share: a client sends the same kind again and again."""
    key = wire.api.key
    attributes = Fixed(
        {
            names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA,
            names.MESSAGING_OPERATION_NAME: wire.name,
            names.MESSAGING_CLIENT_ID: client_id or "",
            names.KAFKA_API_KEY: int(key),
            names.KAFKA_API_VERSION: wire.version,
        }
    )
    if key in _OPERATION_TYPES:
        attributes[names.MESSAGING_OPERATION_TYPE] = _OPERATION_TYPES[key]
    if partition is not None:
        topic, index, count = partition
        attributes[names.KAFKA_TOPIC] = attributes[names.MESSAGING_DESTINATION] = topic
        attributes[names.KAFKA_PARTITION] = index
        attributes[names.MESSAGING_PARTITION] = str(index)
        attributes[names.KAFKA_PARTITION_COUNT] = count
    return Site(_scope, names.GATEWAY_REQUEST, SpanKind.SERVER, attributes)


def _first_partition(request: Request) -> tuple[str, int, int] | None:
    """The first topic and partition, which in nearly all requests is the only one, and how many there are."""
    body = request.body
    if request.api.key is ApiKey.PRODUCE:
        topics = body.topic_data
        if not topics or not topics[0].partition_data:
            return None
        count = len(topics[0].partition_data)
        if len(topics) > 1:
            count = sum(len(one.partition_data) for one in topics)
        return topics[0].name, topics[0].partition_data[0].index, count
    topics = body.topics
    if not topics or not topics[0].partitions:
        return None
    name = str(getattr(topics[0], "topic", "") or topics[0].topic_id)
    return name, topics[0].partitions[0].partition, sum(len(one.partitions) for one in topics)


@functools.cache
def _shape(kind: Any) -> tuple[bool, tuple[str, ...]]:
    """Whether a type of kio's has an error code, and its fields that hold other types of kio's."""
    fields = dataclasses.fields(kind)
    nested = tuple(field.name for field in fields if field.metadata.get("kafka_type") is None)
    return any(field.name == "error_code" for field in fields), nested


def _first_error(entity: Any) -> ErrorCode | None:
    has_code, nested = _shape(entity.__class__)
    if has_code and entity.error_code:
        found: ErrorCode = entity.error_code
        return found
    for name in nested:
        value = getattr(entity, name)
        if not value:
            continue
        for part in value[:_SEARCHED_PARTS] if isinstance(value, tuple) else (value,):
            if error := _first_error(part):
                return error
    return None
