"""`rafka-lab up`: a cluster in the foreground, until SIGINT or SIGTERM or until a node crashes."""

import argparse
import json
import queue
import signal
import sys
from types import FrameType

from rafka_lab import Lab, RafkaLabError
from rafka_lab.node import Node, crash_report

DEFAULT_PORT = 9092  # Kafka's own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers (1)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="for Kafka clients (9092); 0 for a free one")
    parser.add_argument("--data", metavar="DIR", help="keeps the data; a temporary folder if not given")
    parser.add_argument("--trace-ratio", type=float, default=1.0, help="the share of requests that are traced; 0: off")
    parser.add_argument("--no-shared-bodies", action="store_true", help="record batches cross the mesh as well")
    parser.add_argument("--json", action="store_true", help="say what runs as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    ends: queue.SimpleQueue[Node | None] = queue.SimpleQueue()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        ends.put(None)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _run(arguments, ends)
    except RafkaLabError as error:
        sys.stderr.write(f"rafka-lab up: {error}\n")
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(arguments: argparse.Namespace, ends: "queue.SimpleQueue[Node | None]") -> int:
    lab = Lab(
        arguments.brokers,
        arguments.data,
        arguments.port,
        trace_ratio=arguments.trace_ratio,
        shared_bodies=not arguments.no_shared_bodies,
        on_crash=ends.put,
    )
    with lab:
        _say(lab, as_json=arguments.json)
        crashed = ends.get()
        if crashed is not None:
            sys.stderr.write(crash_report(crashed))
    return 0 if crashed is None else 1


def _say(lab: Lab, *, as_json: bool) -> None:
    facts = lab.describe()
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(f"bootstrap {lab.bootstrap}\ntraces    {lab.traces_url or 'off'}\ndata      {lab.data}\n")
        for node in lab.nodes.values():
            mesh = f", mesh {', '.join(node.mesh)}" if node.mesh else ""
            sys.stdout.write(f"{node.name:<9} pid {node.pid}{mesh}, log {node.log}\n")
        sys.stdout.write("Ctrl-C ends all of it.\n")
    sys.stdout.flush()
