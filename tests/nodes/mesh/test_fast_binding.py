"""The patched iroh binding: safe under cancellation, and left alone with a warning where it cannot be trusted."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import iroh.iroh_ffi as ffi
import pytest
from two_nodes import ROOT

from nodes.mesh import fast_iroh, quic

# Two nodes call each other in a process whose binding was spoiled before the mesh was imported.
CALL_WITHOUT_THE_PATCH = """
import asyncio, pathlib, sys, warnings
{spoil}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from nodes.mesh import FastBindingWarning, Mesh, fast_iroh
[warning] = [w for w in caught if w.category is FastBindingWarning]
print(warning.message)
import iroh.iroh_ffi as ffi
assert ffi._uniffi_rust_call_async is not fast_iroh._call_async
assert ffi._UniffiFfiConverterBytes.__dict__.get("lower") is not fast_iroh._lower

async def main():
    folder = pathlib.Path(sys.argv[1])
    caller = Mesh(folder / "caller", role="gateway")
    server = Mesh(folder / "server", role="broker", allow=[caller.node_id])
    server.register_kafka_handler(0x40, lambda call: [call.payload, b"!"])
    await server.start()
    await caller.start()
    caller.add_peer(server.node_id, server.addresses)
    await caller.wait_up(server.node_id, 10)
    for size in (3, 50_000):
        answer = await caller.kafka_op_call(server.node_id, 0x40, 7, [bytes(size), b"x"])
        assert answer == bytes(size) + b"x!", len(answer)
    await caller.close()
    await server.close()

asyncio.run(main())
print("called")
"""
OTHER_VERSION = """
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: "9.9.9" if name == "iroh" else version(name)
"""
OTHER_BYTES = """
import iroh.iroh_ffi as ffi
to_bytes = ffi.SecretKey.to_bytes
ffi.SecretKey.to_bytes = lambda self: to_bytes(self)[::-1]
"""


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(OTHER_VERSION, "iroh 9.9.9 is installed, and the patch is made for 1.2.0"), (OTHER_BYTES, "gave other bytes")],
    ids=["another version", "a failed round trip"],
)
def test_what_cannot_be_patched_is_left_alone_with_a_warning_and_works(tmp_path: Path, spoil: str, reason: str) -> None:
    program = CALL_WITHOUT_THE_PATCH.format(spoil=spoil)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=environment)
    assert done.returncode == 0, done.stderr
    warning, called = done.stdout.splitlines()
    assert reason in warning
    assert "Install iroh==1.2.0" in warning
    assert called == "called"


def test_the_pinned_version_is_patched() -> None:
    assert fast_iroh.WHY_NOT_PATCHED is None
    assert ffi._uniffi_rust_call_async is fast_iroh._call_async


async def with_streams(test: Callable[[quic.Connection, quic.Connection], Awaitable[None]]) -> None:
    """Two bare connected endpoints."""
    ends = [await quic.bind(quic.new_secret(), ["127.0.0.1:0", "[::1]:0"]) for _ in range(2)]
    try:
        dialing = asyncio.create_task(ends[0].dial(ends[1].node_id, ends[1].addresses))
        handshake = await ends[1].accept()
        assert handshake is not None
        accepted = await handshake.complete()
        await test(await dialing, accepted)
    finally:
        for end in ends:
            await end.close()


def test_cancelled_reads_lose_no_byte() -> None:
    async def test(near: quic.Connection, far: quic.Connection) -> None:
        stream = await near.open_stream()
        await stream.write([b"\x00" * 4])
        other = await far.accept_stream()
        expected = bytearray(4)
        received = bytearray()

        async def send() -> None:
            for n in range(1, 2001):
                while cancelled < n // 10:  # so that reads are given up all the time, however fast the machine is
                    await asyncio.sleep(0)
                piece = n.to_bytes(4, "big")
                expected.extend(piece)
                await stream.write([piece])
                await asyncio.sleep(0)
            await stream.finish()

        cancelled = 0
        sending = asyncio.create_task(send())
        while True:
            reading = asyncio.create_task(other.read(1024))
            for _ in range(cancelled % 4):
                await asyncio.sleep(0)
            reading.cancel()
            try:
                data = await reading
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled < 3000:
                    continue
                data = await other.read(1024)
            if not data:
                break
            received += data
        await sending
        assert cancelled >= 100
        assert received == expected

    asyncio.run(with_streams(test))


def test_cancelled_opens_wedge_no_connection() -> None:
    async def test(near: quic.Connection, far: quic.Connection) -> None:
        async def end_streams() -> None:
            while True:
                await (await far.accept_stream()).abandon(0)

        ending = asyncio.create_task(end_streams())
        opened = 0
        for n in range(3000):
            opening = asyncio.create_task(near.open_stream())
            for _ in range(n % 3):
                await asyncio.sleep(0)
            opening.cancel()
            opened += not isinstance((await asyncio.gather(opening, return_exceptions=True))[0], BaseException)
        assert opened < 3000
        async with asyncio.timeout(5):
            stream = await near.open_stream()
            await stream.write([b"still here"])
        ending.cancel()

    asyncio.run(with_streams(test))
