"""The compiled inner loop of the bulk decoder: records of many v2 batches into the buffers of Arrow arrays.

It accepts exactly what `wal.records.decode_records` accepts, reads nothing outside of a batch and writes nothing
outside of its outputs, whatever the bytes are. It does not say what is wrong with a bad batch, only which one it is:
the caller asks `decode_records`. Only numba and numpy are used here; Arrow is left to `arrow_decoder`.

The compiled code is kept on disk, since compiling takes seconds. `cache_folder` says where.
"""

# mypy: allow-untyped-decorators
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numba
import numpy as np
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic as numba_intrinsic

# What the compiled functions take and give are numba's types, which mypy cannot follow.
njit: Any = numba.njit
intrinsic: Any = numba_intrinsic
cgutils: Any = numba_cgutils
types: Any = numba.types
config: Any = numba.config
Number: TypeAlias = Any

KEY, VALUE, HEADERS = 1, 2, 4  # bits of `want`

# A record takes at least 7 bytes (length, attributes, two deltas, key and value length, header count), a header 2.
# The sizes of all outputs follow from these, so that no stated count is believed before it is known to fit.
MIN_RECORD_BYTES = 7
MIN_HEADER_BYTES = 2

_INT64_MAX = np.int64(2**63 - 1)
_INT64_MIN = np.int64(-(2**63))
_BAD = np.int64(-1)
_MORE = np.uint64(0x80)  # the bit of a varint's byte that says that another one follows
_SEVEN_BITS = np.uint64(0x7F)
_LAST_SHIFT = np.uint64(63)  # the tenth byte of a 64-bit varint has room for one bit
_LAST_MAXIMUM = np.uint64(1)
_INT32_MAXIMUM = np.uint64(2**32 - 1)


def cache_folder() -> Path | None:
    """Where compiled code is kept: NUMBA_CACHE_DIR, the user's cache folder, or a private temporary one.

    Not beside the source: an installation may be read-only, and Spark unpacks a shipped package anew for each
    application. None if nothing can be written: then every process compiles for itself. The code is unpickled, so a
    folder that somebody else owns or may write is never used.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        return Path(named)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    for folder in (home / "rafka-lab" / "numba", Path(tempfile.gettempdir()) / f"rafka-lab-{os.getuid()}" / "numba"):
        if _is_private(folder):
            return folder
    return None


def _is_private(folder: Path) -> bool:
    """Makes the folder if need be; whether it and its parent are ours alone to write."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = [folder.lstat(), folder.parent.lstat()]
    except OSError:
        return False
    ours = all(one.st_uid == os.getuid() and not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for one in found)
    return ours and os.access(folder, os.W_OK)


@contextmanager
def _cache_in(folder: Path | None) -> Iterator[None]:
    """numba takes the folder from its configuration when a function is declared; others' functions keep theirs."""
    before = config.CACHE_DIR
    if folder is not None:
        config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


# Bytes are reached by address and not through numba's arrays: an array that is handed to a function is counted as one
# more reference, an atomic operation that took half of the time of a record. Who calls keeps the arrays alive.


@intrinsic
def _address(typing: Any, array: Any) -> Any:
    """Where an array's bytes lie."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, values[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.int64))

    return types.int64(array), emit


@intrinsic
def _byte(typing: Any, address: Any) -> Any:
    """The byte there."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte = context.get_value_type(types.uint8)
        return builder.load(builder.inttoptr(values[0], byte.as_pointer()))

    return types.uint8(types.int64), emit


