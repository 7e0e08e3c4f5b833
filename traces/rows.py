"""Kept requests to rows: what the tables need of each span. No I/O; the bytes were checked when they came (`otlp.py`).

Most of the work of indexing is here. A span in protobuf's own order of fields is cut up by hand: attributes stay bytes,
which repeat from span to span, so that what they stand for is worked out once. All others are read by the library.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from traces.otlp import SPAN_ID_BYTES, service_of, tags_of, value_text
from traces.protobuf import text

# An attribute's message, or its key and its value as text.
Tag = bytes | tuple[str, str]

# A number that OTLP's resources and scopes are far from, and the tag of a text of that number.
SCHEMA_URL = 1000
_SCHEMA_URL_TAG = b"\xc2\x3e"
_NO_SPAN = bytes(SPAN_ID_BYTES)
# Trace id, span id, perhaps a parent, and the tag of the name.
_IDS = re.compile(rb"\x0a\x10(.{16})\x12\x08(.{8})(?:\x22\x08(.{8}))?\x2a", re.DOTALL)
_KIND_AND_TIMES = struct.Struct("<BBBQBQ")
_KIND, _START, _END, _ATTRIBUTE, _LINK = 0x30, 0x39, 0x41, 0x4A, 0x6A
_FLAGS = b"\x85\x01"
_FLAGS_SIZE = 6


class SpanRow(NamedTuple):
    """One span. Ids are the store's numbers but for the trace's, times nanoseconds, `body` OTLP's message."""

    trace_id: bytes
    span_id: int
    parent_id: int | None
    name: str
    kind: int
    status: int
    start: int
    duration: int
    body: bytes
    tags: list[Tag]


class Group(NamedTuple):
    """The spans of one resource and scope; `resource` and `scope` are their OTLP messages, each with the URL of its
    schema as a field more, `SCHEMA_URL`: OTLP has it beside them."""

    service: str
    resource: bytes
    scope: bytes
    spans: list[SpanRow]


def groups_of(body: bytes) -> Iterator[Group]:
    """The spans of a checked ExportTraceServiceRequest."""
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = resource_spans.resource
        # A field of the number that is ours would be read as our own.
        resource.DiscardUnknownFields()
        service = service_of(resource.attributes)
        encoded = resource.SerializeToString() + _schema_field(resource_spans.schema_url)
        for scope_spans in resource_spans.scope_spans:
            rows = [_row(span) for span in scope_spans.spans]
            scope = scope_spans.scope
            scope.DiscardUnknownFields()
            yield Group(service, encoded, scope.SerializeToString() + _schema_field(scope_spans.schema_url), rows)


def take_schema_url(message: Resource | InstrumentationScope) -> str:
    """Removes the schema's URL from a message of a `Group`, and returns it."""
    fields = [field.data for field in UnknownFieldSet(message) if field.field_number == SCHEMA_URL]
    message.DiscardUnknownFields()
    return fields[-1].decode() if fields else ""


def _schema_field(url: str) -> bytes:
    return text(_SCHEMA_URL_TAG, url) if url else b""


def text_of(tag: Tag) -> tuple[str, str]:
    """A tag's key and its value as text."""
    if isinstance(tag, tuple):
        return tag
    attribute = KeyValue.FromString(tag)
    return attribute.key, value_text(attribute.value)


def span_number(span_id: bytes) -> int:
    """A span id as the signed number that the store keeps."""
    return int.from_bytes(span_id, "big", signed=True)


def _row(span: Span) -> SpanRow:
    body: bytes = span.SerializeToString()
    return _cut(body) or _read(span, body)


def _cut(body: bytes) -> SpanRow | None:
    """By hand; None for a span that has an error, events, or anything else that is not on most spans."""
    ids = _IDS.match(body)
    if ids is None:
        return None
    trace_id, span_id, parent_id = ids.groups()
    at = ids.end()
    name_size = body[at]
    at += 1 + name_size
    if name_size > 0x7F or at + _KIND_AND_TIMES.size > len(body):
        return None
    kind_tag, kind, start_tag, start, end_tag, end = _KIND_AND_TIMES.unpack_from(body, at)
    if kind_tag != _KIND or start_tag != _START or end_tag != _END:
        return None
    tags = _attributes(body, at + _KIND_AND_TIMES.size)
    if tags is None:
        return None
    return SpanRow(
        trace_id,
        int.from_bytes(span_id, "big", signed=True),
        int.from_bytes(parent_id, "big", signed=True) if parent_id and parent_id != _NO_SPAN else None,
        body[at - name_size : at].decode(),
        kind,
        0,
        start,
        end - start if end > start else 0,
        body,
        tags,
    )


def _attributes(body: bytes, at: int) -> list[Tag] | None:
    """The rest of a span: its attributes; None if there is more than links and flags after them."""
    tags: list[Tag] = []
    last = len(body) - _FLAGS_SIZE
    while at < last:
        field, size = body[at], body[at + 1]
        at += 2
        if size > 0x7F:
            size = size & 0x7F | body[at] << 7
            at += 1
            if size > 0x3FFF:
                return None
        if field == _ATTRIBUTE:
            tags.append(body[at : at + size])
        elif field != _LINK:
            return None
        at += size
    return tags if at == last and body[at : at + 2] == _FLAGS else None


def _read(span: Span, body: bytes) -> SpanRow:
    parent_id, start = span.parent_span_id, span.start_time_unix_nano
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
        body,
        list(tags_of(span)),
    )
