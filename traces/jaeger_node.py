"""`python -m traces.jaeger_node`: a real Jaeger as one more node of a lab. Says where it listens in one JSON line, once
ready, and takes Jaeger with it when it ends, in whatever way.
"""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

from traces.errors import TracesError
from traces.jaeger_program import JaegerProgram

_LOOK_SECONDS = 0.2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m traces.jaeger_node", description="Runs a Jaeger program.")
    parser.add_argument("--program", type=Path, required=True, help="jaeger, or jaeger-all-in-one")
    parser.add_argument("--folder", type=Path, required=True, help="for its configuration and log")
    parser.add_argument("--port", type=int, default=0, help="of its query API and UI (default: a free one)")
    parser.add_argument("--otlp-port", type=int, default=0, help="of OTLP/HTTP (default: a free one)")
    parser.add_argument("--control-pipe", action="store_true", help="exit when stdin ends")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    given.folder.mkdir(parents=True, exist_ok=True)
    jaeger = JaegerProgram(given.program, given.folder, given.port, given.otlp_port, bound=True)
    if given.control_pipe:
        threading.Thread(target=_watch_pipe, args=(ended,), name="jaeger-control", daemon=True).start()
    try:
        place = jaeger.wait_ready()
    except TracesError as error:
        sys.stderr.write(f"traces.jaeger_node: {error}\n")
        return 1
    sys.stdout.write(json.dumps({"traces": place.url, "otlp": place.otlp, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    while not ended.wait(_LOOK_SECONDS):
        if (code := jaeger.ended()) is not None:
            sys.stderr.write(f"traces.jaeger_node: Jaeger has ended by itself with {code}\n")
            return 1
    jaeger.stop()
    return 0


def _watch_pipe(ended: threading.Event) -> None:
    """A blocking read in a thread: it works for pipes, files and terminals alike."""
    while os.read(0, 4096):
        pass
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