@intrinsic
def _memcpy(typing: Any, target: Any, source: Any, size: Any) -> Any:
    """C's memcpy: a loop over bytes, which numba cannot prove free of overlap, is 4 times slower for a record."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = context.get_value_type(types.uint8).as_pointer()
        target, source = (builder.inttoptr(address, pointer) for address in values[:2])
        cgutils.raw_memcpy(builder, target, source, values[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@njit(inline="always")
def _copy(source: Number, start: Number, stop: Number, target: Number, at: Number) -> Number:
    _memcpy(target + at, source + start, stop - start)
    return at + (stop - start)


@njit(inline="always")
def _varlong(buf: Number, at: Number, end: Number) -> Any:
    """A zigzag number of up to 64 bits and where it ends; -1 for that if it is cut off or too long."""
    if at >= end:
        return np.int64(0), _BAD
    byte = np.uint64(_byte(buf + at))
    at += 1
    number = byte & _SEVEN_BITS
    shift = np.uint64(0)
    while byte & _MORE:
        shift += np.uint64(7)
        if at >= end or shift > _LAST_SHIFT:
            return np.int64(0), _BAD
        byte = np.uint64(_byte(buf + at))
        at += 1
        if shift == _LAST_SHIFT and byte > _LAST_MAXIMUM:
            return np.int64(0), _BAD
        number |= (byte & _SEVEN_BITS) << shift
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), at


@njit(inline="always")
def _varint(buf: Number, at: Number, end: Number) -> Any:
    """The same for 32 bits, of at most five bytes."""
    if at >= end:
        return np.int64(0), _BAD
    byte = np.uint64(_byte(buf + at))
    at += 1
    number = byte & _SEVEN_BITS
    shift = np.uint64(0)
    while byte & _MORE:
        shift += np.uint64(7)
        if at >= end or shift > np.uint64(28):
            return np.int64(0), _BAD
        byte = np.uint64(_byte(buf + at))
        at += 1
        number |= (byte & _SEVEN_BITS) << shift
    if number > _INT32_MAXIMUM:
        return np.int64(0), _BAD
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), at


@njit(inline="always")
def _field(buf: Number, at: Number, end: Number) -> Any:
    """A nullable field: its length (-1 for null), where its bytes start, and where they end (-1 if it is bad)."""
    length, at = _varint(buf, at, end)
    if at < 0 or length < -1 or at + length > end:
        return np.int64(0), np.int64(0), _BAD
    return length, at, at + max(length, np.int64(0))


@njit(nogil=True)
def _headers(buf: Number, at: Number, end: Number, done: Any, out: Any) -> Number:
    """The headers of one record; where they end, or -1. `done` counts headers, key bytes, value bytes and nulls."""
    key_ends, _, value_ends, _, value_valid = out
    key_bytes, value_bytes = _address(out[1]), _address(out[3])
    count, at = _varint(buf, at, end)
    if at < 0 or count < 0:
        return _BAD
    for _ in range(count):
        length, start, at = _field(buf, at, end)
        if at < 0 or length < 0:
            return _BAD
        done[1] = _copy(buf, start, at, key_bytes, done[1])
        length, start, at = _field(buf, at, end)
        if at < 0:
            return _BAD
        done[2] = _copy(buf, start, at, value_bytes, done[2])
        value_valid[done[0]] = length >= 0
        done[3] += length < 0
        done[0] += 1
        key_ends[done[0]] = done[1]
        value_ends[done[0]] = done[2]
    return at


def _decode(
    buf: Any,
    starts: Any,
    ends: Any,
    counts: Any,
    last_deltas: Any,
    base_offsets: Any,
    base_timestamps: Any,
    want: int,
    offsets: Any,
    timestamps: Any,
    key_out: Any,
    value_out: Any,
    header_ends: Any,
    header_out: Any,
    header_done: Any,
) -> Any:
    """Decodes the records of batch i, which lie at buf[starts[i]:ends[i]], into the outputs.

    Gives the number of the first bad batch, or -1, and how many keys and values are null. Of a record, nothing behind
    the last wanted field is looked at.
    """
    key_ends, _, key_valid = key_out
    value_ends, _, value_valid = value_out
    source, key_bytes, value_bytes = _address(buf), _address(key_out[1]), _address(value_out[1])
    row = 0
    key_at: Number = np.int64(0)
    value_at: Number = np.int64(0)
    key_nulls: Number = np.int64(0)
    value_nulls: Number = np.int64(0)
    for number in range(starts.size):
        at, end = starts[number], ends[number]
        previous = np.int64(-1)
        for _ in range(counts[number]):
            length, at = _varint(source, at, end)
            if at < 0 or length < MIN_RECORD_BYTES - 1 or at + length > end:
                return number, key_nulls, value_nulls
            record_end = at + length
            delta, at = _varlong(source, at + 1, record_end)  # + 1: the attributes, without meaning so far
            base = base_timestamps[number]
            if at < 0 or (base > _INT64_MAX - delta if delta >= 0 else base < _INT64_MIN - delta):
                return number, key_nulls, value_nulls
            timestamps[row] = base + delta
            delta, at = _varint(source, at, record_end)
            if at < 0 or delta <= previous or delta > last_deltas[number]:
                return number, key_nulls, value_nulls
            previous = delta
            offsets[row] = base_offsets[number] + delta
            if want:
                length, start, at = _field(source, at, record_end)
                if at < 0:
                    return number, key_nulls, value_nulls
                if want & KEY:
                    key_at = _copy(source, start, at, key_bytes, key_at)
                    key_valid[row] = length >= 0
                    key_nulls += length < 0
                    key_ends[row + 1] = key_at
            if want & (VALUE | HEADERS):
                length, start, at = _field(source, at, record_end)
                if at < 0:
                    return number, key_nulls, value_nulls
                if want & VALUE:
                    value_at = _copy(source, start, at, value_bytes, value_at)
                    value_valid[row] = length >= 0
                    value_nulls += length < 0
                    value_ends[row + 1] = value_at
            if want & HEADERS:
                if at + 1 != record_end or _byte(source + at) != 0:  # most records have none
                    at = _headers(source, at, record_end, header_done, header_out)
                    if at != record_end:
                        return number, key_nulls, value_nulls
                header_ends[row + 1] = header_done[0]
            at = record_end
            row += 1
        if at != end:
            return number, key_nulls, value_nulls
    return _BAD, key_nulls, value_nulls


# One signature for read-only and for writable input, so that there is one compiled form and not four.
_INPUT = types.Array(types.uint8, 1, "C", readonly=True)
_LONGS_IN = types.Array(types.int64, 1, "C", readonly=True)
_BYTES, _INTS, _LONGS = types.uint8[::1], types.int32[::1], types.int64[::1]
_SIGNATURE = types.UniTuple(types.int64, 3)(
    _INPUT,
    *[_LONGS_IN] * 6,
    types.int64,
    _LONGS,
    _LONGS,
    types.Tuple((_INTS, _BYTES, _BYTES)),
    types.Tuple((_INTS, _BYTES, _BYTES)),
    _INTS,
    types.Tuple((_INTS, _BYTES, _INTS, _BYTES, _BYTES)),
    _LONGS,
)

_folder = cache_folder()
with _cache_in(_folder):
    # nogil: a Spark worker's other threads go on meanwhile
    decode = njit(_SIGNATURE, nogil=True, cache=_folder is not None)(_decode)
