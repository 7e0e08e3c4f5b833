"""One client connection: reads requests, runs them, and writes the answers in the order the requests came.

Theory of operation. A request starts when all before it are answered, as in Kafka; only produces behind produces do not
wait (the lane of the connection keeps their order at the broker). Answers wait for those before them. Reading stops
while too much is unanswered or the client does not read its answers, so TCP holds the client back and memory stays
bounded.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from nodes.gateway import spans
from nodes.gateway.errors import CloseConnectionError
from nodes.gateway.handlers import HANDLERS
from nodes.gateway.session import Session
from nodes.kafka import (
    ApiKey,
    Buffer,
    ErrorCode,
    FrameReader,
    KafkaWireError,
    Request,
    UnsupportedVersionError,
    decode_request,
    encode_response,
    encode_versions_answer,
)
from traces import sites

if TYPE_CHECKING:
    from nodes.gateway.server import Gateway

log = logging.getLogger(__name__)


class Pending:
    """A request without its answer. `answer` is None until it is done, and empty where none is sent."""

    __slots__ = ("answer", "request", "size")

    def __init__(self, request: Request | None, size: int, answer: list[Buffer] | None = None) -> None:
        self.request = request
        self.size = size
        self.answer = answer


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection; the gateway holds all of them."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(gateway.scratch)
        self._transport: asyncio.Transport | None = None
        self._unanswered: deque[Pending] = deque()
        self._backlog: deque[Pending] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._other: asyncio.Task[None] | None = None  # the one request at work that is no produce
        self._flush_is_due = False
        self._bytes = 0
        self._unread = 0  # bytes that the client does not read
        self._unread_since: float | None = None
        self._reading = True
        self._last_read = self._loop.time()
        self.session = Session(gateway.next_connection_id(), "")
        self._spans = spans.ConnectionSpans(self.session)

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the base class
        self.session.peer = _peer_name(self._transport)
        self._transport.set_write_buffer_limits(high=self._gateway.settings.unread_bytes)
        self._gateway.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # Now, not when the garbage collector or the last reference says so: half a request can be 100 MB.
        self._frames.drop()
        if self._other is not None:
            self._other.cancel()
        # Produces that came whole are carried out: a client with acks=0 may send and go.
        self._backlog = deque(pending for pending in self._backlog if _is_produce(pending.request))
        self._unread_since = None
        self._start_more()
        self._gateway.held_bytes -= self._bytes
        self._gateway.unread_bytes -= self._unread
        self._bytes = self._unread = 0
        self._gateway.disconnected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._last_read = self._loop.time()
        self._gateway.counters["bytes_received"] += nbytes
        try:
            for frame in self._frames.filled(nbytes):
                self._receive(frame)
        except KafkaWireError as error:
            self._gateway.counters["malformed_requests"] += 1
            self.close(str(error))
            return
        self._start_more()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._unread_since = self._loop.time()
        self._unread = self._transport.get_write_buffer_size()
        self._gateway.unread_bytes += self._unread
        self._watch_reading()

    def resume_writing(self) -> None:
        self._unread_since = None
        self._gateway.unread_bytes -= self._unread
        self._unread = 0
        self._start_more()
        self._watch_reading()

    # Called by the gateway

    @property
    def is_idle(self) -> bool:
        return not self._unanswered

    @property
    def held(self) -> int:
        """Bytes of a request that is not whole."""
        return self._frames.held

    def overdue(self, now: float) -> str:
        """Why the connection has to go, or nothing."""
        settings = self._gateway.settings
        if self._unread_since is not None and now - self._unread_since > settings.unread_timeout:
            return f"the client did not read its answers for {settings.unread_timeout:g} s"
        silence = now - self._last_read
        if self._frames.is_waiting and self._reading and silence > settings.half_request_timeout:
            return f"half a request, then {silence:.0f} s of silence"
        if self.is_idle and silence > settings.idle_timeout:
            return f"idle for {silence:.0f} s"
        return ""

    def stop_reading(self) -> None:
        """Takes no more requests; those at work are answered, those that wait are not."""
        self._drop_backlog()
        if self._transport is not None and self._reading:
            self._reading = False
            self._transport.pause_reading()

    def close(self, reason: str) -> None:
        """Ends the connection now; what is written already is still sent."""
        if self._transport is None or self._transport.is_closing():
            return
        log.info("connection %d of %s is closed: %s", self.session.id, self.session.peer, reason)
        self._gateway.counters["connections_closed"] += 1
        self._drop_backlog()
        self._flush()
        self._transport.close()

    def abort(self, reason: str) -> None:
        """As `close`, but drops what the client does not read."""
        if self._transport is not None:
            self.close(reason)
            self._transport.abort()

    # Requests

    def _drop_backlog(self) -> None:
        """What waits is always at the end of the line."""
        for _ in self._backlog:
            self._unanswered.pop()
        self._backlog.clear()

    def _receive(self, frame: memoryview) -> None:
        try:
            request = decode_request(frame)
        except UnsupportedVersionError as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            answer = encode_versions_answer(error.correlation_id, ErrorCode.unsupported_version)
            pending = Pending(None, len(frame), [answer])
        else:
            pending = Pending(request, len(frame))
        self._unanswered.append(pending)
        self._backlog.append(pending)
        self._bytes += pending.size
        self._gateway.held_bytes += pending.size
        self._watch_reading()

    def _start_more(self) -> None:
        """Starts what may start now."""
        backlog = self._backlog
        while backlog and self._unread_since is None:
            request = backlog[0].request
            is_produce = _is_produce(request)
            if self._tasks and not (is_produce and self._other is None):
                return
            pending = backlog.popleft()
            if request is None:
                self._flush()
                continue
            task = self._loop.create_task(self._run(pending, request))
            self._tasks.add(task)
            if not is_produce:
                self._other = task

    async def _run(self, pending: Pending, request: Request) -> None:
        span = self._spans.start(request)
        failure = ""
        try:
            self._gateway.counters[request.wire.name] += 1
            exchange = self._gateway.exchange(request, self.session)
            if span is not None:
                exchange.trace = span
            response = await HANDLERS[request.api.key](exchange)
            if span is not None and response is not None:
                spans.answered(span, response)
            pending.answer = [] if response is None else encode_response(request, response)
        except CloseConnectionError as error:
            failure = str(error)
            self.close(failure)
        except asyncio.CancelledError:
            failure = "the client went"
            raise
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            self._gateway.counters["failed_requests"] += 1
            log.exception("%s version %d of %s failed", request.api.schema, request.version, self.session.peer)
            self.close("a request failed in the gateway; its log says why")
        finally:
            sites.end(span, failure)
            self._ended(pending)

    def _ended(self, pending: Pending) -> None:
        """The current task's request is done with, in one way or the other."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
        if task is self._other:
            self._other = None
        pending.request = None  # its record bytes are not needed any more
        if not self._flush_is_due:
            # Answers that are done in the same turn of the event loop then go out in one write.
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        self._start_more()

    def _flush(self) -> None:
        """Writes the answers that are next in order."""
        self._flush_is_due = False
        unanswered = self._unanswered
        parts: list[Buffer] = []
        while unanswered and unanswered[0].answer is not None:
            pending = unanswered.popleft()
            parts += pending.answer or ()
            if self._transport is not None:
                self._bytes -= pending.size
                self._gateway.held_bytes -= pending.size
        self._write(parts)
        self._watch_reading()

    def _write(self, parts: list[Buffer]) -> None:
        if self._transport is None or self._transport.is_closing() or not parts:
            return
        self._gateway.counters["bytes_sent"] += sum(map(len, parts))
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    def _watch_reading(self) -> None:
        """Stops or resumes reading from the client, as the limits say."""
        if self._transport is None or self._transport.is_closing() or self._gateway.is_stopping:
            return
        may_read = self._may_read()
        if may_read and not self._reading:
            self._last_read = self._loop.time()  # the silence was ours
            self._transport.resume_reading()
        elif self._reading and not may_read:
            self._transport.pause_reading()
        self._reading = may_read

    def _may_read(self) -> bool:
        settings, gateway = self._gateway.settings, self._gateway
        if not self._unanswered:
            return self._unread_since is None
        return (
            self._unread_since is None
            and len(self._unanswered) < settings.requests_in_flight
            and self._bytes < settings.connection_bytes
            and gateway.held_bytes < settings.request_bytes
        )


def _is_produce(request: Request | None) -> bool:
    return request is not None and request.api.key is ApiKey.PRODUCE


def _peer_name(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unknown"
