"""OTLP's protobuf encoding of finished spans, by hand and with caches. No I/O; the collector decodes with the library.

Attributes repeat from span to span, so their encoded bytes are kept: this is where the recorder's speed comes from.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from traces.shape import Fixed, Shape

_FIXED64 = struct.Struct("<Q").pack
_DOUBLE = struct.Struct("<d").pack
# Start, the tag of the end, end.
_TIMES = struct.Struct("<QBQ").pack
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_MASK64 = 2**64 - 1
_LONGEST_VARINT = 10
# Entries of one cache before it is thrown away: request ids and offsets never repeat and would fill it for ever.
_CACHE_LIMIT = 16_384
# Deeper values are replaced by their text: a value that contains itself must not end the export.
_NESTING_LIMIT = 16

# Numbers of up to two groups of seven bits, and of up to four.
_SHORT, _MEDIUM = 1 << 14, 1 << 28
_LOW_BITS = _SHORT - 1
_SMALL_VARINTS = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(_SHORT)]
# Tag and length of a span in its scope.
_SPAN_HEADS = [b"\x12" + size for size in _SMALL_VARINTS]
# Two groups that others follow.
_LOW_GROUPS = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(_SHORT)]
_KINDS = {kind: b"\x30" + bytes((kind,)) for kind in range(6)}
_attributes: dict[tuple[str, type, Any], bytes | None] = {}
# Numbers of a span's attributes by key: all before the number itself, for each count of its bytes.
_number_heads: dict[str, list[bytes]] = {}
_SPAN_ATTRIBUTE = b"\x4a"


def varint(number: int) -> bytes:
    """Base 128, low groups first."""
    if number < _SHORT:
        return _SMALL_VARINTS[number]
    if number < _MEDIUM:
        return _LOW_GROUPS[number & _LOW_BITS] + _SMALL_VARINTS[number >> 14]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def block(tag: bytes, body: bytes) -> bytes:
    """A length-delimited field."""
    return tag + varint(len(body)) + body


def text(tag: bytes, value: str) -> bytes:
    """A string field. Lone surrogates, which UTF-8 cannot hold, become question marks."""
    return block(tag, value.encode("utf-8", "replace"))


def attribute(key: str, value: Any) -> bytes | None:
    """A KeyValue message; None for a value that OTLP has no type for."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or kind is float:
        known = (key, kind, value)
        found = _attributes.get(known)
        if found is None:
            found = _key_value(key, value)
            if len(_attributes) >= _CACHE_LIMIT:
                _attributes.clear()
            _attributes[known] = found
        return found
    return _key_value(key, value)


def _key_value(key: str, value: Any) -> bytes | None:
    encoded = _any_value(value, _NESTING_LIMIT)
    return None if encoded is None else text(b"\x0a", key) + block(b"\x12", encoded)


