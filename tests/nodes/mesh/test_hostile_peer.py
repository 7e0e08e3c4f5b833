"""An admitted peer that sends what it must not, on raw streams: no harm is done and good calls go on."""

import asyncio
import json
from pathlib import Path

import pytest
from two_nodes import COUNTERS, ECHO, RECALL, REMEMBER, Child, run

from nodes.mesh import Mesh
from nodes.mesh.frames import NO_TRACE, TAG_BODY, TAG_CONTROL, TAG_LANE, TAG_SINGLE, encode_frame
from nodes.mesh.messages import Body, BodyChunk, Inline, KafkaOp
from nodes.mesh.postcard import codec
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
