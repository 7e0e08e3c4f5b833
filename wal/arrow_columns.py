"""The columns of the Spark source, as Arrow types, and those of them that come from an entry's index row alone.

Planning a query needs no more than this, so nothing here imports the decoder and its compiler.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from wal.batch import LOG_APPEND_TIME_BIT
from wal.compression import Codec
from wal.index import Rows
from wal.state import Key

# The names and nullability that Spark gives these types.
HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
MICROSECONDS = 1_000  # in a millisecond, which is what Kafka counts

# As Spark's own Kafka source names them, then what only this log knows.
RECORD_COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
    "org_id": pa.int64(),
    "trace_id": pa.string(),
    "segment": pa.int64(),
    "position": pa.int64(),
}
# Given only where `columns` names them: they are the same for all records of a batch.
EXTRA_RECORD_COLUMNS: dict[str, pa.DataType] = {
    "append_time": TIMESTAMP_TYPE,
    "codec": pa.string(),
    "producer_id": pa.int64(),
    "size": pa.int64(),  # of the whole entry, in bytes
    "topic_id": pa.string(),
}
BATCH_COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "base_offset": pa.int64(),
    "record_count": pa.int64(),
    "live_records": pa.int64(),  # without those before the log start
    "base_timestamp": TIMESTAMP_TYPE,
    "max_timestamp": TIMESTAMP_TYPE,
    "append_time": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "codec": pa.string(),
    "size": pa.int64(),  # of the whole entry, in bytes
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
    "base_sequence": pa.int32(),
    "org_id": pa.int64(),
    "topic_id": pa.string(),
    "trace_id": pa.string(),
    "segment": pa.int64(),
    "position": pa.int64(),
}
# Reads and checks every entry's bytes, so it is given only where `columns` names it.
EXTRA_BATCH_COLUMNS: dict[str, pa.DataType] = {"fault": pa.string()}

DECODED_COLUMNS = frozenset(("key", "value", "timestamp", "headers"))
ALL_COLUMNS = RECORD_COLUMNS | EXTRA_RECORD_COLUMNS | BATCH_COLUMNS | EXTRA_BATCH_COLUMNS

# Three bits hold the codec; Kafka uses five of the eight values.
_CODECS = pa.array([codec.name.lower() for codec in Codec] + ["unknown"] * 3)
_HEX = np.array([[ord(digit) for digit in f"{byte:02x}"] for byte in range(256)], np.uint8)
_UUID_DASHES = (8, 13, 18, 23)
_TRACE_DIGITS = 32
_UUID_LENGTH = 36

Names = Mapping[bytes, str]  # topic id -> name


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, ALL_COLUMNS[name]) for name in columns])


def index_column(name: str, rows: Rows, names: Names, segment: int) -> pa.Array:
    """One value an entry. `names` has every topic of the rows."""
    if name in _BUILDERS:
        return _BUILDERS[name](rows)
    if name == "topic":
        words, codes = topic_codes(rows)
        return pa.array([names[word] for word in words], pa.string()).take(pa.array(codes))
    if name == "segment":
        return pa.array(np.full(len(rows), segment, np.int64))
    field = "length" if name == "size" else name
    if ALL_COLUMNS[name] == TIMESTAMP_TYPE:
        return timestamps(rows[field])
    return pa.array(rows[field].astype(ALL_COLUMNS[name].to_pandas_dtype()))


def topic_codes(rows: Rows) -> tuple[list[bytes], np.ndarray]:
    """The different topic ids of the rows, and which of them each row has."""
    if not len(rows):
        return [], np.empty(0, np.int64)
    first = rows["topic"][0]
    if (rows["topic"] == first).all():  # a topic of its own in each range of rows is the usual case
        return [first.tobytes()], np.zeros(len(rows), np.int64)
    # One half of a random id tells topics apart; sorting whole ids costs five times as much.
    _, firsts, codes = np.unique(rows["topic"][:, 1], return_index=True, return_inverse=True)
    words = rows["topic"][firsts]
    if (words[codes] != rows["topic"]).any():
        words, codes = np.unique(rows["topic"], axis=0, return_inverse=True)
    return [word.tobytes() for word in words], codes.reshape(-1)


def first_offsets(rows: Rows, known: Mapping[Key, int]) -> np.ndarray:
    """The first wanted offset of each row's partition."""
    firsts = np.zeros(len(rows), np.int64)
    if not known:
        return firsts
    words, codes = topic_codes(rows)
    numbers = {word: number for number, word in enumerate(words)}
    for (topic_id, partition), offset in known.items():
        if topic_id in numbers:
            firsts[(codes == numbers[topic_id]) & (rows["partition"] == partition)] = offset
    return firsts


def timestamps(milliseconds: np.ndarray) -> pa.Array:
    """Milliseconds as Arrow's microseconds. Null where that takes more than 64 bits: Spark has no such time."""
    limit = np.iinfo(np.int64).max // MICROSECONDS
    if not len(milliseconds) or (milliseconds.max() <= limit and milliseconds.min() >= -limit):
        return pa.array(milliseconds * MICROSECONDS).view(TIMESTAMP_TYPE)
    beyond = (milliseconds > limit) | (milliseconds < -limit)
    microseconds = np.where(beyond, 0, milliseconds) * MICROSECONDS
    return pa.array(microseconds, mask=beyond).view(TIMESTAMP_TYPE)


def _codec(rows: Rows) -> pa.Array:
    return _CODECS.take(pa.array((rows["attributes"] & 0x07).astype(np.int32)))


def _timestamp_type(rows: Rows) -> pa.Array:
    return pa.array(((rows["attributes"] & LOG_APPEND_TIME_BIT) != 0).astype(np.int32))


def _trace_id(rows: Rows) -> pa.Array:
    """32 hex digits; null where the request had no trace."""
    some = rows["trace"].any(axis=1)
    nulls = len(rows) - int(some.sum())
    valid = pa.py_buffer(np.packbits(some, bitorder="little")) if nulls else None
    ends = np.arange(len(rows) + 1, dtype=np.int32) * _TRACE_DIGITS
    digits = np.ascontiguousarray(_HEX[rows["trace"]])
    return pa.Array.from_buffers(pa.string(), len(rows), [valid, pa.py_buffer(ends), pa.py_buffer(digits)], nulls)


def _topic_id(rows: Rows) -> pa.Array:
    raw = np.ascontiguousarray(rows["topic"]).view(np.uint8).reshape(len(rows), 16)
    digits = _HEX[raw].reshape(len(rows), _TRACE_DIGITS)
    text = np.full((len(rows), _UUID_LENGTH), ord("-"), np.uint8)
    text[:, [at for at in range(_UUID_LENGTH) if at not in _UUID_DASHES]] = digits
    ends = np.arange(len(rows) + 1, dtype=np.int32) * _UUID_LENGTH
    return pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(text)])


_BUILDERS: dict[str, Callable[[Rows], pa.Array]] = {
    "codec": _codec,
    "timestampType": _timestamp_type,
    "trace_id": _trace_id,
    "topic_id": _topic_id,
}
