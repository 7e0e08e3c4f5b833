"""A broker-like node in a process of its own, for tests and benchmarks: `child_node.py FOLDER ALLOWED_ID...`.

Prints one JSON line with its NodeId and addresses when it listens. Ops: 0x20 echo, 0x21 size of the body, 0x22 sleep
for the seconds in the body, 0x23 fail, 0x24 own error code, 0x25 as many bytes as the body says, 0x26 remember the
body, 0x27 what was remembered, 0x28 counters as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path

from nodes.mesh import HandlerError, KafkaCall, Mesh, run_node, stop_event

ECHO, SIZE, SLEEP, FAIL, REFUSE, GIVE, REMEMBER, RECALL, COUNTERS = range(0x20, 0x29)


async def main() -> None:
    mesh = Mesh(Path(sys.argv[1]), role="broker", allow=sys.argv[2:], capabilities=["echo"])
    remembered: list[bytes] = []
    zeros = bytes(1024 * 1024)

    async def echo(call: KafkaCall) -> memoryview:
        return call.payload

    async def size(call: KafkaCall) -> bytes:
        return str(len(call.payload)).encode()

    async def sleep(call: KafkaCall) -> bytes:
        await asyncio.sleep(float(bytes(call.payload)))
        return b"slept"

    async def fail(call: KafkaCall) -> bytes:
        raise ValueError("on purpose")

    async def refuse(call: KafkaCall) -> bytes:
        raise HandlerError("not today", code=142)

    async def give(call: KafkaCall) -> list[bytes | bytearray | memoryview]:
        count = int(bytes(call.payload))
        return [zeros] * (count // len(zeros)) + [zeros[: count % len(zeros)]]

    async def remember(call: KafkaCall) -> bytes:
        remembered.append(bytes(call.payload[:8]))
        await asyncio.sleep(0)
        return b""

    async def recall(call: KafkaCall) -> bytes:
        return b",".join(remembered)

    async def counters(call: KafkaCall) -> bytes:
        return json.dumps(mesh.roster.counters).encode()

    for number, handler in enumerate((echo, size, sleep, fail, refuse, give, remember, recall, counters)):
        mesh.register_kafka_handler(0x20 + number, handler)
    stop = stop_event()
    await mesh.start()
    print(json.dumps({"node_id": mesh.node_id, "addresses": mesh.addresses}), flush=True)  # noqa: T201
    await stop.wait()
    await mesh.close()


if __name__ == "__main__":
    run_node(main())
