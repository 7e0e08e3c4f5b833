"""The postcard wire format for `msgspec.Struct` types, compiled once per type from its annotations.

`codec(Type)` gives a `Codec` with `encode`, `parts` (the same bytes as a list of buffers, so that a large byte field is
never copied) and `decode`. Widths come from the aliases `U8` .. `I64`; a `bytes` field decodes to bytes, a `Blob` field
to a memoryview on the input. Postcard has no type information on the wire: both sides must hold the same definitions.
Malformed input raises `PostcardError`, and memory stays in proportion to the input: a count is checked against the
bytes that are left before anything is built.

| Python | postcard |
|---|---|
| U8, I8, bool | one byte |
| U16 .. U64, enum index | LEB128 varint |
| I16 .. I64 | zigzag, then varint |
| F32, float | 4 or 8 bytes, little endian |
| str, bytes, Blob | varint length, then the bytes |
| T or None | 0, or 1 and T |
| list[T], dict[K, V] | varint count, then the items |
| tuple[A, B], Struct | the items, with nothing around them |
| IntEnum | varint of the member's position |
| A or B of tagged Structs | varint of the position in the union, then the Struct |
"""

import enum
import functools
import struct
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from nodes.mesh.errors import PostcardError, UnencodableError
from nodes.mesh.varint import ONE_BYTE, decode_varint, encode_varint

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")
Write = Callable[[list[Buffer], Any], None]
# A reader takes the input and a position and gives the value and the position after it.
Read = Callable[[memoryview, int], tuple[Any, int]]


class Width(NamedTuple):
    """How an int travels."""

    bits: int
    signed: bool


class _BlobMark:
    """Marks a byte field that decodes to a view on the input."""


U8 = Annotated[int, Width(8, False)]
U16 = Annotated[int, Width(16, False)]
U32 = Annotated[int, Width(32, False)]
U64 = Annotated[int, Width(64, False)]
I8 = Annotated[int, Width(8, True)]
I16 = Annotated[int, Width(16, True)]
I32 = Annotated[int, Width(32, True)]
I64 = Annotated[int, Width(64, True)]
F32 = Annotated[float, "f32"]
# Encodes any buffer or a list of buffers; decodes to a memoryview that keeps the whole input alive.
Blob = Annotated[bytes | bytearray | memoryview | list[Buffer], _BlobMark]

# Depth of nested Structs: a type that holds itself would otherwise let input decide the depth of the stack.
MAX_DEPTH = 32


class Codec(Generic[T]):
    """Both directions of one Struct type."""

    __slots__ = ("_read", "_type", "_write")

    def __init__(self, kind: type[T]) -> None:
        self._type = kind
        self._write, self._read = _compile(kind)

    def parts(self, value: T) -> list[Buffer]:
        """The encoding as buffers to be sent one after the other; large byte fields are not copied."""
        out: list[Buffer] = []
        try:
            self._write(out, value)
        except (TypeError, AttributeError, ValueError, struct.error, OverflowError) as error:
            raise UnencodableError(f"{self._type.__name__} cannot be encoded: {error}") from error
        return out

    def encode(self, value: T) -> bytes:
        """The encoding in one piece."""
        return b"".join(self.parts(value))

    def decode(self, data: Buffer) -> T:
        """The value, which must fill the input exactly."""
        view = memoryview(data)
        value: T
        try:
            value, end = self._read(view, 0)
        except (IndexError, UnicodeDecodeError, struct.error) as error:
            raise PostcardError(f"{self._type.__name__} cannot be decoded: {error}") from error
        if end != len(view):
            raise PostcardError(f"{self._type.__name__}: {len(view) - end} bytes left over after the value")
        return value


@functools.cache
def codec(kind: type[T]) -> Codec[T]:
    """The codec of a Struct type, compiled at the first use."""
    return Codec(kind)


