"""Traces in Jaeger's JSON and in OTLP's, read into and written from `model.Trace`. The client's side of the formats."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from traces.errors import MalformedError, TraceFormatError
from traces.model import Event, Span, SpanLink, Trace
from traces.otlp import KIND_NAMES, STATUS_ERROR, number_json, plain_pairs, service_of
from traces.otlp_json import request_of

_JAEGER_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64"}
# What Jaeger makes of OTLP's fields; read back into the fields they came from.
_FIELD_TAGS = frozenset(
    ("span.kind", "otel.status_code", "otel.status_description", "error", "otel.scope.name", "otel.scope.version")
)


def parse(text: str | bytes) -> Any:
    """JSON, or TraceFormatError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise TraceFormatError(f"the document is not JSON: {error}") from None


def read_traces(text: str | bytes) -> list[Trace]:
    """All traces of a document: Jaeger's answer or download, a single trace of it, or OTLP's JSON."""
    document = parse(text)
    if isinstance(document, dict) and ("resourceSpans" in document or "result" in document):
        return traces_of_otlp(document.get("result") or document)
    if isinstance(document, dict) and "spans" in document:
        return [trace_of(document)]
    data = document.get("data") if isinstance(document, dict) else document
    if not isinstance(data, list):
        raise TraceFormatError("the document has no 'data', 'spans' or 'resourceSpans': it is no trace of Jaeger's")
    return [trace_of(item) for item in data]


def trace_of(document: Any) -> Trace:
    """One item of Jaeger's `data`."""
    try:
        processes = document["processes"]
        return Trace(_trace_id(document["traceID"]), [_span_of(span, processes) for span in document["spans"]])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFormatError(f"the document is no trace in Jaeger's format: {error!r}") from None


def _trace_id(text: str) -> str:
    return f"{int(text, 16):032x}"


def _span_id(text: str) -> str:
    return f"{int(text, 16):016x}"


def _span_of(given: dict[str, Any], processes: dict[str, Any]) -> Span:
    process = processes[given["processID"]]
    tags = _tags(given.get("tags"))
    trace_id = _trace_id(given["traceID"])
    parent, links = None, []
    for reference in given.get("references") or ():
        near = _trace_id(reference["traceID"]) == trace_id
        if parent is None and reference["refType"] == "CHILD_OF" and near:
            parent = _span_id(reference["spanID"])
        else:
            links.append(SpanLink(_trace_id(reference["traceID"]), _span_id(reference["spanID"])))
    start = int(given["startTime"]) * 1000
    events = []
    for log in given.get("logs") or ():
        fields = _tags(log.get("fields"))
        events.append(Event(int(log["timestamp"]) * 1000, str(fields.pop("event", "")), fields))
    return Span(
        trace_id=trace_id,
        span_id=_span_id(given["spanID"]),
        parent_id=parent,
        name=given["operationName"],
        service=process["serviceName"],
        kind=str(tags.get("span.kind", "internal")),
        start_ns=start,
        end_ns=start + int(given["duration"]) * 1000,
        attributes={key: value for key, value in tags.items() if key not in _FIELD_TAGS},
        events=tuple(events),
        links=tuple(links),
        error=str(tags.get("error", "")).lower() == "true" or tags.get("otel.status_code") == "ERROR",
        status=str(tags.get("otel.status_description", "")),
        resource={**_tags(process.get("tags")), "service.name": process["serviceName"]},
        scope=str(tags.get("otel.scope.name", "")),
    )


def _tags(given: Any) -> dict[str, Any]:
    return {tag["key"]: _value(tag) for tag in given or ()}


def _value(tag: dict[str, Any]) -> Any:
    value = tag.get("value")
    if tag.get("type") == "int64":
        return int(value or 0)
    if tag.get("type") == "float64" and value is not None:
        return float(value)
    if tag.get("type") == "binary":
        return base64.b64decode(value or "")
    return value


