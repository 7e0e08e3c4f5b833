"""Batch headers: what is parsed, what is refused, and what a broker rewrites."""

import contextlib
import pickle
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from wal.batch import (
    HEADER_SIZE,
    BatchHeader,
    check_batch,
    encode_batch,
    parse_header,
    split_batches,
    with_base_offset,
    with_log_append_time,
)
from wal.compression import Codec
from wal.errors import BatchError, CorruptBatchError, UnsupportedBatchError
from wal.records import NewRecord, build_batch, decode_records

PAIRS = [(b"k", b"value"), (None, b"x"), (b"gone", None)]


def rewritten(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields and a CRC that fits them."""
    return encode_batch(parse_header(batch)._replace(**fields), batch[HEADER_SIZE:])


def test_every_header_field_is_read_from_its_place() -> None:
    raw = struct.pack(">qiibIhiqqqhii", 1000, 49, 7, 2, 0xDEADBEEF, 0x3C, 9, 111, 222, 333, 44, 55, 10)
    header = parse_header(b"junk" + raw, 4)
    assert header == BatchHeader(1000, 49, 7, 2, 0xDEADBEEF, 0x3C, 9, 111, 222, 333, 44, 55, 10)
    assert header.size == HEADER_SIZE
    assert header.codec is Codec.ZSTD
    assert header.log_append_time
    assert header.transactional
    assert header.control
    assert header.last_offset == 1009
    assert header.next_offset == 1010


def test_a_plain_batch_has_no_flag_set() -> None:
    header = check_batch(build_batch(PAIRS))
    assert (header.codec, header.log_append_time, header.transactional, header.control) == (
        Codec.NONE,
        False,
        False,
        False,
    )


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_sound_batch_passes_in_every_kind_of_buffer(codec: Codec, kind: type) -> None:
    batch = build_batch(PAIRS, codec=codec, base_offset=5, leader_epoch=3)
    header = check_batch(kind(batch))
    assert header.codec is codec
    assert (header.base_offset, header.leader_epoch, header.record_count) == (5, 3, 3)
    assert header.size == len(batch)


def test_every_single_byte_mutation_is_refused_or_lies_outside_the_crc() -> None:
    batch = build_batch(PAIRS)
    outside = {*range(8), *range(12, 16)}  # base_offset and leader_epoch
    for at in range(len(batch)):
        for value in range(256):
            if value == batch[at]:
                continue
            mutant = bytearray(batch)
            mutant[at] = value
            if at in outside:
                try:
                    check_batch(mutant)
                except CorruptBatchError:
                    assert at == 0  # an offset too high to count on from
            else:
                with pytest.raises(BatchError):
                    check_batch(mutant)


def test_every_truncation_and_every_trailing_byte_is_refused() -> None:
    batch = build_batch(PAIRS)
    for end in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            check_batch(batch[:end])
    with pytest.raises(CorruptBatchError):
        check_batch(batch + b"\x00")


def test_the_crc_is_only_checked_when_asked() -> None:
    batch = bytearray(build_batch(PAIRS))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        check_batch(batch)
    assert check_batch(batch, verify_crc=False).record_count == 3


@pytest.mark.parametrize("magic", [0, 1, 3, 127, -1])
def test_another_magic_is_unsupported_even_if_the_data_is_shorter_than_a_header(magic: int) -> None:
    batch = bytearray(build_batch(PAIRS))
    batch[16] = magic & 0xFF
    with pytest.raises(UnsupportedBatchError, match="magic"):
        parse_header(batch)
    with pytest.raises(UnsupportedBatchError, match="magic"):
        parse_header(batch[:30])


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_shorter_than_the_header_is_damage(length: int) -> None:
    batch = bytearray(build_batch(PAIRS))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatchError, match="length"):
        parse_header(batch)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    batch = rewritten(build_batch(PAIRS), attributes=codec)
    for produced in (True, False):
        with pytest.raises(UnsupportedBatchError, match="codec"):
            check_batch(batch, produced=produced)


@pytest.mark.parametrize(("count", "last_delta"), [(2, 2), (4, 2), (0, -1), (0, 0), (-1, -2), (3, 3)])
def test_a_produced_batch_counts_as_many_records_as_offsets(count: int, last_delta: int) -> None:
    batch = rewritten(build_batch(PAIRS), record_count=count, last_offset_delta=last_delta)
    with pytest.raises(CorruptBatchError):
        check_batch(batch)


def test_a_compacted_batch_may_have_fewer_records_than_offsets_but_not_more() -> None:
    batch = build_batch([NewRecord(b"a", b"1"), NewRecord(b"b", b"2", offset_delta=7)])
    with pytest.raises(CorruptBatchError):
        check_batch(batch)
    assert check_batch(batch, produced=False).last_offset_delta == 7
    assert check_batch(rewritten(batch, record_count=0), produced=False).record_count == 0
    for count in (-1, 9):
        with pytest.raises(CorruptBatchError):
            check_batch(rewritten(batch, record_count=count), produced=False)


@pytest.mark.parametrize("flags", [{"control": True}, {"transactional": True}])
def test_control_and_transactional_batches_are_not_taken_from_producers(flags: dict[str, bool]) -> None:
    batch = build_batch(PAIRS, **flags)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedBatchError):
        check_batch(batch)
    assert check_batch(batch, produced=False).record_count == 3


def test_a_producer_id_without_a_sequence_is_refused_as_kafka_does() -> None:
    with pytest.raises(CorruptBatchError, match="sequence"):
        check_batch(build_batch(PAIRS, producer_id=5, producer_epoch=0))
    assert check_batch(build_batch(PAIRS, producer_id=5, producer_epoch=0, base_sequence=0)).producer_id == 5


def test_a_damaged_batch_is_damage_before_it_is_unsupported() -> None:
    batch = bytearray(build_batch(PAIRS))
    batch[22] |= 0x20  # control, with the CRC of a plain batch
    with pytest.raises(CorruptBatchError):
        check_batch(batch)


def test_a_concatenation_is_split_into_its_batches_without_copying() -> None:
    batches = [build_batch(PAIRS, base_offset=n * 3, codec=codec) for n, codec in enumerate(Codec)]
    data = b"".join(batches)
    parts = list(split_batches(data))
    assert parts == batches
    assert all(part.obj is data for part in parts)
    assert list(split_batches(b"")) == []


def test_a_cut_off_last_batch_is_an_error_unless_allowed() -> None:
    first, second = build_batch(PAIRS), build_batch(PAIRS, base_offset=3)
    for cut in range(1, len(second)):
        data = first + second[:cut]
        assert list(split_batches(data, allow_partial=True)) == [first]
        with pytest.raises(CorruptBatchError) as caught:
            list(split_batches(data))
        assert caught.value.position == len(first)


def test_base_offset_and_leader_epoch_change_nothing_under_the_crc() -> None:
    batch = build_batch(PAIRS)
    stored = with_base_offset(batch, 2**40, 12)
    header = check_batch(stored)
    assert (header.base_offset, header.leader_epoch) == (2**40, 12)
    assert header.crc == parse_header(batch).crc
    assert stored[16:] == batch[16:]


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_stamps_all_records_and_makes_a_new_crc(codec: Codec) -> None:
    batch = build_batch([NewRecord(b"k", b"v", t) for t in (5, 9, 7)], codec=codec, base_offset=4)
    stamped = with_log_append_time(memoryview(batch), 1_700_000_000_000)
    header = check_batch(stamped)
    assert header.log_append_time
    assert header.codec is codec
    assert header.max_timestamp == 1_700_000_000_000
    assert header.base_timestamp == 5
    assert {(r.timestamp, r.timestamp_type) for r in decode_records(stamped)} == {(1_700_000_000_000, 1)}
    oracle = DefaultRecordBatch(stamped)
    assert oracle.validate_crc()
    assert [r.timestamp for r in oracle] == [1_700_000_000_000] * 3


@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_with_a_batch_error_and_nothing_else(data: bytes) -> None:
    for call in (check_batch, parse_header, lambda raw: list(split_batches(raw))):
        with contextlib.suppress(BatchError):
            call(data)  # type: ignore[operator]


def test_an_error_keeps_its_message_and_position_through_pickling() -> None:
    with pytest.raises(CorruptBatchError) as caught:
        parse_header(b"junk" * 3, 4)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.position) == (str(caught.value), 4)
