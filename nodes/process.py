"""What every node program does around its work: flags or a settings file, logging, the ready line, signals, the end.

A program ends on SIGTERM, SIGINT, or when its control pipe (stdin, with `--control-pipe`) ends, which happens when the
process that started it is gone in any way. A line in the pipe is an order. What keeps a program from starting is one
sentence on stderr and exit code 2.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn

from opentelemetry import trace
from opentelemetry.trace import NoOpTracerProvider

from nodes.mesh import IdentityError, ListenError, run_node, stop_event
from traces.errors import ConfigurationError
from traces.wiring import Provider, configure

EXIT_CANNOT_START = 2
EXIT_STUCK = 3
# After the control pipe ended: longer than any clean stop, shorter than a person waits for leftovers to go.
STUCK_SECONDS = 4.5
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SAMPLER_VARIABLE = "OTEL_TRACES_SAMPLER"
# New objects between two looks for garbage. Python's 700 are those of 20 requests, and spans that wait to be sent are
# looked at again and again: 5 % of a busy gateway's time. Cycles are rare here, so little waits.
GARBAGE_OBJECTS = 10_000
# More than the connections that a gateway takes.
FILES = 65_536
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger(__name__)


class ProgramError(Exception):
    """Why a program cannot start: one sentence for the person who started it."""


class Stop:
    """The wish to end, from wherever it comes. `on_order` gets the control pipe's lines, which are JSON objects."""

    def __init__(self, *, control_pipe: bool) -> None:
        self._event = stop_event()
        self.on_order: Callable[[dict[str, Any]], None] | None = None
        if control_pipe:
            loop = asyncio.get_running_loop()
            watcher = threading.Thread(target=_watch_pipe, args=(loop, self._event, self._take), daemon=True)
            watcher.start()

    async def wait(self) -> None:
        await self._event.wait()

    def _take(self, line: bytes) -> None:
        if self.on_order is None:
            log.error("the control pipe brought an order, but this program takes none: %r", line)
        else:
            self.on_order(json.loads(line))


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """The flags that all programs have. `--settings` names a JSON object with the same names as the flags."""
    flags = argparse.ArgumentParser(prog=program, description=description)
    flags.add_argument("--name", required=True, help="the node's name, such as broker-0")
    flags.add_argument("--data", required=True, type=Path, help="the node's folder; made if it is not there")
    flags.add_argument("--org", type=int, default=1, help="the organisation that ops belong to")
    flags.add_argument("--settings", type=Path, help="a JSON file with these flags; flags given here win")
    flags.add_argument("--log", type=Path, help="the file that log lines go to; stderr if not given")
    flags.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    flags.add_argument("--control-pipe", action="store_true", help="end when stdin ends")
    flags.add_argument("--traces", metavar="URL", help="where spans go; without it, and without OTEL_*, none are made")
    flags.add_argument("--trace-ratio", type=float, default=1.0, help="the share of requests that are traced (1.0)")
    return flags


def parse(flags: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The settings, from the file that `--settings` names and then from the flags."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--settings", type=Path)
    file, rest = finder.parse_known_args(arguments)
    from_file = [] if file.settings is None else _flags_of(file.settings, flags)
    return flags.parse_args([*from_file, *rest])


