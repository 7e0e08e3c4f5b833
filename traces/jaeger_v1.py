"""Jaeger's JSON for a stored trace: the format of API v1, of the UI's upload and download, and of our viewer.

OTLP has fields that Jaeger has not; they become the tags that Jaeger itself makes of them.
"""

import base64
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from traces.otlp import KIND_NAMES, STATUS_ERROR, STATUS_NAMES, links_of, nested_text, number_json
from traces.reader import StoredSource, StoredTrace
from traces.viewer import MAX_SAFE_INTEGER

_MICROSECOND = 1000


def trace_json(trace: StoredTrace) -> dict[str, Any]:
    """One item of `data`."""
    processes: dict[str, dict[str, Any]] = {}
    keys: dict[tuple[str, bytes], str] = {}
    spans: list[dict[str, Any]] = []
    for source, group in trace.groups:
        known = (source.service, source.resource.SerializeToString(deterministic=True))
        if known not in keys:
            keys[known] = f"p{len(keys) + 1}"
            processes[keys[known]] = _process(source)
        scope = _scope_tags(source)
        spans.extend(_span(span, keys[known], scope) for span in group)
    spans.sort(key=lambda span: span["startTime"])
    return {"traceID": trace.trace_id.hex(), "spans": spans, "processes": processes, "warnings": None}


def _process(source: StoredSource) -> dict[str, Any]:
    tags = [tag(attribute) for attribute in source.resource.attributes if attribute.key != "service.name"]
    return {"serviceName": source.service, "tags": tags}


def _scope_tags(source: StoredSource) -> list[dict[str, Any]]:
    tags = []
    if source.scope.name:
        tags.append(_text_tag("otel.scope.name", source.scope.name))
    if source.scope.version:
        tags.append(_text_tag("otel.scope.version", source.scope.version))
    return tags


def _span(span: Span, process: str, scope: list[dict[str, Any]]) -> dict[str, Any]:
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    trace_id = span.trace_id.hex()
    return {
        "traceID": trace_id,
        "spanID": span.span_id.hex(),
        "operationName": span.name,
        "references": list(_references(span, trace_id)),
        "startTime": start // _MICROSECOND,
        "duration": max(0, end - start) // _MICROSECOND,
        "tags": sorted(
            (*scope, *(tag(attribute) for attribute in span.attributes), *_tags_of_fields(span)),
            key=itemgetter("key"),
        ),
        "logs": [_log(event) for event in span.events],
        "processID": process,
        "warnings": [f"the span ends {start - end} ns before it starts: a clock was set back"] if end < start else None,
    }


def _references(span: Span, trace_id: str) -> Iterator[dict[str, str]]:
    if any(span.parent_span_id):
        yield {"refType": "CHILD_OF", "traceID": trace_id, "spanID": span.parent_span_id.hex()}
    for link in links_of(span):
        yield {"refType": "FOLLOWS_FROM", "traceID": link.trace_id.hex(), "spanID": link.span_id.hex()}


def _tags_of_fields(span: Span) -> Iterator[dict[str, Any]]:
    if span.kind:
        yield _text_tag("span.kind", KIND_NAMES[span.kind])
    status = span.status
    if status.code in STATUS_NAMES:
        yield _text_tag("otel.status_code", STATUS_NAMES[status.code])
        if status.code == STATUS_ERROR:
            yield {"key": "error", "type": "bool", "value": True}
    if status.message:
        yield _text_tag("otel.status_description", status.message)
    if span.trace_state:
        yield _text_tag("w3c.tracestate", span.trace_state)


def _log(event: Span.Event) -> dict[str, Any]:
    fields = [_text_tag("event", event.name)] if event.name else []
    fields.extend(tag(attribute) for attribute in event.attributes)
    return {"timestamp": event.time_unix_nano // _MICROSECOND, "fields": fields}


def _text_tag(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "type": "string", "value": value}


def tag(attribute: KeyValue) -> dict[str, Any]:
    """Jaeger's tag for an OTLP attribute."""
    kind, value = _typed(attribute.value)
    return {"key": attribute.key, "type": kind, "value": value}


def _typed(value: AnyValue) -> tuple[str, Any]:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return "string", value.string_value
    if kind == "int_value":
        number = value.int_value
        # Browsers read larger numbers wrongly; Jaeger writes them as text, too.
        return "int64", number if -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER else str(number)
    if kind == "bool_value":
        return "bool", value.bool_value
    if kind == "double_value":
        return "float64", number_json(value.double_value)
    if kind == "bytes_value":
        return "binary", base64.b64encode(value.bytes_value).decode()
    return "string", "" if kind is None else nested_text(value)