def _compile(kind: Any, depth: int = 0) -> tuple[Write, Read]:
    if depth > MAX_DEPTH:
        raise TypeError(f"{kind} nests deeper than {MAX_DEPTH}; postcard types must not hold themselves")
    origin = get_origin(kind)
    if origin is Annotated:
        return _compile_annotated(kind, depth)
    if origin in (Union, types.UnionType):
        return _compile_union(get_args(kind), depth)
    if origin is list:
        return _list(*_compile(get_args(kind)[0], depth + 1))
    if origin is dict:
        key, value = get_args(kind)
        return _dict(_compile(key, depth + 1), _compile(value, depth + 1))
    if origin is tuple:
        return _tuple([_compile(item, depth + 1) for item in get_args(kind)])
    if isinstance(kind, type):
        return _compile_class(kind, depth)
    raise TypeError(f"postcard has no encoding for {kind!r}")


def _compile_class(kind: type, depth: int) -> tuple[Write, Read]:
    if issubclass(kind, msgspec.Struct):
        return _struct(kind, depth)
    if issubclass(kind, enum.Enum):
        return _enum(kind)
    simple: dict[type, tuple[Write, Read]] = {
        bool: (_write_bool, _read_bool),
        str: (_write_str, _read_str),
        bytes: (_write_blob, _read_bytes),
        float: _float("<d"),
    }
    if kind in simple:
        return simple[kind]
    hint = "; an int needs a width such as U32" if kind is int else ""
    raise TypeError(f"postcard has no encoding for {kind.__name__}{hint}")


def _compile_annotated(kind: Any, depth: int) -> tuple[Write, Read]:
    inner, mark = get_args(kind)[:2]
    if isinstance(mark, Width):
        return _int(mark)
    if mark is _BlobMark:
        return _write_blob, _read_blob
    if mark == "f32":
        return _float("<f")
    return _compile(inner, depth)


def _compile_union(members: Sequence[Any], depth: int) -> tuple[Write, Read]:
    if len(members) == 2 and type(None) in members:
        inner = next(member for member in members if member is not type(None))
        return _option(*_compile(inner, depth + 1))
    if not all(isinstance(member, type) and issubclass(member, msgspec.Struct) for member in members):
        raise TypeError(f"a postcard enum is a union of Structs, not {members!r}")
    return _tagged(list(members), [_compile(member, depth + 1) for member in members])


def _int(width: Width) -> tuple[Write, Read]:
    bits, signed = width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def check(value: int) -> None:
        if not low <= value <= high:
            raise UnencodableError(f"{value} does not fit {'i' if signed else 'u'}{bits}")

    def write_byte(out: list[Buffer], value: int) -> None:
        check(value)
        out.append(ONE_BYTE[value & 0xFF])

    def read_u8(view: memoryview, position: int) -> tuple[int, int]:
        return view[position], position + 1

    def read_i8(view: memoryview, position: int) -> tuple[int, int]:
        return (view[position] ^ 0x80) - 0x80, position + 1

    def write_unsigned(out: list[Buffer], value: int) -> None:
        check(value)
        out.append(ONE_BYTE[value] if value < 0x80 else encode_varint(value))

    def write_signed(out: list[Buffer], value: int) -> None:
        check(value)
        out.append(encode_varint(value << 1 if value >= 0 else (-value << 1) - 1))

    def read_unsigned(view: memoryview, position: int) -> tuple[int, int]:
        byte = view[position]
        return (byte, position + 1) if byte < 0x80 else decode_varint(view, position, bits)

    def read_signed(view: memoryview, position: int) -> tuple[int, int]:
        raw, position = decode_varint(view, position, bits)
        return (raw >> 1) ^ -(raw & 1), position

    if bits == 8:
        return write_byte, read_i8 if signed else read_u8
    return (write_signed, read_signed) if signed else (write_unsigned, read_unsigned)


