"""Readers for kio's request types, compiled once per type from its fields.

kio has a fast native reader, but bytes from a client must not reach it: it allocates for whatever count an array
announces, and a count of 2^31 ends the process (kio 0.6.5). It also copies record bytes. Here every count and length is
checked first, records stay views on the request, and malformed bytes give `MalformedRequestError` and nothing else.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from nodes.kafka.cursor import Cursor
from nodes.kafka.types import taken_apart

# Reads one value at the cursor.
Read = Callable[[Cursor], Any]

_PLAIN: dict[str, Read] = {
    "bool": Cursor.boolean,
    "int8": Cursor.int8,
    "int16": Cursor.int16,
    "int32": Cursor.int32,
    "int64": Cursor.int64,
    "timedelta_i32": Cursor.milliseconds,
    "uuid": Cursor.uuid,
}
# By kind, flexible and nullable.
_SIZED: dict[tuple[str, bool, bool], Read] = {
    ("string", False, False): Cursor.string,
    ("string", False, True): Cursor.nullable_string,
    ("string", True, False): Cursor.compact_string,
    ("string", True, True): Cursor.nullable_compact_string,
    ("records", False, True): Cursor.nullable_bytes,
    ("records", True, True): Cursor.nullable_compact_bytes,
}
_ARRAYS: dict[tuple[bool, bool], Callable[[Cursor, Callable[[], Any]], Any]] = {
    (False, False): Cursor.array,
    (False, True): Cursor.nullable_array,
    (True, False): Cursor.compact_array,
    (True, True): Cursor.nullable_compact_array,
}


@functools.cache
def reader(kind: Any) -> Read:
    """The reader of one entity type."""
    flexible = bool(kind.__flexible__)
    plain = [(field.name, _field_reader(field, flexible)) for field in _fields(kind, tagged=False)]
    tagged = {field.metadata["tag"]: field for field in _fields(kind, tagged=True)}
    readers = {tag: _field_reader(field, flexible) for tag, field in tagged.items()}
    names = {tag: field.name for tag, field in tagged.items()}

    def read(cursor: Cursor) -> Any:
        values = {name: read_field(cursor) for name, read_field in plain}
        if flexible:
            for tag, value in cursor.tagged_fields(readers).items():
                values[names[tag]] = value
        return kind(**values)

    return read


def _fields(kind: Any, *, tagged: bool) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if ("tag" in field.metadata) is tagged]


def _field_reader(field: dataclasses.Field[Any], flexible: bool) -> Read:
    inner, is_array, nullable = taken_apart(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if not is_array:
        return _value_reader(inner, kafka_type, flexible, nullable)
    read_item = _value_reader(inner, kafka_type, flexible, False)
    read_array = _ARRAYS[flexible, nullable]
    return lambda cursor: read_array(cursor, functools.partial(read_item, cursor))


def _value_reader(kind: Any, kafka_type: str | None, flexible: bool, nullable: bool) -> Read:
    if kafka_type is None:
        if nullable:
            raise TypeError(f"{kind} may be null, which no request of ours has had so far")
        return reader(kind)
    return _PLAIN.get(kafka_type) or _SIZED[kafka_type, flexible, nullable]
