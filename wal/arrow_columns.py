"""The columns of the Spark source, as Arrow types, and those of them that come from an entry's index row alone.

Planning a query needs no more than this, so nothing here imports the decoder and its compiler.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import pyarrow as pa

from wal.batch import CODEC_MASK, LOG_APPEND_TIME_BIT
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
_NUMPY_TYPES = {name: kind.to_pandas_dtype() for name, kind in ALL_COLUMNS.items() if pa.types.is_integer(kind)}

# Three bits hold the codec; Kafka uses five of the eight values.
_CODECS = [codec.name.lower() for codec in Codec] + ["unknown"] * 3
_HEX = np.array([[ord(digit) for digit in f"{byte:02x}"] for byte in range(256)], np.uint8)
_UUID_DASHES = (8, 13, 18, 23)
_TRACE_DIGITS = 32
_UUID_LENGTH = 36

Names = Mapping[bytes, str]  # topic id -> name
Spread = Callable[[np.ndarray], np.ndarray]  # from one value an entry to one value a row


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, ALL_COLUMNS[name]) for name in columns])


def index_column(name: str, rows: Rows, names: Names, segment: int, *, by_record: bool = False) -> pa.Array:
    """One value an entry, or its value for each of its records. `names` has every topic of the rows."""
    spread: Spread = partial(np.repeat, repeats=rows["record_count"], axis=0) if by_record else lambda values: values
    if name in _BUILDERS:
        return _BUILDERS[name](rows, spread)
    if name == "topic":
        words, codes = topic_codes(rows)
        return _words([names[word] for word in words], spread(codes))
    if name == "segment":
        return pa.array(spread(np.full(len(rows), segment, np.int64)))
    values = spread(rows["length" if name == "size" else name])
    if ALL_COLUMNS[name] == TIMESTAMP_TYPE:
        return timestamps(values)
    return pa.array(values.astype(_NUMPY_TYPES[name], copy=False))


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


def _words(words: list[str], codes: np.ndarray) -> pa.Array:
    if len(words) == 1:
        return pa.repeat(pa.scalar(words[0], pa.string()), len(codes))
    return pa.array(words, pa.string()).take(pa.array(codes))


def _codec(rows: Rows, spread: Spread) -> pa.Array:
    used, codes = np.unique(rows["attributes"] & CODEC_MASK, return_inverse=True)
    return _words([_CODECS[number] for number in used.tolist()], spread(codes))


def _timestamp_type(rows: Rows, spread: Spread) -> pa.Array:
    return pa.array(spread(((rows["attributes"] & LOG_APPEND_TIME_BIT) != 0).astype(np.int32)))


def _trace_id(rows: Rows, spread: Spread) -> pa.Array:
    """32 hex digits; null where the request had no trace."""
    return _texts(spread(_HEX[rows["trace"]].reshape(len(rows), _TRACE_DIGITS)), spread(rows["trace"].any(axis=1)))


def _topic_id(rows: Rows, spread: Spread) -> pa.Array:
    raw = np.ascontiguousarray(rows["topic"]).view(np.uint8).reshape(len(rows), 16)
    digits = _HEX[raw].reshape(len(rows), _TRACE_DIGITS)
    text = np.full((len(rows), _UUID_LENGTH), ord("-"), np.uint8)
    text[:, [at for at in range(_UUID_LENGTH) if at not in _UUID_DASHES]] = digits
    return _texts(spread(text), np.ones(1, bool))


def _texts(letters: np.ndarray, some: np.ndarray) -> pa.Array:
    """Texts of one length, each a row of `letters`; null where there is not `some`."""
    count, length = letters.shape
    nulls = len(some) - int(np.count_nonzero(some))
    valid = pa.py_buffer(np.packbits(some, bitorder="little")) if nulls else None
    ends = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [valid, pa.py_buffer(ends), pa.py_buffer(letters)], nulls)


_BUILDERS: dict[str, Callable[[Rows, Spread], pa.Array]] = {
    "codec": _codec,
    "timestampType": _timestamp_type,
    "trace_id": _trace_id,
    "topic_id": _topic_id,
}
