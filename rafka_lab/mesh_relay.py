"""The program between the gateway and the brokers while the mesh is slow or lossy: a UDP relay for each broker.

It delays and drops the real packets, so that QUIC meets real latency and real loss. It cannot read them: nodes prove
to each other who they are. Each line of stdin is the whole table of relays, as JSON; each is answered by a line with
their ports and what they have passed on. It ends with its stdin.
"""

import asyncio
import json
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

LOOPBACK = "127.0.0.1"
# What a node sends at once; the kernel gives less where it allows less.
_BUFFER_BYTES = 4 * 1024 * 1024
_LARGEST_PACKET = 65_535
# Taken from one socket before the other has its turn.
_BURST = 64
# A router drops what its queue cannot hold; QUIC then sends less.
_QUEUE_PACKETS = 20_000


class Wire:
    """One direction. Packets leave in the order they came, each after its delay, unless it is lost."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[bytes], None]) -> None:
        self.latency = self.jitter = self.loss = 0.0
        self.passed = 0
        self._loop = loop
        self._send = send
        self._waiting: deque[tuple[float, bytes]] = deque()

    def take(self, packet: bytes) -> None:
        if random.random() < self.loss or len(self._waiting) >= _QUEUE_PACKETS:
            return
        due = self._loop.time() + self.latency + random.uniform(-self.jitter, self.jitter)
        if self._waiting:
            due = max(due, self._waiting[-1][0])
        else:
            self._loop.call_at(due, self._release)
        self._waiting.append((due, packet))

    def _release(self) -> None:
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            self._send(self._waiting.popleft()[1])
            self.passed += 1
        if self._waiting:
            self._loop.call_at(self._waiting[0][0], self._release)


class Relay:
    """The way to one broker: the gateway sends to `front`, the broker hears from `back`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.front, self.back = _socket(), _socket()
        self._gateway: tuple[str, int] | None = None
        self._broker = ("", 0)
        self._there = Wire(loop, lambda packet: _send(self.back, packet, self._broker))
        self._home = Wire(loop, lambda packet: _send(self.front, packet, self._gateway))
        loop.add_reader(self.front, self._from_gateway)
        loop.add_reader(self.back, self._from_broker)

    def set(self, row: dict[str, Any]) -> None:
        host, _, port = row["target"].rpartition(":")
        self._broker = host, int(port)
        for wire in (self._there, self._home):
            wire.latency, wire.jitter, wire.loss = row["latency"], row["jitter"], row["loss"]

    def status(self) -> dict[str, int]:
        return {
            "front": self.front.getsockname()[1],
            "back": self.back.getsockname()[1],
            "there": self._there.passed,
            "home": self._home.passed,
        }

    def close(self) -> None:
        for mine in (self.front, self.back):
            self._loop.remove_reader(mine)
            mine.close()

    def _from_gateway(self) -> None:
        for packet, source in _packets(self.front):
            self._gateway = source
            self._there.take(packet)

    def _from_broker(self) -> None:
        for packet, source in _packets(self.back):
            if source == self._broker:
                self._home.take(packet)


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        made.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    made.bind((LOOPBACK, 0))
    return made


def _packets(source: socket.socket) -> list[tuple[bytes, tuple[str, int]]]:
    found: list[tuple[bytes, tuple[str, int]]] = []
    try:
        while len(found) < _BURST:
            found.append(source.recvfrom(_LARGEST_PACKET))
    except BlockingIOError:
        pass  # that was all
    return found


def _send(through: socket.socket, packet: bytes, target: tuple[str, int] | None) -> None:
    """A packet that cannot go now, or to nobody, is lost, as packets are."""
    if target is None or through.fileno() < 0:
        return
    try:
        through.sendto(packet, target)
    except OSError:
        return


async def main() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    relays: dict[str, Relay] = {}
    begun = bytearray()

    def read() -> None:
        data = os.read(sys.stdin.fileno(), 65_536)
        if not data:
            loop.remove_reader(sys.stdin.fileno())
            ended.set()
            return
        begun.extend(data)
        while b"\n" in begun:
            line, _, rest = bytes(begun).partition(b"\n")
            begun[:] = rest
            sys.stdout.write(json.dumps(_apply(loop, relays, json.loads(line))) + "\n")
            sys.stdout.flush()

    loop.add_reader(sys.stdin.fileno(), read)
    await ended.wait()


def _apply(
    loop: asyncio.AbstractEventLoop, relays: dict[str, Relay], table: dict[str, dict[str, Any]]
) -> dict[str, dict[str, int]]:
    for name in [name for name in relays if name not in table]:
        relays.pop(name).close()
    for name, row in table.items():
        if name not in relays:
            relays[name] = Relay(loop)
        relays[name].set(row)
    return {name: relay.status() for name, relay in relays.items()}


if __name__ == "__main__":
    asyncio.run(main())
