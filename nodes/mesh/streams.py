"""The tasks that touch streams: a writer that batches frames, a bulk writer that interleaves bodies, a reader.

Nobody else awaits a call into the binding. `send` never waits: what may be queued is bounded by the bytes in flight
that the calling side grants itself and by the number of handlers on the serving side.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from nodes.mesh.errors import MalformedError
from nodes.mesh.frames import CHUNK_BYTES, NO_TRACE, TAG_BODY, Frame, FrameDecoder, UnknownFrame, encode_frame
from nodes.mesh.messages import BodiesTaken, Body, BodyAborted, BodyChunk, BodyCredit, Shared
from nodes.mesh.postcard import Buffer, codec
from nodes.mesh.quic import Stream, StreamLostError
from nodes.mesh.roster import NodeRecord

# One write into the binding; more would hold up the loop, less would pay the crossing too often.
WRITE_BYTES = 256 * 1024
# Up to here buffers are joined first: for many small ones that is cheaper than copying each across.
JOIN_BYTES = 64 * 1024
# A small call needs about this many turns of the loop from its wake-up to its write, and after a large piece (from
# BULK_BYTES on, about 0.3 ms of work) it gets them all: with one turn it met a large piece at every step.
TURNS_AFTER_BULK = 4
BULK_BYTES = 32 * 1024
# One read from the binding, which allocates this much each time. A read that came full is followed by a wide one: fewer
# of a body's 64 KB chunks then lie across two reads and are copied once more (7-8 % of the receiving node's CPU).
READ_BYTES = 64 * 1024
WIDE_READ_BYTES = 256 * 1024
_BODY = codec(Body)
# Bytes of bodies between the two nodes while there are small calls, before each of which they lie: p99 of those was
# 3.9-4.6 ms with 256 KB, 4.9-5.3 with 384 KB and 5.8-6.9 with 640 KB. Without small calls the wide window is used.
NARROW_WINDOW = 256 * 1024
WIDE_WINDOW = 4 * 1024 * 1024
# A small call in the last so many seconds means that there will be more.
SMALL_CALLS_WITHIN = 0.1
# The peer hears after so many taken bytes: often enough to never stand still, seldom enough to cost little.
CREDIT_BYTES = 128 * 1024
# The same for bodies in the peer's arena, of which it has more; and after so many of them, to keep the frame small.
ARENA_CREDIT_BYTES = 2 * 1024 * 1024
ARENA_CREDIT_BODIES = 64
# What a caller or a handler may hand over as a body. A list is sent one buffer after the other, without a copy.
Payload = Buffer | list[Buffer]
BUFFERS = (bytes, bytearray, memoryview, list)


def buffers_of(payload: Payload) -> tuple[list[Buffer], int]:
    """The payload's buffers and their bytes; TypeError for what is no buffer, before anything is queued."""
    buffers = payload if isinstance(payload, list) else [payload]
    size = 0
    for buffer in buffers:
        if type(buffer) is memoryview:
            if buffer.itemsize != 1 or not buffer.c_contiguous:
                raise TypeError("a memoryview must be of single bytes, in one piece: cast it to 'B' first")
        elif not isinstance(buffer, bytes | bytearray):
            raise TypeError(f"a body is bytes-like or a list of such, not {type(buffer).__name__}")
        size += len(buffer)
    return buffers, size


async def give_way(moved: int) -> None:
    """Lets other tasks run after a read or write, which may have been done inline and would keep the loop to itself."""
    await asyncio.sleep(0)
    if moved >= BULK_BYTES:
        for _ in range(TURNS_AFTER_BULK - 1):
            await asyncio.sleep(0)


