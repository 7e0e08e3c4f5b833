"""Attempts of one dialer that come close together, as when a node starts or thaws."""

import asyncio
from pathlib import Path

import pytest

from nodes.mesh import Mesh, Settings, quic
from nodes.mesh.link import control_frame, greet
from nodes.mesh.messages import PROTOCOL_VERSION, Hello, Ping


def test_an_attempt_that_was_answered_lives_on_beside_a_later_one(tmp_path: Path) -> None:
    async def test() -> None:
        secret = quic.new_secret()
        hello = Hello(PROTOCOL_VERSION, "gateway", "0", 1, [])
        mesh = Mesh(tmp_path, role="broker", allow=[quic.node_id_of(secret)], settings=Settings(burst=60))
        await mesh.start()
        dialer = await quic.bind(secret, ["127.0.0.1:0", "[::1]:0"])
        try:
            first = await dialer.dial(mesh.node_id, mesh.addresses)
            control, answer = await greet(first, hello)
            assert answer.refusal == ""
            second = await dialer.dial(mesh.node_id, mesh.addresses)
            await greet(second, hello)
            await control.stream.write(control_frame(Ping(1)))
            await mesh.wait_up(dialer.node_id, 5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(first.closed(), 0.5)
        finally:
            await dialer.close()
            await mesh.close()

    asyncio.run(test())