def _float(form: str) -> tuple[Write, Read]:
    packer = struct.Struct(form)

    def write(out: list[Buffer], value: float) -> None:
        out.append(packer.pack(value))

    def read(view: memoryview, position: int) -> tuple[float, int]:
        return packer.unpack_from(view, position)[0], position + packer.size

    return write, read


def _write_bool(out: list[Buffer], value: bool) -> None:
    out.append(b"\x01" if value else b"\x00")


def _read_bool(view: memoryview, position: int) -> tuple[bool, int]:
    byte = view[position]
    if byte > 1:
        raise PostcardError(f"byte {position} is {byte}, not a bool")
    return byte == 1, position + 1


def _write_blob(out: list[Buffer], value: Buffer | list[Buffer]) -> None:
    if isinstance(value, list):
        out.append(encode_varint(sum(map(len, value))))
        out.extend(value)
    else:
        size = len(value)
        out.append(ONE_BYTE[size] if size < 0x80 else encode_varint(size))
        out.append(value)


def _read_blob(view: memoryview, position: int) -> tuple[memoryview, int]:
    size, position = decode_varint(view, position)
    end = position + size
    if end > len(view):
        raise PostcardError(f"{size} bytes announced at byte {position}, {len(view) - position} are there")
    return view[position:end], end


def _read_bytes(view: memoryview, position: int) -> tuple[bytes, int]:
    blob, position = _read_blob(view, position)
    return bytes(blob), position


def _write_str(out: list[Buffer], value: str) -> None:
    _write_blob(out, value.encode())


def _read_str(view: memoryview, position: int) -> tuple[str, int]:
    blob, position = _read_blob(view, position)
    return str(blob, "utf-8"), position


def _option(write_item: Write, read_item: Read) -> tuple[Write, Read]:
    def write(out: list[Buffer], value: Any) -> None:
        if value is None:
            out.append(b"\x00")
        else:
            out.append(b"\x01")
            write_item(out, value)

    def read(view: memoryview, position: int) -> tuple[Any, int]:
        there, position = _read_bool(view, position)
        return read_item(view, position) if there else (None, position)

    return write, read


def _read_count(view: memoryview, position: int) -> tuple[int, int]:
    """A count of items. No item type of ours is empty on the wire, so more items than bytes is a lie."""
    count, position = decode_varint(view, position)
    if count > len(view) - position:
        raise PostcardError(f"{count} items announced at byte {position}, {len(view) - position} bytes are left")
    return count, position


def _list(write_item: Write, read_item: Read) -> tuple[Write, Read]:
    def write(out: list[Buffer], value: list[Any]) -> None:
        out.append(encode_varint(len(value)))
        for item in value:
            write_item(out, item)

    def read(view: memoryview, position: int) -> tuple[list[Any], int]:
        count, position = _read_count(view, position)
        items = []
        for _ in range(count):
            item, position = read_item(view, position)
            items.append(item)
        return items, position

    return write, read


def _dict(key: tuple[Write, Read], value: tuple[Write, Read]) -> tuple[Write, Read]:
    write_pairs, read_pairs = _list(*_tuple([key, value]))

    def write(out: list[Buffer], mapping: dict[Any, Any]) -> None:
        write_pairs(out, mapping.items())

    def read(view: memoryview, position: int) -> tuple[dict[Any, Any], int]:
        pairs, position = read_pairs(view, position)
        return dict(pairs), position

    return write, read


