"""The broker's program: flags, start, and an end in which nothing acknowledged is lost."""

import argparse
import asyncio
import functools
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace

from nodes import heap
from nodes.broker.broker import Broker, data_folder
from nodes.broker.errors import SettingsError
from nodes.broker.handlers import register
from nodes.broker.settings import BrokerSettings
from nodes.mesh import Mesh, obey
from nodes.process import ProgramError, Stop, parser, run_program, say_ready
from wal.errors import WalError
from wal.log import SingleWal
from wal.settings import WalSettings

log = logging.getLogger(__name__)

EXIT_LOG_FAILED = 4


class LogFailedError(Exception):
    """The log failed while the broker ran; the message is for the person who started it."""


def flags() -> argparse.ArgumentParser:
    """All flags of the program."""
    found = parser("nodes.broker", "One broker of a cluster: keeps topics in a log and serves a gateway.")
    found.add_argument("--index", type=int, default=0, help="the broker's number; 0 is the controller")
    found.add_argument("--brokers", type=int, default=1, help="how many brokers the cluster has")
    found.add_argument("--allow", action="append", default=[], help="NodeId of a gateway; may be given again")
    found.add_argument("--hear-only", type=int, metavar="PORT", help="drop mesh packets of other source ports (Linux)")
    found.add_argument("--default-partitions", type=int, default=1, help="partitions of a topic that does not say")
    found.add_argument("--no-auto-create", action="store_true", help="do not make topics that clients ask for")
    found.add_argument("--max-message-bytes", type=int, default=BrokerSettings().max_message_bytes)
    found.add_argument("--segment-bytes", type=int, default=WalSettings().segment_bytes, help="size of a log file")
    found.add_argument("--retention-interval", type=float, default=BrokerSettings().retention_interval)
    found.add_argument("--environment", default=BrokerSettings().environment, help="part of a topic's RRL")
    found.add_argument("--cluster", default=BrokerSettings().cluster, help="part of a topic's RRL")
    return found


def settings_of(arguments: argparse.Namespace) -> BrokerSettings:
    try:
        return BrokerSettings(
            index=arguments.index,
            brokers=arguments.brokers,
            default_partitions=arguments.default_partitions,
            auto_create=not arguments.no_auto_create,
            max_message_bytes=arguments.max_message_bytes,
            retention_interval=arguments.retention_interval,
            environment=arguments.environment,
            cluster=arguments.cluster,
            wal=WalSettings(segment_bytes=arguments.segment_bytes),
        )
    except (SettingsError, WalError) as error:
        raise ProgramError(str(error)) from error


async def main(arguments: argparse.Namespace, stop: Stop) -> None:
    """Runs until told to stop, or until the log fails."""
    settings = settings_of(arguments)
    heap.keep_for_reuse()
    try:
        wal = SingleWal.open(data_folder(arguments.data), settings.wal)
    except WalError as error:
        raise ProgramError(str(error)) from error
    log.info("%s: %s", arguments.name, wal.report)
    broker = Broker(wal, settings)
    mesh = Mesh(arguments.data, role="broker", allow=arguments.allow)
    register(mesh, broker)
    try:
        await mesh.start()
        stop.on_order = functools.partial(obey, mesh)
        if arguments.hear_only is not None:
            mesh.hear_only(arguments.hear_only)
        broker.start()
        say_ready(name=arguments.name, role="broker", node_id=mesh.node_id, mesh=mesh.addresses)
        await _until_end(stop, broker)
    finally:
        await _end(mesh, broker)
    if broker.failure is not None:
        raise LogFailedError(str(broker.failure))


async def _until_end(stop: Stop, broker: Broker) -> None:
    ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(broker.failed.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()


async def _end(mesh: Mesh, broker: Broker) -> None:
    """Calls at work are answered, new ones refused; then the log is checkpointed."""
    mesh.settings = replace(mesh.settings, close_grace=broker.settings.failed_grace)  # what is left is stuck
    await broker.settle()
    await mesh.close()
    broker.close()
    log.info("stopped")


def run(arguments: Sequence[str] | None = None) -> None:
    """The whole program. A log that fails later is a sentence and an exit code of its own."""
    try:
        run_program(flags(), main, arguments)
    except LogFailedError as error:
        sys.stderr.write(f"nodes.broker: the log failed, so the broker ended: {error}\n")
        sys.exit(EXIT_LOG_FAILED)
