"""Codecs: round trips, the forms other clients write, damage, and bombs."""

import contextlib
import gzip
import subprocess
import sys
import textwrap

import cramjam
import pytest
from aiokafka import codec as oracle
from hypothesis import given
from hypothesis import strategies as st

from wal.compression import Codec, break_lz4_header, compress, decompress, mend_lz4_header
from wal.errors import BatchError, BatchTooLargeError, CorruptBatchError

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 1 << 20
TEXT = b"".join(b'{"id": %d, "name": "n%d"}\n' % (i, i * 7919 % 1000) for i in range(3000))

ORACLE_ENCODE = {
    Codec.GZIP: oracle.gzip_encode,
    Codec.SNAPPY: oracle.snappy_encode,
    Codec.LZ4: oracle.lz4_encode,
    Codec.ZSTD: oracle.zstd_encode,
}
ORACLE_DECODE = {
    Codec.GZIP: oracle.gzip_decode,
    Codec.SNAPPY: oracle.snappy_decode,
    Codec.LZ4: oracle.lz4_decode,
    Codec.ZSTD: oracle.zstd_decode,
}


def test_codec_numbers_are_kafkas() -> None:
    assert {codec.name: int(codec) for codec in Codec} == {
        "NONE": 0,
        "GZIP": 1,
        "SNAPPY": 2,
        "LZ4": 3,
        "ZSTD": 4,
    }


@given(codec=st.sampled_from(Codec), data=st.binary(max_size=2000))
def test_decompressing_gives_back_what_was_compressed(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_taken(codec: Codec, kind: type) -> None:
    packed = compress(codec, kind(TEXT))
    assert isinstance(packed, bytes)
    assert decompress(codec, kind(packed), LIMIT) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_aiokafka_reads_what_we_write(codec: Codec) -> None:
    assert ORACLE_DECODE[codec](compress(codec, TEXT)) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_we_read_what_aiokafka_writes(codec: Codec) -> None:
    assert decompress(codec, ORACLE_ENCODE[codec](TEXT), LIMIT) == TEXT


def test_snappy_is_written_in_xerial_blocks_and_read_raw_too() -> None:
    assert compress(Codec.SNAPPY, TEXT).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, LIMIT) == TEXT


def test_lz4_frames_have_independent_blocks_because_java_refuses_linked_ones() -> None:
    assert compress(Codec.LZ4, TEXT)[4] & 0x20


def test_gzip_of_several_members_is_read_whole() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), LIMIT) == b"onetwo"


@pytest.mark.parametrize("codec", Codec)
def test_output_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(BatchTooLargeError):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_output_that_outgrows_the_first_buffer_is_read(codec: Codec) -> None:
    data = bytes(3 << 20)
    assert decompress(codec, compress(codec, data), 4 << 20) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_damage(codec: Codec) -> None:
    packed = compress(codec, TEXT[:3000])
    for end in range(len(packed)):
        # A xerial stream cut between header and first block is a valid empty one.
        if codec is Codec.SNAPPY and end == 16:
            continue
        with pytest.raises(CorruptBatchError):
            decompress(codec, packed[:end], LIMIT)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_mutated_data_gives_bytes_or_a_batch_error_and_nothing_else(codec: Codec) -> None:
    packed = compress(codec, TEXT[:400])
    for at in range(len(packed)):
        for flip in (0x01, 0x10, 0x80, 0xFF):
            mutant = bytearray(packed)
            mutant[at] ^= flip
            with contextlib.suppress(BatchError):
                decompress(codec, mutant, LIMIT)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200))
def test_random_bytes_give_bytes_or_a_batch_error_and_nothing_else(codec: Codec, data: bytes) -> None:
    for candidate in (data, compress(codec, b"")[:6] + data):
        with contextlib.suppress(BatchError):
            decompress(codec, candidate, LIMIT)


# A process of its own, because the peak of this one says nothing about one call. 512 MB of zeros behind a
# limit of 8 MB may cost a few multiples of the limit, never the 512. VmHWM and not ru_maxrss: the latter
# survives exec, so the child would start with the peak of pytest itself.
BOMB = """
    import sys
    import cramjam
    from wal.compression import Codec, decompress
    from wal.errors import BatchTooLargeError

    def peak() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    codec = Codec[sys.argv[1]]
    bomb = sys.stdin.buffer.read()
    before = peak()
    try:
        decompress(codec, bomb, 8 << 20)
    except BatchTooLargeError:
        print(peak() - before)
"""


def bomb_of(codec: Codec, size: int) -> bytes:
    """Made in pieces where the format allows it, so that this process stays small too."""
    piece = 16 << 20
    if codec is Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(piece)))
        return compress(codec, b"") + (len(block).to_bytes(4, "big") + block) * (size // piece)
    return compress(codec, bytes(piece)) * (size // piece)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_within_a_few_times_the_limit_of_memory(codec: Codec) -> None:
    bomb = bomb_of(codec, 512 << 20)
    command = [sys.executable, "-c", textwrap.dedent(BOMB), codec.name]
    done = subprocess.run(command, input=bomb, capture_output=True, timeout=50)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < 32 << 10  # KB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_of_one_single_frame_is_refused_too(codec: Codec) -> None:
    bomb = compress(codec, bytes(128 << 20))
    command = [sys.executable, "-c", textwrap.dedent(BOMB), codec.name]
    done = subprocess.run(command, input=bomb, capture_output=True, timeout=50)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < 32 << 10  # KB


def test_a_snappy_block_that_only_claims_to_be_huge_is_refused_before_allocating() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00a"  # 4 GB, in snappy's own varint
    with pytest.raises(BatchTooLargeError):
        decompress(Codec.SNAPPY, claim, LIMIT)


def test_the_broken_lz4_header_of_magic_0_differs_and_is_mended() -> None:
    frame = compress(Codec.LZ4, TEXT)
    broken = break_lz4_header(frame)
    assert broken != frame
    with pytest.raises(CorruptBatchError):
        decompress(Codec.LZ4, broken, LIMIT)
    assert mend_lz4_header(broken) == frame


def test_mending_a_sound_lz4_header_changes_nothing() -> None:
    stock = bytes(cramjam.lz4.compress(TEXT))  # another descriptor than ours: content checksum, linked blocks
    assert mend_lz4_header(stock) == stock


@given(data=st.binary(max_size=40))
def test_mending_what_is_no_lz4_frame_gives_bytes_or_a_batch_error(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        decompress(Codec.LZ4, mend_lz4_header(data), LIMIT)