class Writer:
    """The one task that writes to a stream. Subclasses say what comes next."""

    # Frames go before bulk, whatever is queued there: a small call then never waits for a large body.
    priority = 1

    def __init__(self, record: NodeRecord) -> None:
        self.stream: Stream | None = None
        self._record = record
        self._idle: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._finishing = False

    def attach(self, stream: Stream) -> None:
        """Starts writing; what was sent before is kept until then."""
        if self._task is None:
            self.stream = stream
            self._task = asyncio.create_task(self._run(stream))

    def finish(self) -> None:
        """Ends our direction of the stream after what is queued."""
        self._finishing = True
        self._wake()

    async def deliver(self) -> None:
        """Ends our direction of the stream and returns when the peer has all of it, or the stream is lost."""
        if self._task is None or self.stream is None:
            return
        self.finish()
        await asyncio.wait([self._task])
        with contextlib.suppress(StreamLostError):
            await self.stream.delivered()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _wake(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None and not idle.done():
            idle.set_result(None)

    def _next(self) -> list[Buffer]:
        raise NotImplementedError

    async def _run(self, stream: Stream) -> None:
        try:
            await stream.set_priority(self.priority)
            while True:
                buffers = self._next()
                if buffers:
                    size = sum(map(len, buffers))
                    self._record.bytes_sent += size
                    await stream.write(buffers)
                    await give_way(size)
                elif self._finishing:
                    await stream.finish()
                    return
                else:
                    self._idle = asyncio.get_running_loop().create_future()
                    await self._idle
        except StreamLostError:
            return  # the link's own watcher reports the loss


class FrameWriter(Writer):
    """Writes frames in the order they were sent, as many at a time as are there."""

    def __init__(self, record: NodeRecord) -> None:
        super().__init__(record)
        self._queue: list[Buffer] = []

    def send(self, frame: list[Buffer]) -> None:
        self._queue += frame
        if self._idle is not None:
            self._wake()

    def _next(self) -> list[Buffer]:
        taken, self._queue = self._queue, []
        size = sum(map(len, taken))
        if size > WRITE_BYTES:
            size, count = 0, 0
            while size < WRITE_BYTES:
                size += len(taken[count])
                count += 1
            taken, self._queue = taken[:count], taken[count:]
        return [b"".join(taken)] if 0 < size <= JOIN_BYTES else taken


class Transfer:
    """A body on its way out: hands out its buffers in chunks, without copying."""

    __slots__ = ("_buffers", "aborted", "offset", "request_id")

    def __init__(self, request_id: int, buffers: list[Buffer]) -> None:
        self.request_id = request_id
        self.offset = 0
        self.aborted = False
        self._buffers = deque(memoryview(buffer) for buffer in buffers if len(buffer))

    @property
    def done(self) -> bool:
        return not self._buffers

    def take(self, limit: int) -> list[Buffer]:
        taken: list[Buffer] = []
        while self._buffers and limit:
            buffer = self._buffers.popleft()
            if len(buffer) > limit:
                self._buffers.appendleft(buffer[limit:])
                buffer = buffer[:limit]
            limit -= len(buffer)
            self.offset += len(buffer)
            taken.append(buffer)
        return taken


class BulkWriter(Writer):
    """Writes large bodies chunk by chunk, each body in turn, so that none waits for another to end.

    It stays within a window of what the peer has taken, because what lies between the two nodes lies before every
    small call too.
    """

    priority = 0

    def __init__(self, record: NodeRecord) -> None:
        super().__init__(record)
        self._transfers: deque[Transfer] = deque()
        self._opening = False
        self._sent = 0
        self._taken_by_peer = 0
        self.small_call_at = 0.0  # the loop's time of the last small call, either way
        self._taken = 0
        self._credited = 0
        self._taken_from_arena: list[int] = []
        self._taken_from_arena_bytes = 0
        self._tell_taken = False

    @property
    def is_sending(self) -> bool:
        return bool(self._transfers)

    def open(self) -> None:
        """Sends an empty abort of request 0, so that the peer knows this stream before it has to answer on it."""
        self._opening = True
        self._wake()

    def send(self, transfer: Transfer) -> None:
        self._transfers.append(transfer)
        self._wake()

    def took(self, size: int) -> None:
        """We have taken so many bytes of bodies from the stream: the peer hears of it now and then."""
        self._taken += size
        if self._taken - self._credited >= CREDIT_BYTES:
            self._wake()

    def took_shared(self, body: Shared) -> None:
        """We have taken a body from the peer's arena: it hears of it now and then."""
        self._taken_from_arena.append(body.position)
        self._taken_from_arena_bytes += body.length
        if self._taken_from_arena_bytes >= ARENA_CREDIT_BYTES or len(self._taken_from_arena) >= ARENA_CREDIT_BODIES:
            self.tell_taken()

    def tell_taken(self) -> None:
        """Tells the peer of all bodies that were taken from its arena."""
        if self._taken_from_arena:
            self._tell_taken = True
            self._wake()

    def on_credit(self, credit: BodyCredit) -> None:
        """The peer has taken so many bytes of ours."""
        if not self._taken_by_peer <= credit.taken <= self._sent:
            raise MalformedError(f"a credit of {credit.taken} bytes where {self._sent} were sent")
        self._taken_by_peer = credit.taken
        self._wake()

    def _next(self) -> list[Buffer]:
        if self._opening:
            self._opening = False
            return _body_frame(BodyAborted(0))
        if self._taken - self._credited >= CREDIT_BYTES:
            self._credited = self._taken
            return _body_frame(BodyCredit(self._taken))
        if self._tell_taken:
            taken, self._taken_from_arena = self._taken_from_arena, []
            self._tell_taken, self._taken_from_arena_bytes = False, 0
            return _body_frame(BodiesTaken(taken))
        if not self._transfers or self._sent - self._taken_by_peer >= self._window():
            return []
        transfer = self._transfers.popleft()
        if transfer.aborted:
            return _body_frame(BodyAborted(transfer.request_id))
        offset = transfer.offset
        chunk = BodyChunk(transfer.request_id, offset, transfer.take(CHUNK_BYTES))
        self._sent += transfer.offset - offset
        if not transfer.done:
            self._transfers.append(transfer)
        return _body_frame(chunk)

    def _window(self) -> int:
        quiet = asyncio.get_running_loop().time() - self.small_call_at
        return NARROW_WINDOW if quiet < SMALL_CALLS_WITHIN else WIDE_WINDOW


def _body_frame(piece: BodyChunk | BodyAborted | BodyCredit | BodiesTaken) -> list[Buffer]:
    return encode_frame(TAG_BODY, NO_TRACE, _BODY.parts(Body(piece)))


class Assembly:
    """A body on its way in. Memory grows with the bytes that came, never with what was announced."""

    __slots__ = ("_chunks", "aborted", "length", "received")

    def __init__(self) -> None:
        self._chunks: list[memoryview] = []
        self.received = 0
        self.length: int | None = None  # known when the frame with the announcement is there
        self.aborted = False

    def add(self, chunk: BodyChunk, limit: int) -> None:
        data = chunk.data
        assert isinstance(data, memoryview)
        if chunk.offset != self.received:
            raise MalformedError(f"a chunk at offset {chunk.offset} of a body of which {self.received} bytes came")
        allowed = limit if self.length is None else self.length
        if self.received + len(data) > allowed:
            raise MalformedError(f"a body of more than the {allowed} bytes allowed")
        self.received += len(data)
        self._chunks.append(data)

    @property
    def complete(self) -> bool:
        return self.received == self.length

    def join(self) -> memoryview:
        return memoryview(b"".join(self._chunks))


async def read_frames(
    stream: Stream,
    record: NodeRecord,
    on_frame: Callable[[Frame | UnknownFrame], None],
    decoder: FrameDecoder,
) -> None:
    """Reads until the stream ends or is lost; `MalformedError` goes to the caller, who gives the stream up."""
    limit = READ_BYTES
    while True:
        try:
            data = await stream.read(limit)
        except StreamLostError:
            return
        if not data:
            return
        limit = WIDE_READ_BYTES if len(data) >= READ_BYTES else READ_BYTES
        record.bytes_received += len(data)
        for frame in decoder.feed(data):
            on_frame(frame)
        await give_way(len(data))
