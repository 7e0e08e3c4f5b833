"""`Mesh`: a node's place on the mesh, and the only class the Kafka layer needs.

Owns the endpoint, the accept loop with its allow-list, one dial loop per peer with known addresses, and the one link
per peer. Calls and handlers are the links' (`calls`, `serving`).
"""

import asyncio
import contextlib
import importlib.metadata
import inspect
import logging
import random
import secrets
from collections.abc import Coroutine, Hashable, Iterable
from pathlib import Path
from typing import Any

from nodes.mesh import detour, identity, quic, spans
from nodes.mesh.admission import HandshakeBudget, new_link_wins, refusal_of
from nodes.mesh.errors import (
    ListenError,
    MeshClosedError,
    MeshError,
    NotAdmittedError,
    PeerDownError,
    UnknownPeerError,
)
from nodes.mesh.link import (
    CLOSE_DUPLICATE,
    CLOSE_MALFORMED,
    CLOSE_NORMAL,
    CLOSE_NOT_ADMITTED,
    CLOSE_REPLACED,
    ControlStream,
    Link,
    greet,
)
from nodes.mesh.messages import PROTOCOL_VERSION, Hello, HelloAnswer
from nodes.mesh.roster import NodeState, Roster
from nodes.mesh.serving import Handler, Registered
from nodes.mesh.settings import Settings
from nodes.mesh.spans import Trace
from nodes.mesh.streams import Payload

log = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "::1")
VERSION = importlib.metadata.version("rafka-lab")


