"""A link: one admitted connection to a peer. Owns its Hello, its pings, its streams and its end.

The dialer opens the control stream and says Hello first; the acceptor answers. Then both sides ping each other on it,
the dialer first: to the acceptor the peer is up with that ping, because a Hello may be old (see `Mesh._welcome`).
Silence for the ping deadline, or the end of the connection, ends the link; nothing else does.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from nodes.mesh import spans
from nodes.mesh.arena import SharedBodies
from nodes.mesh.calls import CallingSide
from nodes.mesh.errors import MalformedError, NotAdmittedError, PeerDownError
from nodes.mesh.frames import NO_TRACE, TAG_CONTROL, Frame, FrameDecoder, UnknownFrame, encode_frame
from nodes.mesh.messages import ArenaAnswer, ArenaOffer, Control, Hello, HelloAnswer, Ping, Pong
from nodes.mesh.postcard import Buffer, codec
from nodes.mesh.quic import Connection, Stream, StreamLostError
from nodes.mesh.roster import NodeRecord, Roster
from nodes.mesh.serving import Registered, ServingSide
from nodes.mesh.settings import Settings
from nodes.mesh.streams import READ_BYTES, FrameWriter, read_frames

_CONTROL = codec(Control)
# Application close codes, after HTTP's: what the peer reads as the reason of the end.
CLOSE_NORMAL = 0
CLOSE_MALFORMED = 400
CLOSE_NOT_ADMITTED = 403
CLOSE_SILENT = 408
CLOSE_DUPLICATE = 409
CLOSE_REPLACED = 410


class ControlStream:
    """The stream that carries Hello and pings, with its decoder, which may hold frames that came early."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.decoder = FrameDecoder()
        self.early: deque[Frame | UnknownFrame] = deque()

    async def send(self, message: Hello | HelloAnswer) -> None:
        await self.stream.write(control_frame(message))

    async def arrival(self) -> None:
        """Waits until there is a message, and leaves it there; `StreamLostError` at the end of the stream."""
        while not self.early:
            data = await self.stream.read(READ_BYTES)
            if not data:
                raise StreamLostError("the peer ended the control stream")
            self.early.extend(self.decoder.feed(data))

    async def receive(self) -> object:
        """The next control message; `StreamLostError` at the end of the stream."""
        await self.arrival()
        frame = self.early.popleft()
        if isinstance(frame, UnknownFrame) or frame.tag != TAG_CONTROL:
            raise MalformedError(f"a frame of tag {frame.tag:#04x} where Hello belongs")
        return _CONTROL.decode(frame.body).message


def control_frame(message: Hello | HelloAnswer | Ping | Pong | ArenaOffer | ArenaAnswer) -> list[Buffer]:
    return encode_frame(TAG_CONTROL, NO_TRACE, _CONTROL.parts(Control(message)))


async def greet(connection: Connection, hello: Hello) -> tuple[ControlStream, HelloAnswer]:
    """The dialer's half of the Hello."""
    control = ControlStream(await connection.open_stream())
    await control.send(hello)
    answer = await control.receive()
    if not isinstance(answer, HelloAnswer):
        raise MalformedError("the peer did not answer Hello with a HelloAnswer", peer=connection.remote_id)
    if answer.refusal:
        raise NotAdmittedError(f"{connection.remote_id[:10]} refused us: {answer.refusal}", peer=connection.remote_id)
    return control, answer


