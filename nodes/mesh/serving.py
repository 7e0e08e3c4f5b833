"""The serving side of one link: admits calls, keeps the order of lanes, runs handlers, answers.

A handler is a plain function or an async one. A plain function runs at once, in the reader, and gives the answer or a
future of it (so it must not block): no task is made, which is what the hot path wants. An async function runs in a task
of its own. Either way the code up to the first await runs in the order of the lane: tasks start in the order they were
made, and a plain function whose turn comes while tasks are still to start becomes a task behind them.

A call whose body is still on its way holds its lane (and no other). A handler is never cancelled by a deadline or a
caller that went: at the deadline the caller gets its answer, the handler runs on, and what it returns is dropped. A
write that was begun is finished.
"""

import asyncio
import contextlib
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from opentelemetry.trace import Span

from nodes.mesh import spans
from nodes.mesh.arena import SharedBodies
from nodes.mesh.calls import CHANNEL_BITS, UNORDERED_LANE
from nodes.mesh.errors import HandlerError, MalformedError, Status
from nodes.mesh.frames import (
    INLINE_BYTES,
    MAX_BODY_BYTES,
    TAG_BODY,
    TAG_LANE,
    TAG_SINGLE,
    Frame,
    FrameDecoder,
    UnknownFrame,
    encode_frame,
    is_sampled,
)
from nodes.mesh.messages import (
    BodiesTaken,
    Body,
    BodyAborted,
    BodyChunk,
    BodyCredit,
    Chunked,
    Inline,
    KafkaOp,
    KafkaOpResponse,
    Shared,
)
from nodes.mesh.postcard import codec
from nodes.mesh.quic import Stream
from nodes.mesh.roster import NodeRecord, Roster
from nodes.mesh.settings import Settings
from nodes.mesh.streams import (
    BUFFERS,
    Assembly,
    BulkWriter,
    FrameWriter,
    Payload,
    Transfer,
    buffers_of,
    read_frames,
)
from traces import sites

log = logging.getLogger(__name__)

# A peer that announces bodies and never sends them may hold at most this many places.
MAX_ASSEMBLIES = 4096
# A stopping node looks so often whether its last bodies are sent.
_DELIVER_POLL = 0.005
_STOP_CODE = 400
_CHANNEL_MASK = (1 << CHANNEL_BITS) - 1
_MESSAGE_CHARACTERS = 1024
_EMPTY = memoryview(b"")
_OP = codec(KafkaOp)
_RESPONSE = codec(KafkaOpResponse)
_BODY = codec(Body)


class KafkaCall:
    """What a handler gets. `payload` is a view that is valid as long as the handler keeps it."""

    __slots__ = (
        "assembly", "deadline", "failure", "header", "op_code", "org_id", "payload", "peer", "reply", "request_id",
        "single", "span",
    )  # fmt: skip

    def __init__(
        self, op: KafkaOp, peer: str, header: bytes, deadline: float, reply: FrameWriter, single: bool
    ) -> None:
        self.op_code = op.op_code
        self.org_id = op.org_id
        self.request_id = op.request_id
        self.peer = peer
        self.header = header  # the 32-byte trace header, for those who store or pass on the trace id
        self.deadline = deadline  # in the event loop's time
        self.payload = _EMPTY
        self.reply: FrameWriter | None = reply  # None once the answer is sent
        self.single = single
        self.failure = ""
        self.assembly: Assembly | None = None
        self.span: Span | None = None


Handler = Callable[[KafkaCall], Payload | Awaitable[Payload]]


class Registered(NamedTuple):
    """A handler and what it is, looked at once instead of at every call."""

    handler: Handler
    is_async: bool
    uses_current: bool  # it may ask OpenTelemetry for the current span


