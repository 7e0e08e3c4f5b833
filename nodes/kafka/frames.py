"""Request framing, sans-IO: a 4-byte length, then the request. The socket's reader fills the buffers it is given here.

Theory of operation. Between requests the socket reads into `scratch`, one buffer that all connections of an event loop
share: requests are copied out of it before `filled` returns, so an idle connection holds nothing. A request that is not
whole yet moves to a buffer of its own, which the socket then fills directly: a large request is never copied. That
buffer grows with the bytes that came, never with the length that was announced.
"""

import struct
from collections.abc import Iterator

from nodes.kafka.apis import ApiKey
from nodes.kafka.errors import FrameLengthError

# Kafka's own default for socket.request.max.bytes, and the mesh's limit for one body.
MAX_REQUEST_BYTES = 100 * 1024 * 1024
# All but Produce are lists of names and numbers, with a limit of items of its own; 4 MiB leaves 200 bytes for each.
MAX_CONTROL_REQUEST_BYTES = 4 * 1024 * 1024
# api_key, api_version and correlation_id.
MIN_REQUEST_BYTES = 8
# One read from a socket. A 1 MB request then costs four reads.
SCRATCH_BYTES = 256 * 1024
# A request of which so much came in one read comes fast; its buffer is made in one go up to the second figure.
FAST_BYTES = 32 * 1024
FAST_BUFFER_BYTES = 2 * 1024 * 1024
# The first buffer of a slow one; each further one is twice as large as what came.
SLOW_BUFFER_BYTES = 4 * 1024

_PREFIX = struct.Struct(">i")
_PREFIX_AND_KEY = struct.Struct(">ih")


class FrameReader:
    """Cuts what the socket read into requests. After an error it must not be used again."""

    __slots__ = ("_have", "_own", "_scratch")

    def __init__(self, scratch: memoryview) -> None:
        self._scratch = scratch
        self._own: bytearray | None = None  # the request that is not whole, with its prefix
        self._have = 0

    @property
    def held(self) -> int:
        """Bytes held for a request that is not whole."""
        return 0 if self._own is None else len(self._own)

    @property
    def is_waiting(self) -> bool:
        """Whether a part of a request came and the rest is missing."""
        return self._own is not None

    def drop(self) -> None:
        """Gives up a request that is not whole, and its memory: the rest will not come."""
        self._own, self._have = None, 0

    def buffer(self) -> memoryview:
        """Where the socket puts the next bytes; never empty."""
        return self._scratch if self._own is None else memoryview(self._own)[self._have :]

    def filled(self, count: int) -> Iterator[memoryview]:
        """The requests (without their prefix) that `count` new bytes complete."""
        if self._own is None:
            yield from self._cut(count)
            return
        self._have += count
        if self._have < len(self._own):
            return
        need = _length(self._own, 0, self._have)
        if need is None or need > self._have:
            self._grow(self._own, need)
            return
        frame, self._own, self._have = self._own, None, 0
        yield memoryview(frame)[_PREFIX.size :].toreadonly()

    def _cut(self, count: int) -> Iterator[memoryview]:
        scratch = self._scratch
        position = 0
        while position < count:
            need = _length(scratch, position, count)
            if need is None or position + need > count:
                self._keep(scratch[position:count], need)
                return
            yield memoryview(bytes(scratch[position + _PREFIX.size : position + need]))
            position += need

    def _keep(self, part: memoryview, need: int | None) -> None:
        """Moves the part of a request that came to a buffer of its own."""
        if need is None:
            room = _PREFIX_AND_KEY.size
        elif len(part) >= FAST_BYTES:
            room = min(need, max(FAST_BUFFER_BYTES, 2 * len(part)))
        else:
            room = min(need, max(SLOW_BUFFER_BYTES, 2 * len(part)))
        own = bytearray(room)
        own[: len(part)] = part
        self._own, self._have = own, len(part)

    def _grow(self, own: bytearray, need: int | None) -> None:
        assert need is not None, "a full buffer holds prefix and key"
        grown = bytearray(min(need, max(SLOW_BUFFER_BYTES, 2 * len(own))))
        grown[: len(own)] = own
        self._own = grown


def _length(data: memoryview | bytearray, start: int, end: int) -> int | None:
    """Prefix and request together, None if too little came to know; `FrameLengthError` if it may not be."""
    if end - start < _PREFIX.size:
        return None
    (length,) = _PREFIX.unpack_from(data, start)
    if not MIN_REQUEST_BYTES <= length <= MAX_REQUEST_BYTES:
        raise FrameLengthError(
            f"a request announces {length} bytes; requests have {MIN_REQUEST_BYTES} to {MAX_REQUEST_BYTES}"
        )
    if end - start < _PREFIX_AND_KEY.size:
        return None
    _, key = _PREFIX_AND_KEY.unpack_from(data, start)
    if key != ApiKey.PRODUCE and length > MAX_CONTROL_REQUEST_BYTES:
        raise FrameLengthError(
            f"a request of API {key} announces {length} bytes; the limit for it is {MAX_CONTROL_REQUEST_BYTES}"
        )
    return int(length) + _PREFIX.size