def _tuple(items: Sequence[tuple[Write, Read]]) -> tuple[Write, Read]:
    def write(out: list[Buffer], value: tuple[Any, ...]) -> None:
        for (write_item, _), item in zip(items, value, strict=True):
            write_item(out, item)

    def read(view: memoryview, position: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for _, read_item in items:
            value, position = read_item(view, position)
            values.append(value)
        return tuple(values), position

    return write, read


def _enum(kind: type[enum.Enum]) -> tuple[Write, Read]:
    members = list(kind)
    index = {member: encode_varint(position) for position, member in enumerate(members)}

    def write(out: list[Buffer], value: enum.Enum) -> None:
        out.append(index[value] if value in index else _unknown_member(kind, value))

    def read(view: memoryview, position: int) -> tuple[enum.Enum, int]:
        number, position = decode_varint(view, position, 32)
        if number >= len(members):
            raise PostcardError(f"{kind.__name__} has no variant {number}")
        return members[number], position

    return write, read


def _unknown_member(kind: type, value: object) -> bytes:
    raise UnencodableError(f"{value!r} is not one of {kind.__name__}")


def _tagged(kinds: list[type], codecs: Sequence[tuple[Write, Read]]) -> tuple[Write, Read]:
    writers = {kind: (encode_varint(n), codecs[n][0]) for n, kind in enumerate(kinds)}
    readers = [read for _, read in codecs]

    def write(out: list[Buffer], value: Any) -> None:
        if type(value) not in writers:
            raise UnencodableError(f"{value!r} is none of {[kind.__name__ for kind in kinds]}")
        number, write_value = writers[type(value)]
        out.append(number)
        write_value(out, value)

    def read(view: memoryview, position: int) -> tuple[Any, int]:
        number, position = decode_varint(view, position, 32)
        if number >= len(readers):
            raise PostcardError(f"no variant {number} of {[kind.__name__ for kind in kinds]}")
        return readers[number](view, position)

    return write, read


def _struct(kind: type[msgspec.Struct], depth: int) -> tuple[Write, Read]:
    """One function each way, made from source: on the hot path a call per field would cost more than the field."""
    hints = get_type_hints(kind, include_extras=True)
    scope: dict[str, Any] = {"kind": kind, "one": ONE_BYTE, "varint": decode_varint, "join": b"".join}
    writing: list[str] = []
    reading: list[str] = []
    numbers: list[str] = []  # encoded ints side by side, which become one buffer
    for n, name in enumerate(kind.__struct_fields__):
        width = _unsigned_width(hints[name])
        scope[f"write{n}"], scope[f"read{n}"] = _compile(hints[name], depth + 1)
        if width is None:
            writing += [*_appended(numbers), f"write{n}(out, value.{name})"]
            reading.append(f"f{n}, at = read{n}(view, at)")
            numbers = []
        else:
            scope[f"long{n}"] = _long(width)
            one_byte = 0x100 if width.bits == 8 else 0x80
            numbers.append(f"one[x] if 0 <= (x := value.{name}) < {one_byte} else long{n}(x)")
            reading += [f"f{n} = view[at]", "at += 1"]
            if width.bits > 8:
                reading.append(f"if f{n} > 0x7F: f{n}, at = varint(view, at - 1, {width.bits})")
    writing += _appended(numbers)
    reading.append(f"return kind({', '.join(f'f{n}' for n in range(len(kind.__struct_fields__)))}), at")
    source = _function("write(out, value)", writing or ["pass"]) + _function("read(view, at)", reading)
    exec(compile(source, f"<postcard of {kind.__name__}>", "exec"), scope)
    return scope["write"], scope["read"]


def _unsigned_width(hint: Any) -> Width | None:
    """The width of an unsigned int, whose code is written out in place; None for every other type."""
    mark = get_args(hint)[1] if get_origin(hint) is Annotated else None
    return mark if isinstance(mark, Width) and not mark.signed else None


def _long(width: Width) -> Callable[[int], bytes]:
    """The encoding of a number that does not fit one byte."""
    limit = 1 << width.bits

    def encode(value: int) -> bytes:
        if 0 <= value < limit:
            return bytes((value & 0x7F | 0x80, value >> 7)) if value < 0x4000 else encode_varint(value)
        raise UnencodableError(f"{value} does not fit u{width.bits}")

    return encode


def _appended(numbers: list[str]) -> list[str]:
    return [f"out.append(join(({', '.join(numbers)},)))"] if numbers else []


def _function(head: str, body: list[str]) -> str:
    return f"def {head}:\n" + "".join(f"    {line}\n" for line in body)