def traces_of_otlp(document: Any) -> list[Trace]:
    """The traces of an OTLP document, in the order of their first spans."""
    try:
        request = request_of(document)
    except (MalformedError, UnicodeEncodeError) as error:
        raise TraceFormatError(f"the document is no OTLP JSON: {error}") from None
    spans: dict[str, list[Span]] = {}
    for resource_spans in request.resource_spans:
        resource = dict(plain_pairs(resource_spans.resource.attributes))
        service = service_of(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                made = _span_of_otlp(span, service, resource, scope_spans.scope.name)
                spans.setdefault(made.trace_id, []).append(made)
    return [Trace(trace_id, group) for trace_id, group in spans.items()]


def otlp_by_trace(document: Any) -> dict[str, dict[str, Any]]:
    """The same as a document for each trace id, to read what can be read where one trace is damaged."""
    parts: dict[str, list[dict[str, Any]]] = {}
    try:
        for resource_spans in document["resourceSpans"]:
            for scope_spans in resource_spans["scopeSpans"]:
                for span in scope_spans["spans"]:
                    one = {**resource_spans, "scopeSpans": [{**scope_spans, "spans": [span]}]}
                    parts.setdefault(str(span.get("traceId")), []).append(one)
    except (KeyError, TypeError, AttributeError) as error:
        raise TraceFormatError(f"the document is no OTLP JSON: {error!r}") from None
    return {trace_id: {"resourceSpans": part} for trace_id, part in parts.items()}


def _span_of_otlp(given: Any, service: str, resource: dict[str, Any], scope: str) -> Span:
    known = 0 < given.kind < len(KIND_NAMES)
    return Span(
        trace_id=given.trace_id.hex(),
        span_id=given.span_id.hex(),
        parent_id=given.parent_span_id.hex() if any(given.parent_span_id) else None,
        name=given.name,
        service=service,
        kind=KIND_NAMES[given.kind] if known else "internal",
        start_ns=given.start_time_unix_nano,
        end_ns=given.end_time_unix_nano,
        attributes=dict(plain_pairs(given.attributes)),
        events=tuple(
            Event(event.time_unix_nano, event.name, dict(plain_pairs(event.attributes))) for event in given.events
        ),
        links=tuple(
            SpanLink(link.trace_id.hex(), link.span_id.hex(), dict(plain_pairs(link.attributes)))
            for link in given.links
        ),
        error=given.status.code == STATUS_ERROR,
        status=given.status.message,
        resource=resource,
        scope=scope,
    )


def trace_document(trace: Trace) -> dict[str, Any]:
    """A trace as one item of Jaeger's `data`."""
    processes: dict[str, dict[str, Any]] = {}
    keys: dict[tuple[Any, ...], str] = {}
    spans = []
    for span in trace.spans:
        known = (span.service, *sorted((key, repr(value)) for key, value in span.resource.items()))
        if known not in keys:
            keys[known] = f"p{len(keys) + 1}"
            tags = {key: value for key, value in span.resource.items() if key != "service.name"}
            processes[keys[known]] = {"serviceName": span.service, "tags": _jaeger_tags(tags)}
        spans.append(_span_document(span, keys[known]))
    return {"traceID": trace.trace_id, "spans": spans, "processes": processes, "warnings": None}


def _span_document(span: Span, process: str) -> dict[str, Any]:
    references = [{"refType": "FOLLOWS_FROM", "traceID": link.trace_id, "spanID": link.span_id} for link in span.links]
    if span.parent_id:
        references.insert(0, {"refType": "CHILD_OF", "traceID": span.trace_id, "spanID": span.parent_id})
    fields: dict[str, Any] = {"otel.scope.name": span.scope} if span.scope else {}
    after: dict[str, Any] = {"span.kind": span.kind}
    if span.error:
        after |= {"otel.status_code": "ERROR", "error": True}
    if span.status:
        after["otel.status_description"] = span.status
    return {
        "traceID": span.trace_id,
        "spanID": span.span_id,
        "operationName": span.name,
        "references": references,
        "startTime": span.start_ns // 1000,
        "duration": span.duration_ns // 1000,
        "tags": _jaeger_tags({**fields, **span.attributes, **after}),
        "logs": [
            {
                "timestamp": event.time_ns // 1000,
                "fields": _jaeger_tags({**({"event": event.name} if event.name else {}), **event.attributes}),
            }
            for event in span.events
        ],
        "processID": process,
        "warnings": None,
    }


def _jaeger_tags(given: Mapping[str, Any] | Iterable[Any]) -> list[dict[str, Any]]:
    return [_jaeger_tag(key, value) for key, value in dict(given).items()]


def _jaeger_tag(key: str, value: Any) -> dict[str, Any]:
    kind = _JAEGER_TYPES.get(type(value))
    if isinstance(value, float):
        return {"key": key, "type": kind, "value": number_json(value)}
    if kind is not None:
        return {"key": key, "type": kind, "value": value}
    if isinstance(value, bytes):
        return {"key": key, "type": "binary", "value": base64.b64encode(value).decode()}
    return {"key": key, "type": "string", "value": "" if value is None else msgspec.json.encode(value).decode()}
