"""Records of a v2 batch, against aiokafka's reader and builder, and against every kind of damage."""

import contextlib
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from wal.batch import HEADER_SIZE, encode_batch, parse_header
from wal.compression import Codec, compress
from wal.errors import BatchError, BatchTooLargeError, CorruptBatchError
from wal.records import NewRecord, Record, build_batch, decode_records

optional_bytes = st.none() | st.binary(max_size=80)
new_records = st.lists(
    st.builds(
        NewRecord,
        key=optional_bytes,
        value=optional_bytes,
        timestamp=st.integers(0, 2**45),
        headers=st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)
SAMPLE = [
    NewRecord(b"key", b"value" * 30, 1_700_000_000_000, (("traceparent", b"00-ab"), ("é", None), ("", b""))),
    NewRecord(None, b"", 1_700_000_000_500),
    NewRecord(b"", None, 1_699_999_999_000, (("h", b"x" * 70),)),
]


def expected(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [Record(base_offset + n, r.timestamp, 0, r.key, r.value, r.headers) for n, r in enumerate(records)]


def batch_of(body: bytes, count: int, last_delta: int | None = None) -> bytes:
    """An uncompressed batch around hand-made record bytes, with a right CRC."""
    template = parse_header(build_batch([(None, None)]))
    delta = count - 1 if last_delta is None else last_delta
    return encode_batch(template._replace(record_count=count, last_offset_delta=delta), body)


@given(records=new_records, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**50))
def test_decoding_gives_back_what_was_built(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert decode_records(batch) == expected(records, base_offset)


@given(records=new_records, codec=st.sampled_from(Codec))
def test_aiokafka_reads_what_we_build(records: list[NewRecord], codec: Codec) -> None:
    oracle = DefaultRecordBatch(build_batch(records, codec=codec, base_offset=70))
    assert oracle.validate_crc()
    assert [
        Record(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers)) for r in oracle
    ] == expected(records, 70)


@given(records=new_records, codec=st.sampled_from(Codec))
def test_we_read_what_aiokafka_builds(records: list[NewRecord], codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=9,
        producer_epoch=1,
        base_sequence=100,
        batch_size=1 << 20,
    )
    for n, r in enumerate(records):
        builder.append(n, r.timestamp, r.key, r.value, list(r.headers))
    batch = bytes(builder.build())
    assert decode_records(batch) == expected(records, 0)
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 100)


def test_builder_and_aiokafkas_builder_write_the_same_bytes() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for n, r in enumerate(SAMPLE):
        builder.append(n, r.timestamp, r.key, r.value, list(r.headers))
    assert build_batch(SAMPLE) == bytes(builder.build())


def test_pairs_and_new_records_can_be_mixed() -> None:
    records = decode_records(build_batch([(b"a", b"1"), NewRecord(b"b", b"2", 7)]))
    assert [(r.key, r.value, r.timestamp) for r in records] == [(b"a", b"1", 0), (b"b", b"2", 7)]


def test_every_field_of_the_header_can_be_set() -> None:
    header = parse_header(
        build_batch(
            SAMPLE,
            base_offset=5,
            leader_epoch=6,
            producer_id=7,
            producer_epoch=8,
            base_sequence=9,
            log_append_time=10,
            control=True,
            transactional=True,
        )
    )
    assert (header.base_offset, header.leader_epoch) == (5, 6)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 8, 9)
    assert (header.log_append_time, header.max_timestamp) == (True, 10)
    assert header.control
    assert header.transactional
    assert header.base_timestamp == SAMPLE[0].timestamp
    assert header.record_count == 3


def test_with_log_append_time_every_record_has_the_batchs_time() -> None:
    records = decode_records(build_batch(SAMPLE, log_append_time=42))
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(42, 1)] * 3


def test_timestamps_may_be_negative_and_may_go_back() -> None:
    times = [-1, 2**62, 0, -(2**62)]
    records = decode_records(build_batch([NewRecord(timestamp=t) for t in times]))
    assert [r.timestamp for r in records] == times


def test_gaps_that_compaction_left_are_read() -> None:
    batch = build_batch(
        [NewRecord(b"a", offset_delta=2), NewRecord(b"b", offset_delta=90)], base_offset=1000, codec=Codec.LZ4
    )
    assert [r.offset for r in decode_records(batch)] == [1002, 1090]


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    assert decode_records(batch_of(b"", 0, last_delta=5)) == []


@pytest.mark.parametrize("deltas", [(0, 0, 1), (1, 0, 2), (-1, 0, 1), (0, 5, 2)])
def test_offset_deltas_that_do_not_rise_are_damage(deltas: tuple[int, ...]) -> None:
    batch = build_batch([NewRecord(offset_delta=delta) for delta in deltas])
    with pytest.raises(CorruptBatchError, match=r"delta"):
        decode_records(batch)


@pytest.mark.parametrize("codec", Codec)
def test_every_mutation_of_a_byte_is_caught_by_the_crc_or_lies_outside_it(codec: Codec) -> None:
    batch = build_batch(SAMPLE, codec=codec)
    for at in range(len(batch)):
        mutant = bytearray(batch)
        mutant[at] ^= 0x41
        if at < 8 or 12 <= at < 16:
            assert [r.value for r in decode_records(mutant)] == [r.value for r in SAMPLE]
        else:
            with pytest.raises(BatchError):
                decode_records(mutant)


