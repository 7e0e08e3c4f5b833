"""Counting records by their lengths: it agrees with the strict reader, and no lie passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal.batch import HEADER_SIZE, encode_batch, parse_header
from wal.compression import Codec, compress
from wal.errors import CorruptBatchError
from wal.record_count import counted_records
from wal.records import NewRecord, build_batch, decode_records

# Lengths around one, two and three bytes of varint, and runs of equal ones.
SIZES = st.lists(
    st.tuples(st.sampled_from([0, 1, 50, 51, 52, 53, 54, 55, 56, 8100, 8180, 20_000]), st.integers(1, 40)), max_size=8
).map(lambda runs: [size for size, count in runs for _ in range(count)] or [7])


def batch_of(sizes: list[int], codec: Codec = Codec.NONE) -> bytes:
    return build_batch([NewRecord(None, bytes(size), timestamp=n) for n, size in enumerate(sizes)], codec=codec)


def claiming(batch: bytes, count: int) -> bytes:
    """The same records under a header that states another count, with a CRC that fits."""
    header = parse_header(batch)
    return encode_batch(header._replace(record_count=count, last_offset_delta=count - 1), batch[HEADER_SIZE:])


@given(SIZES, st.sampled_from(Codec))
def test_the_true_count_passes_and_every_other_one_does_not(sizes: list[int], codec: Codec) -> None:
    batch = batch_of(sizes, codec)
    assert counted_records(batch, parse_header(batch)).startswith(batch_of(sizes)[HEADER_SIZE:])
    for lie in {1, len(sizes) - 1, len(sizes) + 1, 2 * len(sizes), 2**31 - 1} - {0, len(sizes)}:
        told = claiming(batch, lie)
        with pytest.raises(CorruptBatchError, match="records and holds"):
            counted_records(told, parse_header(told))


@given(SIZES, st.data())
def test_what_it_accepts_of_damaged_records_has_the_stated_count_of_lengths(
    sizes: list[int], data: st.DataObject
) -> None:
    """A flipped byte may go unseen in a value, never in a length that the strict reader would stumble over."""
    records = bytearray(batch_of(sizes)[HEADER_SIZE:])
    at = data.draw(st.integers(0, len(records) - 1))
    records[at] ^= data.draw(st.integers(1, 255))
    header = parse_header(batch_of(sizes))
    damaged = encode_batch(header, bytes(records))
    try:
        counted_records(damaged, parse_header(damaged))
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            decode_records(damaged)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (b"\x01" + bytes(20), "impossible length"),  # -1
        (b"\x0a" + bytes(20), "impossible length"),  # 5 bytes cannot be a record
        (b"\xff\xff\xff\xff\xff\xff", "no length that ends"),
        (b"\x80", "impossible length"),
        (b"\x40" + bytes(20), "more than there are"),
        (b"\xfe\xff\xff\xff\x0f" + bytes(20), "more than there are"),
    ],
)
@pytest.mark.parametrize("codec", Codec)
def test_lengths_that_cannot_be_are_refused(records: bytes, why: str, codec: Codec) -> None:
    header = parse_header(batch_of([1]))
    damaged = encode_batch(header._replace(attributes=codec), compress(codec, records))
    with pytest.raises(CorruptBatchError, match=why):
        counted_records(damaged, parse_header(damaged))
