"""The calling side of one link: request ids, lanes, bytes in flight, deadlines, answers.

Theory of operation. A call is admitted when the bytes in flight allow it; until then it waits in one FIFO queue, and it
is put on its stream at the very moment it is admitted, so the order of calls is the order on the wire. The caller waits
on a future of its own: giving up drops the future and nothing else. The credit of a call comes back with its answer,
and there is always one: the peer answers by the deadline that travels with the call.

A lane is a number between 1 and 65535 that the key hashes to; it names a stream, and the peer starts the calls of a
lane in order. Two keys with the same number share an order, which is stricter than asked and does no harm, and there is
no table that could grow. A body over 4 KB for a peer on the same machine lies in shared memory (`arena`). Otherwise a
body over 16 KB does not travel in the lane's stream: its frame goes there (and keeps the place in the order), its bytes
go in 64 KB chunks on the bulk stream, and the peer holds the lane's later calls until they are whole. So a large body
delays its own lane only.

Request ids: the low byte is the channel (a lane stream or a slot for single-use streams), the rest counts up within the
channel. The peer refuses an id that is not above the channel's last: a replay.
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Coroutine, Hashable
from typing import Any

from opentelemetry.trace import Span

from nodes.mesh import spans
from nodes.mesh.arena import SharedBodies
from nodes.mesh.errors import (
    CallTimeoutError,
    MalformedError,
    MeshError,
    PayloadTooLargeError,
    PeerDownError,
    RemoteError,
    Status,
)
from nodes.mesh.frames import (
    INLINE_BYTES,
    MAX_BODY_BYTES,
    NO_TRACE,
    TAG_BODY,
    TAG_LANE,
    TAG_SINGLE,
    Frame,
    FrameDecoder,
    UnknownFrame,
    encode_frame,
)
from nodes.mesh.messages import (
    BodiesTaken,
    Body,
    BodyChunk,
    BodyCredit,
    Chunked,
    Inline,
    KafkaOp,
    KafkaOpResponse,
    Shared,
)
from nodes.mesh.postcard import Buffer, codec
from nodes.mesh.quic import Connection, Stream, StreamLostError
from nodes.mesh.roster import NodeRecord, Roster
from nodes.mesh.settings import Settings
from nodes.mesh.spans import Trace
from nodes.mesh.streams import Assembly, BulkWriter, FrameWriter, Payload, Transfer, buffers_of, read_frames
from traces import sites

# Asks for a stream of its own (tag 0x11): no order, no batching, nothing shared with other calls.
SINGLE_USE = object()
UNORDERED_LANE = 0
_LANES = 0xFFFF
CHANNEL_BITS = 8
# A small answer is copied out of the read buffer, so that a caller who keeps it does not keep 64 KB.
COPY_BYTES = 4 * 1024
# Deadlines that lie closer together than this are looked at together: one timer serves all calls.
DEADLINE_GRAIN = 0.005
# The close code for a peer that breaks the grammar, or gives up a stream that must last as long as the link.
CLOSE_BROKEN = 400
_OP = codec(KafkaOp)
_RESPONSE = codec(KafkaOpResponse)
_BODY = codec(Body)


class Call:
    """One call on its way. `answer` is the caller's; all else belongs to the calling side."""

    __slots__ = (
        "answer", "assembly", "buffers", "deadline", "header", "lane", "op_code", "org_id", "request_id", "response",
        "shared", "size", "span", "timeout", "transfer",
    )  # fmt: skip

    def __init__(self, op_code: int, org_id: int, payload: Payload, lane: int | None, timeout: float) -> None:
        self.op_code = op_code
        self.org_id = org_id
        self.buffers, self.size = buffers_of(payload)
        self.lane = lane  # None: a stream of its own
        self.timeout = timeout
        self.deadline = 0.0
        self.answer: asyncio.Future[memoryview]
        self.request_id = 0
        self.header = NO_TRACE
        self.span: Span | None = None
        self.shared: Shared | None = None
        self.transfer: Transfer | None = None
        self.assembly: Assembly | None = None
        self.response: KafkaOpResponse | None = None


def lane_number(key: Hashable) -> int:
    """The lane of a key; None means unordered."""
    return UNORDERED_LANE if key is None else 1 + hash(key) % _LANES


