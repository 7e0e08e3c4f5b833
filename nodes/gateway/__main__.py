"""`python -m nodes.gateway`: one gateway process."""

import argparse
import functools
import json

from nodes import heap
from nodes.gateway.server import Gateway, bind
from nodes.gateway.session import Advertised
from nodes.mesh import KafkaCall, Mesh, OpCode, Settings, obey
from nodes.process import ProgramError, Stop, parser, run_program, say_ready

# Brokers are started first and answer within milliseconds; a gateway that starts without them serves all the same.
BROKER_WAIT = 2.0
WILDCARDS = ("0.0.0.0", "::")


def flags() -> argparse.ArgumentParser:
    known = parser("python -m nodes.gateway", "The node that Kafka clients connect to.")
    known.add_argument("--listen", default="127.0.0.1:9092", metavar="HOST:PORT", help="port 0 for a free one")
    known.add_argument("--advertise", metavar="HOST:PORT", help="what clients are told to connect to")
    known.add_argument(
        "--broker",
        action="append",
        required=True,
        metavar="INDEX=NODE_ID@ADDRESS,ADDRESS",
        help="a broker; the one with index 0 is the controller",
    )
    known.add_argument(
        "--no-shared-bodies",
        action="store_true",
        help="record batches cross the mesh to brokers on this machine too, instead of lying in shared memory",
    )
    return known


def address(text: str, flag: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ProgramError(f"{flag} must be HOST:PORT, such as 127.0.0.1:9092, not {text!r}")
    return host.strip("[]"), int(port)


def brokers(texts: list[str]) -> dict[int, tuple[str, list[str]]]:
    """NodeId and addresses by index."""
    found: dict[int, tuple[str, list[str]]] = {}
    for text in texts:
        index, _, rest = text.partition("=")
        node_id, _, addresses = rest.partition("@")
        if not index.isdigit() or not node_id or not addresses:
            raise ProgramError(f"--broker must be INDEX=NODE_ID@ADDRESS,ADDRESS, not {text!r}")
        if int(index) in found:
            raise ProgramError(f"--broker {index} is given twice")
        found[int(index)] = (node_id, addresses.split(","))
    if 0 not in found:
        raise ProgramError("--broker 0 is missing; it is the controller")
    return found


async def main(settings: argparse.Namespace, stop: Stop) -> None:
    host, port = address(settings.listen, "--listen")
    advertised = Advertised(*address(settings.advertise, "--advertise")) if settings.advertise else None
    if advertised is None and host in WILDCARDS:
        raise ProgramError(
            f"--listen {settings.listen} is no address to connect to; name one with --advertise HOST:PORT"
        )
    known = brokers(settings.broker)
    heap.keep_for_reuse()
    listener = bind(host, port)  # first of all: a taken port is then said at once
    # It takes both nodes to share memory, so one of them is enough to keep all bodies on the mesh.
    mesh_settings = Settings(arena_bytes=0) if settings.no_shared_bodies else None
    mesh = Mesh(settings.data, role="gateway", settings=mesh_settings)
    await mesh.start()
    stop.on_order = functools.partial(obey, mesh)
    try:
        gateway = Gateway(mesh, {index: node_id for index, (node_id, _) in known.items()}, org_id=settings.org)

        async def status(_call: KafkaCall) -> bytes:
            return json.dumps(gateway.status()).encode()

        mesh.register_kafka_handler(OpCode.STATUS, status)
        for node_id, addresses in known.values():
            mesh.add_peer(node_id, addresses)
        await gateway.brokers.wait_for_controller(BROKER_WAIT)
        host, port = await gateway.start(listener, advertised)
        listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        say_ready(name=settings.name, role="gateway", node_id=mesh.node_id, mesh=mesh.addresses, listen=listen)
        await stop.wait()
        await gateway.stop()
    finally:
        await mesh.close()


if __name__ == "__main__":
    run_program(flags(), main)
