"""OTLP's JSON: hex ids, numbers as strings, enums as numbers. Both directions, by a mapping of our own.

Not protobuf's json_format: it reads hex ids as base64, and is 25 times slower.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from traces.errors import MalformedError
from traces.otlp import Checked, check_request, links_of, number_json

_UINT64, _UINT32, _INT64, _INT32 = range(2**64), range(2**32), range(-(2**63), 2**63), range(-(2**31), 2**31)
_Attributed = Resource | InstrumentationScope | Span | Span.Event | Span.Link
# As protobuf's own limit; deeper values would end in a RecursionError.
_NESTING_LIMIT = 64


def check(body: bytes) -> Checked:
    """An ExportTraceServiceRequest in JSON."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedError(f"the body is not JSON: {error}") from None
    try:
        return check_request(request_of(document))
    except UnicodeEncodeError as error:
        raise MalformedError(f"a string holds half a surrogate pair, which UTF-8 has no bytes for: {error}") from None


def request_of(document: Any) -> ExportTraceServiceRequest:
    """The message for a parsed document. Unknown fields are ignored, as the protocol wants."""
    request = ExportTraceServiceRequest()
    for given in _items(_object(document, "the body"), "resourceSpans"):
        resource_spans = request.resource_spans.add()
        _read_attributes(_object(given.get("resource") or {}, "resource"), resource_spans.resource)
        resource_spans.schema_url = _text(given, "schemaUrl")
        for given_scope in _items(given, "scopeSpans"):
            scope_spans = resource_spans.scope_spans.add()
            scope = _object(given_scope.get("scope") or {}, "scope")
            scope_spans.scope.name = _text(scope, "name")
            scope_spans.scope.version = _text(scope, "version")
            _read_attributes(scope, scope_spans.scope)
            scope_spans.schema_url = _text(given_scope, "schemaUrl")
            for span in _items(given_scope, "spans"):
                _read_span(span, scope_spans.spans.add())
    return request


def _read_span(given: dict[str, Any], span: Span) -> None:
    span.trace_id = _id(given, "traceId")
    span.span_id = _id(given, "spanId")
    span.parent_span_id = _id(given, "parentSpanId")
    span.trace_state = _text(given, "traceState")
    span.flags = _number(given, "flags", _UINT32)
    span.name = _text(given, "name")
    span.kind = _number(given, "kind", _INT32)  # type: ignore[assignment]
    span.start_time_unix_nano = _number(given, "startTimeUnixNano", _UINT64)
    span.end_time_unix_nano = _number(given, "endTimeUnixNano", _UINT64)
    _read_attributes(given, span)
    span.dropped_events_count = _number(given, "droppedEventsCount", _UINT32)
    span.dropped_links_count = _number(given, "droppedLinksCount", _UINT32)
    for given_event in _items(given, "events"):
        event = span.events.add()
        event.time_unix_nano = _number(given_event, "timeUnixNano", _UINT64)
        event.name = _text(given_event, "name")
        _read_attributes(given_event, event)
    for given_link in _items(given, "links"):
        link = span.links.add()
        link.trace_id = _id(given_link, "traceId")
        link.span_id = _id(given_link, "spanId")
        link.trace_state = _text(given_link, "traceState")
        link.flags = _number(given_link, "flags", _UINT32)
        _read_attributes(given_link, link)
    status = _object(given.get("status") or {}, "status")
    span.status.message = _text(status, "message")
    span.status.code = _number(status, "code", _INT32)  # type: ignore[assignment]


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedError(f"{where} should be a JSON object, not {type(value).__name__}")
    return value


