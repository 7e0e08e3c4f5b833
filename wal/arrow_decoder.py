"""Many record batches at once into Arrow columns: offset, timestamp, key, value, headers. The Spark source's decoder.

Which batches, from which file and with which of an entry's other columns is left to `arrow_scan`. About 20 times as
fast as `wal.records`, which stays the reference: whatever is refused here is explained by it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from wal import arrow_kernel
from wal.arrow_columns import HEADER_TYPE, HEADERS_TYPE, timestamps
from wal.arrow_kernel import HEADERS, KEY, MIN_HEADER_BYTES, MIN_RECORD_BYTES, VALUE
from wal.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME_BIT, Buffer
from wal.compression import Codec, decompress
from wal.errors import BatchError, CorruptBatchError
from wal.records import decode_records

# The 61 bytes of a batch's header, as `wal.batch` documents them.
BATCH_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert BATCH_HEADER.itemsize == HEADER_SIZE
BatchOf: TypeAlias = Callable[[int], Buffer]
_WANT = {"key": KEY, "value": VALUE, "headers": HEADERS}


class Payload(NamedTuple):
    """The plain records of some batches: batch i lies at data[starts[i]:ends[i]]. `headers` are of BATCH_HEADER."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    headers: np.ndarray

    def without(self, bad: int) -> "Payload":
        """The same without one batch."""
        return Payload(self.data, np.delete(self.starts, bad), np.delete(self.ends, bad), np.delete(self.headers, bad))


class BadBatchError(CorruptBatchError):
    """Batch `number` of those given cannot be read. The caller, who knows where it lies, says so to the user."""

    def __init__(self, message: str, *, number: int = -1, position: int | None = None) -> None:
        super().__init__(message, position=position)
        self.number = number


def gather(data: np.ndarray, starts: np.ndarray, kind: np.dtype) -> np.ndarray:
    """The structs of that kind that start there; so many bytes must be left behind each start."""
    plain = np.dtype((np.void, kind.itemsize))  # which numpy copies whole and not field by field
    everywhere: np.ndarray = np.ndarray(len(data) - kind.itemsize + 1, plain, data.data, strides=(1,))
    return everywhere[starts].view(kind)


def plain_payload(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, headers: np.ndarray) -> Payload:
    """The records of batches data[starts[i]:ends[i]], which are not compressed. Copies nothing."""
    return Payload(data, starts + HEADER_SIZE, ends, headers)


def inflated_payload(parts: Sequence[memoryview], headers: np.ndarray) -> Payload:
    """The records of batches that `inflate` gave as `parts`."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    data = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)
    return Payload(data, starts, ends, headers)


def inflate(batch: Buffer, attributes: int) -> memoryview:
    """A batch's records, decompressed within the limits of `wal.compression`."""
    return decompress(Codec(attributes & CODEC_MASK), memoryview(batch)[HEADER_SIZE:])


def decode_payload(payload: Payload, columns: Sequence[str], batch: BatchOf) -> dict[str, pa.Array]:
    """The columns `offset` and `timestamp`, and those of `key`, `value` and `headers` that are asked for.

    `batch(i)` is batch i as it lies in the log; it is called only if one turns out bad.
    """
    headers = payload.headers
    counts = headers["record_count"].astype(np.int64)
    room = (payload.ends - payload.starts) // MIN_RECORD_BYTES
    impossible = (counts < 0) | (counts > room)
    if impossible.any():
        raise _explain(int(np.argmax(impossible)), batch)
    out = _Output(int(counts.sum()), int((payload.ends - payload.starts).sum()), columns)
    bad, key_nulls, value_nulls = arrow_kernel.decode(
        payload.data,
        payload.starts,
        payload.ends,
        counts,
        headers["last_offset_delta"].astype(np.int64),
        headers["base_offset"].astype(np.int64),
        headers["base_timestamp"].astype(np.int64),
        out.want,
        out.offsets,
        out.timestamps,
        out.key,
        out.value,
        out.header_ends,
        out.header,
        out.header_done,
    )
    if bad >= 0:
        raise _explain(int(bad), batch)
    return _arrays(out, headers, counts, (int(key_nulls), int(value_nulls)), batch)


