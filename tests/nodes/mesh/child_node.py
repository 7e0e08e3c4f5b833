"""A node in a process of its own, for tests: `child_node.py FOLDER [--dial ADDRESSES] ALLOWED_ID...`.

With `--dial host:port,host:port` it dials the first allowed node there. Prints one JSON line with its NodeId and
addresses when it listens. Ops: 0x20 echo, 0x21 size of the body, 0x22 sleep
for the seconds in the body, 0x23 fail, 0x24 own error code, 0x25 as many bytes as the body says, 0x26 remember the
body, 0x27 what was remembered, 0x28 counters as JSON, 0x29 echo by an async handler.
"""

import argparse
import asyncio
import json
from pathlib import Path

from nodes.mesh import Handler, HandlerError, KafkaCall, Mesh, run_node, stop_event

ECHO, SIZE, SLEEP, FAIL, REFUSE, GIVE, REMEMBER, RECALL, COUNTERS, ECHO_IN_TASK = range(0x20, 0x2A)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dial", default="")
    parser.add_argument("allowed", nargs="+")
    options = parser.parse_args()
    mesh = Mesh(options.folder, role="broker", allow=options.allowed, capabilities=["echo"])
    remembered: list[bytes] = []
    zeros = bytes(1024 * 1024)

    def echo(call: KafkaCall) -> memoryview:
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

    async def echo_in_task(call: KafkaCall) -> memoryview:
        return call.payload

    handlers: list[Handler] = [echo, size, sleep, fail, refuse, give, remember, recall, counters, echo_in_task]
    for number, handler in enumerate(handlers):
        mesh.register_kafka_handler(0x20 + number, handler)
    stop = stop_event()
    await mesh.start()
    if options.dial:
        mesh.add_peer(options.allowed[0], options.dial.split(","))
    print(json.dumps({"node_id": mesh.node_id, "addresses": mesh.addresses}), flush=True)  # noqa: T201
    await stop.wait()
    await mesh.close()


if __name__ == "__main__":
    run_node(main())
