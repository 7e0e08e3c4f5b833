"""The header of Kafka's v2 RecordBatch: parse, check, split and restamp batches without decoding records.

The 61 bytes, big-endian: base_offset i64, length i32 (of all that follows it), leader_epoch i32, magic i8,
crc u32 (CRC-32C of all that follows it), attributes i16, last_offset_delta i32, base_timestamp i64,
max_timestamp i64, producer_id i64, producer_epoch i16, base_sequence i32, record_count i32. Then the
records, compressed as one block. Records themselves are read and written in `wal.records`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from wal.compression import Codec
from wal.errors import BatchError, CorruptBatchError, UnsupportedBatchError

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = 2
HEADER_SIZE = 61
INT64_MAX = 2**63 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END = 12  # `length` counts from here
_MAGIC_AT = 16
_CRC_FROM = 21  # base_offset and leader_epoch lie before it, so a broker can set both without a new CRC

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
_CODECS = tuple(Codec)


class BatchHeader(NamedTuple):
    """All header fields in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return _LENGTH_END + self.length

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


def codec_of(attributes: int) -> Codec:
    """The codec in the attributes of a batch, or of an old message."""
    number = attributes & CODEC_MASK
    if number >= len(_CODECS):
        raise UnsupportedBatchError(f"unknown compression codec {number}: use none, gzip, snappy, lz4 or zstd")
    return _CODECS[number]


def parse_header(data: Buffer, at: int = 0) -> BatchHeader:
    """The header at byte `at`. The records behind it may be missing; see `check_batch` for a whole batch."""
    try:
        header = BatchHeader._make(_HEADER.unpack_from(data, at))
    except struct.error:
        raise _short_header(data, at) from None
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic, at)
    if header.length < HEADER_SIZE - _LENGTH_END:
        raise CorruptBatchError(
            f"batch at byte {at} states a length of {header.length}, less than its own header", position=at
        )
    # Nobody reaches such offsets; refusing them here keeps every sum below within 64 bits.
    if header.base_offset + header.last_offset_delta > INT64_MAX:
        raise CorruptBatchError(f"batch at byte {at} ends behind offset {INT64_MAX}", position=at)
    return header


def check_batch(data: Buffer, *, verify_crc: bool = True, produced: bool = True) -> BatchHeader:
    """The header of `data`, which must be exactly one sound batch.

    `produced` asks for what a broker asks of a client besides: at least one record, no gaps in the offsets,
    a sequence wherever there is a producer id, and neither a control nor a transactional batch. Batches that
    were compacted elsewhere may have gaps, and none of the records left. The records are not decoded.
    """
    header = parse_header(data)
    if header.length != len(data) - _LENGTH_END:
        raise CorruptBatchError(f"batch states {header.size} bytes, but {len(data)} are here")
    if verify_crc and crc32c(memoryview(data)[_CRC_FROM:]) != header.crc:
        raise CorruptBatchError("the batch's CRC does not match its bytes; the sender must send it again")
    attributes = header.attributes
    if attributes & CODEC_MASK > Codec.ZSTD:
        codec_of(attributes)
    count = header.record_count
    if produced:
        if count != header.last_offset_delta + 1 or count < 1:
            raise CorruptBatchError(f"batch states {count} records and last delta {header.last_offset_delta}")
        if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            raise UnsupportedBatchError("control and transactional batches are not taken from producers")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise CorruptBatchError(f"batch of producer {header.producer_id} has no sequence number")
    elif not 0 <= count <= header.last_offset_delta + 1:
        raise CorruptBatchError(f"batch states {count} records and last delta {header.last_offset_delta}")
    return header


def split_batches(data: Buffer, *, allow_partial: bool = False) -> Iterator[memoryview]:
    """Each batch of a concatenation, such as a fetch response's record set; only headers are checked.

    Brokers may cut the last batch of a fetch response; `allow_partial` stops before it instead of raising.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        if len(view) - at < HEADER_SIZE:
            if allow_partial:
                return
            raise _short_header(view, at)
        end = at + parse_header(view, at).size
        if end > len(view):
            if allow_partial:
                return
            raise CorruptBatchError(f"batch at byte {at} ends at {end}, behind the data's {len(view)}", position=at)
        yield view[at:end]
        at = end


def encode_batch(header: BatchHeader, records: Buffer) -> bytes:
    """A batch of this header and these (already compressed) records; its length and CRC are computed here."""
    length = HEADER_SIZE - _LENGTH_END + len(records)
    unsigned = _HEADER.pack(*header._replace(length=length, crc=0))
    crc = crc32c(records, crc32c(memoryview(unsigned)[_CRC_FROM:]))
    return b"".join((_HEADER.pack(*header._replace(length=length, crc=crc)), records))


def stored_prefix(batch: Buffer, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """The batch as a broker stores it, in two pieces: the 16 bytes that it sets, and the rest as it came.

    All that changes lies outside the batch's CRC, so that stays right.
    """
    view = memoryview(batch)
    return struct.pack(">qii", base_offset, len(view) - _LENGTH_END, leader_epoch), view[_MAGIC_AT:]


def with_base_offset(batch: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The batch as a broker stores it, in one piece."""
    return b"".join(stored_prefix(batch, base_offset, leader_epoch))


def with_log_append_time(batch: Buffer, timestamp_ms: int) -> bytes:
    """The batch with a broker's time for all its records, which needs a new CRC."""
    header = parse_header(batch)
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=timestamp_ms)
    return encode_batch(stamped, memoryview(batch)[HEADER_SIZE:])


def _short_header(data: Buffer, at: int) -> BatchError:
    # Old messages can be shorter than a v2 header: say what they are, not that they are damaged.
    if len(data) > at + _MAGIC_AT and data[at + _MAGIC_AT] != MAGIC:
        return _wrong_magic(data[at + _MAGIC_AT], at)
    return CorruptBatchError(
        f"batch at byte {at} is cut off: {len(data) - at} bytes of a {HEADER_SIZE}-byte header", position=at
    )


def _wrong_magic(magic: int, at: int) -> BatchError:
    way_out = "convert it with wal.message_set.upconvert" if magic in (0, 1) else "the newest known is 2"
    return UnsupportedBatchError(f"record data of magic {magic} at byte {at}: {way_out}", position=at)
