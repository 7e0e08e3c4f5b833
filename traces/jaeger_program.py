"""A real Jaeger, where the user has one: by `JAEGER_URL`, or as a program on PATH that is started like any other node.

Both kinds of the program are known: `jaeger` (version 2, a configuration file) and `jaeger-all-in-one` (version 1,
flags). Spans are kept in memory. Everything listens on loopback, on free ports.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from traces.errors import ConfigurationError, JaegerError

URL_VARIABLE = "JAEGER_URL"
# Where its OTLP/HTTP receiver is, if not beside the query API on OTLP's own port.
OTLP_VARIABLE = "JAEGER_OTLP_URL"
PROGRAMS = ("jaeger", "jaeger-all-in-one")
_OTLP_PORT = 4318
# It needs about a second; a busy machine several.
_READY_SECONDS = 30.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05
_LOG_TAIL = 2000
_MEMORY_TRACES = 100_000
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class JaegerPlace:
    """Where a Jaeger is: its query API and UI, and where spans are sent."""

    url: str
    otlp: str


def find_url(environ: Mapping[str, str] | None = None) -> JaegerPlace | None:
    """The running Jaeger that the environment names, or None."""
    env = os.environ if environ is None else environ
    url = env.get(URL_VARIABLE, "").strip().rstrip("/")
    if not url:
        return None
    host = url.partition("://")[2].partition("/")[0]
    if not url.startswith(("http://", "https://")) or not host:
        raise ConfigurationError(f"{URL_VARIABLE} is {url!r}; it should look like http://127.0.0.1:16686")
    otlp = env.get(OTLP_VARIABLE, "").strip().rstrip("/")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return JaegerPlace(url, otlp or f"http://{name}:{_OTLP_PORT}")


def find_program() -> Path | None:
    """The first of `PROGRAMS` on PATH."""
    for name in PROGRAMS:
        if path := shutil.which(name):
            return Path(path)
    return None


class JaegerProgram:
    """A Jaeger that this process started. Its log and configuration are in `folder`; port 0 is a free one.

    With `bound` it goes with this process even if that is killed; only for a process without threads.
    """

    def __init__(
        self, program: Path, folder: Path, query_port: int = 0, otlp_port: int = 0, *, bound: bool = False
    ) -> None:
        self._program = program
        self._log = folder / "jaeger.log"
        query, query_grpc, http, grpc, *others = _free_ports(7)
        query, http = query_port or query, otlp_port or http
        self.place = JaegerPlace(f"http://127.0.0.1:{query}", f"http://127.0.0.1:{http}")
        ports = _Ports(query, query_grpc, http, grpc, tuple(others))
        command = [str(program), *(_flags(ports) if "all-in-one" in program.name else _file(ports, folder))]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent if bound else None,  # noqa: PLW1509 - the caller has no threads
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        """Its exit code, once it has one."""
        return self._process.poll()

    def wait_ready(self, timeout: float = _READY_SECONDS) -> JaegerPlace:
        """Returns when it answers. Raises JaegerError with the last lines of its log if it ends or stays silent."""
        deadline = time.monotonic() + timeout
        while self._process.poll() is None and time.monotonic() < deadline:
            if _answers(f"{self.place.url}/api/services") and _listens(self.place.otlp):
                return self.place
            time.sleep(_POLL_SECONDS)
        ended = self._process.poll()
        state = f"is not ready after {timeout:g} s" if ended is None else f"ended with {ended}"
        self.stop()
        tail = self._log.read_text(errors="replace")[-_LOG_TAIL:]
        raise JaegerError(f"{self._program} {state}; the end of {self._log}:\n{tail}")

    def stop(self) -> None:
        """Ends it; kills it if it does not end."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class _Ports:
    query: int
    query_grpc: int
    http: int
    grpc: int
    others: tuple[int, ...]


def _file(ports: _Ports, folder: Path) -> list[str]:
    """Version 2: a configuration, written as JSON, which is YAML."""
    receivers = {"http": {"endpoint": f"127.0.0.1:{ports.http}"}, "grpc": {"endpoint": f"127.0.0.1:{ports.grpc}"}}
    configuration = {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
            "telemetry": {"metrics": {"level": "none"}},
        },
        "extensions": {
            "jaeger_query": {
                "storage": {"traces": "memory"},
                "http": {"endpoint": f"127.0.0.1:{ports.query}"},
                "grpc": {"endpoint": f"127.0.0.1:{ports.query_grpc}"},
            },
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": _MEMORY_TRACES}}}},
        },
        "receivers": {"otlp": {"protocols": receivers}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
    }
    path = folder / "jaeger.json"
    path.write_text(json.dumps(configuration, indent=1))
    return ["--config", str(path)]


def _flags(ports: _Ports) -> list[str]:
    """Version 1."""
    listening = {
        "query.http-server.host-port": ports.query,
        "query.grpc-server.host-port": ports.query_grpc,
        "collector.otlp.http.host-port": ports.http,
        "collector.otlp.grpc.host-port": ports.grpc,
        "collector.http-server.host-port": ports.others[0],
        "collector.grpc-server.host-port": ports.others[1],
        "admin.http.host-port": ports.others[2],
    }
    return [f"--{name}=127.0.0.1:{port}" for name, port in listening.items()] + [
        f"--memory.max-traces={_MEMORY_TRACES}"
    ]


def _end_with_parent() -> None:
    """In the child, before it becomes Jaeger, which has no control pipe: where the system is Linux, it then goes with
    a parent that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: Jaeger cannot say which ones it chose itself."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (OSError, urllib.error.URLError):
        return False


def _listens(url: str) -> bool:
    host, _, port = url.rpartition("/")[2].partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False
