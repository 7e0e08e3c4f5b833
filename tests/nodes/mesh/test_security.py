"""Who gets in and where the node listens: strangers one by one and in a flood, sockets, silent connections."""

import asyncio
import json
import os
import socket
import time
from pathlib import Path

import psutil
import pytest
from two_nodes import COUNTERS, ECHO, Child, run, run_here

from nodes.mesh import Mesh, NodeState, PeerDownError, Settings, quic
from nodes.mesh.frames import NO_TRACE, TAG_CONTROL, encode_frame
from nodes.mesh.link import control_frame
from nodes.mesh.messages import Hello

LOOPBACK = ("127.0.0.1", "::1")


async def counters(mesh: Mesh, child: Child) -> dict[str, int]:
    found: dict[str, int] = json.loads(bytes(await mesh.kafka_op_call(child.node_id, COUNTERS, 7, b"")))
    return found


def test_a_stranger_is_closed_with_a_reason_and_counted(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        stranger = Mesh(tmp_path / "stranger", role="gateway")
        await stranger.start()
        try:
            stranger.add_peer(child.node_id, child.addresses)
            with pytest.raises(PeerDownError, match="allow-list"):
                await stranger.wait_up(child.node_id, 1)
        finally:
            await stranger.close()
        assert (await counters(mesh, child))["strangers_refused"] >= 1

    run(test, tmp_path)


def test_a_stranger_that_opens_streams_gets_none_served(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        endpoint = await quic.bind(quic.new_secret(), ["127.0.0.1:0", "[::1]:0"])
        connection = await endpoint.dial(child.node_id, child.addresses)

        async def say_hello() -> None:
            for _ in range(100):
                stream = await connection.open_stream()
                await stream.write(control_frame(Hello(1, "gateway", "0", 1, [])))
                await stream.read(100)

        with pytest.raises(quic.StreamLostError):
            await say_hello()
        assert "403" in await connection.closed()
        await endpoint.close()
        assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"good") == b"good"

    run(test, tmp_path)


async def knock(endpoint: quic.Endpoint, peer: str, addresses: list[str]) -> None:
    """One stranger's handshake, to whatever end."""
    try:
        async with asyncio.timeout(2):
            connection = await endpoint.dial(peer, addresses)
            await connection.closed()
    except (quic.StreamLostError, TimeoutError):
        return


def test_a_flood_of_strangers_shuts_no_peer_out(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        endpoints = [await quic.bind(quic.new_secret(), ["127.0.0.1:0", "[::1]:0"]) for _ in range(4)]
        attempts = (knock(endpoints[n % 4], child.node_id, child.addresses) for n in range(400))
        knocks = [asyncio.create_task(attempt) for attempt in attempts]
        await asyncio.sleep(0.05)
        assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"in the flood", timeout=5) == b"in the flood"
        # A peer that lost its connection comes back through the flood, because its address is known.
        mesh._links[child.node_id].end(0, "on purpose")
        await mesh.wait_up(child.node_id, 5)
        assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"again", timeout=5) == b"again"
        await asyncio.gather(*knocks)
        found = await counters(mesh, child)
        assert found["strangers_refused"] <= 2 * Settings().stranger_handshakes + 50
        assert found["handshakes_shed"] > 0
        for endpoint in endpoints:
            await endpoint.close()

    run(test, tmp_path)


def test_an_allowed_peer_that_says_nothing_or_nonsense_is_let_go(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        secret = quic.new_secret()
        server.allow(quic.node_id_of(secret))
        endpoint = await quic.bind(secret, ["127.0.0.1:0", "[::1]:0"])
        first_words = {
            "no Hello": [],
            "where Hello belongs": encode_frame(0x12, NO_TRACE, [b"x"]),
            "cannot be decoded": encode_frame(TAG_CONTROL, NO_TRACE, [b"\x00"]),
            "protocol 99": control_frame(Hello(99, "gateway", "0", 1, [])),
        }
        for reason, words in first_words.items():
            connection = await endpoint.dial(server.node_id, server.addresses)
            if words:
                stream = await connection.open_stream()
                await stream.write(words)
            async with asyncio.timeout(5):
                assert reason in await connection.closed()
        assert server.roster.counters["handshakes_failed"] == 3
        await endpoint.close()
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        assert await caller.kafka_op_call(server.node_id, ECHO, 7, b"good") == b"good"

    run_here(test, tmp_path, Settings(hello_timeout=0.3))


def wildcard_sockets(pid: int) -> set[tuple[int, int]]:
    """Type and port of each socket that is not bound to loopback."""
    found = psutil.Process(pid).net_connections("inet")
    return {(item.type, item.laddr.port) for item in found if item.laddr and item.laddr.ip not in LOOPBACK}


def test_no_socket_of_either_process_stays_on_a_wildcard_address(tmp_path: Path) -> None:
    """iroh's port mapper looks for a router from one wildcard UDP port in the first second after a bind, and the Python
    binding cannot switch it off. The mesh's own sockets are on loopback from the start, and nothing else ever opens."""

    async def test(mesh: Mesh, child: Child) -> None:
        own_ports = {int(address.rpartition(":")[2]) for address in (*mesh.addresses, *child.addresses)}
        for address in (*mesh.addresses, *child.addresses):
            assert address.rpartition(":")[0].strip("[]") in LOOPBACK
        pids = (os.getpid(), child.process.pid)
        started = time.monotonic()
        seen: dict[int, set[tuple[int, int]]] = {pid: set() for pid in pids}
        while any(open_now := [wildcard_sockets(pid) for pid in pids]) and time.monotonic() - started < 10:
            for pid, sockets in zip(pids, open_now, strict=True):
                seen[pid] |= sockets
            await asyncio.sleep(0.02)
        assert [wildcard_sockets(pid) for pid in pids] == [set(), set()]
        for sockets in seen.values():
            assert len(sockets) <= 1
            assert all(kind == socket.SOCK_DGRAM and port not in own_ports for kind, port in sockets)
        await mesh.kafka_op_call(child.node_id, ECHO, 7, b"x")
        assert [wildcard_sockets(pid) for pid in pids] == [set(), set()]

    run(test, tmp_path)


def test_an_address_that_nobody_asked_for_stops_the_start() -> None:
    async def test() -> None:
        # With one family iroh opens a wildcard socket of the other one by itself.
        with pytest.raises(quic.ListenError, match="nobody asked for"):
            await quic.bind(quic.new_secret(), ["127.0.0.1:0"])

    asyncio.run(test())


def test_the_roster_is_plain_data_for_the_lab(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        await caller.kafka_op_call(server.node_id, ECHO, 7, b"x" * 100)
        data = json.loads(json.dumps(caller.roster.to_dict()))
        [node] = data["nodes"]
        assert (node["node_id"], node["state"], node["role"]) == (server.node_id, NodeState.UP, "broker")
        assert node["calls_made"] == 1
        assert node["bytes_sent"] > 100
        [other] = server.roster.to_dict()["nodes"]
        assert (other["calls_served"], other["role"]) == (1, "gateway")

    run_here(test, tmp_path)
