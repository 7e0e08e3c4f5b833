"""Typed wrappers around iroh: the only module besides `fast_iroh` that sees the binding.

Every failure of the binding comes out as `StreamLostError` or `MeshError`. Only reader and writer tasks may await these
calls; a caller that gives up cancels its own future, never a call into Rust.
"""

import ipaddress
import socket
from typing import Any

from iroh import iroh_ffi as ffi

from nodes.mesh import fast_iroh
from nodes.mesh.errors import ListenError, MeshError
from nodes.mesh.postcard import Buffer

ALPN = b"rafka-mesh-v1"


class StreamLostError(MeshError):
    """The stream or its connection is gone."""


class Stream:
    """A bidirectional QUIC stream."""

    __slots__ = ("_recv", "_send")

    def __init__(self, raw: Any) -> None:
        self._recv = raw.recv()
        self._send = raw.send()

    async def read(self, limit: int) -> bytes:
        """Up to `limit` bytes; b"" at the end of the stream."""
        try:
            data: bytes = await self._recv.read(limit)
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None
        return data

    async def write(self, buffers: list[Buffer]) -> None:
        """All buffers in order; waits for the peer's flow control."""
        try:
            await fast_iroh.write_all(self._send, buffers)
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None

    async def set_priority(self, priority: int) -> None:
        """Of the streams with bytes to send, those of the highest priority go first."""
        try:
            await self._send.set_priority(priority)
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None

    async def finish(self) -> None:
        """No more bytes from this side."""
        try:
            await self._send.finish()
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None

    async def delivered(self) -> None:
        """Returns when the peer has all bytes of a finished stream, or wants no more of them."""
        try:
            await self._send.stopped()
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None

    async def abandon(self, code: int) -> None:
        """Resets our direction and stops the peer's."""
        for call in (self._send.reset, self._recv.stop):
            try:
                await call(code)
            except ffi.IrohError:
                continue  # the other half may still need it


class Connection:
    """A QUIC connection whose remote NodeId the handshake has proved."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.remote_id = str(raw.remote_id())

    async def open_stream(self) -> Stream:
        try:
            return Stream(await self._raw.open_bi())
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None

    async def accept_stream(self) -> Stream:
        try:
            return Stream(await self._raw.accept_bi())
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None

    def close(self, code: int, reason: str) -> None:
        """Tells the peer and drops everything; does nothing on a closed connection."""
        self._raw.close(code, reason.encode())

    async def closed(self) -> str:
        """Waits for the end and says why."""
        return str(await self._raw.closed())


class Handshake:
    """A connection attempt from outside, before any of its cost is paid."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    async def source(self) -> str:
        """The remote address as host:port; unauthenticated."""
        address = await self._raw.remote_addr()
        return str(getattr(address, "addr", ""))

    async def refuse(self) -> None:
        await self._raw.refuse()

    async def complete(self) -> Connection:
        try:
            accepting = await self._raw.accept()
            return Connection(await accepting.connect())
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None


class Endpoint:
    """A bound iroh endpoint."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.node_id = str(raw.id())

    @property
    def addresses(self) -> list[str]:
        return [str(address) for address in self._raw.bound_sockets()]

    async def accept(self) -> Handshake | None:
        """The next attempt; None once the endpoint is closed."""
        raw = await self._raw.accept_next()
        return None if raw is None else Handshake(raw)

    async def dial(self, node_id: str, addresses: list[str]) -> Connection:
        """A connection to the node. That it opens does not yet mean that the node admits us."""
        try:
            target = ffi.EndpointAddr(ffi.EndpointId.from_string(node_id), None, addresses)
            return Connection(await self._raw.connect(target, ALPN))
        except ffi.IrohError as error:
            raise StreamLostError(error.message()) from None

    async def close(self) -> None:
        """Closes every connection so that the peers notice at once (without it: after 34 s)."""
        await self._raw.close()


def node_id_of(secret: bytes) -> str:
    """The NodeId (64 hex digits) of a secret key."""
    return str(ffi.SecretKey.from_bytes(secret).public())


def new_secret() -> bytes:
    return bytes(ffi.SecretKey.generate().to_bytes())


async def bind(secret: bytes, addresses: list[str]) -> Endpoint:
    """An endpoint that listens on exactly these addresses; `ListenError` if one cannot be had."""
    builder: Any = ffi.EndpointBuilder()  # type: ignore[no-untyped-call]
    builder.apply_minimal()
    builder.secret_key(secret)
    builder.alpns([ALPN])
    try:
        for address in addresses:
            builder.bind_addr(address)
        endpoint = Endpoint(await builder.bind())
    except ffi.IrohError as error:
        raise ListenError(f"cannot listen on {', '.join(addresses)}: {error.message()}") from None
    await _check_hosts(endpoint, {_host(address) for address in addresses})
    return endpoint


async def _check_hosts(endpoint: Endpoint, wanted: set[str]) -> None:
    """iroh opens wildcard sockets of its own accord when it is asked for one family only."""
    surplus = [address for address in endpoint.addresses if _host(address) not in wanted]
    if surplus:
        await endpoint.close()
        raise ListenError(f"iroh also listens on {', '.join(surplus)}, which nobody asked for; refusing to start")


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def join_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def usable_hosts(hosts: tuple[str, ...]) -> list[str]:
    """The hosts whose address family this machine has (a container may lack ::1)."""
    return [host for host in hosts if _can_bind(host)]


def _can_bind(host: str) -> bool:
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
