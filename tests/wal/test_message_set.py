"""Old message sets: both directions against aiokafka's legacy code, offsets, times and damage."""

import contextlib
import struct
import zlib

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from wal.batch import check_batch, encode_batch, parse_header
from wal.compression import Codec, break_lz4_header, compress
from wal.errors import BatchError, BatchTooLargeError, CorruptBatchError, UnsupportedBatchError
from wal.message_set import NO_TIMESTAMP, downconvert, from_message_set, upconvert
from wal.records import NewRecord, Record, build_batch, decode_records

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
# aiokafka refuses lz4 in magic 0, because of its broken checksum.
ORACLE_FORMS = [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS if (magic, codec) != (0, Codec.LZ4)]
FORMS = [*ORACLE_FORMS, (0, Codec.LZ4)]
SAMPLE = [(b"key", b"value", 1_700_000_000_000), (None, b"x" * 90, 1_700_000_000_500), (b"gone", None, 7)]

optional_bytes = st.none() | st.binary(max_size=60)
messages = st.lists(st.tuples(optional_bytes, optional_bytes, st.integers(0, 2**45)), min_size=1, max_size=10)
Rows = list[tuple[bytes | None, bytes | None, int]]


def built_by_aiokafka(rows: Rows, magic: int, codec: Codec) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, int(codec), 1 << 20)
    for n, (key, value, time) in enumerate(rows):
        builder.append(n, time, key, value)
    return bytes(builder.build())