@pytest.mark.parametrize("codec", Codec)
def test_without_the_crc_a_mutation_gives_records_or_a_batch_error_and_nothing_else(codec: Codec) -> None:
    batch = build_batch(SAMPLE, codec=codec)
    for at in range(len(batch)):
        for value in range(0, 256, 1 if codec is Codec.NONE else 17):
            mutant = bytearray(batch)
            mutant[at] = value
            with contextlib.suppress(BatchError):
                decode_records(mutant, verify_crc=False, limit=1 << 20)


@pytest.mark.parametrize("codec", Codec)
def test_every_truncation_is_refused_even_with_length_and_crc_made_to_fit(codec: Codec) -> None:
    batch = build_batch(SAMPLE, codec=codec)
    header = parse_header(batch)
    for end in range(HEADER_SIZE, len(batch)):
        with pytest.raises(CorruptBatchError):
            decode_records(batch[:end])
        with pytest.raises(CorruptBatchError):
            decode_records(encode_batch(header, batch[HEADER_SIZE:end]))


def test_bytes_after_the_last_record_are_damage() -> None:
    body = build_batch([(b"k", b"v")])[HEADER_SIZE:]
    with pytest.raises(CorruptBatchError, match="follow the last record") as caught:
        decode_records(batch_of(body + b"\x00", 1))
    assert caught.value.position == HEADER_SIZE + len(body)


def test_damage_names_the_record_and_its_byte() -> None:
    first = build_batch([(b"k", b"v")])[HEADER_SIZE:]
    bad = bytes([2 * 6, 0, 0, 2, 1, 3, 0])  # a value of -2 bytes
    with pytest.raises(CorruptBatchError, match=r"record 1 of 2 at byte 70 .*-2 bytes") as caught:
        decode_records(batch_of(first + bad, 2))
    assert caught.value.position == HEADER_SIZE + len(first)


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("a length varint of six bytes", b"\x8c\x80\x80\x80\x80\x00" + bytes([0, 0, 0, 1, 1, 0])),
        ("a length of more than 32 bits", b"\xff\xff\xff\xff\x1f" + bytes([0, 0, 0, 1, 1, 0])),
        ("a negative length", b"\x01" + bytes([0, 0, 0, 1, 1, 0])),
        ("a timestamp varlong of eleven bytes", bytes([32, 0]) + b"\x80" * 10 + bytes([0, 0, 1, 1, 0])),
        ("a timestamp of more than 64 bits", bytes([30, 0]) + b"\xff" * 9 + bytes([3, 0, 1, 1, 0])),
        ("a key longer than its record", bytes([12, 0, 0, 0, 80, 1, 0])),
        ("a record longer than its fields", bytes([14, 0, 0, 0, 1, 1, 0, 0])),
        ("a negative header count", bytes([12, 0, 0, 0, 1, 1, 1])),
        ("more headers than bytes", bytes([20, 0, 0, 0, 1, 1]) + b"\xfe\xff\xff\xff\x0f"),
        ("a header without a key", bytes([16, 0, 0, 0, 1, 1, 2, 1, 1])),
        ("a header key that is not UTF-8", bytes([18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1])),
    ],
)
def test_a_malformed_record_is_damage(what: str, body: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="record 0 of 1"):
        decode_records(batch_of(body, 1))


def test_the_longest_varints_that_are_allowed_are_read() -> None:
    body = bytes([40, 0]) + b"\x80" * 9 + b"\x00" + b"\x80\x80\x80\x80\x00" + bytes([1, 1, 0])
    body = bytes([2 * (len(body) - 1)]) + body[1:]
    assert decode_records(batch_of(body, 1)) == [Record(0, 0, 0, None, None)]


def test_a_timestamp_beyond_64_bits_is_damage() -> None:
    body = build_batch([NewRecord(timestamp=0), NewRecord(timestamp=2**62)])[HEADER_SIZE:]
    template = parse_header(build_batch([(None, None), (None, None)]))
    with pytest.raises(CorruptBatchError, match=r"record 1 of 2 .*64 bits"):
        decode_records(encode_batch(template._replace(base_timestamp=2**63 - 1), body))


@given(body=st.binary(max_size=60), count=st.integers(0, 4))
def test_random_record_bytes_give_records_or_a_batch_error(body: bytes, count: int) -> None:
    with contextlib.suppress(BatchError):
        decode_records(batch_of(body, count, last_delta=3))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_inflates_beyond_the_limit_is_too_large(codec: Codec) -> None:
    batch = build_batch([(None, bytes(100_000))], codec=codec)
    assert len(decode_records(batch, limit=101_000)) == 1
    with pytest.raises(BatchTooLargeError):
        decode_records(batch, limit=50_000)


def test_a_codec_that_is_not_what_the_header_says_is_damage() -> None:
    batch = build_batch(SAMPLE, codec=Codec.GZIP)
    header = parse_header(batch)
    lying = encode_batch(header, compress(Codec.ZSTD, b"abc"))
    with pytest.raises(CorruptBatchError, match="gzip"):
        decode_records(lying)


def test_the_layout_is_the_documented_one() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 5, (("h", None),))], base_offset=3)
    record = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([2, 2]) + b"h" + bytes([1])
    assert batch[HEADER_SIZE:] == bytes([2 * len(record)]) + record
    assert struct.unpack_from(">q", batch)[0] == 3
