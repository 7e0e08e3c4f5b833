"""OTLP in: bytes that were sent to bytes that may be kept, from protobuf or JSON. No I/O; `rows.py` reads them again.

What is wrong with one span (an id of wrong length, a time no clock shows) rejects that span; what is wrong with the
bytes rejects the request. Both say why.
"""

import base64
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
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
# By OTLP's numbers. Jaeger has no name for a kind that is not set.
KIND_NAMES: Final = ("", "internal", "server", "client", "producer", "consumer")
_NO_SPAN = bytes(SPAN_ID_BYTES)
_NO_TRACE = bytes(TRACE_ID_BYTES)
_CHECKED_FIELDS = attrgetter(
    "trace_id", "span_id", "parent_span_id", "start_time_unix_nano", "end_time_unix_nano", "kind", "links"
)
# Of a gzip member. What comes after its end is copied, so pieces grow with the member: one piece of all that is left
# would copy a body of many members once for each.
_FIRST_PIECE = 512
# Reasons told to the sender; a request of nothing but bad spans must not make a huge answer.
_REASONS_TOLD = 5


@dataclass(slots=True)
class Checked:
    """One request as it will be kept: `body` holds the accepted spans and no others, or is to be checked `later`."""

    body: bytes
    accepted: int = 0
    later: bool = False
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
    out, rest = bytearray(), memoryview(body)
    while rest:
        rest = rest[_inflate_member(rest, out, limit) :]
    return bytes(out)


def _inflate_member(body: memoryview, out: bytearray, limit: int) -> int:
    """Appends what the first member of `body` stands for; returns its size."""
    stream = zlib.decompressobj(wbits=31)
    at, piece = 0, _FIRST_PIECE
    while not stream.eof:
        if at == len(body):
            raise MalformedError("the gzip body ends in the middle")
        given = body[at : at + piece]
        try:
            out += stream.decompress(given, limit + 1 - len(out))
        except zlib.error as error:
            raise MalformedError(f"the body is not gzip: {error}") from None
        if len(out) > limit:
            raise TooLargeError(f"the body is over {limit} bytes after decompression; send smaller batches")
        at += len(given)
        piece *= 2
    return at - len(stream.unused_data)


def check(body: bytes) -> Checked:
    """An ExportTraceServiceRequest in protobuf."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"the body is no ExportTraceServiceRequest in protobuf: {error}") from None
    return check_request(request, body)


def check_request(request: ExportTraceServiceRequest, body: bytes | None = None) -> Checked:
    """Checks a decoded request span by span. `body` are its bytes, where they are known."""
    checked = Checked(b"")
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            spans = scope_spans.spans
            if not _all_good(spans):
                _remove_bad(spans, checked)
            checked.accepted += len(spans)
    checked.body = request.SerializeToString() if body is None or checked.rejected else body
    return checked


def _all_good(spans: Sequence[Span]) -> bool:
    """The same rules as `_fault`, for all spans at once: nearly all requests are right, and this runs at C's speed."""
    if not spans:
        return True
    trace_ids, span_ids, parent_ids, starts, ends, kinds, links = zip(*map(_CHECKED_FIELDS, spans), strict=True)
    return (
        set(map(len, trace_ids)) == {TRACE_ID_BYTES}
        and _NO_TRACE not in trace_ids
        and set(map(len, span_ids)) == {SPAN_ID_BYTES}
        and _NO_SPAN not in span_ids
        and set(map(len, parent_ids)) <= {0, SPAN_ID_BYTES}
        and max(starts) <= MAX_TIME
        and max(ends) <= MAX_TIME
        and min(kinds) >= 0
        and max(kinds) < len(KIND_NAMES)
        and not any(map(_faulty_link, chain.from_iterable(links)))
    )


def _remove_bad(spans: Any, checked: Checked) -> None:
    for at in reversed(range(len(spans))):
        if fault := _fault(spans[at]):
            checked.reject(fault)
            del spans[at]


def service_of(attributes: Any) -> str:
    """`service.name`, as OpenTelemetry names what has none."""
    for attribute in attributes:
        if attribute.key == "service.name":
            return value_text(attribute.value) or UNKNOWN_SERVICE
    return UNKNOWN_SERVICE


def _fault(span: Span) -> str:
    """What is wrong with a span; `_all_good` has the same rules."""
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
    for link in span.links:
        if _faulty_link(link):
            ids = f"{link.trace_id[:32].hex()!r} and {link.span_id[:32].hex()!r}"
            return f"span {span_id.hex()} has a link to {ids}, not {TRACE_ID_BYTES} and {SPAN_ID_BYTES} bytes"
    return ""


def _faulty_link(link: Span.Link) -> bool:
    return len(link.trace_id) != TRACE_ID_BYTES or len(link.span_id) != SPAN_ID_BYTES


def links_of(span: Span) -> Iterator[Span.Link]:
    """The links that name a span. SDKs record one of zeros for its attributes; older stores hold ids of any length."""
    for link in span.links:
        trace_id, span_id = link.trace_id, link.span_id
        if len(trace_id) == TRACE_ID_BYTES and len(span_id) == SPAN_ID_BYTES and any(trace_id) and any(span_id):
            yield link


def tags_of(span: Span) -> set[tuple[str, str]]:
    """What a search for tags finds on a span: its attributes, its events', and other fields as Jaeger shows them."""
    tags = {(attribute.key, value_text(attribute.value)) for attribute in span.attributes}
    for event in span.events:
        tags.update((attribute.key, value_text(attribute.value)) for attribute in event.attributes)
        tags.add(("event", event.name))
    status = span.status.code
    if status in STATUS_NAMES:
        tags.add(("otel.status_code", STATUS_NAMES[status]))
        if status == STATUS_ERROR:
            tags.add(("error", "true"))
    if span.status.message:
        tags.add(("otel.status_description", span.status.message))
    if span.trace_state:
        tags.add(("w3c.tracestate", span.trace_state))
    return tags


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
        number = value.double_value
        return f"{number:.10g}" if math.isfinite(number) else str(number_json(number))
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return "" if kind in (None, "string_value") else nested_text(value)


def nested_text(value: AnyValue) -> str:
    """An array or a map as JSON."""
    return msgspec.json.encode(_finite(plain(value))).decode()


def number_json(number: float) -> float | str:
    """A number for JSON, which has none for these three: protobuf writes their names."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return number_json(value)
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


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