class CallingSide:
    """All calls of this node to one peer over one connection."""

    def __init__(
        self, connection: Connection, record: NodeRecord, roster: Roster, settings: Settings, shared: SharedBodies
    ) -> None:
        self._connection = connection
        self._shared = shared
        self._record = record
        self._counters = roster.counters
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, Call] = {}
        self._waiting: deque[Call] = deque()
        self._waiting_single: deque[Call] = deque()  # apart, so that no lane waits for a free single-use stream
        self._bytes = 0
        self._lanes = [FrameWriter(record) for _ in range(settings.lane_streams)]
        self._bulk = BulkWriter(record)
        self._free_slots = deque(range(settings.lane_streams, settings.lane_streams + settings.single_streams))
        self._sequence = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._down: MeshError | None = None

    async def open(self) -> None:
        """Opens the lane streams and the bulk stream."""
        for writer in (*self._lanes, self._bulk):
            stream = await self._connection.open_stream()
            writer.attach(stream)
            self._spawn(self._read_for_good(stream))
        self._bulk.open()

    async def call(
        self,
        op_code: int,
        org_id: int,
        payload: Payload,
        *,
        lane: Hashable,
        timeout: float,
        trace: Trace,
    ) -> memoryview:
        """The peer's answer, or the error that it or the way to it gave."""
        number = None if lane is SINGLE_USE else lane_number(lane)
        call = Call(op_code, org_id, payload, number, timeout)
        if self._down is not None or call.size > MAX_BODY_BYTES:
            error = self._why_not(call)
            spans.not_sent(trace, op_code, org_id, error)
            raise error
        if trace is not NO_TRACE:
            call.span, call.header = spans.start_sent(trace, op_code, org_id)
        call.answer = self._loop.create_future()
        now = self._loop.time()
        call.deadline = now + timeout
        if call.size <= INLINE_BYTES:
            self._bulk.small_call_at = now
        if call.deadline < self._timer_at:
            self._set_timer(call.deadline)
        self._record.calls_made += 1
        waiting = self._waiting if number is not None else self._waiting_single
        if waiting or not self._fits(call):
            waiting.append(call)
        else:
            self._send(call)
        try:
            return await call.answer
        except MeshError:
            self._record.calls_failed += 1
            raise
        finally:
            if call.transfer is not None or call.span is not None:
                self._leave(call)

    def _why_not(self, call: Call) -> MeshError:
        if self._down is not None:
            return PeerDownError(str(self._down), peer=self._record.node_id)
        return PayloadTooLargeError(
            f"a body of {call.size} bytes for op {call.op_code:#04x}; the mesh carries {MAX_BODY_BYTES}",
            peer=self._record.node_id,
        )

    def tell_taken(self) -> None:
        """Tells the peer which answers need its memory no more; to be called now and then."""
        self._bulk.tell_taken()

    def fail(self, error: MeshError) -> None:
        """The link is gone: every caller hears it now."""
        self._down = error
        calls = [*self._calls.values(), *self._waiting, *self._waiting_single]
        for table in (self._calls, self._waiting, self._waiting_single):
            table.clear()
        for call in calls:
            if not call.answer.done():
                fate = "was sent, its outcome is unknown" if call.request_id else "was not sent"
                message = f"{error}; op {call.op_code:#04x} {fate}"
                call.answer.set_exception(PeerDownError(message, peer=self._record.node_id, sent=call.request_id != 0))
        if self._timer is not None:
            self._timer.cancel()
        for writer in (*self._lanes, self._bulk):
            writer.stop()
        for task in self._tasks:
            task.cancel()

    def _leave(self, call: Call) -> None:
        """The caller goes, with or without an answer: what is left of its body need not travel."""
        if call.transfer is not None and not call.transfer.done:
            call.transfer.aborted = True
        if call.span is not None:
            if not call.answer.done() or call.answer.cancelled():
                spans.end_abandoned(call.span)
            else:
                error = call.answer.exception()
                sites.end(call.span, "" if error is None else f"{type(error).__name__}: {error}")

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._time_out)

    def _time_out(self) -> None:
        """Ends the calls whose deadline has passed, and looks again at the next deadline."""
        now, following = self._loop.time(), math.inf
        for call in itertools.chain(self._calls.values(), self._waiting, self._waiting_single):
            if call.answer.done():
                continue
            if call.deadline <= now:
                peer = self._record.node_id
                message = f"no answer from {peer[:10]} to op {call.op_code:#04x} within {call.timeout:g} s"
                call.answer.set_exception(CallTimeoutError(message, peer=peer))
            elif call.deadline < following:
                following = call.deadline
        self._timer, self._timer_at = None, math.inf
        if following < math.inf:
            self._set_timer(max(following, now + DEADLINE_GRAIN))

    def _fits(self, call: Call) -> bool:
        """Whether the limits let the call go now. With nothing in flight any size may go."""
        settings = self._settings
        if self._bytes and self._bytes + call.size > settings.bytes_in_flight:
            return False
        if len(self._calls) >= settings.calls_in_flight:
            return False
        return call.lane is not None or bool(self._free_slots)

    def _admit(self, waiting: deque[Call]) -> None:
        """Sends waiting calls, first come first served, while the limits allow it."""
        while waiting:
            if not waiting[0].answer.done():
                if not self._fits(waiting[0]):
                    return
                self._send(waiting[0])
            waiting.popleft()

    def _send(self, call: Call) -> None:
        channel = self._free_slots.popleft() if call.lane is None else call.lane % len(self._lanes)
        self._bytes += call.size
        self._sequence += 1
        call.request_id = self._sequence << CHANNEL_BITS | channel
        self._calls[call.request_id] = call
        if call.span is not None:
            spans.request_sent(call.span, call.request_id)
        call.shared = self._shared.place(call.buffers, call.size)
        chunked = call.shared is None and call.lane is not None and call.size > INLINE_BYTES
        left = max(1, int((call.deadline - self._loop.time()) * 1000))
        op = KafkaOp(
            call.op_code,
            call.request_id,
            call.org_id,
            call.lane or UNORDERED_LANE,
            min(left, 0xFFFFFFFF),
            call.shared or (Chunked(call.size) if chunked else Inline(call.buffers)),
        )
        if call.lane is None:
            self._spawn(self._single(call, encode_frame(TAG_SINGLE, call.header, _OP.parts(op))))
        else:
            self._lanes[channel].send(encode_frame(TAG_LANE, call.header, _OP.parts(op)))
        if chunked:
            call.transfer = Transfer(call.request_id, call.buffers)
            self._bulk.send(call.transfer)
        call.buffers = []

    async def _single(self, call: Call, frame: list[Buffer]) -> None:
        """One call on a stream of its own. Runs on when the caller has gone, so the stream is never lost."""
        try:
            stream = await self._connection.open_stream()
            await stream.write(frame)
            await stream.finish()
            await self._read(stream)
        except StreamLostError as error:
            self._lose(call, str(error))
        self._lose(call, "the peer ended the stream without an answer")

    def _lose(self, call: Call, why: str) -> None:
        if self._calls.pop(call.request_id, None) is None:
            return
        self._release(call)
        if not call.answer.done():
            message = f"op {call.op_code:#04x} got no answer: {why}"
            call.answer.set_exception(PeerDownError(message, peer=self._record.node_id, sent=True))

    async def _read_for_good(self, stream: Stream) -> None:
        """Reads a lane's or the bulk stream. Without it the link would be up and useless, so its end is the link's."""
        await self._read(stream)
        await asyncio.sleep(self._settings.watch_interval)  # if the connection ended too, its reason says more
        self._connection.close(CLOSE_BROKEN, "a stream that lasts as long as the link has ended")

    async def _read(self, stream: Stream) -> None:
        try:
            await read_frames(stream, self._record, self._on_frame, FrameDecoder())
        except MalformedError as error:
            self._counters["malformed"] += 1
            self._connection.close(CLOSE_BROKEN, f"malformed answer: {error}")

    def _on_frame(self, frame: Frame | UnknownFrame) -> None:
        if isinstance(frame, UnknownFrame):
            self._counters["unsupported_tag"] += 1
            spans.unsupported_tag(frame.header, frame.tag, frame.length, self._record.node_id)
        elif frame.tag == TAG_LANE or frame.tag == TAG_SINGLE:
            self._on_response(_RESPONSE.decode(frame.body))
        elif frame.tag == TAG_BODY:
            self._on_body(_BODY.decode(frame.body))
        else:
            raise MalformedError("a control frame where an answer belongs")

    def _on_response(self, response: KafkaOpResponse) -> None:
        call = self._calls.get(response.request_id)
        payload = response.payload
        if isinstance(payload, Shared):
            self._bulk.took_shared(payload)
        if call is None or call.response is not None:
            self._counters["stray"] += 1
            return
        call.response = response
        if call.span is not None:
            spans.ack_received(call.span, call.op_code, call.org_id, call.request_id)
        if isinstance(payload, Shared):
            self._finish(call, self._shared.take(payload))
        elif isinstance(payload, Inline):
            assert isinstance(payload.data, memoryview)
            data = payload.data
            self._finish(call, memoryview(bytes(data)) if len(data) <= COPY_BYTES else data)
        else:
            call.assembly = call.assembly or Assembly()
            call.assembly.length = payload.length
            self._finish_assembly(call, call.assembly)

    def _on_body(self, body: Body) -> None:
        piece = body.piece
        if isinstance(piece, BodyCredit):
            self._bulk.on_credit(piece)
            return
        if isinstance(piece, BodiesTaken):
            raise MalformedError("a call's body is taken when its answer is there, and not said to be")
        if isinstance(piece, BodyChunk):
            self._bulk.took(len(piece.data))
        call = self._calls.get(piece.request_id)
        if call is None or not isinstance(piece, BodyChunk):
            self._counters["stray"] += 1
            return
        call.assembly = call.assembly or Assembly()
        call.assembly.add(piece, MAX_BODY_BYTES)
        self._finish_assembly(call, call.assembly)

    def _finish_assembly(self, call: Call, assembly: Assembly) -> None:
        if assembly.complete:
            self._finish(call, assembly.join())

    def _finish(self, call: Call, data: memoryview) -> None:
        del self._calls[call.request_id]
        self._release(call)
        answer, response = call.answer, call.response
        if answer.done() or response is None:
            return
        if response.status == Status.OK:
            answer.set_result(data)
        else:
            answer.set_exception(RemoteError(response.message, code=response.status, peer=self._record.node_id))

    def _release(self, call: Call) -> None:
        self._bytes -= call.size
        if call.shared is not None:
            self._shared.free(call.shared.position)
        if call.lane is None:
            self._free_slots.append(call.request_id & (1 << CHANNEL_BITS) - 1)
        if self._waiting:
            self._admit(self._waiting)
        if self._waiting_single:
            self._admit(self._waiting_single)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
