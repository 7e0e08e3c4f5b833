"""Frames, without any stream: cutting, limits, unknown tags."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.mesh.errors import FrameTooLargeError, MalformedError
from nodes.mesh.frames import (
    FRAME_LIMITS,
    HEADER_BYTES,
    NO_TRACE,
    TAG_LANE,
    TAG_SINGLE,
    Frame,
    FrameDecoder,
    UnknownFrame,
    encode_frame,
    is_sampled,
)
from nodes.mesh.varint import encode_varint

known = st.tuples(st.sampled_from(sorted(FRAME_LIMITS)), st.binary(min_size=32, max_size=32), st.binary(max_size=500))
unknown = st.tuples(st.sampled_from([0x00, 0x01, 0x42, 0x80, 0xFF]), st.just(NO_TRACE), st.binary(max_size=500))


def decode(data: bytes, cuts: list[int]) -> list[Frame | UnknownFrame]:
    decoder = FrameDecoder()
    frames: list[Frame | UnknownFrame] = []
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in itertools.pairwise(edges):
        frames += decoder.feed(data[start:end])
    assert decoder.buffered == 0
    return frames


@given(st.lists(known | unknown, max_size=8), st.lists(st.integers(0, 4000), max_size=30))
def test_frames_come_back_however_the_bytes_are_cut(items: list[tuple[int, bytes, bytes]], cuts: list[int]) -> None:
    data = b"".join(b"".join(encode_frame(tag, header, [body])) for tag, header, body in items)
    frames = decode(data, cuts)
    assert [frame.tag for frame in frames] == [tag for tag, _, _ in items]
    for frame, (_, header, body) in zip(frames, items, strict=True):
        if isinstance(frame, Frame):
            assert (frame.header, bytes(frame.body)) == (header, body)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_arbitrary_bytes_give_frames_or_the_package_error(pieces: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for piece in pieces:
            decoder.feed(piece)
    except MalformedError:
        return
    assert decoder.buffered <= sum(map(len, pieces))


@pytest.mark.parametrize("tag", sorted(FRAME_LIMITS))
def test_a_frame_over_the_limit_is_refused_at_its_length(tag: int) -> None:
    with pytest.raises(FrameTooLargeError, match=str(FRAME_LIMITS[tag])):
        FrameDecoder().feed(bytes((tag,)) + encode_varint(FRAME_LIMITS[tag] + 1))


def test_an_unknown_tag_of_any_length_is_skipped_without_being_kept() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"\x80" + encode_varint(1 << 40) + NO_TRACE) == [UnknownFrame(0x80, 1 << 40, NO_TRACE)]
    for _ in range(100):
        assert decoder.feed(bytes(100_000)) == []
        assert decoder.buffered == 0


def test_a_frame_after_an_unknown_one_is_found() -> None:
    data = b"\x01\x03abc" + b"".join(encode_frame(TAG_LANE, NO_TRACE, [b"body"]))
    assert [frame.tag for frame in FrameDecoder().feed(data)] == [0x01, TAG_LANE]


def test_a_frame_shorter_than_its_header_is_malformed() -> None:
    with pytest.raises(MalformedError, match="header"):
        FrameDecoder().feed(bytes((TAG_SINGLE, HEADER_BYTES - 1)))


def test_an_endless_length_is_malformed() -> None:
    with pytest.raises(MalformedError, match="length"):
        FrameDecoder().feed(bytes((TAG_LANE,)) + b"\xff" * 20)


def test_the_sampled_flag_is_the_last_bit_of_byte_25() -> None:
    assert not is_sampled(NO_TRACE)
    assert is_sampled(bytes(25) + b"\x01" + bytes(6))
