"""The records inside a v2 RecordBatch: a strict reader, and a builder for tests and tools.

A record: length varint, attributes i8 (unused), timestamp delta varlong, offset delta varint, key and value
(varint length, -1 for null, then the bytes), header count varint, headers (key as a string, value as bytes).
Varints are zigzag. Bulk analysis has its own decoder in the Spark source; this one is for single batches.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from wal.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    INT64_MAX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_batch,
    encode_batch,
)
from wal.compression import MAX_DECOMPRESSED, Codec, compress, decompress
from wal.errors import CorruptBatchError

CREATE_TIME = 0
LOG_APPEND_TIME = 1
NO_TIMESTAMP_TYPE = -1  # magic 0, which has no timestamps

_VARINT_BITS = 32
_VARLONG_BITS = 64
_INT64_MIN = -INT64_MAX - 1

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


# gc=False: a record holds only bytes, strings and tuples of them, so it is never part of a cycle.
class Record(msgspec.Struct, frozen=True, gc=False):
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to build. Without an `offset_delta` it follows the one before it."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = 0
    headers: Headers = ()
    offset_delta: int | None = None


class _DamagedRecordError(Exception):
    """Why a record cannot be read; `_decode` adds which one it is."""


def decode_records(batch: Buffer, *, limit: int = MAX_DECOMPRESSED, verify_crc: bool = True) -> list[Record]:
    """All records of exactly one batch, which decompressed may take up to `limit` bytes.

    Offset deltas rise and stay within the header's last one; gaps are fine, as compaction leaves them.
    """
    header = check_batch(batch, verify_crc=verify_crc, produced=False)
    records = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit)
    # bytes, because indexing and slicing them is what the loop does, and both are slower on a memoryview
    return _decode(header, bytes(records))


def _decode(header: BatchHeader, data: bytes) -> list[Record]:
    records: list[Record] = []
    timestamp_type = LOG_APPEND_TIME if header.log_append_time else CREATE_TIME
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    previous = -1
    pos = start = 0
    try:
        for _ in range(header.record_count):
            start = pos
            length, pos = _varint(data, pos)
            end = pos + length
            if length < 0 or end > len(data):
                raise _DamagedRecordError(f"its length is {length}, but {len(data) - pos} bytes are left")
            delta, pos = _varint(data, pos + 1, _VARLONG_BITS)  # + 1: the attributes, without meaning so far
            timestamp = base_timestamp + delta
            if not _INT64_MIN <= timestamp <= INT64_MAX:
                raise _DamagedRecordError(f"its timestamp {timestamp} takes more than 64 bits")
            delta, pos = _varint(data, pos)
            if not previous < delta <= header.last_offset_delta:
                raise _DamagedRecordError(
                    f"its offset delta is {delta}, after {previous} and up to {header.last_offset_delta}"
                )
            previous = delta
            key, pos = _nullable_bytes(data, pos, end)
            value, pos = _nullable_bytes(data, pos, end)
            headers: Headers = ()
            if data[pos]:
                headers, pos = _headers(data, pos, end)
            else:
                pos += 1
            if pos != end:
                raise _DamagedRecordError(f"it states {length} bytes and takes {length + pos - end}")
            if timestamp_type == LOG_APPEND_TIME:
                timestamp = header.max_timestamp
            records.append(Record(base_offset + delta, timestamp, timestamp_type, key, value, headers))
    except IndexError:
        raise _corrupt(header, len(records), start, "it is cut off") from None
    except _DamagedRecordError as damage:
        raise _corrupt(header, len(records), start, str(damage)) from None
    if pos != len(data):
        raise _corrupt(header, len(records), pos, f"{len(data) - pos} bytes follow the last record")
    return records


def _varint(data: bytes, pos: int, bits: int = _VARINT_BITS) -> tuple[int, int]:
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    number = byte & 0x7F
    shift = 7
    while True:
        byte = data[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise _DamagedRecordError(f"a number of more than {bits} bits")
    if number >> bits:
        raise _DamagedRecordError(f"a number of more than {bits} bits")
    return (number >> 1) ^ -(number & 1), pos


def _nullable_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = _varint(data, pos)
    if length < 0:
        if length == -1:
            return None, pos
        raise _DamagedRecordError(f"a field of {length} bytes")
    stop = pos + length
    if stop > end:
        raise _DamagedRecordError(f"a field of {length} bytes, where {end - pos} are left")
    return data[pos:stop], stop


def _headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = _varint(data, pos)
    if count < 0:
        raise _DamagedRecordError(f"{count} headers")
    headers = []
    for _ in range(count):
        key, pos = _nullable_bytes(data, pos, end)
        if key is None:
            raise _DamagedRecordError("a header without a key")
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise _DamagedRecordError(f"the header key {key!r} is not UTF-8") from None
        value, pos = _nullable_bytes(data, pos, end)
        headers.append((name, value))
    return tuple(headers), pos


def _corrupt(header: BatchHeader, number: int, pos: int, why: str) -> CorruptBatchError:
    if header.codec is Codec.NONE:
        pos += HEADER_SIZE
        place = f"byte {pos} of the batch"
    else:
        place = f"byte {pos} of the decompressed records"
    return CorruptBatchError(
        f"record {number} of {header.record_count} at {place}, base offset {header.base_offset}: {why}",
        position=pos,
    )


def build_batch(
    records: Iterable[NewRecord | tuple[bytes | None, bytes | None]],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    log_append_time: int | None = None,
    control: bool = False,
    transactional: bool = False,
) -> bytes:
    """One batch of at least one record; a pair is a key and a value at time 0."""
    news = [record if isinstance(record, NewRecord) else NewRecord(*record) for record in records]
    assert news, "a batch has at least one record"
    base_timestamp = news[0].timestamp
    out = bytearray()
    delta = -1
    for record in news:
        delta = delta + 1 if record.offset_delta is None else record.offset_delta
        _put_record(out, record, record.timestamp - base_timestamp, delta)
    attributes = (
        codec
        | (log_append_time is not None) * LOG_APPEND_TIME_BIT
        | transactional * TRANSACTIONAL_BIT
        | control * CONTROL_BIT
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in news) if log_append_time is None else log_append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(news),
    )
    return encode_batch(header, compress(codec, out))


def _put_record(out: bytearray, record: NewRecord, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)  # attributes
    _put_varint(body, timestamp_delta)
    _put_varint(body, offset_delta)
    _put_nullable_bytes(body, record.key)
    _put_nullable_bytes(body, record.value)
    _put_varint(body, len(record.headers))
    for key, value in record.headers:
        _put_nullable_bytes(body, key.encode())
        _put_nullable_bytes(body, value)
    _put_varint(out, len(body))
    out += body


def _put_nullable_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        _put_varint(out, -1)
    else:
        _put_varint(out, len(data))
        out += data


def _put_varint(out: bytearray, number: int) -> None:
    zigzag = (number << 1) ^ (number >> 63)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
