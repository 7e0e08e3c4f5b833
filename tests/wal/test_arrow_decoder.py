"""The bulk decoder against `wal.records` and aiokafka's reader: the same records, and the same bytes refused."""

import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from wal import arrow_kernel
from wal.arrow_columns import timestamps
from wal.arrow_decoder import (
    BATCH_HEADER,
    BadBatchError,
    decode_payload,
    gather,
    inflate,
    inflated_payload,
    plain_payload,
)
from wal.batch import HEADER_SIZE, encode_batch, parse_header, with_log_append_time
from wal.compression import Codec
from wal.errors import BatchError
from wal.message_set import upconvert
from wal.records import NewRecord, Record, build_batch, decode_records

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
optional_bytes = st.none() | st.binary(max_size=300)
new_records = st.lists(
    st.builds(
        NewRecord,
        key=optional_bytes,
        value=optional_bytes,
        timestamp=st.integers(-(2**40), 2**40),
        headers=st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
Row = tuple[int, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def decode(batches: list[bytes], columns: tuple[str, ...] = COLUMNS) -> dict[str, pa.Array]:
    """As a scan does it: plain batches where they lie, compressed ones inflated side by side."""
    data = np.frombuffer(b"".join(batches), np.uint8)
    ends = np.cumsum([len(one) for one in batches], dtype=np.int64)
    starts = ends - [len(one) for one in batches]
    headers = gather(data, starts, BATCH_HEADER)
    if (headers["attributes"] & 7).any():
        parts = [inflate(one, int(bits)) for one, bits in zip(batches, headers["attributes"], strict=True)]
        return decode_payload(inflated_payload(parts, headers), columns, batches.__getitem__)
    return decode_payload(plain_payload(data, starts, ends, headers), columns, batches.__getitem__)


def rows(arrays: dict[str, pa.Array]) -> list[Row]:
    times = [None if time is None else time // 1000 for time in arrays["timestamp"].cast(pa.int64()).to_pylist()]
    headers = [tuple((one["key"], one["value"]) for one in some or ()) for some in arrays["headers"].to_pylist()]
    keys, values = arrays["key"].to_pylist(), arrays["value"].to_pylist()
    return list(zip(arrays["offset"].to_pylist(), times, keys, values, headers, strict=True))


def expected(batches: list[bytes]) -> list[Row]:
    records: list[Record] = [record for one in batches for record in decode_records(one, verify_crc=False)]
    return [(r.offset, spark_time(r.timestamp), r.key, r.value, r.headers) for r in records]


def spark_time(milliseconds: int) -> int | None:
    """Spark counts microseconds in 64 bits; later times are null."""
    return milliseconds if abs(milliseconds) <= (2**63 - 1) // 1000 else None


def by_aiokafka(batches: list[bytes]) -> list[Row]:
    records = [record for one in batches for record in DefaultRecordBatch(one)]
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


@given(
    st.lists(st.tuples(new_records, st.sampled_from(Codec), st.none() | st.integers(0, 2**40)), min_size=1, max_size=4)
)
def test_all_codecs_nulls_headers_and_both_kinds_of_time_read_as_the_reference_and_aiokafka_do(
    content: list[tuple[list[NewRecord], Codec, int | None]],
) -> None:
    batches = [
        build_batch(records, codec=codec, base_offset=1000 * number, log_append_time=time)
        for number, (records, codec, time) in enumerate(content)
    ]
    found = decode(batches)
    for array in found.values():
        array.validate(full=True)
    assert rows(found) == expected(batches) == by_aiokafka(batches)


@given(records=new_records, columns=st.sets(st.sampled_from(COLUMNS[2:])))
def test_each_column_is_the_same_whichever_others_are_asked_for(records: list[NewRecord], columns: set[str]) -> None:
    batch = build_batch(records)
    whole = decode([batch])
    found = decode([batch], tuple(columns))
    assert found.keys() == columns | {"offset", "timestamp"}
    assert all(found[name].equals(whole[name]) for name in found)


SAMPLE = build_batch(
    [NewRecord(b"key", b"value", 5, (("name", b"1"), ("other", None))), NewRecord(None, None, 6)], base_offset=7
)


def reference(batch: bytes) -> list[Row] | None:
    try:
        return expected([batch])
    except BatchError:
        return None


def ours(batch: bytes) -> list[Row] | None:
    try:
        return rows(decode([batch]))
    except BadBatchError:
        return None


def test_every_changed_byte_of_a_batchs_records_is_read_or_refused_as_by_the_reference() -> None:
    for at in range(HEADER_SIZE, len(SAMPLE)):
        for byte in range(256):
            damaged = SAMPLE[:at] + bytes((byte,)) + SAMPLE[at + 1 :]
            assert ours(damaged) == reference(damaged), (at, byte)


@given(payload=st.binary(max_size=60), count=st.integers(-1, 9), last_delta=st.integers(0, 9))
@example(payload=b"\x0c" + bytes(6), count=1, last_delta=0)
def test_any_bytes_are_read_or_refused_as_by_the_reference(payload: bytes, count: int, last_delta: int) -> None:
    header = parse_header(SAMPLE)._replace(record_count=count, last_offset_delta=last_delta)
    batch = encode_batch(header, payload)
    assert ours(batch) == reference(batch)


@given(st.data())
def test_any_mix_of_long_and_broken_numbers_is_read_or_refused_as_by_the_reference(data: st.DataObject) -> None:
    number = st.binary(min_size=1, max_size=11) | st.integers(0, 2**70).map(varint)
    fields = b"\0" + b"".join(data.draw(number) for _ in range(5))
    batch = encode_batch(parse_header(SAMPLE)._replace(record_count=1), varint(2 * len(fields)) + fields)
    assert ours(batch) == reference(batch)


def varint(number: int) -> bytes:
    """An unsigned number, of any size."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def test_the_number_of_records_is_not_believed_before_memory_is_spent() -> None:
    header = parse_header(SAMPLE)._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    with pytest.raises(BadBatchError, match="cut off"):
        decode([encode_batch(header, SAMPLE[HEADER_SIZE:])])


def test_a_bad_batch_among_good_ones_is_named_and_its_error_survives_pickling() -> None:
    good = build_batch([(b"k", b"v")])
    bad = good[:-1] + b"\x08"
    with pytest.raises(BadBatchError) as caught:
        decode([good, bad, good])
    copied = pickle.loads(pickle.dumps(caught.value))
    assert copied.number == caught.value.number == 1
    assert str(copied) == str(caught.value)
    assert "record 0 of 1" in str(copied)


def test_a_header_name_that_is_not_utf8_is_refused() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 0, (("abc", b""),))])
    with pytest.raises(BadBatchError, match="not UTF-8"):
        decode([SAMPLE, batch.replace(b"abc", b"a\xff\xfe")])


def test_times_that_spark_cannot_hold_are_null() -> None:
    limit = (2**63 - 1) // 1000
    found = timestamps(np.array([limit, limit + 1, -limit, -limit - 1, 2**63 - 1, -1], np.int64))
    assert found.is_null().to_pylist() == [False, True, False, True, True, False]


def test_a_batch_whose_times_the_broker_set_has_that_time_throughout() -> None:
    batch = with_log_append_time(build_batch([NewRecord(b"a", None, 5), NewRecord(b"b", None, 9)]), 77)
    assert [row[1] for row in rows(decode([SAMPLE, batch]))] == [5, 6, 77, 77]


def test_old_message_formats_are_read_once_the_broker_has_converted_them() -> None:
    for magic in (0, 1):
        builder = LegacyRecordBatchBuilder(magic, 0, 1 << 16)
        for offset in range(3):
            builder.append(offset, timestamp=50 + offset, key=b"k", value=b"v%d" % offset)
        batch = upconvert(bytes(builder.build()))
        assert rows(decode([batch])) == expected([batch])


def test_compiled_code_is_kept_where_only_we_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = arrow_kernel.cache_folder()
    assert folder == tmp_path / "rafka-lab" / "numba"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    elsewhere = arrow_kernel.cache_folder()
    assert elsewhere is not None
    assert elsewhere != folder
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    assert arrow_kernel.cache_folder() == tmp_path / "named"


def test_a_second_process_takes_the_compiled_code_from_disk(tmp_path: Path) -> None:
    program = "from wal.arrow_kernel import decode; print(len(decode.stats.cache_hits))"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())}
    run = [subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True) for _ in range(2)]
    assert [one.stdout.strip() for one in run] == ["0", "1"], run[0].stderr


def test_brokers_start_without_the_decoders_libraries() -> None:
    program = "import sys, wal; print([name for name in ('numba', 'pyarrow', 'pyspark') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