class _Output:
    """What the kernel writes into, large enough for any content of that many bytes."""

    def __init__(self, rows: int, size: int, columns: Sequence[str]) -> None:
        self.rows = rows
        self.want = sum(bit for name, bit in _WANT.items() if name in columns)
        self.offsets = np.empty(rows, np.int64)
        self.timestamps = np.empty(rows, np.int64)
        self.key = self._binary(KEY, rows, size)
        self.value = self._binary(VALUE, rows, size)
        most = size // MIN_HEADER_BYTES
        self.header_ends = self._ends(HEADERS, rows)
        self.header = (
            self._ends(HEADERS, most),
            self._bytes(HEADERS, size),
            self._ends(HEADERS, most),
            self._bytes(HEADERS, size),
            self._bytes(HEADERS, most),
        )
        self.header_done = np.zeros(4, np.int64)

    def _binary(self, bit: int, rows: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._ends(bit, rows), self._bytes(bit, size), self._bytes(bit, rows)

    def _ends(self, bit: int, rows: int) -> np.ndarray:
        ends = np.empty(rows + 1 if self.want & bit else 1, np.int32)
        ends[0] = 0
        return ends

    def _bytes(self, bit: int, size: int) -> np.ndarray:
        return np.empty(size if self.want & bit else 0, np.uint8)


def _arrays(
    out: _Output, headers: np.ndarray, counts: np.ndarray, nulls: tuple[int, int], batch: BatchOf
) -> dict[str, pa.Array]:
    by_broker = (headers["attributes"] & LOG_APPEND_TIME_BIT) != 0
    if by_broker.any():
        stamped = np.repeat(by_broker, counts)
        out.timestamps[stamped] = np.repeat(headers["max_timestamp"].astype(np.int64), counts)[stamped]
    arrays = {"offset": pa.array(out.offsets), "timestamp": timestamps(out.timestamps)}
    if out.want & KEY:
        arrays["key"] = _binary(out.rows, out.key, nulls[0])
    if out.want & VALUE:
        arrays["value"] = _binary(out.rows, out.value, nulls[1])
    if out.want & HEADERS:
        arrays["headers"] = _header_lists(out, len(headers), batch)
    return arrays


def _binary(rows: int, parts: tuple[np.ndarray, np.ndarray, np.ndarray], nulls: int) -> pa.Array:
    ends, data, valid = parts
    buffers = [_bitmap(valid[:rows]) if nulls else None, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def _bitmap(valid: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _header_lists(out: _Output, count_of_batches: int, batch: BatchOf) -> pa.Array:
    """Lists of headers; null for a record without any, as Spark's Kafka source has it."""
    count, _, _, value_nulls = (int(number) for number in out.header_done)
    key_ends, key_bytes, value_ends, value_bytes, value_valid = out.header
    keys = pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(key_ends[: count + 1]), pa.py_buffer(key_bytes)], 0
    )
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        raise _explain_any(count_of_batches, batch) from None
    values = _binary(count, (value_ends, value_bytes, value_valid), value_nulls)
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    some = np.diff(out.header_ends) > 0
    nulls = out.rows - int(some.sum())
    buffers = [_bitmap(some) if nulls else None, pa.py_buffer(out.header_ends)]
    return pa.Array.from_buffers(HEADERS_TYPE, out.rows, buffers, nulls, children=[structs])


def _explain(number: int, batch: BatchOf) -> BadBatchError:
    """What the reference decoder says about a batch that the kernel refused."""
    found = _fault(batch(number))
    assert found is not None, f"the kernel refuses batch {bytes(batch(number)).hex()} that the reference decoder reads"
    return BadBatchError(str(found), number=number, position=found.position)


def _explain_any(count: int, batch: BatchOf) -> BadBatchError:
    """The same where it is not known which batch it is."""
    for number in range(count):
        if _fault(batch(number)) is not None:
            return _explain(number, batch)
    raise AssertionError("the kernel refuses batches that the reference decoder reads")


def _fault(batch: Buffer) -> BatchError | None:
    try:
        decode_records(batch, verify_crc=False)
    except BatchError as error:
        return error
    return None
