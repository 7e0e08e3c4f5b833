"""Request framing: any way the bytes arrive gives the same requests, and no length makes it allocate."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.kafka import MAX_REQUEST_BYTES, SCRATCH_BYTES, FrameLengthError, FrameReader
from nodes.kafka.frames import MAX_CONTROL_REQUEST_BYTES, SLOW_BUFFER_BYTES

PRODUCE, FETCH = 0, 1


def reader(scratch: int = SCRATCH_BYTES) -> FrameReader:
    return FrameReader(memoryview(bytearray(scratch)))


def feed(frames: FrameReader, data: bytes, step: int | None = None) -> list[bytes]:
    """Puts the bytes in as a socket does, at most `step` at a time."""
    found = []
    position = 0
    while position < len(data):
        buffer = frames.buffer()
        count = min(len(buffer), len(data) - position, step or len(data))
        buffer[:count] = data[position : position + count]
        found += [bytes(frame) for frame in frames.filled(count)]
        position += count
    return found


def framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


@given(st.lists(st.binary(min_size=8, max_size=5000).map(lambda body: b"\0\0" + body), max_size=6), st.data())
def test_requests_come_out_whole_however_the_bytes_are_split(requests: list[bytes], data: st.DataObject) -> None:
    frames = reader(data.draw(st.sampled_from([64, 1000, SCRATCH_BYTES])))
    stream = b"".join(map(framed, requests))
    found = []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        found += feed(frames, stream[:count])
        stream = stream[count:]
    assert found == requests
    assert not frames.is_waiting


def test_a_large_request_is_whole_when_it_comes_in_small_pieces() -> None:
    request = b"\0\0" + bytes(range(256)) * 12_000
    frames = reader()
    assert feed(frames, framed(request), step=7_001) == [request]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 7, MAX_REQUEST_BYTES + 1, 2**31 - 1])
def test_a_length_that_no_request_has_is_refused_at_its_fourth_byte(length: int) -> None:
    frames = reader()
    with pytest.raises(FrameLengthError, match=str(length)):
        feed(frames, struct.pack(">i", length))
    assert frames.held == 0


def test_only_produce_may_be_large() -> None:
    prefix = struct.pack(">ih", MAX_CONTROL_REQUEST_BYTES + 1, FETCH)
    with pytest.raises(FrameLengthError, match="API 1"):
        feed(reader(), prefix)
    assert feed(reader(), struct.pack(">ih", MAX_CONTROL_REQUEST_BYTES + 1, PRODUCE)) == []


def test_an_announced_length_takes_no_memory_before_the_bytes_come() -> None:
    frames = reader()
    feed(frames, struct.pack(">ih", MAX_REQUEST_BYTES, PRODUCE) + bytes(100))
    assert frames.is_waiting
    assert frames.held <= SLOW_BUFFER_BYTES
    feed(frames, bytes(50_000), step=1000)
    assert frames.held <= 4 * 50_100


@given(st.binary(max_size=300))
def test_any_bytes_give_requests_or_a_length_error(data: bytes) -> None:
    try:
        found = feed(reader(), data)
    except FrameLengthError:
        return
    assert all(len(frame) >= 8 for frame in found)
