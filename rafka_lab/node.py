"""One node of a lab: a subprocess with a control pipe, its log file, and what a person does to it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO

from rafka_lab.errors import NodeStartError, NodeStateError

# A start takes well under a second; a machine that is busy with many tests may need far longer.
START_SECONDS = 30.0
# A node's own clean stop takes at most about 5 s (calls at work, then the log's checkpoint).
STOP_SECONDS = 10.0
# Shown when a node crashes or does not start: enough for a traceback.
CRASH_LINES = 30
_SOURCES = Path(__file__).resolve().parents[1]


class State(StrEnum):
    """What a node is doing."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    KILLED = "killed"
    CRASHED = "crashed"


_ALIVE = frozenset({State.STARTING, State.RUNNING, State.PAUSED})


class Node:
    """One process of the lab. `arguments` is asked anew at each start, `on_crash` is called from a thread."""

    def __init__(
        self,
        name: str,
        role: str,
        *,
        module: str,
        arguments: Callable[[], list[str]],
        log: Path,
        environment: Mapping[str, str],
        on_crash: Callable[["Node"], None],
        on_started: Callable[["Node"], None],
    ) -> None:
        self.name = name
        self.role = role
        self.log = log
        self.state = State.NEW
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.ready: dict[str, object] = {}
        self._module = module
        self._arguments = arguments
        self._environment = dict(environment)
        self._on_crash = on_crash
        self._on_started = on_started
        self._process: subprocess.Popen[bytes] | None = None
        self._changed = threading.Condition()
        self._log_start = 0

    def __repr__(self) -> str:
        process = f" pid {self.pid}" if self.is_alive else ""
        return f"<{self.name}: {self.state}{process}>"

    @property
    def is_alive(self) -> bool:
        return self.state in _ALIVE

    @property
    def node_id(self) -> str:
        """The node's name on the mesh; the same after a restart."""
        return str(self.ready.get("node_id", ""))

    @property
    def mesh(self) -> list[str]:
        """Where the node listens for other nodes."""
        found = self.ready.get("mesh", [])
        return [str(address) for address in found] if isinstance(found, list) else []

    # What a person does

    def start(self) -> "Node":
        """Starts the node, with the identity, ports and data it had, and returns when it serves."""
        if not self.is_alive:
            self.launch()
            self.wait_ready()
            self._on_started(self)
        return self

    def stop(self, timeout: float = STOP_SECONDS) -> "Node":
        """Asks the node to end in good order; ends it by force if it does not in time."""
        if self.is_alive:
            self.ask_to_stop()
            if not self._wait_end(timeout):
                self.kill()
        return self

    def kill(self) -> "Node":
        """kill -9: the node gets no chance to do anything."""
        if self.is_alive:
            self._signal(signal.SIGKILL, State.KILLED)
            self._wait_end(STOP_SECONDS)
        return self

    def pause(self) -> "Node":
        """Freezes the process, as a machine that hangs."""
        if self.state is not State.PAUSED:
            self._require(State.RUNNING, "pause")
            self._signal(signal.SIGSTOP, State.PAUSED)
            self._wait_frozen()
        return self

    def resume(self) -> "Node":
        """Lets a paused process go on."""
        if self.state is not State.RUNNING:
            self._require(State.PAUSED, "resume")
            self._signal(signal.SIGCONT, State.RUNNING)
        return self

    def logs(self, lines: int = 50) -> str:
        """The last lines of the node's log."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def describe(self) -> dict[str, object]:
        """Name, role, pid, NodeId and addresses, as `rafka-lab up --json` shows them."""
        return {"name": self.name, "role": self.role, "pid": self.pid, "node_id": self.node_id, "mesh": self.mesh}

    # What a lab does

    def launch(self) -> None:
        """Starts the process and returns at once; `wait_ready` follows."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, "--control-pipe", *self._arguments()],
                stdin=subprocess.PIPE,  # its end, which comes with ours, ends the node
                stdout=subprocess.PIPE,
                stderr=log,
                env=process_environment(self._environment),
                process_group=0,  # an interrupt of the notebook is not meant for the node
            )
        with self._changed:
            self._process = process
            self.pid = process.pid
            self.exit_code = None
            self.ready = {}
            self.state = State.STARTING
        threading.Thread(target=self._watch, args=(process,), name=f"watch-{self.name}", daemon=True).start()

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Returns when the node serves; raises with its own words if it does not."""
        with self._changed:
            self._changed.wait_for(lambda: self.state is not State.STARTING, timeout)
            state = self.state
        if state is State.STARTING:
            self.kill()
            raise NodeStartError(
                f"{self.name} was not ready within {timeout:.0f} s; its log is {self.log}",
                node=self.name,
                log=self._new_lines(),
            )
        if state not in (State.RUNNING, State.PAUSED):
            raise NodeStartError(self._why(), node=self.name, log=self._new_lines())

    def tell(self, order: Mapping[str, object]) -> None:
        """Hands an order to the process by its control pipe; one that does not run gets none."""
        process = self._process
        if self.is_alive and process is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):  # it has just ended; `state` will say so
                os.write(process.stdin.fileno(), json.dumps(order).encode() + b"\n")

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting."""
        paused = self.state is State.PAUSED
        self._signal(signal.SIGTERM, State.STOPPED)
        if paused:
            self._signal(signal.SIGCONT, State.STOPPED)

    def close(self, timeout: float = STOP_SECONDS) -> None:
        """Waits for the end after `ask_to_stop`, and forces it if need be."""
        if not self._wait_end(timeout):
            self._signal(signal.SIGKILL, State.KILLED)
            self._wait_end(timeout)

    def _signal(self, number: signal.Signals, state: State) -> None:
        with self._changed:
            process = self._process
            if process is None or process.returncode is not None:
                return
            self.state = state
            process.send_signal(number)

    def _wait_frozen(self) -> None:
        """The signal takes a moment; a person who looks next must find the process frozen."""
        assert self.pid is not None
        with contextlib.suppress(ChildProcessError):  # it ended instead
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _wait_end(self, timeout: float) -> bool:
        process = self._process
        if process is None:
            return True
        deadline = time.monotonic() + timeout
        with self._changed:
            return self._changed.wait_for(lambda: self.exit_code is not None, max(0.0, deadline - time.monotonic()))

    def _require(self, state: State, what: str) -> None:
        if self.state is not state:
            raise NodeStateError(f"{self.name} is {self.state}: only a node that is {state} can {what}")

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """In a thread, from the start of a process to its end."""
        assert process.stdout is not None
        assert process.stdin is not None
        self._read_ready(process.stdout)
        code = process.wait()
        process.stdout.close()
        process.stdin.close()
        with self._changed:
            crashed = self.state in (State.RUNNING, State.PAUSED)
            if self.is_alive:
                self.state = State.CRASHED
            self.exit_code = code
            self._changed.notify_all()
        if crashed:
            self._on_crash(self)

    def _read_ready(self, stdout: IO[bytes]) -> None:
        line = stdout.readline()
        if not line.endswith(b"\n"):
            return  # the process ended before it was ready
        with self._changed:
            self.ready = json.loads(line)
            if self.state is State.STARTING:
                self.state = State.RUNNING
            self._changed.notify_all()

    def _new_lines(self) -> str:
        """What the process wrote since its start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace").strip()

    def _why(self) -> str:
        """The sentence with which a program says why it cannot start, or its last line."""
        lines = self._new_lines().splitlines()
        last = lines[-1] if lines else f"it ended with code {self.exit_code} and said nothing"
        _, separator, sentence = last.partition(f"{self._module}: ")
        return f"{self.name} did not start: {sentence if separator else last}"


def process_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a process that runs one of our modules: it finds them wherever it is started."""
    paths = [str(_SOURCES), os.environ.get("PYTHONPATH", "")]
    return os.environ | (more or {}) | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def crash_report(node: Node) -> str:
    """What a person should see at once."""
    lines = "\n".join(f"    {line}" for line in node.logs(CRASH_LINES).splitlines())
    return (
        f"{node.name} (pid {node.pid}) has ended by itself with code {node.exit_code}. Its last log lines:\n{lines}\n"
    )
