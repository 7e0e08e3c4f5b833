"""Reads Kafka's primitive types from a client's bytes; whatever is wrong with them is `MalformedRequestError`."""

import datetime
import functools
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import TypeVar

from nodes.kafka.errors import MalformedRequestError

T = TypeVar("T")

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
# An unsigned varint has 32 bits in Kafka, which is five bytes of seven.
_VARINT_BYTES = 5
_UUID_BYTES = 16
_NO_UUID = bytes(_UUID_BYTES)
# Items of all arrays of a request together. An item can be two bytes on the wire; here it takes a hundred, and 10 us to
# read and answer: without a limit one request could hold up the gateway for seconds. A fetch of all partitions of a
# large lab has some thousands.
MAX_ITEMS = 20_000


def _number(form: struct.Struct) -> "Callable[[Cursor], int]":
    """A method each: most of a request is numbers, and a call between would be a third of their time."""
    unpack_from, size = form.unpack_from, form.size

    def number(self: "Cursor") -> int:
        try:
            (value,) = unpack_from(self._data, self.position)
        except struct.error as error:
            raise MalformedRequestError(f"the request ends at byte {len(self._data)}, inside a number") from error
        self.position += size
        return value  # type: ignore[no-any-return]

    return number


@functools.lru_cache
def _timedelta(milliseconds: int) -> datetime.timedelta:
    """A client sends the same few timeouts again and again."""
    return datetime.timedelta(milliseconds=milliseconds)


class Cursor:
    """A position in a request. Byte fields are views on the request, all else is copied."""

    __slots__ = ("_data", "_items", "position")

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self._data = data
        self._items = 0
        self.position = position

    int8 = _number(_I8)
    int16 = _number(_I16)
    int32 = _number(_I32)
    int64 = _number(_I64)

    def boolean(self) -> bool:
        return self.int8() != 0

    def milliseconds(self) -> datetime.timedelta:
        return _timedelta(self.int32())

    def uuid(self) -> uuid.UUID | None:
        """All zero bytes stand for none."""
        data = bytes(self._take(_UUID_BYTES))
        return None if data == _NO_UUID else uuid.UUID(bytes=data)

    def string(self) -> str:
        return self._not_null(self.nullable_string())

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self._text(length)

    def compact_string(self) -> str:
        return self._not_null(self.nullable_compact_string())

    def nullable_compact_string(self) -> str | None:
        length = self.varint() - 1
        return None if length == -1 else self._text(length)

    def nullable_bytes(self) -> memoryview | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def nullable_compact_bytes(self) -> memoryview | None:
        length = self.varint() - 1
        return None if length == -1 else self._take(length)

    def array(self, item: "Callable[[Cursor], T]") -> tuple[T, ...]:
        return self._not_null(self.nullable_array(item))

    def nullable_array(self, item: "Callable[[Cursor], T]") -> tuple[T, ...] | None:
        count = self.int32()
        return None if count == -1 else self._items_of(count, item)

    def compact_array(self, item: "Callable[[Cursor], T]") -> tuple[T, ...]:
        return self._not_null(self.nullable_compact_array(item))

    def nullable_compact_array(self, item: "Callable[[Cursor], T]") -> tuple[T, ...] | None:
        count = self.varint() - 1
        return None if count == -1 else self._items_of(count, item)

    def tagged_fields(self, known: "Mapping[int, Callable[[Cursor], object]]") -> dict[int, object]:
        """The values of the known tags that are there; others are skipped."""
        count = self.varint()
        if not count:
            return {}
        values = {}
        for _ in range(self._count(count)):
            tag, size = self.varint(), self.varint()
            end = self.position + size
            self._take(size)
            if tag in known:
                self.position = end - size
                values[tag] = known[tag](self)
                if self.position > end:
                    raise MalformedRequestError(f"tagged field {tag} is longer than its {size} bytes")
                self.position = end
        return values

    def varint(self) -> int:
        value = 0
        for index in range(_VARINT_BYTES):
            if self.position >= len(self._data):
                raise MalformedRequestError(f"the request ends at byte {self.position}, inside a varint")
            byte = self._data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise MalformedRequestError(f"a varint before byte {self.position} has more than {_VARINT_BYTES} bytes")

    def _text(self, length: int) -> str:
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequestError(f"a string before byte {self.position} is not UTF-8") from error

    def _items_of(self, count: int, item: "Callable[[Cursor], T]") -> tuple[T, ...]:
        return tuple([item(self) for _ in range(self._count(count))])

    def _count(self, count: int) -> int:
        """No item is smaller than a byte, so more items than bytes is a lie."""
        self._items += count
        if not 0 <= count <= len(self._data) - self.position or self._items > MAX_ITEMS:
            raise MalformedRequestError(
                f"{count} items announced at byte {self.position} of a request of {len(self._data)} bytes; "
                f"a request may have {MAX_ITEMS}"
            )
        return count

    def _take(self, length: int) -> memoryview:
        start, end = self.position, self.position + length
        if length < 0 or end > len(self._data):
            raise MalformedRequestError(
                f"{length} bytes announced at byte {start} of a request of {len(self._data)} bytes"
            )
        self.position = end
        return self._data[start:end]

    def _not_null(self, value: T | None) -> T:
        if value is None:
            raise MalformedRequestError(f"a field before byte {self.position} is null and may not be")
        return value