def _flags_of(path: Path, flags: argparse.ArgumentParser) -> list[str]:
    """The file's settings as flags, so that one set of checks serves both."""
    try:
        settings = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ProgramError(f"the settings file {path} cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise ProgramError(f"the settings file {path} must hold a JSON object with the names of flags")
    known = {option for action in flags._actions for option in action.option_strings}
    given: list[str] = []
    for name, value in settings.items():
        flag = "--" + str(name).replace("_", "-")
        if flag not in known:
            raise ProgramError(f"the settings file {path} has {name!r}, which is not a setting of {flags.prog}")
        if value is True:
            given.append(flag)
        elif value not in (False, None):
            given += [f"{flag}={one}" for one in (value if isinstance(value, list) else [value])]
    return given


def make_folder(path: Path) -> Path:
    """The node's folder, made if need be and shown to be writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ProgramError(f"the data folder {path} cannot be written to: {error.strerror or error}") from error
    return path


def set_up_logging(settings: argparse.Namespace) -> None:
    if settings.log is None:
        logging.basicConfig(stream=sys.stderr, level=settings.log_level, format=_LOG_FORMAT)
        return
    try:
        logging.basicConfig(filename=settings.log, level=settings.log_level, format=_LOG_FORMAT)
    except OSError as error:
        raise ProgramError(f"the log file {settings.log} cannot be written to: {error.strerror or error}") from error


def set_up_traces(settings: argparse.Namespace, service: str) -> Provider | None:
    """Chooses the recorder for the spans that all libraries make through OpenTelemetry's API."""
    if not _makes_spans(settings):
        # Without a provider the API looks for one in the environment at every request.
        trace.set_tracer_provider(NoOpTracerProvider())
        return None
    try:
        return configure(service, settings.traces, settings.trace_ratio, resource={"rafka.node": settings.name})
    except ConfigurationError as error:
        raise ProgramError(str(error)) from error


def _makes_spans(settings: argparse.Namespace) -> bool:
    """Whether any request is traced and its spans have somewhere to go. The standard variables win over flags."""
    has_endpoint = settings.traces is not None or any(map(_is_set, _ENDPOINT_VARIABLES))
    return has_endpoint and (settings.trace_ratio != 0 or _is_set(_SAMPLER_VARIABLE))


def _is_set(variable: str) -> bool:
    """OpenTelemetry takes an empty variable for none."""
    return bool(os.environ.get(variable, "").strip())


def end_traces(provider: Provider) -> None:
    """Sends the last spans and says what became of all of them: nothing is lost silently."""
    provider.shutdown()
    stats = provider.stats()
    say = log.warning if stats.dropped or stats.refused else log.info
    say("spans: %d sent, %d dropped, %d refused by the collector", stats.exported, stats.dropped, stats.refused)


def raise_file_limit() -> None:
    """Connections and log files are descriptors, and shells often allow 1024; a process may raise that itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def say_ready(*, name: str, role: str, node_id: str, mesh: list[str], **more: str) -> None:
    """The one line on stdout: the node serves from now on."""
    line = {"name": name, "role": role, "pid": os.getpid(), "node_id": node_id, "mesh": mesh, **more}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def run_program(
    flags: argparse.ArgumentParser,
    main: Callable[[argparse.Namespace, Stop], Coroutine[Any, Any, None]],
    arguments: Sequence[str] | None = None,
) -> None:
    """Runs `main(settings, stop)` on uvloop. Its `ProgramError`s become one sentence and exit code 2."""
    try:
        settings = parse(flags, sys.argv[1:] if arguments is None else arguments)
        make_folder(settings.data)
        set_up_logging(settings)
        raise_file_limit()
        provider = set_up_traces(settings, service=f"rafka-{flags.prog.rpartition('.')[2]}")
        try:
            run_node(_main(settings, main))
        finally:
            if provider is not None:
                end_traces(provider)
    except (ProgramError, IdentityError, ListenError) as error:
        _give_up(flags.prog, str(error))


async def _main(
    settings: argparse.Namespace, main: Callable[[argparse.Namespace, Stop], Coroutine[Any, Any, None]]
) -> None:
    stop = Stop(control_pipe=settings.control_pipe)
    gc.collect()
    gc.freeze()  # modules stay for good: a collection need not look at them again
    gc.set_threshold(GARBAGE_OBJECTS)
    await main(settings, stop)


def _give_up(program: str, sentence: str) -> NoReturn:
    sys.stderr.write(f"{program}: {sentence}\n")
    sys.exit(EXIT_CANNOT_START)


def _watch_pipe(loop: asyncio.AbstractEventLoop, event: asyncio.Event, take: Callable[[bytes], None]) -> None:
    """In a thread, so that it works with any kind of stdin and even if the loop is stuck."""
    stdin = sys.stdin.fileno()
    begun = b""
    while data := os.read(stdin, 4096):
        *lines, begun = (begun + data).split(b"\n")
        for line in lines:
            loop.call_soon_threadsafe(take, line)
    log.info("the control pipe ended")
    loop.call_soon_threadsafe(event.set)
    time.sleep(STUCK_SECONDS)
    os._exit(EXIT_STUCK)