class ServingSide:
    """All calls of one peer to this node over one connection."""

    def __init__(
        self,
        handlers: dict[int, Registered],
        record: NodeRecord,
        roster: Roster,
        settings: Settings,
        shared: SharedBodies,
    ) -> None:
        self._handlers = handlers
        self._shared = shared
        self._record = record
        self._counters = roster.counters
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._last_ids = [0] * (1 << CHANNEL_BITS)
        self._running: dict[int, KafkaCall] = {}
        self._work: set[asyncio.Future[Any]] = set()  # tasks, and futures that plain handlers gave
        self._starting = 0  # tasks that were made and have not run yet
        self._assemblies: dict[int, Assembly] = {}
        self._held: dict[int, deque[KafkaCall]] = {}  # lanes whose first call waits for its body
        self._held_calls = 0
        self._lane_of: dict[int, int] = {}  # of calls whose bodies are on their way
        self._body_bytes = 0  # of all bodies that are on their way
        self._bulk = BulkWriter(record)
        self._writers: set[FrameWriter] = set()
        self.closing = False

    async def serve_stream(self, stream: Stream) -> None:
        """Reads one stream that the peer opened, to its end."""
        writer = FrameWriter(self._record)
        self._writers.add(writer)
        try:
            await read_frames(stream, self._record, lambda frame: self._on_frame(frame, stream, writer), FrameDecoder())
        except MalformedError as error:
            self._counters["malformed"] += 1
            log.warning("a stream of %s is given up: %s", self._record.node_id[:10], error)
            writer.stop()
            await stream.abandon(_STOP_CODE)
        finally:
            self._writers.discard(writer)

    def sweep(self) -> None:
        """Answers the calls whose deadline has passed."""
        now = self._loop.time()
        for call in [call for call in self._running.values() if call.deadline <= now]:
            self._answer(call, Status.DEADLINE, "the deadline passed while the handler was at work")

    def stop(self) -> None:
        """The link is gone: answers have nowhere to go. Handlers at work run to their end."""
        for writer in (*self._writers, self._bulk):
            writer.stop()
        self._assemblies.clear()
        self._held.clear()
        self._held_calls = 0

    async def drain(self, grace: float) -> None:
        """Takes no more calls, waits for the handlers at work, then cancels them and answers in their place."""
        self.closing = True
        if self._work:
            await asyncio.wait(self._work, timeout=grace)
        for work in self._work:
            if isinstance(work, asyncio.Task):  # a future is the handler's own, and others may wait on it
                work.cancel()
        for call in list(self._running.values()):
            self._answer(call, Status.CLOSING, "the node shut down before the handler ended")
            # Nobody waits for what the handler does from here on, so its span is over now or never.
            sites.end(call.span, call.failure)
            call.span = None

    async def deliver(self, grace: float) -> None:
        """Returns when the peer has all answers, or has taken nothing for the grace time."""
        sent, give_up = -1, 0.0
        # Bodies first: the peer ends the link soon after one of its streams has ended.
        while self._bulk.is_sending:
            if sent != self._record.bytes_sent:
                sent, give_up = self._record.bytes_sent, self._loop.time() + grace
            if self._loop.time() > give_up:
                return
            await asyncio.sleep(_DELIVER_POLL)
        deliveries = [asyncio.ensure_future(writer.deliver()) for writer in (*self._writers, self._bulk)]
        _, late = await asyncio.wait(deliveries, timeout=grace)
        for delivery in late:
            delivery.cancel()

    def _on_frame(self, frame: Frame | UnknownFrame, stream: Stream, writer: FrameWriter) -> None:
        if isinstance(frame, UnknownFrame):
            self._counters["unsupported_tag"] += 1
            spans.unsupported_tag(frame.header, frame.tag, frame.length, self._record.node_id)
        elif frame.tag == TAG_LANE or frame.tag == TAG_SINGLE:
            writer.attach(stream)
            self._on_op(frame, writer)
        elif frame.tag == TAG_BODY:
            self._bulk.attach(stream)
            self._on_body(_BODY.decode(frame.body), self._bulk.stream is stream)
        else:
            raise MalformedError("a control frame on a stream that is not the control stream")

    def _on_op(self, frame: Frame, reply: FrameWriter) -> None:
        op = _OP.decode(frame.body)
        request_id = op.request_id
        if request_id <= self._last_ids[request_id & _CHANNEL_MASK]:
            self._counters["replayed"] += 1
            log.warning("%s sent request %d again; not executed", self._record.node_id[:10], request_id)
            return
        self._last_ids[request_id & _CHANNEL_MASK] = request_id
        now = self._loop.time()
        deadline = now + op.timeout_ms / 1000
        call = KafkaCall(op, self._record.node_id, frame.header, deadline, reply, frame.tag == TAG_SINGLE)
        refusal = self._refusal(op)
        if refusal is not None:
            self._drop_body(request_id)
            self._turn_away(call, *refusal)
        elif isinstance(op.payload, Inline):
            assert isinstance(op.payload.data, memoryview)
            call.payload = op.payload.data
            self._bulk.small_call_at = now
            self._line_up(call, op.lane)
        elif isinstance(op.payload, Shared):
            call.payload = self._shared.take(op.payload)
            self._line_up(call, op.lane)
        elif call.single:
            raise MalformedError("a chunked body on a single-use stream")
        else:
            self._expect(call, op.payload.length)
            self._line_up(call, op.lane)

    def _refusal(self, op: KafkaOp) -> tuple[Status, str] | None:
        if self.closing:
            return Status.CLOSING, "the node is shutting down; try another one or later"
        if op.op_code not in self._handlers:
            return Status.NO_HANDLER, f"op {op.op_code:#04x} has no handler on this node"
        at_work = len(self._running) + self._held_calls
        if at_work >= self._settings.handlers or len(self._assemblies) >= MAX_ASSEMBLIES:
            return Status.BUSY, f"{at_work} calls of this peer are at work; send fewer at a time"
        if isinstance(op.payload, Chunked) and op.payload.length > MAX_BODY_BYTES:
            return Status.TOO_LARGE, f"a body of {op.payload.length} bytes; the limit is {MAX_BODY_BYTES}"
        return None

    def _expect(self, call: KafkaCall, length: int) -> None:
        assembly = self._assemblies.setdefault(call.request_id, Assembly())
        call.assembly = assembly
        assembly.length = length
        if assembly.aborted or assembly.complete:
            self._drop_body(call.request_id)

    def _drop_body(self, request_id: int) -> None:
        """The body is whole or not wanted; pieces that still come are strays."""
        assembly = self._assemblies.pop(request_id, None)
        if assembly is not None:
            self._body_bytes -= assembly.received

    def _line_up(self, call: KafkaCall, lane: int) -> None:
        """Starts the call, or puts it behind the one that holds its lane."""
        waits = call.assembly is not None and call.request_id in self._assemblies
        if lane == UNORDERED_LANE and waits:
            lane = -call.request_id  # a lane of its own, of one call
        held = self._held.get(lane) if self._held else None
        if held is None and not waits:
            self._start(call)
            return
        self._held_calls += 1
        if held is None:
            self._held[lane] = deque([call])
        else:
            held.append(call)
        if waits:
            self._lane_of[call.request_id] = lane

    def _on_body(self, body: Body, on_bulk_stream: bool) -> None:
        piece = body.piece
        if isinstance(piece, BodyCredit):
            self._bulk.on_credit(piece)
            return
        if isinstance(piece, BodiesTaken):
            for position in piece.positions:
                self._shared.free(position)
            return
        if isinstance(piece, BodyChunk) and on_bulk_stream:
            self._bulk.took(len(piece.data))
        assembly = self._assemblies.get(piece.request_id)
        if assembly is None:
            # The chunks may overtake their call, which is on another stream; an old id is a replay or a late one.
            last = self._last_ids[piece.request_id & _CHANNEL_MASK]
            if piece.request_id <= last or len(self._assemblies) >= MAX_ASSEMBLIES:
                if piece.request_id:
                    self._counters["stray"] += 1
                return
            assembly = self._assemblies[piece.request_id] = Assembly()
        if isinstance(piece, BodyAborted):
            assembly.aborted = True
        elif isinstance(piece, BodyChunk):
            assembly.add(piece, MAX_BODY_BYTES)
            self._body_bytes += len(piece.data)
            if self._body_bytes > self._settings.body_bytes:
                raise MalformedError(f"more than {self._settings.body_bytes} bytes of bodies that are not whole")
        if assembly.length is not None and (assembly.aborted or assembly.complete):
            self._drop_body(piece.request_id)
            self._release_lane(self._lane_of.pop(piece.request_id))

    def _release_lane(self, lane: int) -> None:
        """Starts the lane's calls in order, up to the next one whose body is on its way."""
        held = self._held.get(lane)
        while held and held[0].request_id not in self._assemblies:
            self._held_calls -= 1
            self._start(held.popleft())
        if not held:
            self._held.pop(lane, None)

    def _start(self, call: KafkaCall) -> None:
        if call.assembly is not None:
            if call.assembly.aborted:
                self._turn_away(call, Status.CANCELLED, "the caller gave up while its body was on the way")
                return
            call.payload = call.assembly.join()
            call.assembly = None
        if call.deadline <= self._loop.time():
            self._turn_away(call, Status.DEADLINE, "the deadline passed before the handler could start")
            return
        handler, is_async, uses_current = self._handlers[call.op_code]
        if is_sampled(call.header):
            call.span = spans.start_handle(call.header, call.op_code, call.org_id, call.request_id)
        if is_async or self._starting:
            self._start_task(call, handler)
        else:
            self._run_at_once(call, handler, uses_current)

    def _turn_away(self, call: KafkaCall, status: Status, message: str) -> None:
        """Answers a call that gets no handler. Its trace shows that it came here, and why it went no further."""
        if is_sampled(call.header):
            call.span = spans.start_handle(call.header, call.op_code, call.org_id, call.request_id)
        self._answer(call, status, message)
        sites.end(call.span, call.failure)

    def _run_at_once(self, call: KafkaCall, handler: Handler, uses_current: bool) -> None:
        try:
            if call.span is None or not uses_current:
                result = handler(call)
            else:
                with spans.as_current(call.span):
                    result = handler(call)
            if isinstance(result, BUFFERS):
                self._end(call, result)
                return
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; it is logged and answered
            self._fail(call, error)
            return
        if isinstance(result, asyncio.Future):
            self._running[call.request_id] = call
            self._work.add(result)
            result.add_done_callback(functools.partial(self._on_future, call))
        else:
            self._start_task(call, lambda _: result)

    def _start_task(self, call: KafkaCall, handler: Handler) -> None:
        self._running[call.request_id] = call
        self._starting += 1
        task = self._loop.create_task(self._run(call, handler))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _run(self, call: KafkaCall, handler: Handler) -> None:
        self._starting -= 1
        try:
            with spans.as_current(call.span) if call.span is not None else contextlib.nullcontext():
                result = handler(call)
                self._end(call, result if isinstance(result, BUFFERS) else await result)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; it is logged and answered
            self._fail(call, error)
        except asyncio.CancelledError:
            self._on_cancelled(call)
            raise

    def _on_future(self, call: KafkaCall, future: asyncio.Future[Payload]) -> None:
        self._work.discard(future)
        if future.cancelled():
            self._on_cancelled(call)
            return
        try:
            self._end(call, future.result())
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; it is logged and answered
            self._fail(call, error)

    def _on_cancelled(self, call: KafkaCall) -> None:
        if self.closing:
            self._answer(call, Status.CLOSING, "the node shut down before the handler ended")
        else:
            self._answer(call, Status.HANDLER_FAILED, "the handler was cancelled")
        self._end(call)

    def _fail(self, call: KafkaCall, error: BaseException) -> None:
        if isinstance(error, HandlerError):
            self._answer(call, error.code, str(error))
        else:
            log.error("the handler of op %#04x failed", call.op_code, exc_info=error)
            self._answer(call, Status.HANDLER_FAILED, f"{type(error).__name__}: {error}")
        self._end(call)

    def _end(self, call: KafkaCall, result: Payload = b"") -> None:
        """The handler is done: answers if nothing has, and closes the books on the call."""
        if call.reply is not None:
            self._answer(call, Status.OK, "", result)
        self._running.pop(call.request_id, None)
        self._record.calls_served += 1
        if call.span is not None:
            sites.end(call.span, call.failure)

    def _answer(self, call: KafkaCall, status: int, message: str, result: Payload = b"") -> None:
        """Sends the one answer of a call; later ones are dropped."""
        reply = call.reply
        if reply is None:
            return
        buffers, size = buffers_of(result)
        if size > MAX_BODY_BYTES:
            self._answer(call, Status.TOO_LARGE, f"an answer of {size} bytes; the limit is {MAX_BODY_BYTES}")
            return
        shared = self._shared.place(buffers, size)
        chunked = shared is None and size > INLINE_BYTES and not call.single
        payload = shared or (Chunked(size) if chunked else Inline(buffers))
        body = _RESPONSE.parts(KafkaOpResponse(call.request_id, status, message[:_MESSAGE_CHARACTERS], payload))
        call.reply, call.failure = None, message
        if call.span is not None:
            spans.ack(call.span, call.op_code, call.org_id, call.request_id, status)
        # The caller knows its trace; the header is there because every frame has one.
        reply.send(encode_frame(TAG_SINGLE if call.single else TAG_LANE, call.header, body))
        if chunked:
            self._bulk.send(Transfer(call.request_id, buffers))
        if call.single:
            reply.finish()
