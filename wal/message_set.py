"""Kafka's old message sets (magic 0 and 1): read them, turn them into one v2 batch, and back for old clients.

A message, big-endian: offset i64, size i32 (of all that follows), crc u32 (CRC-32 of all that follows it),
magic i8, attributes i8, for magic 1 a timestamp i64, then key and value (i32 length, -1 for null, the bytes).
A compressed set is the value of a wrapper message, whose offset is that of the last message inside. The inner
offsets are absolute in magic 0, and relative to the first one in magic 1.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from wal.batch import LOG_APPEND_TIME_BIT, Buffer, codec_of, parse_header
from wal.compression import MAX_DECOMPRESSED, Codec, break_lz4_header, compress, decompress, mend_lz4_header
from wal.errors import BatchTooLargeError, CorruptBatchError, UnsupportedBatchError
from wal.records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP_TYPE,
    NewRecord,
    Record,
    build_batch,
    decode_records,
)

NO_TIMESTAMP = -1

_PREFIX = struct.Struct(">qi")  # offset and size, before what the size counts
_HEAD = struct.Struct(">Ibb")
_HEAD_WITH_TIME = struct.Struct(">Ibbq")
_CRC = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_MAGIC_AT = _PREFIX.size + _CRC.size
_CRC_FROM = _MAGIC_AT
_SMALLEST = _HEAD.size + 2 * _INT32.size  # a message of magic 0 with neither key nor value


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Codec:
        codec = codec_of(self.attributes)
        if codec is Codec.ZSTD:
            raise UnsupportedBatchError(f"zstd in a message of magic {self.magic}: it needs magic 2")
        return codec

    @property
    def timestamp_type(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME


def from_message_set(data: Buffer, *, limit: int = MAX_DECOMPRESSED, allow_partial: bool = False) -> list[Record]:
    """All records of a set, wrappers opened, which together may decompress to `limit` bytes.

    `allow_partial` leaves out a last message that is cut off, as old brokers cut their fetch responses.
    """
    return _read_set(data, limit, allow_partial)[0]


def upconvert(
    data: Buffer,
    *,
    log_append_time: int | None = None,
    limit: int = MAX_DECOMPRESSED,
    allow_partial: bool = False,
) -> bytes:
    """A produced set as one v2 batch from offset 0, compressed as the set's last wrapper was.

    Producers wrote any offsets they liked, so they are numbered anew. Magic 0 has no timestamps: they are -1,
    unless the topic wants its own `log_append_time`.
    """
    records, codec = _read_set(data, limit, allow_partial)
    if not records:
        raise CorruptBatchError("the message set holds no complete message; the sender must send it again")
    return build_batch(
        (NewRecord(record.key, record.value, record.timestamp) for record in records),
        codec=codec,
        log_append_time=_common_append_time(records) if log_append_time is None else log_append_time,
    )


def downconvert(batch: Buffer, magic: int, *, limit: int = MAX_DECOMPRESSED) -> bytes:
    """A v2 batch as a message set of magic 0 or 1, with the same offsets and codec.

    Headers, and for magic 0 timestamps, have no place there and are dropped. A control batch gives nothing,
    as old clients must not see it. Raises UnsupportedBatchError for zstd, which old clients do not know.
    """
    assert magic in (0, 1)
    header = parse_header(batch)
    if header.codec is Codec.ZSTD:
        raise UnsupportedBatchError(f"zstd has no form in magic {magic}: the client needs Fetch 10 or later")
    records = decode_records(batch, limit=limit)
    if header.control or not records:
        return b""
    attributes = LOG_APPEND_TIME_BIT if magic and header.log_append_time else 0
    if header.codec is Codec.NONE:
        return _encode_set(records, magic, attributes, first_offset=0)
    inner = _encode_set(records, magic, attributes, first_offset=records[0].offset if magic else 0)
    packed = compress(header.codec, inner)
    if header.codec is Codec.LZ4 and magic == 0:
        packed = break_lz4_header(packed)
    timestamp = max(record.timestamp for record in records)
    return _encode(_Message(records[-1].offset, magic, attributes | header.codec, timestamp, None, packed))


def _common_append_time(records: Sequence[Record]) -> int | None:
    """v2 has one append time for a batch. Messages that disagree keep theirs as create times."""
    times = {(record.timestamp_type, record.timestamp) for record in records}
    kind, time = times.pop()
    return time if kind == LOG_APPEND_TIME and not times else None


def _read_set(data: Buffer, limit: int, allow_partial: bool) -> tuple[list[Record], Codec]:
    records: list[Record] = []
    codec = Codec.NONE
    room = limit
    for message in _messages(data, allow_partial):
        if message.codec is Codec.NONE:
            records.append(_record(message, message.offset))
            continue
        codec = message.codec
        inner = _open_wrapper(message, room)
        room -= len(inner)
        records += _inner_records(message, inner)
    return records, codec


def _open_wrapper(wrapper: _Message, room: int) -> memoryview:
    if wrapper.value is None:
        raise CorruptBatchError(f"the compressed message at offset {wrapper.offset} has no value")
    packed = wrapper.value
    if wrapper.codec is Codec.LZ4 and wrapper.magic == 0:
        packed = mend_lz4_header(packed)
    try:
        return decompress(wrapper.codec, packed, room)
    except BatchTooLargeError as error:
        raise BatchTooLargeError(f"the message set is too large at offset {wrapper.offset}: {error}") from error


def _inner_records(wrapper: _Message, inner: memoryview) -> list[Record]:
    messages = list(_messages(inner, allow_partial=False))
    if not messages:
        raise CorruptBatchError(f"the compressed message at offset {wrapper.offset} is empty")
    for message in messages:
        if message.magic != wrapper.magic or codec_of(message.attributes) is not Codec.NONE:
            raise CorruptBatchError(
                f"the compressed message at offset {wrapper.offset} holds one of another magic or codec"
            )
    # Some producers leave the wrapper's offset at 0 (old librdkafka, aiokafka): then the set starts at 0.
    base = max(0, wrapper.offset - messages[-1].offset) if wrapper.magic else 0
    if wrapper.timestamp_type == LOG_APPEND_TIME:
        # The broker stamps the wrapper only, without opening it.
        attributes = wrapper.attributes
        messages = [m._replace(timestamp=wrapper.timestamp, attributes=attributes) for m in messages]
    return [_record(message, base + message.offset) for message in messages]


def _record(message: _Message, offset: int) -> Record:
    return Record(offset, message.timestamp, message.timestamp_type, message.key, message.value)


def _messages(data: Buffer, allow_partial: bool) -> Iterator[_Message]:
    view = memoryview(data)
    at = 0
    while at < len(view):
        end = _message_end(view, at)
        if end > len(view):
            if allow_partial:
                return
            raise CorruptBatchError(f"the message at byte {at} is cut off at {len(view)}", position=at)
        yield _parse(view[at:end], at)
        at = end


def _message_end(view: memoryview, at: int) -> int:
    if len(view) - at < _PREFIX.size:
        return at + _PREFIX.size
    size: int = _PREFIX.unpack_from(view, at)[1]
    if size < _SMALLEST:
        raise CorruptBatchError(f"the message at byte {at} states a size of {size}", position=at)
    return at + _PREFIX.size + size


def _parse(view: memoryview, at: int) -> _Message:
    """One whole message; `at` is its place in the set, for errors."""
    magic = view[_MAGIC_AT]
    if magic not in (0, 1):
        raise UnsupportedBatchError(f"magic {magic} at byte {at} of a message set: only 0 and 1", position=at)
    try:
        head = (_HEAD_WITH_TIME if magic else _HEAD).unpack_from(view, _PREFIX.size)
        if head[0] != crc32(view[_CRC_FROM:]):
            raise CorruptBatchError(f"the message at byte {at} has a wrong CRC", position=at)
        key, pos = _nullable_bytes(view, _PREFIX.size + (_HEAD_WITH_TIME if magic else _HEAD).size)
        value, pos = _nullable_bytes(view, pos)
    except (struct.error, ValueError):
        raise CorruptBatchError(f"the message at byte {at} has a field that is cut off", position=at) from None
    if pos != len(view):
        raise CorruptBatchError(f"{len(view) - pos} bytes too many in the message at byte {at}", position=at)
    (offset, _) = _PREFIX.unpack_from(view)
    return _Message(offset, magic, head[2], head[3] if magic else NO_TIMESTAMP, key, value)


def _nullable_bytes(view: memoryview, pos: int) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(view, pos)
    pos += _INT32.size
    if length == -1:
        return None, pos
    if not 0 <= length <= len(view) - pos:
        raise ValueError(length)
    return bytes(view[pos : pos + length]), pos + length


def _encode_set(records: Sequence[Record], magic: int, attributes: int, first_offset: int) -> bytes:
    return b"".join(
        _encode(_Message(r.offset - first_offset, magic, attributes, r.timestamp, r.key, r.value)) for r in records
    )


def _encode(message: _Message) -> bytes:
    head = struct.pack(">bb", message.magic, message.attributes)
    time = struct.pack(">q", message.timestamp) if message.magic else b""
    body = b"".join((head, time, _sized(message.key), _sized(message.value)))
    return b"".join((_PREFIX.pack(message.offset, _CRC.size + len(body)), _CRC.pack(crc32(body)), body))


def _sized(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data