class Mesh:
    """One node. Make it, register handlers, `start()`, add peers, call, `close()`."""

    def __init__(
        self,
        folder: Path,
        *,
        role: str,
        allow: Iterable[str] = (),
        hosts: tuple[str, ...] = LOOPBACK,
        capabilities: Iterable[str] = (),
        settings: Settings | None = None,
    ) -> None:
        self._folder = folder
        self._secret = identity.load_or_create_key(folder)
        self.node_id = quic.node_id_of(self._secret)
        self.role = role
        self.roster = Roster()
        self.settings = settings or Settings()
        self._hosts = hosts
        self._capabilities = list(capabilities)
        self._boot = secrets.randbits(64)
        self._allowed = set(allow)
        self._handlers: dict[int, Registered] = {}
        self._links: dict[str, Link] = {}
        self._up: dict[str, asyncio.Event] = {}
        self._admissions: dict[str, tuple[float, asyncio.Task[None]]] = {}  # by source: when it began, and its task
        self._sources: dict[str, str] = {}  # where each admitted peer came from last
        self._dialers: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._endpoint: quic.Endpoint | None = None
        self._closing = False

    @property
    def addresses(self) -> list[str]:
        """Where this node listens, as host:port."""
        return [] if self._endpoint is None else self._endpoint.addresses

    async def start(self) -> None:
        """Listens, on the ports of the last start if they are free, and lets allowed peers in."""
        hosts = quic.usable_hosts(self._hosts)
        if not hosts:
            raise ListenError(f"none of {', '.join(self._hosts)} is an address of this machine")
        ports = identity.load_ports(self._folder)
        try:
            self._endpoint = await self._bind(hosts, ports)
        except ListenError:
            self._endpoint = await self._bind(hosts, {})
        identity.save_ports(self._folder, self.addresses)
        self._spawn(self._accept(self._endpoint))

    async def close(self) -> None:
        """Lets handlers at work end, then tells every peer at once."""
        if self._closing:
            return
        self._closing = True
        for dialer in self._dialers.values():
            dialer.cancel()
        links = list(self._links.values())
        await asyncio.gather(*(link.serving.drain(self.settings.close_grace) for link in links))
        # QUIC drops what the peer has not confirmed when a connection is closed.
        await asyncio.gather(*(link.serving.deliver(self.settings.deliver_grace) for link in links))
        for link in links:
            link.end(CLOSE_NORMAL, "the node shut down")
        for task in self._tasks:
            task.cancel()
        if self._endpoint is not None:
            await self._endpoint.close()

    def allow(self, node_id: str) -> None:
        """Puts a NodeId on the allow-list."""
        self._allowed.add(node_id)

    def add_peer(self, node_id: str, addresses: Iterable[str]) -> None:
        """Allows the node and keeps a connection to it. Call again with new addresses when it moved."""
        self.allow(node_id)
        self.roster.record(node_id).addresses = list(addresses)
        if node_id not in self._dialers:
            self._dialers[node_id] = asyncio.get_running_loop().create_task(self._keep_connected(node_id))

    def move_peer(self, node_id: str, addresses: Iterable[str]) -> None:
        """The peer is reached by other addresses from now on; the link to it is made anew."""
        self.add_peer(node_id, addresses)
        if (link := self._links.get(node_id)) is not None:
            link.end(CLOSE_NORMAL, "the way to this node has changed")

    def hear_only(self, port: int | None) -> None:
        """From now on packets of that source port only, or None: of all. Links are made anew on the ways left."""
        detour.hear_only(self.addresses, port)
        for link in list(self._links.values()):
            link.end(CLOSE_NORMAL, "the ways to this node have changed")

    def register_kafka_handler(self, op_code: int, handler: Handler, *, uses_current: bool = True) -> None:
        """Serves calls of `op_code` with `handler(call)`, which gives bytes or a list of buffers (never copied).

        An async function runs in a task. A plain function runs at once and must not block; it gives the answer or a
        future of it, and costs least. The call's span is OpenTelemetry's current one meanwhile; a plain function that
        needs no more than `call.span` says so by `uses_current=False`, since the API's contexts cost as much as a span.
        """
        self._handlers[op_code] = Registered(handler, inspect.iscoroutinefunction(handler), uses_current)

    async def kafka_op_call(
        self,
        peer: str,
        op_code: int,
        org_id: int,
        payload: Payload,
        *,
        lane: Hashable = None,
        timeout: float | None = None,
        trace: Trace = None,
    ) -> memoryview:
        """Calls the peer's handler. Calls with an equal `lane` start there in the order they were made here.

        `lane=None` asks for no order; `lane=SINGLE_USE` for a stream of its own. `payload` is bytes-like or a list of
        buffers, which are not joined. `trace` is a span, its context, a 32-byte header or None for the current span;
        with `NO_TRACE` tracing costs nothing. Raises `PeerDownError`, `CallTimeoutError`, `RemoteError` or
        `PayloadTooLargeError`; nothing is ever sent twice.
        """
        link = self._links.get(peer)
        if link is None:
            error = self._why_no_link(peer)
            spans.not_sent(trace, op_code, org_id, error)
            raise error
        limit = self.settings.call_timeout if timeout is None else timeout
        return await link.calling.call(op_code, org_id, payload, lane=lane, timeout=limit, trace=trace)

    async def wait_up(self, peer: str, timeout: float) -> None:
        """Waits until the peer is up; `PeerDownError` if it is not in time."""
        try:
            async with asyncio.timeout(timeout):
                while peer not in self._links:
                    event = self._up.setdefault(peer, asyncio.Event())
                    event.clear()
                    await event.wait()
        except TimeoutError:
            raise self._why_no_link(peer) from None

    def _why_no_link(self, peer: str) -> MeshError:
        if self._endpoint is None or self._closing:
            return MeshClosedError("the mesh is not started, or is closed", peer=peer)
        info = self.roster.get(peer)
        if info is None and peer not in self._allowed:
            return UnknownPeerError(f"{peer[:10]} is not known here; add_peer() or allow() it first", peer=peer)
        reason = "" if info is None or not info.last_error else f" ({info.last_error})"
        return PeerDownError(f"{peer[:10]} is down{reason}; the mesh keeps trying", peer=peer)

    async def _bind(self, hosts: list[str], ports: dict[str, int]) -> quic.Endpoint:
        return await quic.bind(self._secret, [quic.join_address(host, ports.get(host, 0)) for host in hosts])

    # The accepting side

    async def _accept(self, endpoint: quic.Endpoint) -> None:
        budget = HandshakeBudget(self.settings.stranger_handshakes, asyncio.get_running_loop().time)
        while (handshake := await endpoint.accept()) is not None:
            source = await handshake.source()
            if self._is_known_source(source) or budget.take():
                self._begin_admission(handshake, source)
            else:
                self.roster.counters["handshakes_shed"] += 1
                await handshake.refuse()

    def _begin_admission(self, handshake: quic.Handshake, source: str) -> None:
        """A node that was frozen finds a burst of attempts of one dialer, and only the last is worth what it costs."""
        now = asyncio.get_running_loop().time()
        at, last = self._admissions.get(source, (0.0, None))
        if last is not None and now - at < self.settings.burst:
            last.cancel()
        task = self._spawn(self._admit(handshake, source))
        self._admissions[source] = now, task
        task.add_done_callback(lambda _: self._end_admission(source, task))

    def _end_admission(self, source: str, task: asyncio.Task[None]) -> None:
        if self._admissions.get(source, (0.0, None))[1] is task:
            del self._admissions[source]

    def _is_known_source(self, source: str) -> bool:
        """A hint only, to keep a flood from shutting out peers (which keep their ports over a restart); the handshake
        proves who it is."""
        if source in self._sources.values():
            return True
        return any(source in self.roster.record(node_id).addresses for node_id in self._allowed)

    async def _admit(self, handshake: quic.Handshake, source: str) -> None:
        connection: quic.Connection | None = None
        try:
            async with asyncio.timeout(self.settings.hello_timeout):
                connection = await handshake.complete()
                if connection.remote_id not in self._allowed:
                    self._refuse_stranger(connection)
                    return
                self._sources[connection.remote_id] = source
                control = ControlStream(await connection.accept_stream())
                hello = await control.receive()
                # Once it has our answer the dialer counts on this connection: a later attempt must not end it any more.
                self._admissions.pop(source, None)
                await self._welcome(connection, control, hello)
        except (MeshError, TimeoutError) as error:
            reason = str(error) or f"no Hello within {self.settings.hello_timeout} s"
            self.roster.counters["handshakes_failed"] += 1
            log.info("a connection attempt failed: %s", reason)
            if connection is not None:
                connection.close(CLOSE_MALFORMED, reason)
        except asyncio.CancelledError:
            if connection is not None:
                connection.close(CLOSE_DUPLICATE, "a later attempt of the same node counts")
            raise

    def _refuse_stranger(self, connection: quic.Connection) -> None:
        self.roster.counters["strangers_refused"] += 1
        connection.close(CLOSE_NOT_ADMITTED, f"{connection.remote_id} is not on the allow-list of {self.node_id}")

    async def _welcome(self, connection: quic.Connection, control: ControlStream, hello: object) -> None:
        refusal = refusal_of(hello)
        if not refusal and isinstance(hello, Hello):
            if not self._may_replace(connection.remote_id, hello.boot, dialed=False):
                connection.close(CLOSE_DUPLICATE, "there is a connection already")
                return
            await control.send(self._answer(""))
            # A node that was frozen finds the Hellos of all that time; only a dialer that is still there pings.
            await control.arrival()
            await self._install(self._link(connection, control, hello, dialed=False))
        else:
            await control.send(self._answer(refusal))
            await asyncio.sleep(self.settings.watch_interval)  # the answer must get there before the close
            connection.close(CLOSE_MALFORMED, refusal)

    # The dialing side

    async def _keep_connected(self, node_id: str) -> None:
        """Dials whenever there is no link, with a back-off that grows and is spread by chance.

        An attempt that has no answer yet goes on beside the next ones: to a node that is slow to answer, giving up and
        dialing again would only add to its work.
        """
        settings = self.settings
        backoff = settings.backoff_first
        attempts: set[asyncio.Task[None]] = set()
        try:
            while not self._closing:
                link = self._links.get(node_id)
                if link is not None:
                    _cancel(attempts)
                    await asyncio.wait([link.ended])
                    backoff = settings.backoff_first
                    continue
                attempts.add(asyncio.create_task(self._dial(node_id)))
                done, attempts = await asyncio.wait(
                    attempts, timeout=settings.redial_after, return_when=asyncio.FIRST_COMPLETED
                )
                reason = _why_failed(done)
                if node_id not in self._links:
                    self.roster.set_state(node_id, NodeState.DOWN, reason)
                    await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
                    backoff = min(backoff * 2, settings.backoff_limit)
        finally:
            _cancel(attempts)

    async def _dial(self, node_id: str) -> None:
        """One attempt. A timeout drops the attempt in Rust; `fast_iroh` makes that safe."""
        if self._endpoint is None:
            raise MeshClosedError("the mesh is not started", peer=node_id)
        connection: quic.Connection | None = None
        try:
            async with asyncio.timeout(self.settings.dial_timeout):
                connection = await self._endpoint.dial(node_id, self.roster.record(node_id).addresses)
                control, answer = await greet(connection, self._hello())
                old = self._links.get(node_id)
                if (old is not None and old.dialed) or not self._may_replace(node_id, answer.boot, dialed=True):
                    connection.close(CLOSE_DUPLICATE, "there is a connection already")
                    return
                await self._install(self._link(connection, control, answer, dialed=True))
        except (MeshError, TimeoutError) as error:
            if connection is not None:
                await self._tell_refusal(connection, error)
                connection.close(CLOSE_NORMAL, "given up")
            raise
        except asyncio.CancelledError:
            if connection is not None:
                connection.close(CLOSE_NORMAL, "another connection was faster")
            raise

    async def _tell_refusal(self, connection: quic.Connection, error: Exception) -> None:
        """A peer that does not admit us closes with a reason, which says more than the stream that broke by it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.watch_interval):
                reason = await connection.closed()
                if str(CLOSE_NOT_ADMITTED) in reason:
                    raise NotAdmittedError(f"refused: {reason}", peer=connection.remote_id) from error

    # Links

    def _link(
        self,
        connection: quic.Connection,
        control: ControlStream,
        greeting: Hello | HelloAnswer,
        *,
        dialed: bool,
    ) -> Link:
        return Link(
            connection,
            control,
            greeting,
            dialed=dialed,
            handlers=self._handlers,
            roster=self.roster,
            settings=self.settings,
        )

    def _may_replace(self, node_id: str, boot: int, *, dialed: bool) -> bool:
        old = self._links.get(node_id)
        if old is None:
            return True
        return new_link_wins(
            same_boot=old.boot == boot,
            old_alive=old.silent_for < self.settings.ping_deadline,
            old_dialer=self.node_id if old.dialed else node_id,
            new_dialer=self.node_id if dialed else node_id,
        )

    async def _install(self, link: Link) -> None:
        node_id = link.record.node_id
        await link.start()
        if link.ended.done():
            raise PeerDownError(link.ended.result(), peer=node_id)
        old = self._links.get(node_id)
        self._links[node_id] = link
        if old is not None:
            old.end(CLOSE_REPLACED, "replaced by a newer connection of the same node")
        link.on_end = self._forget
        self.roster.set_state(node_id, NodeState.UP)
        event = self._up.pop(node_id, None)
        if event is not None:
            event.set()

    def _forget(self, link: Link) -> None:
        node_id = link.record.node_id
        if self._links.get(node_id) is link:
            del self._links[node_id]
            self.roster.set_state(node_id, NodeState.DOWN, link.ended.result())

    def _hello(self) -> Hello:
        return Hello(PROTOCOL_VERSION, self.role, VERSION, self._boot, self._capabilities)

    def _answer(self, refusal: str) -> HelloAnswer:
        return HelloAnswer(PROTOCOL_VERSION, self.role, VERSION, self._boot, self._capabilities, refusal)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    tasks.clear()


def _why_failed(attempts: set[asyncio.Task[None]]) -> str:
    """The reason of the attempts that are over; an error that is not the network's is raised."""
    reason = "no answer yet"
    for attempt in attempts:
        try:
            attempt.result()
        except (MeshError, TimeoutError) as error:
            reason = str(error) or "no answer"
    return reason
