"""OTLP in: bytes to checked spans, from protobuf or JSON. No I/O.

What is wrong with one span (an id of wrong length, a time no clock shows) rejects that span; what is wrong with the
bytes rejects the request. Both say why.
"""

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from traces.errors import MalformedError, TooLargeError, UnsupportedError

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
UNKNOWN_SERVICE: Final = "unknown_service"
STATUS_ERROR: Final = 2
STATUS_NAMES: Final = {1: "OK", STATUS_ERROR: "ERROR"}
# The store's times are signed 64-bit nanoseconds: up to the year 2262.
MAX_TIME: Final = 2**63 - 1
KIND_NAMES: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
_NO_SPAN = bytes(SPAN_ID_BYTES)
_NO_TRACE = bytes(TRACE_ID_BYTES)
# Reasons told to the sender; a request of nothing but bad spans must not make a huge answer.
_REASONS_TOLD = 5


@dataclass(slots=True)
class SpanRow:
    """One checked span as the store takes it. Ids and body are bytes, times nanoseconds."""

    trace_id: bytes
    span_id: int
    parent_id: int | None
    name: str
    kind: int
    status: int
    start: int
    duration: int
    body: bytes
    tags: set[tuple[str, str]]


@dataclass(slots=True)
class Group:
    """The spans of one resource and scope; `resource` and `scope` are their OTLP messages."""

    service: str
    resource: bytes
    scope: bytes
    spans: list[SpanRow]


@dataclass(slots=True)
class Batch:
    """One request."""

    groups: list[Group] = field(default_factory=list)
    accepted: int = 0
    rejected: int = 0
    reasons: list[str] = field(default_factory=list)

    def reject(self, reason: str) -> None:
        self.rejected += 1
        if len(self.reasons) < _REASONS_TOLD and reason not in self.reasons:
            self.reasons.append(reason)

    @property
    def message(self) -> str:
        """What the sender is told about rejected spans."""
        return f"{self.rejected} spans rejected: {'; '.join(self.reasons)}" if self.rejected else ""


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """Undoes the content encoding; never makes more than `limit` bytes."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise UnsupportedError(f"content encoding {encoding!r} is not supported; send gzip or none")
    out = bytearray()
    while body:
        stream = zlib.decompressobj(wbits=31)
        try:
            out += stream.decompress(body, limit + 1 - len(out))
        except zlib.error as error:
            raise MalformedError(f"the body is not gzip: {error}") from None
        if len(out) > limit:
            raise TooLargeError(f"the body is over {limit} bytes after decompression; send smaller batches")
        if not stream.eof:
            raise MalformedError("the gzip body ends in the middle")
        body = stream.unused_data
    return bytes(out)


def decode(body: bytes) -> Batch:
    """An ExportTraceServiceRequest in protobuf."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"the body is no ExportTraceServiceRequest in protobuf: {error}") from None
    return batch_of(request)


def batch_of(request: ExportTraceServiceRequest) -> Batch:
    """Checks a decoded request span by span."""
    batch = Batch()
    for resource_spans in request.resource_spans:
        resource = resource_spans.resource
        service = service_of(resource.attributes)
        encoded = resource.SerializeToString()
        for scope_spans in resource_spans.scope_spans:
            rows = []
            for span in scope_spans.spans:
                fault = _fault(span)
                if fault:
                    batch.reject(fault)
                else:
                    rows.append(_row(span))
            if rows:
                batch.groups.append(Group(service, encoded, scope_spans.scope.SerializeToString(), rows))
                batch.accepted += len(rows)
    return batch


def service_of(attributes: Any) -> str:
    """`service.name`, as OpenTelemetry names what has none."""
    for attribute in attributes:
        if attribute.key == "service.name":
            return value_text(attribute.value) or UNKNOWN_SERVICE
    return UNKNOWN_SERVICE


def _fault(span: Span) -> str:
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE:
        return f"trace id {trace_id[:32].hex()!r} is not {TRACE_ID_BYTES} bytes that are not all zero"
    if len(span_id) != SPAN_ID_BYTES or span_id == _NO_SPAN:
        return f"span id {span_id[:32].hex()!r} is not {SPAN_ID_BYTES} bytes that are not all zero"
    if parent_id and len(parent_id) != SPAN_ID_BYTES:
        return f"parent span id {parent_id[:32].hex()!r} is not {SPAN_ID_BYTES} bytes"
    if span.start_time_unix_nano > MAX_TIME or span.end_time_unix_nano > MAX_TIME:
        return f"the times of span {span_id.hex()} are beyond the year 2262"
    if not 0 <= span.kind < len(KIND_NAMES):
        return f"span {span_id.hex()} has the unknown kind {span.kind}"
    return ""


def _row(span: Span) -> SpanRow:
    parent_id = span.parent_span_id
    start = span.start_time_unix_nano
    return SpanRow(
        span.trace_id,
        span_number(span.span_id),
        span_number(parent_id) if parent_id and parent_id != _NO_SPAN else None,
        span.name,
        span.kind,
        span.status.code,
        start,
        # A clock that was set back between start and end: shown as no time, the body keeps both.
        max(0, span.end_time_unix_nano - start),
        span.SerializeToString(),
        tags_of(span),
    )


def tags_of(span: Span) -> set[tuple[str, str]]:
    """What a search for tags finds on a span: its attributes, its events', and its status as Jaeger shows it."""
    tags = {(attribute.key, value_text(attribute.value)) for attribute in span.attributes}
    for event in span.events:
        tags.update((attribute.key, value_text(attribute.value)) for attribute in event.attributes)
        tags.add(("event", event.name))
    status = span.status.code
    if status in STATUS_NAMES:
        tags.add(("otel.status_code", STATUS_NAMES[status]))
        if status == STATUS_ERROR:
            tags.add(("error", "true"))
    return tags


def span_number(span_id: bytes) -> int:
    """A span id as the signed number that the store keeps."""
    return int.from_bytes(span_id, "big", signed=True)


def span_bytes(number: int) -> bytes:
    """The reverse of `span_number`."""
    return number.to_bytes(SPAN_ID_BYTES, "big", signed=True)


def value_text(value: AnyValue) -> str:
    """A value as text, the way tags are searched and Jaeger shows them."""
    # Most values are non-empty strings or numbers; asking for the kind first costs more than both looks together.
    text: str = value.string_value
    if text:
        return text
    if value.int_value:
        return str(value.int_value)
    kind = value.WhichOneof("value")
    if kind == "int_value":
        return "0"
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind == "double_value":
        return f"{value.double_value:.10g}"
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return "" if kind in (None, "string_value") else msgspec.json.encode(plain(value)).decode()


def plain(value: AnyValue) -> Any:
    """A value as Python's own types."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return dict(plain_pairs(value.kvlist_value.values))
    return getattr(value, kind) if kind else None


def plain_pairs(attributes: Any) -> Iterator[tuple[str, Any]]:
    """Attributes as (key, plain value)."""
    attribute: KeyValue
    for attribute in attributes:
        yield attribute.key, plain(attribute.value)