def _items(owner: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = owner.get(name)
    if items is None:
        return []
    if not isinstance(items, list):
        raise MalformedError(f"{name} should be a JSON array, not {type(items).__name__}")
    return [_object(item, f"an item of {name}") for item in items]


def _text(owner: dict[str, Any], name: str) -> str:
    value = owner.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedError(f"{name} should be a string, not {type(value).__name__}")
    return value


def _number(owner: dict[str, Any], name: str, allowed: range) -> int:
    value = owner.get(name)
    if value is None:
        return 0
    try:
        number = (
            int(value) if isinstance(value, str | int) or (isinstance(value, float) and value.is_integer()) else None
        )
    except ValueError:
        number = None
    if number is None or isinstance(value, bool) or number not in allowed:
        raise MalformedError(f"{name} is {str(value)[:40]!r}; it should be a whole number, as a number or a string")
    return number


def _id(owner: dict[str, Any], name: str) -> bytes:
    value = _text(owner, name)
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise MalformedError(f"{name} is {value[:40]!r}; OTLP's JSON writes ids in hexadecimal") from None


def _read_attributes(given: dict[str, Any], owner: _Attributed) -> None:
    _attributes(given, owner.attributes)
    owner.dropped_attributes_count = _number(given, "droppedAttributesCount", _UINT32)


def _attributes(owner: dict[str, Any], target: Any, depth: int = _NESTING_LIMIT) -> None:
    for given in _items(owner, "attributes"):
        attribute = target.add()
        attribute.key = _text(given, "key")
        if given.get("value") is not None:
            _read_value(_object(given["value"], "value"), attribute.value, depth)


def _read_value(given: dict[str, Any], value: AnyValue, depth: int) -> None:
    if depth == 0:
        raise MalformedError(f"an attribute is nested more than {_NESTING_LIMIT} levels deep")
    if "stringValue" in given:
        value.string_value = _text(given, "stringValue")
    elif "boolValue" in given:
        if not isinstance(given["boolValue"], bool):
            raise MalformedError("boolValue should be true or false")
        value.bool_value = given["boolValue"]
    elif "intValue" in given:
        value.int_value = _number(given, "intValue", _INT64)
    elif "doubleValue" in given:
        value.double_value = _double(given["doubleValue"])
    elif "bytesValue" in given:
        value.bytes_value = _base64(_text(given, "bytesValue"))
    elif "arrayValue" in given:
        value.array_value.SetInParent()
        for item in _items(_object(given["arrayValue"], "arrayValue"), "values"):
            _read_value(item, value.array_value.values.add(), depth - 1)
    elif "kvlistValue" in given:
        value.kvlist_value.SetInParent()
        pairs = _items(_object(given["kvlistValue"], "kvlistValue"), "values")
        _attributes({"attributes": pairs}, value.kvlist_value.values, depth - 1)


def _double(given: Any) -> float:
    try:
        if isinstance(given, str | int | float) and not isinstance(given, bool):
            return float(given)
    except (ValueError, OverflowError):
        pass
    raise MalformedError(f"doubleValue is {str(given)[:40]!r}; it should be a number")


def _base64(given: str) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedError("bytesValue should be base64") from None


def resource_spans_json(
    resource: Resource,
    scope: InstrumentationScope,
    spans: Iterable[Span],
    resource_schema_url: str = "",
    scope_schema_url: str = "",
) -> dict[str, Any]:
    """One entry of `resourceSpans` for spans of one resource and scope. Here and below, what is empty is left out, as
    in protobuf's own JSON, but for ids, names and times."""
    described: dict[str, Any] = {"name": scope.name} if scope.name else {}
    if scope.version:
        described["version"] = scope.version
    of_scope = {"scope": described | _attributes_json(scope), "spans": [span_json(span) for span in spans]}
    if scope_schema_url:
        of_scope["schemaUrl"] = scope_schema_url
    document = {"resource": _attributes_json(resource), "scopeSpans": [of_scope]}
    if resource_schema_url:
        document["schemaUrl"] = resource_schema_url
    return document


def span_json(span: Span) -> dict[str, Any]:
    """A span as OTLP's JSON."""
    document: dict[str, Any] = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "name": span.name,
        "startTimeUnixNano": str(span.start_time_unix_nano),
        "endTimeUnixNano": str(span.end_time_unix_nano),
        "status": {},
    }
    if span.kind:
        document["kind"] = span.kind
    if any(span.parent_span_id):
        document["parentSpanId"] = span.parent_span_id.hex()
    if span.trace_state:
        document["traceState"] = span.trace_state
    if span.flags:
        document["flags"] = span.flags
    document |= _attributes_json(span)
    if span.events:
        document["events"] = [_event_json(event) for event in span.events]
    if span.dropped_events_count:
        document["droppedEventsCount"] = span.dropped_events_count
    if links := [_link_json(link) for link in links_of(span)]:
        document["links"] = links
    if span.dropped_links_count:
        document["droppedLinksCount"] = span.dropped_links_count
    if span.status.code:
        document["status"]["code"] = span.status.code
    if span.status.message:
        document["status"]["message"] = span.status.message
    return document


def _event_json(event: Span.Event) -> dict[str, Any]:
    return {"timeUnixNano": str(event.time_unix_nano), "name": event.name} | _attributes_json(event)


def _link_json(link: Span.Link) -> dict[str, Any]:
    document: dict[str, Any] = {"traceId": link.trace_id.hex(), "spanId": link.span_id.hex()}
    if link.trace_state:
        document["traceState"] = link.trace_state
    if link.flags:
        document["flags"] = link.flags
    return document | _attributes_json(link)


def _attributes_json(owner: _Attributed) -> dict[str, Any]:
    """The attributes, and how many the sender left out."""
    document: dict[str, Any] = {}
    if owner.attributes:
        document["attributes"] = _pairs_json(owner.attributes)
    if owner.dropped_attributes_count:
        document["droppedAttributesCount"] = owner.dropped_attributes_count
    return document


def _pairs_json(attributes: Iterable[KeyValue]) -> list[dict[str, Any]]:
    return [{"key": attribute.key, "value": _value_json(attribute.value)} for attribute in attributes]


def _value_json(value: AnyValue) -> dict[str, Any]:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return {"stringValue": value.string_value}
    if kind == "int_value":
        return {"intValue": str(value.int_value)}
    if kind == "bool_value":
        return {"boolValue": value.bool_value}
    if kind == "double_value":
        return {"doubleValue": number_json(value.double_value)}
    if kind == "bytes_value":
        return {"bytesValue": base64.b64encode(value.bytes_value).decode()}
    if kind == "array_value":
        return {"arrayValue": {"values": [_value_json(item) for item in value.array_value.values]}}
    if kind == "kvlist_value":
        return {"kvlistValue": {"values": _pairs_json(value.kvlist_value.values)}}
    return {}
