"""Kafka's five codecs over cramjam, with an output that is bounded before memory is spent.

Which bytes are compressed (a batch's records, a wrapper message's value) is left to the callers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING

import cramjam

from wal.errors import BatchTooLargeError, CorruptBatchError

if TYPE_CHECKING:
    from wal.batch import Buffer

# Kafka's default batch limit is 1 MB on the wire. 64 times that is more than real data compresses,
# and small enough that a few hostile batches at once do not end the process.
MAX_DECOMPRESSED = 64 << 20

# One batch of a default producer (16 KB) rarely inflates beyond this, so the first try is the only one.
_FIRST_BUFFER = 64 << 10
_BUFFER_GROWTH = 4

# What cramjam says when the output buffer is full; it has no own exception type for it. A test pins it.
_BUFFER_FULL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
_XERIAL_BLOCK = 32 << 10  # what Java's SnappyOutputStream writes
_LZ4_MAGIC_SIZE = 4
_INT32 = struct.Struct(">i")

# The levels Kafka itself takes when none is set (KIP-390), where cramjam's default is another.
_ZSTD_LEVEL = 3
_LZ4_LEVEL = 9


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer) -> bytes:
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, limit: int = MAX_DECOMPRESSED) -> memoryview:
    """The plain bytes, at most `limit` of them.

    Raises BatchTooLargeError when there are more (about 1.25 times the limit is allocated at worst), and
    CorruptBatchError for bytes that are not of this codec.
    """
    match codec:
        case Codec.NONE:
            _check_size(len(data), limit, codec)
            return memoryview(data)
        case Codec.GZIP:
            return _inflate(codec, cramjam.gzip.decompress_into, data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case Codec.LZ4:
            return _inflate(codec, cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _inflate(codec, cramjam.zstd.decompress_into, data, limit)


def _inflate(codec: Codec, into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int) -> memoryview:
    """Decompress into a buffer that grows up to the limit.

    Declared content sizes are not used: they are optional in three of the formats and under a
    sender's control in all of them.
    """
    size = min(limit, max(_FIRST_BUFFER, _BUFFER_GROWTH * len(data)))
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: into(data, out)]
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise _damaged(codec, str(error)) from error
        if size >= limit:
            raise _too_large(codec, limit)
        size = min(limit, size * _BUFFER_GROWTH)


def _compress_lz4(data: Buffer) -> bytes:
    # Java's reader refuses linked blocks.
    stream = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    stream.compress(bytes(data))
    return bytes(stream.finish())


def break_lz4_header(frame: bytes) -> bytes:
    """The frame as magic 0 has it: Kafka's first lz4 writer took the header checksum from the frame's magic
    number on, not from behind it (KAFKA-3160), and its readers of that time insist."""
    end = _lz4_header_end(frame)
    return frame[:end] + _lz4_checksum(frame[:end]) + frame[end + 1 :]


def mend_lz4_header(frame: Buffer) -> bytes:
    """A frame of either header checksum as the standard has it. The old value is not verified."""
    data = bytes(frame)
    end = _lz4_header_end(data)
    return data[:end] + _lz4_checksum(data[_LZ4_MAGIC_SIZE:end]) + data[end + 1 :]


def _lz4_header_end(frame: bytes) -> int:
    """Where the checksum byte stands: behind the flags, the block size and what the flags announce."""
    if len(frame) <= _LZ4_MAGIC_SIZE:
        raise _damaged(Codec.LZ4, "the frame's header is cut off")
    flags = frame[_LZ4_MAGIC_SIZE]
    content_size, dictionary_id = bool(flags & 0x08), bool(flags & 0x01)
    return _LZ4_MAGIC_SIZE + 2 + 8 * content_size + 4 * dictionary_id


def _lz4_checksum(header: bytes) -> bytes:
    """The second byte of xxHash32 (seed 0), in its form for inputs under 16 bytes, as these headers are."""
    mask = 0xFFFFFFFF
    number = 374761393 + len(header)
    words = len(header) // 4
    for (word,) in struct.iter_unpack("<I", header[: 4 * words]):
        number = (number + word * 3266489917) & mask
        number = ((number << 17 | number >> 15) * 668265263) & mask
    for byte in header[4 * words :]:
        number = (number + byte * 374761393) & mask
        number = ((number << 11 | number >> 21) * 2654435761) & mask
    number = ((number ^ number >> 15) * 2246822519) & mask
    number = ((number ^ number >> 13) * 3266489917) & mask
    number ^= number >> 16
    return bytes((number >> 8 & 0xFF,))


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> memoryview:
    """Xerial's blocks (Java), or one raw block (librdkafka and Go write either)."""
    view = memoryview(data)
    blocks = _xerial_blocks(view) if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        _check_size(sum(sizes), limit, Codec.SNAPPY)
        out = memoryview(bytearray(sum(sizes)))
        at = 0
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, out[at : at + size])
            at += size
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, str(error)) from error
    return out


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    at = len(_XERIAL_HEADER)
    while at < len(view):
        if at + _INT32.size > len(view):
            raise _damaged(Codec.SNAPPY, f"a xerial block's length is cut off at byte {at}")
        (size,) = _INT32.unpack_from(view, at)
        at += _INT32.size
        if not 0 < size <= len(view) - at:
            raise _damaged(Codec.SNAPPY, f"a xerial block of {size} bytes at byte {at} of {len(view)}")
        blocks.append(view[at : at + size])
        at += size
    if at > len(view):
        raise _damaged(Codec.SNAPPY, "the xerial header is cut off")
    return blocks


def _check_size(size: int, limit: int, codec: Codec) -> None:
    if size > limit:
        raise _too_large(codec, limit)


def _too_large(codec: Codec, limit: int) -> BatchTooLargeError:
    return BatchTooLargeError(
        f"{codec.name.lower()} data holds more than {limit} bytes once decompressed: send smaller batches"
    )


def _damaged(codec: Codec, why: str) -> CorruptBatchError:
    return CorruptBatchError(f"not valid {codec.name.lower()} data: {why}; the sender must send it again")
