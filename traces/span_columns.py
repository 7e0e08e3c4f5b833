"""What `otlp.py` checks of a span, for all spans of a request at once: nearly all requests are right, and this runs at
C's speed.

Protobuf merges a message that comes again where one is declared, and joins what is repeated in it. `_COLUMNS` declares
OTLP's resource_spans, scope_spans, spans and links as one each, so a request reads as one span with a column of each
field. `_EACH` has OTLP's shape, with the ids required: if all values of a column are right and no span is without one,
each span's own is right.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

_PROTO: Final = descriptor_pb2.FieldDescriptorProto
_ONE, _REQUIRED, _MANY = _PROTO.LABEL_OPTIONAL, _PROTO.LABEL_REQUIRED, _PROTO.LABEL_REPEATED

# A column as protobuf writes it: each value after the same bytes, which are the field's tag and, for an id, its length.
_IDS: Final = (("trace_id", b"\x0a\x10", 16), ("span_id", b"\x12\x08", 8))
_SPAN: Final = (
    *_IDS,
    ("parent_span_id", b"\x22\x08", 8),
    ("kind", b"\x30", 1),
    ("start_time_unix_nano", b"\x39", 8),
    ("end_time_unix_nano", b"\x41", 8),
)
_ZERO_TRACE_ID: Final = b"\x0a\x10" + bytes(16)
_ZERO_SPAN_ID: Final = b"\x12\x08" + bytes(8)
_KINDS: Final = bytes(range(6))


def all_good(body: bytes) -> bool:
    """Whether the ids, times, kind and links of each span are right. False can be a false alarm, for bytes that few
    encoders write; whoever then looks at each span decides."""
    try:
        # One after the other: both keep what they do not know, most of the body. With both alive the C library can give
        # memory back to the system after each request and ask for it again, which is as expensive as the check.
        if not _EACH.FromString(body).IsInitialized():
            return False
        spans = _COLUMNS.FromString(body).resource_spans.scope_spans.spans
    except DecodeError:
        # OTLP's own types skip a number that comes as bytes; a column takes them for many numbers.
        return False
    spans.DiscardUnknownFields()
    columns = _columns(spans, _SPAN)
    if columns is None or _columns(spans.links, _IDS) is None:
        return False
    trace_ids, span_ids, _, kinds, starts, ends = columns
    return (
        _ZERO_TRACE_ID not in trace_ids
        and _ZERO_SPAN_ID not in span_ids
        and not kinds[1::2].translate(None, _KINDS)
        # The highest byte of each: below 2**63 its first bit is not set.
        and starts[8::9].isascii()
        and ends[8::9].isascii()
    )


def _columns(message: Any, layout: tuple[tuple[str, bytes, int], ...]) -> list[bytes] | None:
    """The columns as written; None if a value has another length, which moves all that follow."""
    written: bytes = message.SerializeToString()
    found, at = [], 0
    for name, opening, size in layout:
        count, step = len(getattr(message, name)), len(opening) + size
        column = written[at : at + count * step]
        at += count * step
        for place, byte in enumerate(opening):
            if column[place::step] != bytes((byte,)) * count:
                return None
        found.append(column)
    return found


class _Field(NamedTuple):
    name: str
    number: int
    label: int
    of: int | str  # a type of protobuf's, or a message of ours


def _request_type(package: str, messages: int, ids: int, columns: Sequence[_Field] = ()) -> Any:
    """A type for requests that reads ids, links and these fields of a span; `messages` and `ids` are labels."""
    link = [_Field("trace_id", 1, ids, _PROTO.TYPE_BYTES), _Field("span_id", 2, ids, _PROTO.TYPE_BYTES)]
    shape = {
        "Link": link,
        "Span": [*link, *columns, _Field("links", 13, messages, "Link")],
        "ScopeSpans": [_Field("spans", 2, messages, "Span")],
        "ResourceSpans": [_Field("scope_spans", 2, messages, "ScopeSpans")],
        "Request": [_Field("resource_spans", 1, messages, "ResourceSpans")],
    }
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for message, fields in shape.items():
        declared = file.message_type.add(name=message)
        for name, number, label, of in fields:
            field = declared.field.add(name=name, number=number, label=label)
            if isinstance(of, int):
                field.type = of
            else:
                field.type, field.type_name = _PROTO.TYPE_MESSAGE, f".{package}.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Request"))


_EACH: Final = _request_type("each", _MANY, _REQUIRED)
_COLUMNS: Final = _request_type(
    "columns",
    _ONE,
    _MANY,
    [
        _Field("parent_span_id", 4, _MANY, _PROTO.TYPE_BYTES),
        _Field("kind", 6, _MANY, _PROTO.TYPE_INT32),
        _Field("start_time_unix_nano", 7, _MANY, _PROTO.TYPE_FIXED64),
        _Field("end_time_unix_nano", 8, _MANY, _PROTO.TYPE_FIXED64),
    ],
)
