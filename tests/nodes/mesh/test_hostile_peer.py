"""An admitted peer that sends what it must not, on raw streams: no harm is done and good calls go on."""

import asyncio
import json
from pathlib import Path

import pytest
from two_nodes import COUNTERS, ECHO, RECALL, REMEMBER, Child, run, run_here

from nodes.mesh import Mesh, Settings, Status
from nodes.mesh.frames import (
    MAX_BODY_BYTES,
    NO_TRACE,
    TAG_BODY,
    TAG_CONTROL,
    TAG_LANE,
    TAG_SINGLE,
    Frame,
    FrameDecoder,
    encode_frame,
)
from nodes.mesh.messages import Body, BodyChunk, BodyCredit, Chunked, Inline, KafkaOp, KafkaOpResponse
from nodes.mesh.postcard import codec
from nodes.mesh.quic import Stream
from nodes.mesh.varint import encode_varint


async def send_raw(mesh: Mesh, child: Child, data: bytes) -> None:
    stream = await mesh._links[child.node_id].connection.open_stream()
    await stream.write([data])
    await asyncio.sleep(0.1)


async def counters(mesh: Mesh, child: Child) -> dict[str, int]:
    found: dict[str, int] = json.loads(bytes(await mesh.kafka_op_call(child.node_id, COUNTERS, 7, b"")))
    return found


def test_a_replayed_call_is_executed_once_on_whichever_stream_it_comes(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        op = KafkaOp(REMEMBER, 1 << 40 | 200, 7, 1, 30_000, Inline(b"once"))
        frame = b"".join(encode_frame(TAG_LANE, NO_TRACE, codec(KafkaOp).parts(op)))
        await send_raw(mesh, child, frame + frame)
        await send_raw(mesh, child, frame)
        assert await mesh.kafka_op_call(child.node_id, RECALL, 7, b"") == b"once"
        assert (await counters(mesh, child))["replayed"] == 2

    run(test, tmp_path)


MALFORMED = {
    "no body": b"".join(encode_frame(TAG_LANE, NO_TRACE, [])),
    "nonsense": b"".join(encode_frame(TAG_SINGLE, NO_TRACE, [b"\xff" * 50])),
    "too large": bytes((TAG_LANE,)) + encode_varint(1 << 40),
    "second hello": b"".join(encode_frame(TAG_CONTROL, NO_TRACE, [b"\x02\x01"])),
    "gap in a body": b"".join(
        encode_frame(TAG_BODY, NO_TRACE, codec(Body).parts(Body(BodyChunk(1 << 40 | 201, 5, b"x"))))
    ),
    "credit for nothing": b"".join(encode_frame(TAG_BODY, NO_TRACE, codec(Body).parts(Body(BodyCredit(1 << 40))))),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_costs_its_stream_only(tmp_path: Path, name: str) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        await send_raw(mesh, child, MALFORMED[name])
        assert (await counters(mesh, child))["malformed"] == 1
        assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"good") == b"good"

    run(test, tmp_path)


def test_an_unknown_tag_is_counted_and_the_stream_goes_on(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        op = KafkaOp(REMEMBER, 1 << 40 | 200, 7, 1, 30_000, Inline(b"after"))
        known = b"".join(encode_frame(TAG_LANE, NO_TRACE, codec(KafkaOp).parts(op)))
        await send_raw(mesh, child, b"\x80" + encode_varint(100) + bytes(100) + known)
        assert await mesh.kafka_op_call(child.node_id, RECALL, 7, b"") == b"after"
        assert (await counters(mesh, child))["unsupported_tag"] == 1

    run(test, tmp_path)


def raw_op(request_id: int, lane: int, payload: Inline | Chunked) -> bytes:
    op = KafkaOp(ECHO, request_id << 8 | 200, 7, lane, 30_000, payload)
    return b"".join(encode_frame(TAG_LANE, NO_TRACE, codec(KafkaOp).parts(op)))


async def statuses(stream: Stream, count: int) -> list[int]:
    """The status of each answer on a raw stream."""
    decoder, found = FrameDecoder(), list[int]()
    async with asyncio.timeout(10):
        while len(found) < count:
            for frame in decoder.feed(await stream.read(65536)):
                assert isinstance(frame, Frame)
                found.append(codec(KafkaOpResponse).decode(frame.body).status)
    return found


def test_a_body_over_the_limit_is_refused_when_it_is_announced(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        stream = await caller._links[server.node_id].connection.open_stream()
        await stream.write(
            [raw_op(1 << 40, 1, Chunked(MAX_BODY_BYTES + 1)) + raw_op((1 << 40) + 1, 1, Inline(b"next"))]
        )
        assert await statuses(stream, 2) == [Status.TOO_LARGE, Status.OK]

    run_here(test, tmp_path)


def test_calls_behind_a_body_that_never_comes_are_bounded(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        stream = await caller._links[server.node_id].connection.open_stream()
        held = [raw_op((1 << 40) + n, 1, Inline(b"x") if n else Chunked(50_000)) for n in range(30)]
        await stream.write([b"".join(held)])
        assert await statuses(stream, 20) == [Status.BUSY] * 20
        assert server._links[caller.node_id].serving._held_calls == 10

    run_here(test, tmp_path, Settings(handlers=10))


def test_bodies_that_are_never_whole_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        stream = await caller._links[server.node_id].connection.open_stream()
        for n in range(20):
            chunk = Body(BodyChunk(((1 << 40) + n) << 8 | 200, 0, bytes(50_000)))
            await stream.write(encode_frame(TAG_BODY, NO_TRACE, codec(Body).parts(chunk)))
        async with asyncio.timeout(5):
            while not server.roster.counters["malformed"]:
                await asyncio.sleep(0.01)
        assert server._links[caller.node_id].serving._body_bytes <= 250_000
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        assert await caller.kafka_op_call(server.node_id, ECHO, 7, b"good") == b"good"

    run_here(test, tmp_path, Settings(body_bytes=200_000))


def test_a_link_that_lost_its_lane_stream_is_made_anew(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        link = caller._links[server.node_id]
        link.calling._lanes[0].send([b"\x12" + encode_varint(1 << 40)])  # spoils the stream for good
        async with asyncio.timeout(10):
            await link.ended
            await caller.wait_up(server.node_id, 5)
        for lane in range(4):
            assert await caller.kafka_op_call(server.node_id, ECHO, 7, b"good", lane=lane, timeout=5) == b"good"

    run_here(test, tmp_path)
