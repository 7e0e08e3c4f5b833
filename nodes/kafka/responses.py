"""Writers for kio's response types, compiled once per type from its fields; the counterpart of `requests`.

kio's own writer gives the same bytes and is what tests compare with (its reader reads them back); for one partition it
takes three times as long. Runs of numbers are packed in one go, and record bytes are passed on, not copied.
"""

import dataclasses
import datetime
import functools
import operator
import struct
import typing
from collections.abc import Callable
from typing import Any

from nodes.kafka.types import taken_apart

Buffer = bytes | bytearray | memoryview
Parts = list[Buffer]
# Appends what one field of an entity, or one value, is on the wire.
Write = Callable[[Parts, Any], None]

_FORMS = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "error_code": "h"}
_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_NO_UUID = bytes(16)
_ZERO = b"\0\0\0\0"


@functools.cache
def writer(kind: Any) -> Write:
    """The writer of one entity type."""
    flexible = bool(kind.__flexible__)
    steps: list[Write] = []
    run: list[tuple[str, str]] = []
    for field in dataclasses.fields(kind):
        if "tag" in field.metadata:
            continue
        _, is_array, _ = taken_apart(field.type)
        form = None if is_array else _FORMS.get(field.metadata.get("kafka_type", ""))
        if form is not None:
            run.append((field.name, form))
            continue
        _end_run(steps, run)
        steps.append(_step(field.name, _field_writer(field, flexible)))
    _end_run(steps, run)
    if flexible:
        steps.append(_tagged_fields(kind))
    if len(steps) == 1:
        return steps[0]

    def write(parts: Parts, entity: Any) -> None:
        for step in steps:
            step(parts, entity)

    return write


def _end_run(steps: list[Write], run: list[tuple[str, str]]) -> None:
    """Adds one step for the numbers that lie side by side."""
    if not run:
        return
    names = [name for name, _ in run]
    pack = struct.Struct(">" + "".join(form for _, form in run)).pack
    get = operator.attrgetter(*names)
    if len(names) == 1:
        steps.append(lambda parts, entity: parts.append(pack(get(entity))))
    else:
        steps.append(lambda parts, entity: parts.append(pack(*get(entity))))
    run.clear()


def _step(name: str, write: Write) -> Write:
    get = operator.attrgetter(name)
    return lambda parts, entity: write(parts, get(entity))


def _field_writer(field: dataclasses.Field[Any], flexible: bool) -> Write:
    kind, is_array, nullable = taken_apart(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if is_array:
        return _array(_value_writer(kind, kafka_type, flexible, nullable=False), flexible, nullable)
    return _value_writer(kind, kafka_type, flexible, nullable=nullable)


def _value_writer(kind: Any, kafka_type: str | None, flexible: bool, *, nullable: bool) -> Write:
    if kafka_type is None:
        return writer(kind)
    if kafka_type in _FORMS:
        pack = struct.Struct(">" + _FORMS[kafka_type]).pack
        return lambda parts, value: parts.append(pack(value))
    if kafka_type == "string":
        return _string(_compact if flexible else _int16, nullable)
    if kafka_type == "records":
        return _records(_compact if flexible else _int32, nullable)
    return _OTHERS[kafka_type]


def varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((number,)) for number in range(0x80)]
_int16 = struct.Struct(">h").pack
_int32 = struct.Struct(">i").pack


def _compact(length: int) -> bytes:
    """Lengths of flexible versions are one more, and 0 is null."""
    return varint(length + 1)


def _string(length_of: Callable[[int], bytes], nullable: bool) -> Write:
    null = length_of(-1) if nullable else None

    def write(parts: Parts, value: str | None) -> None:
        if value is None:
            parts.append(_allowed(null))
        else:
            data = value.encode()
            parts.append(length_of(len(data)) + data)

    return write


def _records(length_of: Callable[[int], bytes], nullable: bool) -> Write:
    null = length_of(-1) if nullable else None

    def write(parts: Parts, value: Buffer | None) -> None:
        if value is None:
            parts.append(_allowed(null))
        else:
            parts.append(length_of(len(value)))
            parts.append(value)

    return write


def _array(write_item: Write, flexible: bool, nullable: bool) -> Write:
    count_of = _compact if flexible else _int32
    null = count_of(-1) if nullable else None

    def write(parts: Parts, items: tuple[Any, ...] | None) -> None:
        if items is None:
            parts.append(_allowed(null))
            return
        parts.append(count_of(len(items)))
        for item in items:
            write_item(parts, item)

    return write


def _allowed(null: bytes | None) -> bytes:
    if null is None:
        raise TypeError("a field of a response is None and may not be null in this version")
    return null


def _tagged_fields(kind: Any) -> Write:
    """Only those that differ from their default are written, in the order of their tags."""
    fields = sorted((field.metadata["tag"], field) for field in dataclasses.fields(kind) if "tag" in field.metadata)
    if not fields:
        return lambda parts, _: parts.append(b"\0")
    known = [
        (varint(tag), operator.attrgetter(field.name), field.default, _field_writer(field, flexible=True))
        for tag, field in fields
    ]

    def write(parts: Parts, entity: Any) -> None:
        found: Parts = []
        count = 0
        for tag, get, default, write_value in known:
            value = get(entity)
            if value is default or value == default:
                continue
            data: Parts = []
            write_value(data, value)
            found += (tag, varint(sum(map(len, data))), *data)
            count += 1
        parts.append(varint(count))
        parts += found

    return write


def _milliseconds(parts: Parts, value: datetime.timedelta) -> None:
    parts.append(_int32(value // _MILLISECOND) if value else _ZERO)


def _moment(parts: Parts, value: datetime.datetime | None) -> None:
    parts.append(struct.pack(">q", -1 if value is None else (value - _EPOCH) // _MILLISECOND))


def _uuid(parts: Parts, value: Any) -> None:
    parts.append(_NO_UUID if value is None else value.bytes)


_OTHERS: dict[str, Write] = {
    "timedelta_i32": _milliseconds,
    "datetime_i64": _moment,
    "uuid": typing.cast(Write, _uuid),
}