def read_by_aiokafka(data: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    rows = []
    memory = MemoryRecords(data)
    while memory.has_next():
        batch = memory.next_batch()
        assert isinstance(batch, LegacyRecordBatch)
        assert batch.validate_crc()
        rows += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    return rows


def batch_of(rows: Rows, codec: Codec, base_offset: int = 0, log_append_time: int | None = None) -> bytes:
    news = [NewRecord(key, value, time, (("h", b"dropped"),)) for key, value, time in rows]
    return build_batch(news, codec=codec, base_offset=base_offset, log_append_time=log_append_time)


def message(
    value: bytes | None,
    *,
    offset: int = 0,
    magic: int = 1,
    attributes: int = 0,
    time: int = 0,
    key: bytes | None = None,
) -> bytes:
    """One message written by hand, so that damaged and odd ones can be made."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize(("magic", "codec"), ORACLE_FORMS)
@given(rows=messages)
def test_we_convert_up_what_aiokafka_builds(magic: int, codec: Codec, rows: Rows) -> None:
    batch = upconvert(built_by_aiokafka(rows, magic, codec))
    header = check_batch(batch)
    assert header.codec is codec
    assert decode_records(batch) == [
        Record(n, time if magic else NO_TIMESTAMP, 0, key, value) for n, (key, value, time) in enumerate(rows)
    ]


@pytest.mark.parametrize(("magic", "codec"), ORACLE_FORMS)
@given(rows=messages, base_offset=st.integers(0, 2**40))
def test_aiokafka_reads_what_we_convert_down(magic: int, codec: Codec, rows: Rows, base_offset: int) -> None:
    old = downconvert(batch_of(rows, codec, base_offset), magic)
    assert read_by_aiokafka(old) == [
        (base_offset + n, time if magic else None, key, value) for n, (key, value, time) in enumerate(rows)
    ]


@pytest.mark.parametrize(("magic", "codec"), FORMS)
@given(rows=messages, base_offset=st.integers(0, 2**40))
def test_down_and_read_gives_the_same_records(magic: int, codec: Codec, rows: Rows, base_offset: int) -> None:
    old = downconvert(batch_of(rows, codec, base_offset), magic)
    assert from_message_set(old) == [
        Record(base_offset + n, time, 0, key, value) if magic else Record(base_offset + n, NO_TIMESTAMP, -1, key, value)
        for n, (key, value, time) in enumerate(rows)
    ]


@pytest.mark.parametrize(("magic", "codec"), FORMS)
def test_down_and_up_again_keeps_codec_keys_and_values(magic: int, codec: Codec) -> None:
    batch = upconvert(downconvert(batch_of(SAMPLE, codec, 500), magic))
    assert parse_header(batch).codec is codec
    assert parse_header(batch).base_offset == 0
    assert [(r.key, r.value) for r in decode_records(batch)] == [(key, value) for key, value, _ in SAMPLE]


@pytest.mark.parametrize("magic", [0, 1])
def test_uncompressed_messages_carry_their_own_absolute_offsets(magic: int) -> None:
    old = downconvert(batch_of(SAMPLE, Codec.NONE, 100), magic)
    assert struct.unpack_from(">q", old)[0] == 100
    assert [r.offset for r in from_message_set(old)] == [100, 101, 102]


def test_inner_offsets_are_absolute_in_magic_0_and_relative_in_magic_1() -> None:
    for magic, inner in ((0, [100, 101, 102]), (1, [0, 1, 2])):
        old = downconvert(batch_of(SAMPLE, Codec.GZIP, 100), magic)
        assert struct.unpack_from(">q", old)[0] == 102  # the wrapper's: the last one's
        header = 26 if magic == 0 else 34
        plain = zlib.decompress(old[header:], wbits=31)
        offsets, at = [], 0
        while at < len(plain):
            offset, size = struct.unpack_from(">qi", plain, at)
            offsets.append(offset)
            at += 12 + size
        assert offsets == inner


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_gaps_of_a_compacted_batch_survive_the_way_down(magic: int, codec: Codec) -> None:
    news = [NewRecord(b"a", offset_delta=3), NewRecord(b"b", offset_delta=9)]
    old = downconvert(build_batch(news, base_offset=50, codec=codec), magic)
    assert [r.offset for r in from_message_set(old)] == [53, 59]


def test_lz4_of_magic_0_has_the_broken_header_checksum_and_magic_1_the_right_one() -> None:
    batch = batch_of(SAMPLE, Codec.LZ4)
    old, newer = downconvert(batch, 0), downconvert(batch, 1)
    start0, start1 = old.index(b"\x04\x22\x4d\x18"), newer.index(b"\x04\x22\x4d\x18")
    assert old[start0 : start0 + 6] == newer[start1 : start1 + 6]
    assert old[start0 + 6] != newer[start1 + 6]


def test_magic_0_lz4_is_read_with_the_broken_and_with_the_right_checksum() -> None:
    inner = message(b"v", magic=0)
    for pack in (lambda frame: frame, break_lz4_header):
        wrapper = message(pack(compress(Codec.LZ4, inner)), magic=0, attributes=Codec.LZ4)
        assert [r.value for r in from_message_set(wrapper)] == [b"v"]


def test_append_time_goes_down_as_an_attribute_and_comes_up_again() -> None:
    for codec in OLD_CODECS:
        old = downconvert(batch_of(SAMPLE, codec, log_append_time=77), 1)
        assert {(r.timestamp, r.timestamp_type) for r in from_message_set(old)} == {(77, 1)}
        header = parse_header(upconvert(old))
        assert (header.log_append_time, header.max_timestamp) == (True, 77)


def test_a_wrapper_with_append_time_overrules_the_times_inside() -> None:
    inner = message(b"a", offset=0, time=1) + message(b"b", offset=1, time=2)
    wrapper = message(compress(Codec.GZIP, inner), offset=9, attributes=Codec.GZIP | 8, time=99)
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in from_message_set(wrapper)] == [
        (8, 99, 1),
        (9, 99, 1),
    ]


def test_a_wrapper_with_create_time_leaves_the_times_inside() -> None:
    inner = message(b"a", offset=0, time=1) + message(b"b", offset=1, time=2)
    wrapper = message(compress(Codec.GZIP, inner), offset=9, attributes=Codec.GZIP, time=2)
    assert [(r.timestamp, r.timestamp_type) for r in from_message_set(wrapper)] == [(1, 0), (2, 0)]


def test_messages_of_different_append_times_keep_them_as_create_times() -> None:
    batch = upconvert(message(b"a", attributes=8, time=5) + message(b"b", attributes=8, time=6))
    assert [(r.timestamp, r.timestamp_type) for r in decode_records(batch)] == [(5, 0), (6, 0)]


def test_the_topics_append_time_wins_over_the_producers() -> None:
    batch = upconvert(built_by_aiokafka(SAMPLE, 0, Codec.GZIP), log_append_time=123)
    assert [(r.timestamp, r.timestamp_type) for r in decode_records(batch)] == [(123, 1)] * 3


def test_the_wrapper_of_magic_1_carries_the_highest_time_inside() -> None:
    old = downconvert(batch_of(SAMPLE, Codec.GZIP), 1)
    assert struct.unpack_from(">q", old, 18)[0] == max(time for _, _, time in SAMPLE)


def test_a_wrapper_whose_offset_was_left_at_0_starts_at_0() -> None:
    inner = b"".join(message(b"v", offset=n) for n in range(3))
    wrapper = message(compress(Codec.GZIP, inner), offset=0, attributes=Codec.GZIP)
    assert [r.offset for r in from_message_set(wrapper)] == [0, 1, 2]


def test_producers_may_write_any_offsets() -> None:
    batch = upconvert(b"".join(message(b"v", offset=offset) for offset in (0, 0, -1, 2**63 - 1)))
    assert [r.offset for r in decode_records(batch)] == [0, 1, 2, 3]


def test_several_wrappers_and_plain_messages_become_one_batch_of_the_last_codec() -> None:
    data = (
        downconvert(batch_of(SAMPLE, Codec.GZIP), 1)
        + downconvert(batch_of(SAMPLE, Codec.SNAPPY), 1)
        + message(b"plain")
    )
    batch = upconvert(data)
    assert check_batch(batch).record_count == 7
    assert parse_header(batch).codec is Codec.SNAPPY


def test_zstd_has_no_old_form() -> None:
    for magic in (0, 1):
        with pytest.raises(UnsupportedBatchError, match="zstd"):
            downconvert(batch_of(SAMPLE, Codec.ZSTD), magic)
    with pytest.raises(UnsupportedBatchError, match="zstd"):
        upconvert(message(compress(Codec.ZSTD, message(b"v")), attributes=Codec.ZSTD))


def test_control_batches_and_emptied_batches_are_nothing_to_old_clients() -> None:
    assert downconvert(build_batch([(b"\0\0\0\0", b"")], control=True), 1) == b""
    emptied = encode_batch(parse_header(batch_of(SAMPLE, Codec.NONE))._replace(record_count=0), b"")
    assert downconvert(emptied, 0) == b""


def test_a_v2_batch_is_not_a_message_set() -> None:
    with pytest.raises(UnsupportedBatchError, match="magic 2"):
        from_message_set(batch_of(SAMPLE, Codec.NONE))


def test_a_partial_last_message_is_only_accepted_when_allowed() -> None:
    first, second = message(b"one"), message(b"two", offset=1)
    for cut in range(1, len(second)):
        data = first + second[:cut]
        with pytest.raises(CorruptBatchError):
            from_message_set(data)
        assert [r.value for r in from_message_set(data, allow_partial=True)] == [b"one"]
        assert parse_header(upconvert(data, allow_partial=True)).record_count == 1


def test_a_set_without_a_complete_message_cannot_become_a_batch() -> None:
    assert from_message_set(b"") == []
    for data in (b"", message(b"v")[:20]):
        with pytest.raises(CorruptBatchError):
            upconvert(data, allow_partial=True)


@pytest.mark.parametrize(("magic", "codec"), FORMS)
def test_every_mutation_is_caught_or_lies_in_the_offset(magic: int, codec: Codec) -> None:
    old = downconvert(batch_of(SAMPLE, codec), magic)
    values = [value for _, value, _ in SAMPLE]
    starts = {0}
    if codec is Codec.NONE:
        at = 0
        while at < len(old):
            starts.add(at)
            at += 12 + struct.unpack_from(">i", old, at + 8)[0]
    offsets = {start + n for start in starts for n in range(8)}
    for at in range(len(old)):
        for flip in (0x01, 0x41, 0x80, 0xFF):
            mutant = bytearray(old)
            mutant[at] ^= flip
            if at in offsets:
                assert [r.value for r in decode_records(upconvert(mutant))] == values
            else:
                with pytest.raises(BatchError):
                    upconvert(mutant)


@pytest.mark.parametrize(("magic", "codec"), FORMS)
def test_every_truncation_inside_a_message_is_refused(magic: int, codec: Codec) -> None:
    old = downconvert(batch_of(SAMPLE[:1], codec), magic)
    for end in range(1, len(old)):
        with pytest.raises(CorruptBatchError):
            from_message_set(old[:end])


@pytest.mark.parametrize("magic", [0, 1])
@given(body=st.binary(max_size=60), codec=st.sampled_from(OLD_CODECS))
def test_a_wrapper_around_random_bytes_gives_records_or_a_batch_error(magic: int, body: bytes, codec: Codec) -> None:
    for value in (body, compress(codec, body)):
        with contextlib.suppress(BatchError):
            upconvert(message(value, magic=magic, attributes=int(codec)))


@given(data=st.binary(max_size=120))
def test_random_bytes_give_records_or_a_batch_error(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        from_message_set(data, allow_partial=True)


@pytest.mark.parametrize("value", [None, compress(Codec.GZIP, b"")])
def test_an_empty_wrapper_is_damage(value: bytes | None) -> None:
    with pytest.raises(CorruptBatchError):
        upconvert(message(value, attributes=Codec.GZIP))


def test_a_wrapper_inside_a_wrapper_is_damage() -> None:
    inner = message(compress(Codec.GZIP, message(b"v")), attributes=Codec.GZIP)
    with pytest.raises(CorruptBatchError, match="another magic or codec"):
        upconvert(message(compress(Codec.GZIP, inner), attributes=Codec.GZIP))


def test_a_wrapper_of_another_magic_than_its_messages_is_damage() -> None:
    with pytest.raises(CorruptBatchError, match="another magic or codec"):
        upconvert(message(compress(Codec.GZIP, message(b"v", magic=0)), attributes=Codec.GZIP))


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(bits: int) -> None:
    with pytest.raises(UnsupportedBatchError, match="codec"):
        upconvert(message(b"v", attributes=bits))


def test_a_message_with_bytes_left_over_is_damage() -> None:
    body = struct.pack(">bbii", 0, 0, -1, -1) + b"more"
    with pytest.raises(CorruptBatchError, match="too many"):
        from_message_set(struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_the_limit_counts_over_all_wrappers_of_a_set(codec: Codec) -> None:
    one = downconvert(batch_of([(None, bytes(10_000), 0)], codec), 1)
    assert len(from_message_set(one * 4, limit=50_000)) == 4
    with pytest.raises(BatchTooLargeError):
        from_message_set(one * 6, limit=50_000)
    with pytest.raises(BatchTooLargeError):
        downconvert(batch_of([(None, bytes(10_000), 0)], codec), 1, limit=5_000)
