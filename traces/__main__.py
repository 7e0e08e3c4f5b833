"""`python -m traces`: the collector as a process. Says where it listens in one JSON line on stdout, once ready."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from traces.collector import Collector, CollectorSettings
from traces.errors import TracesError
from traces.store import StoreSettings

# Where the processors are all busy, the nodes that are looked at come first; their queues hold spans for seconds.
_NICENESS = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m traces", description="OTLP in, Jaeger's query API and a viewer out."
    )
    defaults = StoreSettings()
    parser.add_argument("--port", type=_port, default=0, help="OTLP/HTTP, query API and viewer (default: a free one)")
    parser.add_argument("--grpc-port", type=_port, default=0, help="OTLP/gRPC (default: a free one)")
    parser.add_argument("--store", type=Path, help="the SQLite file (default: a temporary one)")
    parser.add_argument("--retention-hours", type=_positive, default=defaults.retention_hours)
    parser.add_argument("--max-bytes", type=_whole, default=defaults.max_bytes)
    parser.add_argument("--control-pipe", action="store_true", help="exit when stdin ends")
    given = parser.parse_args(arguments)
    os.nice(_NICENESS)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = CollectorSettings(
        port=given.port,
        grpc_port=given.grpc_port,
        store=given.store,
        store_settings=StoreSettings(retention_hours=given.retention_hours, max_bytes=given.max_bytes),
    )
    try:
        asyncio.run(_serve(settings, control_pipe=given.control_pipe))
    except TracesError as error:
        sys.stderr.write(f"traces: {error}\n")
        return 1
    return 0


async def _serve(settings: CollectorSettings, *, control_pipe: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    collector = Collector(settings)
    try:
        ready = collector.start()
        if control_pipe:
            threading.Thread(target=_watch_pipe, args=(loop, ended), name="traces-control", daemon=True).start()
        sys.stdout.write(json.dumps({**ready, "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        await ended.wait()
    finally:
        await collector.stop()


def _watch_pipe(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """A blocking read in a thread: it works for pipes, files and terminals alike."""
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(ended.set)


def _port(text: str) -> int:
    if not text.isdecimal() or not int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; ports are 0 to 65535")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