class Link:
    """A connection after a good Hello. `ended` resolves with the reason when it is over."""

    def __init__(
        self,
        connection: Connection,
        control: ControlStream,
        greeting: Hello | HelloAnswer,
        *,
        dialed: bool,
        handlers: dict[int, Registered],
        roster: Roster,
        settings: Settings,
    ) -> None:
        self.connection = connection
        self.dialed = dialed
        self.boot = greeting.boot
        self.record: NodeRecord = roster.record(connection.remote_id)
        self.record.role = greeting.role
        self.record.version = greeting.version
        self.record.capabilities = tuple(greeting.capabilities)
        self._counters = roster.counters
        self._settings = settings
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._writer = FrameWriter(self.record)
        self._heard = self._loop.time()
        self._heard_bytes = 0
        self._pings: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._shared = SharedBodies(settings.arena_bytes)
        self.calling = CallingSide(connection, self.record, roster, settings, self._shared)
        self.serving = ServingSide(handlers, self.record, roster, settings, self._shared)
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self.on_end: Callable[[Link], None] | None = None  # called at once, so that nobody finds an ended link

    async def start(self) -> None:
        self._writer.attach(self._control.stream)
        for coroutine in (self._watch_close(), self._read_control(), self._accept_streams(), self._watch()):
            self._spawn(coroutine)
        offer = self._shared.offer()
        if offer is not None:
            self._writer.send(control_frame(offer))
        await self.calling.open()

    def end(self, code: int, reason: str) -> None:
        """Ends the link for good; the first reason counts."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        if self.on_end is not None:
            self.on_end(self)
        self.connection.close(code, reason)
        self.calling.fail(PeerDownError(f"{self.record.node_id[:10]} is down: {reason}", peer=self.record.node_id))
        self.serving.stop()
        self._writer.stop()
        self._shared.close()
        for task in self._tasks:
            task.cancel()

    @property
    def silent_for(self) -> float:
        return self._loop.time() - self._heard

    async def _watch_close(self) -> None:
        self.end(CLOSE_NORMAL, await self.connection.closed())

    async def _accept_streams(self) -> None:
        with contextlib.suppress(StreamLostError):
            while True:
                self._spawn(self.serving.serve_stream(await self.connection.accept_stream()))

    async def _read_control(self) -> None:
        control = self._control
        try:
            while control.early:
                self._on_control(control.early.popleft())
            await read_frames(control.stream, self.record, self._on_control, control.decoder)
            await asyncio.sleep(self._settings.watch_interval)  # if the connection ended too, its reason says more
            self.end(CLOSE_MALFORMED, "the control stream ended")
        except MalformedError as error:
            self._counters["malformed"] += 1
            self.end(CLOSE_MALFORMED, f"malformed control frame: {error}")

    def _on_control(self, frame: Frame | UnknownFrame) -> None:
        self._heard = self._loop.time()
        if isinstance(frame, UnknownFrame):
            self._counters["unsupported_tag"] += 1
            spans.unsupported_tag(frame.header, frame.tag, frame.length, self.record.node_id)
            return
        if frame.tag != TAG_CONTROL:
            raise MalformedError(f"a frame of tag {frame.tag:#04x} on the control stream")
        message = _CONTROL.decode(frame.body).message
        if isinstance(message, Ping):
            self._writer.send(control_frame(Pong(message.number)))
        elif isinstance(message, Pong):
            sent = self._pings.pop(message.number, None)
            if sent is not None:
                self.record.round_trip = self._heard - sent
        elif isinstance(message, ArenaOffer):
            self._writer.send(control_frame(ArenaAnswer(self._shared.on_offer(message))))
        elif isinstance(message, ArenaAnswer):
            self._shared.on_answer(message.opened)
        else:
            raise MalformedError("a second Hello on a link")

    async def _watch(self) -> None:
        """Pings, judges silence, and sweeps expired calls."""
        settings = self._settings
        number, next_ping = 0, self._loop.time()
        while True:
            before = self._loop.time()
            if before >= next_ping:
                number += 1
                self._pings[number] = before
                self._pings.pop(number - 16, None)  # a peer that swallows pings must not fill the table
                self._writer.send(control_frame(Ping(number)))
                next_ping = before + settings.ping_interval
                self._shared.trim()
            self.calling.tell_taken()
            self.serving.sweep()
            await asyncio.sleep(settings.watch_interval)
            self._judge(self._loop.time() - before)

    def _judge(self, slept: float) -> None:
        now = self._loop.time()
        if self.record.bytes_received != self._heard_bytes:
            self._heard_bytes = self.record.bytes_received
            self._heard = now
        if slept > self._settings.watch_interval + self._settings.ping_interval:
            self._heard = now  # we stood still ourselves (stopped, suspended, busy): the peer gets its chance
        if now - self._heard > self._settings.ping_deadline:
            self.end(CLOSE_SILENT, f"no sign of life for {now - self._heard:.1f} s")

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
