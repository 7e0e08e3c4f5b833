"""Frames: `tag(u8) length(LEB128) payload`, sans-IO. Bytes in, frames out; nothing here knows of streams.

The payload of a tag >= 0x10 opens with a 32-byte trace header (W3C: version 1 byte, trace-id 16, parent-id 8, flags 1,
then 6 zero bytes); the rest is the postcard body. A known tag whose length is over its limit raises before anything is
allocated. An unknown tag is skipped as it streams by, so its length does not matter.
"""

from typing import NamedTuple

from nodes.mesh.errors import FrameTooLargeError, MalformedError
from nodes.mesh.postcard import Buffer
from nodes.mesh.varint import ONE_BYTE, encode_varint

TAG_CONTROL = 0x10
TAG_SINGLE = 0x11
TAG_LANE = 0x12
TAG_BODY = 0x13
FIRST_TAG_WITH_HEADER = 0x10

HEADER_BYTES = 32
NO_TRACE = bytes(HEADER_BYTES)
_FLAGS_AT = 25
_SAMPLED = 0x01

# Kafka's own default for the largest request (socket.request.max.bytes) is 100 MB; nothing larger gets this far.
MAX_BODY_BYTES = 100 * 1024 * 1024
# Larger pieces delay the small calls beside them: with 1 MB frames p99 was 9.4 ms, with 64 KB 1.4 ms.
CHUNK_BYTES = 64 * 1024
# Bodies up to here travel inside their lane frame: a chunk of its own costs more than it saves.
INLINE_BYTES = 16 * 1024
# Room for the fields around a body, error messages and a large batch of capabilities included.
FIELDS_BYTES = 4 * 1024

FRAME_LIMITS = {
    TAG_CONTROL: HEADER_BYTES + FIELDS_BYTES,
    TAG_SINGLE: HEADER_BYTES + FIELDS_BYTES + MAX_BODY_BYTES,
    TAG_LANE: HEADER_BYTES + FIELDS_BYTES + INLINE_BYTES,
    TAG_BODY: HEADER_BYTES + FIELDS_BYTES + CHUNK_BYTES,
}
# 63 bits: a length of more bytes than this is no length.
_MAX_LENGTH_BYTES = 9


class Frame(NamedTuple):
    """A whole frame of a known tag. `body` is a view on the bytes that were fed."""

    tag: int
    header: bytes
    body: memoryview


class UnknownFrame(NamedTuple):
    """A frame that was skipped: what is known of it. `header` is zero where there was none."""

    tag: int
    length: int
    header: bytes


def is_sampled(header: Buffer) -> bool:
    """Whether the sender records this trace: the one flag that decides about all spans."""
    return bool(header[_FLAGS_AT] & _SAMPLED)


def encode_frame(tag: int, header: bytes, body: list[Buffer]) -> list[Buffer]:
    """The frame's buffers, to be sent one after the other. The body's buffers are not copied."""
    return [ONE_BYTE[tag] + encode_varint(HEADER_BYTES + sum(map(len, body))) + header, *body]


class FrameDecoder:
    """Cuts a stream of bytes into frames. After an error it must not be fed again: the stream is out of step."""

    def __init__(self) -> None:
        self._pending: list[Buffer] = []  # the bytes of one frame that is not whole yet
        self._have = 0
        self._need = 0  # bytes of `_pending` that make progress possible
        self._skip_left = 0  # bytes of an unknown frame that are still to come

    @property
    def buffered(self) -> int:
        """Bytes held for a frame that is not whole."""
        return self._have

    def feed(self, data: bytes) -> list[Frame | UnknownFrame]:
        """The frames that `data` completes."""
        if self._pending:
            self._pending.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._pending)
            self._pending, self._have = [], 0
        return self._cut(data)

    def _cut(self, data: bytes) -> list[Frame | UnknownFrame]:
        frames: list[Frame | UnknownFrame] = []
        view = memoryview(data)
        position, end = 0, len(data)
        while position < end:
            if self._skip_left:
                position = self._skip(data, position)
                continue
            start, tag = position, data[position]
            length, position = _length(data, position + 1)
            if length is None:
                self._keep(data[start:], end - start + 1)
                break
            limit = FRAME_LIMITS.get(tag)
            if limit is None:
                position = self._start_skip(frames, data, tag, length, start, position)
                continue
            if not HEADER_BYTES <= length <= limit:
                raise _wrong_length(tag, length, limit)
            after = position + length
            if after > end:
                self._keep(data[start:], after - start)
                break
            body_at = position + HEADER_BYTES
            frames.append(Frame(tag, data[position:body_at], view[body_at:after]))
            position = after
        return frames

    def _keep(self, rest: bytes, need: int) -> None:
        self._pending, self._have, self._need = [rest], len(rest), need

    def _start_skip(
        self,
        frames: list[Frame | UnknownFrame],
        data: bytes,
        tag: int,
        length: int,
        start: int,
        position: int,
    ) -> int:
        """Reports the frame as soon as its header is there, and forgets the rest as it comes."""
        wanted = min(length, HEADER_BYTES) if tag >= FIRST_TAG_WITH_HEADER else 0
        if len(data) - position < wanted:
            self._keep(data[start:], position - start + wanted)
            return len(data)
        has_header = wanted == HEADER_BYTES
        header = data[position : position + HEADER_BYTES] if has_header else NO_TRACE
        frames.append(UnknownFrame(tag, length, header))
        self._skip_left = length
        return position

    def _skip(self, data: bytes, position: int) -> int:
        step = min(self._skip_left, len(data) - position)
        self._skip_left -= step
        return position + step


def _length(data: bytes, position: int) -> tuple[int | None, int]:
    """The LEB128 length at `position`, None if it is not whole yet."""
    value = shift = 0
    for byte in data[position : position + _MAX_LENGTH_BYTES]:
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
        shift += 7
    if shift < 7 * _MAX_LENGTH_BYTES:
        return None, position
    raise MalformedError(f"a frame length of more than {_MAX_LENGTH_BYTES} bytes; the stream is not a mesh stream")


def _wrong_length(tag: int, length: int, limit: int) -> MalformedError:
    if length > limit:
        return FrameTooLargeError(f"a frame of tag {tag:#04x} announces {length} bytes, the limit is {limit}")
    return MalformedError(f"a frame of tag {tag:#04x} has {length} bytes, fewer than its {HEADER_BYTES}-byte header")
