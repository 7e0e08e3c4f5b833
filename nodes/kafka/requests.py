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
from nodes.kafka.entities import compiled, maker
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
_ARRAYS: dict[tuple[bool, bool], Callable[[Cursor, Read], Any]] = {
    (False, False): Cursor.array,
    (False, True): Cursor.nullable_array,
    (True, False): Cursor.compact_array,
    (True, True): Cursor.nullable_compact_array,
}


@functools.cache
def reader(kind: Any) -> Read:
    """The reader of one entity type."""
    flexible = bool(kind.__flexible__)
    scope: dict[str, Any] = {"tags": {}}
    lines, values = [], {}
    for number, field in enumerate(_fields(kind, tagged=False)):
        scope[f"read{number}"] = _field_reader(field, flexible)
        lines.append(f"value{number} = read{number}(cursor)")
        values[field.name] = f"value{number}"
    if flexible:
        lines.append("tagged = cursor.tagged_fields(tags)")
    for field in _fields(kind, tagged=True):
        tag = field.metadata["tag"]
        scope["tags"][tag] = _field_reader(field, flexible)
        scope[f"default{tag}"] = field.default
        values[field.name] = f"tagged.get({tag}, default{tag})"
    return compiled("read(cursor)", lines + maker(kind, values, scope), scope)


def _fields(kind: Any, *, tagged: bool) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if ("tag" in field.metadata) is tagged]


def _field_reader(field: dataclasses.Field[Any], flexible: bool) -> Read:
    inner, is_array, nullable = taken_apart(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if not is_array:
        return _value_reader(inner, kafka_type, flexible, nullable)
    read_item = _value_reader(inner, kafka_type, flexible, False)
    read_array = _ARRAYS[flexible, nullable]
    return lambda cursor: read_array(cursor, read_item)


def _value_reader(kind: Any, kafka_type: str | None, flexible: bool, nullable: bool) -> Read:
    if kafka_type is None:
        if nullable:
            raise TypeError(f"{kind} may be null, which no request of ours has had so far")
        return reader(kind)
    return _PLAIN.get(kafka_type) or _SIZED[kafka_type, flexible, nullable]
