"""`Gateway`: the TCP listener, its connections, and what they share."""

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nodes import heap
from nodes.gateway.brokers import Brokers
from nodes.gateway.connection import Connection
from nodes.gateway.session import Advertised, Exchange, Session
from nodes.gateway.settings import Settings
from nodes.gateway.topics import Topics
from nodes.kafka import SCRATCH_BYTES, Request
from nodes.mesh import Mesh
from nodes.process import ProgramError

log = logging.getLogger(__name__)


class Gateway:
    """A Kafka broker to its clients. Make it on a started mesh that has the brokers as peers, `start()`, `stop()`."""

    def __init__(
        self, mesh: Mesh, brokers: Mapping[int, str], *, org_id: int = 1, settings: Settings | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.brokers = Brokers(mesh, brokers, org_id)
        self.topics = Topics(self.brokers, self.settings)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        # Requests by API, connections_opened, connections_closed (by us), malformed_requests, failed_requests,
        # bytes_received, bytes_sent.
        self.counters: Counter[str] = Counter()
        self.held_bytes = 0  # of requests that are not answered
        self.unread_bytes = 0  # of answers that clients do not read
        self._idle_trim = heap.IdleTrim(self.settings.free_heap_bytes)
        self._stopping = asyncio.Event()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._advertised = Advertised("", 0)
        self._tasks: list[asyncio.Task[None]] = []
        mesh.roster.watch(self.topics.on_state_change)

    async def start(self, listener: socket.socket, advertised: Advertised | None = None) -> tuple[str, int]:
        """Serves clients that connect to `listener` (see `bind`) and gives its address."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), sock=listener, backlog=self.settings.accept_backlog
        )
        host, port = listener.getsockname()[:2]
        self._advertised = advertised or Advertised(host, port)
        self._tasks = [loop.create_task(self._sweep()), loop.create_task(self._log_status())]
        return host, port

    async def stop(self) -> None:
        """Accepts no more, waits a while for requests at work, then closes every connection."""
        self._stopping.set()
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.stop_reading()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.stop_grace
        while loop.time() < deadline and not all(connection.is_idle for connection in self._connections):
            await asyncio.sleep(_STOP_POLL)
        for connection in list(self._connections):
            connection.close("the gateway stops")
        for task in self._tasks:
            task.cancel()
        self.topics.stop()
        await asyncio.sleep(0)  # the transports see their close
        log.info("stopped: %s", self.status())

    def status(self) -> dict[str, Any]:
        """What the lab shows of a gateway."""
        return {
            "connections": len(self._connections),
            "unanswered_bytes": self.held_bytes,
            "unread_bytes": self.unread_bytes,
            "brokers": self.brokers.states(),
            **self.counters,
        }

    # For connections

    def next_connection_id(self) -> int:
        self.counters["connections_opened"] += 1
        return self.counters["connections_opened"]

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def connected(self, connection: Connection) -> None:
        self._connections.add(connection)
        if len(self._connections) > self.settings.connections:
            connection.abort(f"{self.settings.connections} connections are open, and no more are taken")

    def disconnected(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def exchange(self, request: Request, session: Session) -> Exchange:
        settings = self.settings
        room = max(settings.smallest_fetch, (settings.unread_bytes_of_all - self.unread_bytes) // 2)
        fetch_bytes = min(settings.fetch_bytes, room)
        return Exchange(
            request, session, self.brokers, self.topics, settings, self._advertised, self._stopping, fetch_bytes
        )

    async def _sweep(self) -> None:
        """Closes connections that hold something and do nothing with it, and gives free memory back."""
        while True:
            await asyncio.sleep(self.settings.sweep_interval)
            # Functions of their own: a local here would hold a connection that went until the next sweep ends.
            self._abort_overdue()
            self._shed_half_requests()
            self._idle_trim.look(self.counters["bytes_received"] + self.counters["bytes_sent"])

    def _abort_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            reason = connection.overdue(now)
            if reason:
                connection.abort(reason)

    def _shed_half_requests(self) -> None:
        """Keeps the requests that are not whole within the limit for all: the largest go first."""
        held = sum(connection.held for connection in self._connections)
        if held <= self.settings.request_bytes:
            return
        for connection in sorted(self._connections, key=lambda one: one.held, reverse=True):
            held -= connection.held
            connection.abort(f"the gateway holds too many half requests, this one with {connection.held} bytes")
            if held <= self.settings.request_bytes:
                return

    async def _log_status(self) -> None:
        while True:
            await asyncio.sleep(self.settings.status_interval)
            log.info("status: %s", self.status())


# How often the end of requests at work is looked for while stopping.
_STOP_POLL = 0.02


def bind(host: str, port: int) -> socket.socket:
    """A socket for `Gateway.start`. `ProgramError` if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ProgramError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart must not wait for old connections
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ProgramError(_why_not_bound(host, port, error)) from error
    return listener


def _why_not_bound(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another program; choose another with --listen, or port 0 for any"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} may not be used by this user; choose one above 1023 with --listen"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"
