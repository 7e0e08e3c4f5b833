"""Apache Kafka as a single KRaft node on loopback, with the JVM flags of its own start script, ended with its owner."""

import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

from rafka_lab.folder import free_port
from rafka_lab.peers.artifacts import KAFKA_VERSION, PeerUnavailableError, java_program, kafka_jars

# What kafka-server-start.sh and kafka-run-class.sh set.
JVM_FLAGS = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
# Kafka's own server.properties says INFO; WARN costs it less and keeps its log readable.
_LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.005
_LOG_LINES = 20
# The shell says Java's pid and waits for the end of its stdin, which comes with ours; then Java goes too.
_GUARD = '"$@" >>"$KAFKA_LOG" 2>&1 & java=$!; echo $java; read _; kill -9 $java 2>/dev/null'


class ApacheKafka:
    """A Kafka to compare with. `settings` are added to its server.properties; a data folder that is given is kept.

    Its default is to leave syncing to the system, as our acks=1 does. A topic with `flush.messages=1`
    (`log.flush.interval.messages=1` for all topics) is synced before each ack, as our acks=all is.
    """

    name = "kafka"
    version = f"Apache Kafka {KAFKA_VERSION}"

    def __init__(self, data: Path | str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._given = None if data is None else Path(data).absolute()
        self._settings = dict(settings or {})
        self._folder: Path | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._port = free_port()
        self._controller_port = free_port()
        self.pids: dict[str, int] = {}

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> "ApacheKafka":
        return self.start()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self) -> None:
        """Downloads the jars and formats the storage, where that was not done: neither belongs to a start."""
        if self._folder is None:
            self._folder = self._given or Path(tempfile.mkdtemp(prefix="rafka-lab-kafka-"))
            self._folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._server_properties().items()))
        if not (self._folder / "data" / "meta.properties").exists():
            self._format()

    def start(self) -> "ApacheKafka":
        """Starts the node, with the data and port that it had, and returns when it takes connections."""
        if not self.pids:
            self.prepare()
            self.launch()
            self._wait_listening()
        return self

    def launch(self) -> None:
        """Starts the process and returns at once."""
        command = [str(java_program()), *JVM_FLAGS, _LOGGING, "-cp", f"{kafka_jars()}/*", "kafka.Kafka"]
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "kafka", *command, str(self._properties)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"KAFKA_LOG": str(self._log)},
            process_group=0,  # an interrupt of the notebook is not meant for it
            text=True,
        )
        assert guard.stdout is not None
        self._guard = guard
        self.pids = {"kafka": int(guard.stdout.readline())}

    def stop(self) -> None:
        """SIGTERM, and the data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Ends the node; a temporary data folder goes with it."""
        self._end(signal.SIGKILL if self._given is None else signal.SIGTERM)
        if self._given is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def _properties(self) -> Path:
        assert self._folder is not None
        return self._folder / "server.properties"

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return self._folder / "kafka.log"

    def _server_properties(self) -> dict[str, str]:
        """Kafka's own config/server.properties for one node, on loopback, and without what needs three of them."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{self._folder}/data",
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.segment.delete.delay.ms": "1000",  # a benchmark deletes its topics, and the disk is finite
            **self._settings,
        }

    def _format(self) -> None:
        command = [str(java_program()), "-Xmx256M", _LOGGING, "-cp", f"{kafka_jars()}/*", "kafka.tools.StorageTool"]
        command += ["format", "-t", _cluster_id(), "-c", str(self._properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
        if done.returncode:
            raise PeerUnavailableError(f"Kafka's storage cannot be formatted: {(done.stderr or done.stdout)[-1000:]}")

    def _wait_listening(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not accepts(self.bootstrap):
            if not psutil.pid_exists(self.pids["kafka"]) or time.monotonic() > deadline or self._ended():
                said = "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
                self._end(signal.SIGKILL)
                raise PeerUnavailableError(f"Apache Kafka did not start; its last lines:\n{said}")
            time.sleep(_LOOK_SECONDS)

    def _ended(self) -> bool:
        """Java that ended is a zombie of the shell, which still waits for us."""
        try:
            return bool(psutil.Process(self.pids["kafka"]).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def _end(self, number: signal.Signals) -> None:
        if self._guard is None or not self.pids:
            return
        if not self._ended():
            os.kill(self.pids["kafka"], number)
        deadline = time.monotonic() + _STOP_SECONDS
        while not self._ended() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        self._guard.stdin.close()  # the shell ends what is left of it
        self._guard.wait(_STOP_SECONDS)
        self._guard.stdout.close()
        self.pids = {}


def _cluster_id() -> str:
    """A UUID as Kafka writes it. One that begins with a dash would be taken for a flag."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def accepts(bootstrap: str) -> bool:
    """Whether something listens there."""
    host, port = split_address(bootstrap)
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def split_address(bootstrap: str) -> tuple[str, int]:
    """host and port of `host:port` or `[host]:port`."""
    found = re.fullmatch(r"\[?([^\[\]]+)\]?:(\d{1,5})", bootstrap)
    if found is None:
        raise PeerUnavailableError(f"{bootstrap!r} is no HOST:PORT")
    return found[1], int(found[2])