def _any_value(value: Any, depth: int) -> bytes | None:
    if isinstance(value, str):
        return text(b"\x0a", value)
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        if not _INT64_MIN <= value <= _INT64_MAX:
            return text(b"\x0a", str(value))
        return b"\x18" + varint(value & _MASK64)
    if isinstance(value, float):
        return b"\x21" + _DOUBLE(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return block(b"\x3a", bytes(value))
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        pairs = ((str(key), _any_value(item, depth - 1)) for key, item in value.items())
        fields = (block(b"\x0a", text(b"\x0a", key) + block(b"\x12", item)) for key, item in pairs if item is not None)
        return block(b"\x32", b"".join(fields))
    if isinstance(value, Sequence):
        items = (_any_value(item, depth - 1) for item in value)
        return block(b"\x2a", b"".join(block(b"\x0a", item or b"") for item in items))
    return None


def attributes(tag: bytes, given: Mapping[str, Any] | None, dropped_tag: bytes) -> bytes:
    """Repeated attribute fields, and the count of those that could not be encoded."""
    if not given:
        return b""
    parts: list[bytes] = []
    dropped = 0
    for key, value in given.items():
        encoded = attribute(key, value)
        if encoded is None:
            dropped += 1
        else:
            parts += (tag, varint(len(encoded)), encoded)
    if dropped:
        parts += (dropped_tag, varint(dropped))
    return b"".join(parts)


def fixed_attributes(given: Fixed) -> bytes:
    """As `attributes` of a span, remembered in the mapping."""
    encoded = given.encoded
    if encoded is None:
        encoded = given.encoded = attributes(_SPAN_ATTRIBUTE, given, b"\x50")
    return encoded


def own_attributes(given: Mapping[str, Any]) -> bytes:
    """As `attributes` of a span. Numbers (ids, offsets, times) hardly ever repeat, so they pass by the cache."""
    encoded = b""
    for key, value in given.items():
        if type(value) is int and 0 <= value <= _INT64_MAX:
            if value < _SHORT:
                number = _SMALL_VARINTS[value]
            elif value < _MEDIUM:  # as `varint` does, without the call
                number = _LOW_GROUPS[value & _LOW_BITS] + _SMALL_VARINTS[value >> 14]
            else:
                number = varint(value)
            heads = _number_heads.get(key) or _new_heads(key)
            encoded += heads[len(number)] + number
        elif (one := attribute(key, value)) is not None:
            encoded += _SPAN_ATTRIBUTE + varint(len(one)) + one
        else:
            return attributes(_SPAN_ATTRIBUTE, given, b"\x50")
    return encoded


def _new_heads(key: str) -> list[bytes]:
    if len(_number_heads) >= _CACHE_LIMIT:
        _number_heads.clear()
    name = text(b"\x0a", key)
    heads = _number_heads[key] = [
        _SPAN_ATTRIBUTE + varint(len(name) + 3 + size) + name + b"\x12" + varint(1 + size) + b"\x18"
        for size in range(_LONGEST_VARINT + 1)
    ]
    return heads


def head(name: str, kind: int) -> bytes:
    """Of a Span message: its name, its kind, and the tag of its start."""
    return text(b"\x2a", name) + _KINDS[kind] + b"\x39"


def head_of(shape: Shape) -> bytes:
    """As `head`, remembered in the shape."""
    found = shape.head
    if found is None:
        # OTLP numbers kinds from 1 (internal), the API from 0.
        found = shape.head = head(shape.name, shape.kind.value + 1)
    return found


def short_span(
    trace_id: bytes, span_id: bytes, parent: bytes, shape: Shape, start: int, end: int, own: bytes, tail: bytes
) -> bytes:
    """A Span message out of parts that are encoded already: `parent` (also the trace state), `own` attributes, and the
    `tail` with all others and the rest from events to flags."""
    head, times = shape.head or head_of(shape), _TIMES(start, 0x41, end)
    return b"".join((b"\x0a\x10", trace_id, b"\x12\x08", span_id, parent, head, times, own, tail))


def trace_state(header: str) -> bytes:
    """A Span's trace state."""
    return text(b"\x1a", header)


def span(
    trace_id: int,
    span_id: int,
    parent_id: int,
    state: str,
    flags: int,
    name: str,
    kind: int,
    start: int,
    end: int,
    given: Mapping[str, Any] | None,
    events: Sequence[bytes],
    links: Sequence[bytes],
    status: bytes,
) -> bytes:
    """A Span message. `events`, `links` and `status` are messages already encoded by the functions below."""
    ids = b"\x0a\x10" + trace_id.to_bytes(16, "big") + b"\x12\x08" + span_id.to_bytes(8, "big")
    parent = b"\x22\x08" + parent_id.to_bytes(8, "big") if parent_id else b""
    own = own_attributes(given) if given else b""
    opening = ids + (trace_state(state) if state else b"") + parent + head(name, kind) + _TIMES(start, 0x41, end)
    return opening + own + rest(events, links, status, flags)


def rest(events: Sequence[bytes], links: Sequence[bytes], status: bytes, flags: int) -> bytes:
    """What follows a Span's attributes."""
    parts = [block(b"\x5a", event) for event in events] + [block(b"\x6a", link) for link in links]
    if status:
        parts.append(block(b"\x7a", status))
    return b"".join((*parts, b"\x85\x01", flags.to_bytes(4, "little")))


def event(timestamp: int, name: str, given: Mapping[str, Any] | None) -> bytes:
    """A Span.Event message."""
    return b"\x09" + _FIXED64(timestamp) + text(b"\x12", name) + attributes(b"\x1a", given, b"\x20")


def link(trace_id: int, span_id: int, trace_state: str, flags: int, given: Mapping[str, Any] | None) -> bytes:
    """A Span.Link message."""
    ids = b"\x0a\x10" + trace_id.to_bytes(16, "big") + b"\x12\x08" + span_id.to_bytes(8, "big")
    state = text(b"\x1a", trace_state) if trace_state else b""
    return ids + state + attributes(b"\x22", given, b"\x28") + b"\x35" + flags.to_bytes(4, "little")


def status(code: int, message: str) -> bytes:
    """A Status message of a span."""
    return (text(b"\x12", message) if message else b"") + b"\x18" + bytes((code,))


def resource(given: Mapping[str, Any]) -> bytes:
    """A Resource message."""
    return attributes(b"\x0a", given, b"\x10")


def scope(name: str, version: str, given: Mapping[str, Any] | None) -> bytes:
    """An InstrumentationScope message."""
    return text(b"\x0a", name) + (text(b"\x12", version) if version else b"") + attributes(b"\x1a", given, b"\x20")


def export_request(resource_message: bytes, scopes: Iterable[tuple[bytes, str, Sequence[bytes]]]) -> bytes:
    """An ExportTraceServiceRequest of one resource; `scopes` are (scope message, schema url, span messages)."""
    # One join of everything: a request has a megabyte, and each block made of blocks would copy it again.
    parts = [b"", block(b"\x0a", resource_message)]
    for scope_message, schema_url, spans in scopes:
        fields = [b"", block(b"\x0a", scope_message), text(b"\x1a", schema_url) if schema_url else b""]
        for message in spans:
            size = len(message)
            fields += (_SPAN_HEADS[size] if size < _SHORT else b"\x12" + varint(size), message)
        fields[0] = b"\x12" + varint(sum(map(len, fields)))
        parts += fields
    parts[0] = b"\x0a" + varint(sum(map(len, parts)))
    return b"".join(parts)


def rpc_status(code: int, message: str) -> bytes:
    """A google.rpc.Status: the body of every OTLP/HTTP error."""
    return b"\x08" + varint(code) + text(b"\x12", message)
